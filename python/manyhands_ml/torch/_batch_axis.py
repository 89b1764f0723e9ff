"""Calls on tensors whose batch is not PyTorch's first axis, as modules with `batch_first=False` take them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree

from ._graph import Tensor
from ._layers import Call, Handler, Refused

#: Modules and functions that do the same whatever axis the batch is, if it is not the last.
_ANYWHERE: frozenset[Any] = frozenset(
    {
        *(nn.Dropout, nn.Embedding, nn.GELU, nn.Identity, nn.LayerNorm, nn.LeakyReLU, nn.Linear, nn.ReLU, nn.SiLU, nn.Sigmoid, nn.Tanh),
        *("add", "dropout", "gelu", "iadd", "mul", "imul", "relu", "silu", "sub", "isub", "truediv", "div"),
    }
)
#: Functions that say where it goes, or take it along.
_MOVES = frozenset({"permute", "select", "swapaxes", "transpose", "unbind"})


def called(handler: Handler, call: Call, kind: Any) -> Any:
    """What a module of a class, or a function of a name, is in the engine.

    Raises:
        Refused: If it needs the batch as another axis than that of its arguments, or if one still lacks its logarithm.
    """
    tensors = [part for part in _pytree.tree_leaves((call.args, call.kwargs)) if isinstance(part, Tensor)]
    if any(tensor.log_axis is not None for tensor in tensors):
        raise Refused("reads what `LogSoftmax` gives, which needs to be what the module returns")
    first = _batch_first(call.module)
    found = {tensor.batch for tensor in tensors if first is None or not tensor.is_bool}
    if first is not None and found != {0 if first else 1}:
        raise Refused(f"`batch_first={first}` needs the batch as its {'first' if first else 'second'} axis, of which rows are split")
    takes_part = kind == "getitem" and (isinstance(call.args[0], list) or isinstance(call.args[1], int))
    if found <= {0} or kind in _MOVES or takes_part:
        return handler(call)
    if first is None and (kind not in _ANYWHERE or len(found) > 1):
        raise Refused("needs the batch as its first axis: `transpose` it back before")
    [axis] = found
    args, kwargs = _each_tensor((call.args, call.kwargs), 0)
    value = _pytree.tree_map(lambda part: part.movedim(axis, 0) if isinstance(part, torch.Tensor) else part, call.value)
    return _each_tensor(handler(replace(call, args=args, kwargs=kwargs, value=value)), axis)


def _batch_first(module: Any) -> bool | None:
    """The setting of attention and of layers that contain it; `None` for all others."""
    if isinstance(module, nn.TransformerEncoder):
        module = module.layers[0]
    module = module.self_attn if isinstance(module, nn.TransformerEncoderLayer) else module
    return bool(module.batch_first) if isinstance(module, nn.MultiheadAttention) else None


def _each_tensor(value: Any, batch: int) -> Any:
    """Tensors in a structure, with the batch as this axis."""
    return _pytree.tree_map(lambda part: replace(part, batch=batch) if isinstance(part, Tensor) else part, value)
