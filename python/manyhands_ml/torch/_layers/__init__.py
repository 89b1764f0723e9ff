"""Modules and functions of PyTorch in the engine, by kind."""

from __future__ import annotations

from . import activations, padding, pooling, recurrent, reductions, shapes, weighted
from .arithmetic import inverted
from .call import MODULES, Call, Handler, Refused, argument, check_settings, made
from .functions import ARGUMENTS, AS_MODULES, FUNCTIONS, function
from .recurrent import OF_INPUTS, Sequences, settled
from .shapes import cropped

__all__ = [
    "ARGUMENTS", "AS_MODULES", "FUNCTIONS", "MODULES", "OF_INPUTS", "Call", "Handler", "Refused", "Sequences", "activations", "argument",
    "check_settings", "cropped", "function", "inverted", "made", "padding", "pooling", "recurrent", "reductions", "settled", "shapes", "weighted",
]
