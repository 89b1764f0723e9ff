"""What programs have in place of a tensor: weights, arrays, and vectors of places that are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras.src.backend import KerasTensor

from ._nodes import Unsupported


@dataclass
class Held:
    """A variable of the user's own, or a constant, as the weight of a layer of the engine."""

    variable: Any


@dataclass
class Reshaped:
    """A variable or an array, seen in another shape."""

    values: Any
    shape: tuple[int, ...]


def plain(values: Any) -> Any:
    """The variable or the array itself."""
    return values.values if isinstance(values, Reshaped) else values


class Looked:
    """What an `Embedding` gives of places that are known, such as `ops.arange(length)`: the same for each row."""

    def __init__(self, layer: Any, places: Any) -> None:
        if layer.mask_zero or getattr(layer, "lora_enabled", False) or getattr(layer, "quantization_mode", None):
            raise Unsupported("looks places up by an `Embedding` with a mask, with low-rank factors or in few bits")
        self.layer, self.places = layer, np.asarray(places)
        self.shape, self.dtype = (*self.places.shape, layer.output_dim), "float32"

    def __repr__(self) -> str:
        return f"<vectors of an `Embedding` of shape {self.shape}: add them by `+`>"

    def _with(self, operation: Any, other: Any) -> Any:
        if not isinstance(other, KerasTensor):
            raise Unsupported("computes with a weight alone; begin with a tensor, such as `x + positions`")
        return operation(self, other)

    def __add__(self, other: Any) -> Any:
        return self._with(keras.ops.add, other)

    def __sub__(self, other: Any) -> Any:
        return self._with(keras.ops.subtract, other)

    def __mul__(self, other: Any) -> Any:
        return self._with(keras.ops.multiply, other)
