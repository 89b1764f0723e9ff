"""Rows and their steps as one axis, as `view(batch * time, features)` makes them: the engine's rows still hold all their steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree

from ._graph import Tensor
from ._held import with_tensors
from ._layers import Call, Handler, Refused

#: Modules and functions that do the same with each step, by whatever is behind the first axis.
_OF_EACH: frozenset[Any] = frozenset(
    {
        *(nn.Dropout, nn.ELU, nn.Embedding, nn.GELU, nn.Hardswish, nn.Identity, nn.LayerNorm, nn.LeakyReLU, nn.Linear, nn.Mish, nn.ReLU),
        *(nn.RMSNorm, nn.ReLU6, nn.SELU, nn.SiLU, nn.Sigmoid, nn.Softplus, nn.Tanh),
        *("add", "addmm", "clone", "contiguous", "div", "dropout", "elu", "embedding", "gelu", "hardswish", "iadd", "imul", "layer_norm"),
        *("leaky_relu", "linear", "matmul", "mish", "mul", "pow", "relu", "relu_", "rms_norm", "selu", "sigmoid", "silu", "softplus", "sub"),
        *("tanh", "truediv"),
    }
)
_VIEWS = frozenset({nn.Flatten, nn.Unflatten, "flatten", "reshape", "unflatten", "view"})


@dataclass(frozen=True)
class Merged:
    """Steps of all rows, one after the other."""

    #: Rows of shape (time, ...), of which PyTorch has batch and time as its first axis.
    rows: Tensor

    def __post_init__(self) -> None:
        assert self.rows.is_plain and not self.rows.batch


def of_merged(call: Call, kind: Any, handler: Handler | None) -> Handler | None:
    """The handler of a module of a class, or of a function of a name, where it merges batch and time, or reads them merged."""
    parts = [part for part in _pytree.tree_leaves((call.args, call.kwargs)) if isinstance(part, (Merged, Tensor))]
    merged = [part for part in parts if isinstance(part, Merged)]
    if merged and kind in _VIEWS:
        return _viewed
    if not merged:
        return _merging if kind in _VIEWS and len(parts) == 1 and _steps(call, parts[0]) > 1 else handler
    steps = {part.rows.shape[0] for part in merged}
    if len(merged) < len(parts) or len(steps) > 1 or handler is None or kind not in _OF_EACH | {nn.BatchNorm1d}:
        return _refused
    return lambda call: _of_each(call, kind, handler, *steps)


def _refused(_: Call) -> Any:
    raise Refused("reads batch and time as one axis, along which rows are split: `view` them apart before")


def _steps(call: Call, x: Any) -> int:
    """Steps that a view merges with the batch; 1 if it keeps the first axis."""
    size, row = call.value.numel(), math.prod(x.shape)
    behind = math.prod(call.value.shape[1:])
    ends = {math.prod(x.shape[:count]) for count in range(1, len(x.shape) + 1)}
    return row // behind if row and behind and size and row % behind == 0 and row // behind in ends else 1


def _merging(call: Call) -> Merged:
    steps, x = _steps(call, call.x), call.graph.plain(call.x)
    return Merged(_shaped(call, x, (steps, *call.shape)))


def _shaped(call: Call, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    if shape == x.shape:
        return x
    name = call.graph.add(call.name, {"type": "Reshape", "target_shape": list(shape) or [1]}, [x])
    return Tensor(name, shape, tuple(range(len(shape))), is_positive=x.is_positive)


def _viewed(call: Call) -> Any:
    """Batch and time apart again, or other axes behind them."""
    x = call.args[0].rows
    if math.prod(call.shape) == math.prod(x.shape):
        return _shaped(call, x, call.shape)
    if math.prod(call.shape) == math.prod(x.shape[1:]):
        return Merged(_shaped(call, x, (x.shape[0], *call.shape)))
    return _refused(call)


def _of_each(call: Call, kind: Any, handler: Handler, steps: int) -> Any:
    is_norm = kind is nn.BatchNorm1d
    value = call.value.unflatten(0, (-1, steps))

    def whole(part: Any) -> Any:
        if not isinstance(part, Merged):
            return part
        # Channels before steps, as the module has them of sequences.
        return replace(part.rows, shape=part.rows.shape[::-1], order=(1, 0)) if is_norm else part.rows

    if is_norm and value.dim() != 3:
        return _refused(call)
    args, kwargs = _pytree.tree_map(whole, (call.args, call.kwargs))
    call = replace(call, args=args, kwargs=kwargs, value=value.transpose(1, 2) if is_norm else value)
    made = handler(with_tensors(call, str(kind)) if isinstance(kind, str) else call)
    if not isinstance(made, Tensor):
        return _refused(call)
    if is_norm:
        made = replace(made, shape=made.shape[::-1], order=tuple(1 - axis for axis in made.order))
    return Merged(call.graph.plain(made))
