"""Rows and their steps as one axis, as `view(batch * time, features)` makes them: the engine's rows still hold all their steps."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from torch import nn
from torch.utils import _pytree

from ._graph import Merged, Tensor
from ._held import with_tensors
from ._layers import Call, Handler, Refused, argument
from ._layers.shapes import new_order, permuted, slice_axis, sliced, split_axis, taken

#: Modules and functions that do the same with each step, by whatever is behind the first axis.
_OF_EACH: frozenset[Any] = frozenset(
    {
        *(nn.Dropout, nn.ELU, nn.Embedding, nn.GELU, nn.Hardswish, nn.Identity, nn.LayerNorm, nn.LeakyReLU, nn.Linear, nn.Mish, nn.ReLU),
        *(nn.RMSNorm, nn.ReLU6, nn.SELU, nn.SiLU, nn.Sigmoid, nn.Softplus, nn.Tanh),
        *("add", "addmm", "clone", "contiguous", "div", "dropout", "elu", "embedding", "gelu", "hardswish", "iadd", "imul", "layer_norm"),
        *("leaky_relu", "linear", "matmul", "mish", "mul", "pow", "relu", "rms_norm", "selu", "sigmoid", "silu", "softplus", "sub"),
        *("tanh", "truediv"),
    }
)
_VIEWS = frozenset({nn.Flatten, nn.Unflatten, "flatten", "reshape", "unflatten", "view"})
_MOVES = frozenset("mT permute swapaxes transpose".split())
#: Functions that move axes, or take parts of them.
_OF_AXES = _MOVES | frozenset("chunk getitem select slice split split_with_sizes unbind".split())
_PRODUCTS = frozenset({"bmm", "matmul", "scaled_dot_product_attention"})


def of_merged(call: Call, kind: Any, handler: Handler | None) -> Handler | None:
    """The handler of a module of a class, or of a function of a name, where it merges batch and time, or reads them merged."""
    parts = [part for part in _pytree.tree_leaves((call.args, call.kwargs)) if isinstance(part, (Merged, Tensor))]
    merged = [part for part in parts if isinstance(part, Merged)]
    if not merged:
        return _merging if kind in _VIEWS and len(parts) == 1 and _steps(call, parts[0]) > 1 else handler
    if _takes_one(call, kind):
        return handler
    if kind in _OF_AXES and len(parts) == 1:
        return lambda call: _of_axes(call, kind, merged[0])
    steps = {part.steps for part in merged}
    if len(merged) < len(parts) or len(steps) > 1 or any(part.rows.batch for part in merged):
        return _refused
    if kind in _VIEWS:
        return _viewed
    if kind in _PRODUCTS and len(merged) > 1:
        # Attention within windows, which `_by_hand` reads.
        return handler
    if handler is None or kind not in _OF_EACH | {nn.BatchNorm1d}:
        return _refused
    return lambda call: _of_each(call, kind, handler, *steps)


def _takes_one(call: Call, kind: Any) -> bool:
    """Does it take one of several tensors?"""
    return kind == "getitem" and isinstance(call.args[0], list)


def _refused(_: Call) -> Any:
    raise Refused("reads batch and time as one axis, along which rows are split: `view` them apart before")


def _steps(call: Call, x: Any) -> int:
    """Steps that a view merges with the batch; 1 if it keeps the first axis."""
    size, row = call.value.numel(), math.prod(x.shape)
    behind = math.prod(call.value.shape[1:])
    ends = {math.prod(x.shape[:count]) for count in range(1, len(x.shape) + 1)}
    return row // behind if row and behind and size and row % behind == 0 and row // behind in ends else 1


def _merging(call: Call) -> Merged:
    return Merged(call.graph.shaped(call.name, call.graph.plain(call.x), (_steps(call, call.x), *call.shape)))


def _viewed(call: Call) -> Any:
    """Batch and time apart again, or other axes behind them."""
    x = call.args[0].rows
    if math.prod(call.shape) == math.prod(x.shape):
        return call.graph.shaped(call.name, x, call.shape)
    if math.prod(call.shape) == math.prod(x.shape[1:]):
        return Merged(call.graph.shaped(call.name, x, (x.shape[0], *call.shape)))
    return _refused(call)


def _of_axes(call: Call, kind: Any, merged: Merged) -> Any:
    """Axes moved, or parts of them: of the rows, whose steps go where the batch goes."""
    rows, rank, batch = merged.rows, len(merged.rows.shape), merged.rows.batch

    def apart(dim: int) -> int:
        return dim % rank + (dim % rank > batch)

    if kind in _MOVES:
        order = [(dim, dim + 1) if dim == batch else (apart(dim),) for dim in new_order(call, kind, rank)]
        return Merged(permuted(call, rows, [place for places in order for place in places]))
    index = argument(call, 1, "index", None)
    if kind == "getitem" and not isinstance(index, int):
        parts = index if isinstance(index, tuple) else (index,)
        parts = parts if parts[0] is Ellipsis else (parts[0], slice(None), *parts[1:])
        return _refused(call) if batch else Merged(sliced(_of_rows(call, merged), rows, parts))
    dim = 0 if kind == "getitem" else int(argument(call, 1 if kind in ("select", "slice", "unbind") else 2, "dim", 0))
    if dim % rank == batch:
        is_whole = kind == "slice" and slice(*call.args[2:]).indices(len(call.value)) == (0, len(call.value), 1)
        return merged if is_whole else _refused(call)
    if kind == "unbind":
        return [Merged(taken(call, rows, apart(dim), place)) for place in range(len(call.value))]
    if kind in ("getitem", "select"):
        return Merged(taken(call, rows, apart(dim), int(index if kind == "getitem" else argument(call, 2, "index", 0))))
    if batch:
        return _refused(call)
    call = replace(_of_rows(call, merged), args=(rows, *call.args[1:]))
    if kind == "slice":
        return Merged(slice_axis(replace(call, args=(rows, apart(dim), *call.args[2:]))))
    return [Merged(part) for part in split_axis(replace(call, args=(rows, None, apart(dim)), kwargs={}))]


def _of_rows(call: Call, merged: Merged) -> Call:
    """A call with what PyTorch has computed as rows with their steps."""
    return replace(call, value=_pytree.tree_map(lambda part: part.unflatten(0, (-1, merged.steps)), call.value))


def _of_each(call: Call, kind: Any, handler: Handler, steps: int) -> Any:
    is_norm = kind is nn.BatchNorm1d
    value = call.value.unflatten(0, (-1, steps))

    def whole(part: Any) -> Any:
        if not isinstance(part, Merged):
            return part
        if not is_norm:
            return part.rows
        rows = call.graph.plain(part.rows)
        # Channels before steps, as the module has them of sequences.
        return replace(rows, shape=rows.shape[::-1], order=(1, 0))

    if is_norm and value.dim() != 3:
        return _refused(call)
    args, kwargs = _pytree.tree_map(whole, (call.args, call.kwargs))
    call = replace(call, args=args, kwargs=kwargs, value=value.transpose(1, 2) if is_norm else value)
    made = handler(with_tensors(call, str(kind)) if isinstance(kind, str) else call)
    if not isinstance(made, Tensor):
        return _refused(call)
    if is_norm:
        made = replace(made, shape=made.shape[::-1], order=tuple(1 - axis for axis in made.order))
    return Merged(made)
