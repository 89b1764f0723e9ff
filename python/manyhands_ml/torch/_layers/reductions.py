"""Sums, means and the largest numbers over axes, and axes that are made longer: copies, tensors side by side."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from .._graph import PICTURE, Settings, Tensor
from .arithmetic import above, concatenated, divided, equal_to, function_of, of_two, square
from .call import MODULES, Call, Handler, Refused, argument
from .shapes import reshaped


def _pooled(call: Call, kind: str, x: Tensor, axes: list[int], keeps: bool) -> Tensor:
    """A mean or the largest number over some axes of a row. Of `Max`, the first of equal ones learns; of `GlobalMax`, all do alike."""
    x = call.graph.plain(x) if x.flat is not None else x
    rest = [axis for axis in x.order if axis not in axes]
    x = call.graph.ordered(x, (*axes, *rest))
    left = [x.shape[axis] for axis in rest]
    sizes = [math.prod(x.shape[axis] for axis in axes), math.prod(left)]
    flat = call.graph.add(f"{call.name}.flat", {"type": "Reshape", "target_shape": sizes}, [x])
    settings: Settings = {"type": f"{kind}Pooling1D"}
    if kind == "Max":
        settings |= {"pool_size": sizes[0], "strides": sizes[0]}
    name = call.graph.add(call.name, settings, [replace(x, name=flat)])
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    order = x.order
    if not keeps:
        shape, order = tuple(x.shape[axis] for axis in sorted(rest)), tuple(sorted(rest).index(axis) for axis in rest)
    here = [shape[axis] for axis in order] or [1]
    if len(here) > 1 or kind == "Max":
        name = call.graph.add(f"{call.name}.shaped", {"type": "Reshape", "target_shape": here}, [replace(x, name=name)])
    return Tensor(name, shape, order, is_positive=x.is_positive)


def _over(call: Call) -> tuple[list[int], bool]:
    """Axes of a row that go, and whether each stays as one of 1."""
    dims, keeps = argument(call, 1, "dim", None), bool(argument(call, 2, "keepdim", False))
    rank, dims = len(call.x.shape) + 1, dims if isinstance(dims, (tuple, list)) else [dims]
    axes = sorted(dim % rank - 1 for dim in dims if isinstance(dim, int))
    if not axes or axes[0] < 0 or len(axes) < len(dims):
        raise Refused("needs `dim`, and other axes than the first, along which batches are split")
    if argument(call, 3, "dtype", None) is not None:
        raise Refused("`dtype` is not supported")
    return axes, keeps


def mean_over(call: Call) -> Tensor:
    axes, keeps = _over(call)
    if len(call.x.shape) == 3 and axes == [1, 2]:
        x = call.picture()
        name = call.graph.add(call.name, {"type": "GlobalAveragePooling2D", "keepdims": keeps}, [x])
        return Tensor(name, call.shape, PICTURE if keeps else (0,), is_positive=x.is_positive)
    return _pooled(call, "GlobalAverage", call.x, axes, keeps)


def sum_over(call: Call) -> Tensor:
    axes, keeps = _over(call)
    mean = _pooled(replace(call, name=f"{call.name}.mean"), "GlobalAverage", call.x, axes, keeps)
    count = float(math.prod(call.x.shape[axis] for axis in axes))
    return call.graph.unary(call.name, {"type": "Rescaling", "scale": count, "offset": 0.0}, mean, mean.is_positive)


def norm(call: Call) -> Tensor:
    """The root of the sum of squares over axes. Where all are 0, the slope is 0, as in PyTorch."""
    order = argument(call, 1, "p", argument(call, 1, "ord", 2))
    if order not in (2, None, "fro"):
        raise Refused(f"needs the norm of squares, 2, but is {order}")
    dim, keeps, dtype = (argument(call, at, name, None) for at, name in enumerate(("dim", "keepdim", "dtype"), 2))
    if call.kwargs.get("out") is not None:
        raise Refused("`out` is not supported")
    if dim is None:
        raise Refused("needs `dim`: without it, it is one number for the whole batch")
    made = _norm(call, call.x, dim, dtype)
    return made if keeps else reshaped(replace(call, args=(made,), kwargs={}))


def norm_of_linalg(call: Call) -> Tensor:
    dim = argument(call, 2, "dim", None)
    if argument(call, 1, "ord", None) == 2 and isinstance(dim, (tuple, list)) and len(dim) > 1:
        raise Refused("needs one axis: over two of them 2 is the norm of a matrix")
    return norm(call)


def _norm(call: Call, x: Tensor, dim: Any, dtype: Any = None) -> Tensor:
    """A norm whose axes stay as some of 1."""
    graph, name = call.graph, call.name
    squares = square(replace(call, name=f"{name}.squares", args=(x,), kwargs={}))
    total = sum_over(replace(call, name=f"{name}.sum", args=(squares, dim, True, dtype), kwargs={}))
    # The slope of a root at 0 is none: there it is that of the root at 1.
    total = graph.plain(total)
    zero = equal_to(replace(call, name=f"{name}.zero", args=(total, 0.0), kwargs={}))
    away = replace(total, name=graph.add(f"{name}.away", {"type": "Add"}, [total, zero]))
    root = function_of("sqrt", is_positive=True)(replace(call, name=f"{name}.root", args=(away,), kwargs={}))
    return replace(total, name=graph.add(name, {"type": "Subtract"}, [root, zero]), is_positive=True)


def normalized(call: Call) -> Tensor:
    """Tensors of length 1 along an axis."""
    order, dim, eps = (argument(call, at, name, default) for at, (name, default) in enumerate((("p", 2.0), ("dim", 1), ("eps", 1e-12)), 1))
    if order != 2 or argument(call, 4, "out", None) is not None:
        raise Refused(f"needs the norm of squares, 2, and no `out`, but gets {order}")
    return _of_length_one(call, call.x, dim, eps)


def _of_length_one(call: Call, x: Tensor, dim: int, eps: float) -> Tensor:
    length = above(replace(call, name=f"{call.name}.length"), _norm(replace(call, name=f"{call.name}.norm"), x, dim), float(eps), slope_at=0)
    value = torch.empty((1, *x.shape), device="meta")
    return divided(replace(call, args=(x, length), kwargs={}, value=value))


def similarity(call: Call) -> Tensor:
    """The cosine of the angle between two tensors along an axis."""
    module = call.module if isinstance(call.module, nn.CosineSimilarity) else None
    dim = module.dim if module else argument(call, 2, "dim", 1)
    eps = module.eps if module else argument(call, 3, "eps", 1e-8)
    pair = [call.args[0], argument(call, 1, "x2", None)]
    if not all(isinstance(x, Tensor) for x in pair) or pair[0].shape != pair[1].shape:
        raise Refused("needs two tensors of the same shape that depend on an input")
    sides = [_of_length_one(replace(call, name=f"{call.name}.side"), x, dim, eps) for x in pair]
    value = torch.empty((1, *pair[0].shape), device="meta")
    product = of_two(replace(call, name=f"{call.name}.product", args=tuple(sides), kwargs={}, value=value), "Multiply")
    return sum_over(replace(call, args=(product, dim), kwargs={}))


def largest(call: Call) -> Tensor:
    return _pooled(call, "GlobalMax", call.x, *_over(call))


def largest_and_place(call: Call) -> Any:
    """The largest numbers along an axis, and not their places; or the larger one of two tensors' numbers."""
    if isinstance(argument(call, 1, "other", None), Tensor):
        return of_two(replace(call, args=(call.x, argument(call, 1, "other", None)), kwargs={}), "Maximum")
    return [_pooled(call, "Max", call.x, *_over(call)), None]


def values_of(call: Call) -> Any:
    """`max(dim=1).values`."""
    return call.args[0][0]


def _adaptive_max_pool(rank: int) -> Handler:
    def handler(call: Call) -> Any:
        wanted = call.module.output_size
        if {*(wanted if isinstance(wanted, (tuple, list)) else [wanted])} != {1} or len(call.x.shape) != rank + 1:
            raise Refused(f"`output_size` needs 1, but is {wanted}")
        made = _pooled(call, "Max", call.x, list(range(1, rank + 1)), True)
        # The operation below it gives places, too.
        return [made, None] if isinstance(call.value, tuple) else made

    return handler


def stacked(call: Call) -> Tensor:
    """Tensors one after the other along a new axis."""
    dim = int(argument(call, 1, "dim", 0)) % call.value.dim()
    if not dim:
        raise Refused("`dim` needs to be another than the first, along which batches are split")
    parts = []
    for x in call.args[0] if call.args else call.kwargs["tensors"]:
        x = call.graph.plain(x)
        shape = (*x.shape[: dim - 1], 1, *x.shape[dim - 1 :])
        name = call.graph.add(f"{call.name}.part", {"type": "Reshape", "target_shape": list(shape)}, [x])
        parts.append(replace(x, name=name, shape=shape, order=tuple(range(len(shape)))))
    return concatenated(replace(call, args=(parts, dim), kwargs={}))


def expanded(call: Call) -> Tensor:
    """Copies along axes of 1."""
    x, shape = call.x, call.shape
    if len(shape) != len(x.shape) or any(size not in (1, wanted) for size, wanted in zip(x.shape, shape)):
        raise Refused(f"needs to copy along axes of 1, but makes rows of shape {shape} of rows of shape {x.shape}")
    x = call.graph.plain(x) if x.flat is not None else x
    for axis, count in enumerate(shape):
        if x.shape[axis] == count:
            continue
        rest = [other for other in x.order if other != axis]
        flat = call.graph.add(f"{call.name}.flat", {"type": "Reshape", "target_shape": [math.prod(x.shape)]}, [x])
        name = call.graph.add(f"{call.name}.copies", {"type": "RepeatVector", "n": count}, [replace(x, name=flat)])
        x = replace(x, name=name, shape=(*x.shape[:axis], count, *x.shape[axis + 1 :]), order=(axis, *rest))
        settings = {"type": "Reshape", "target_shape": [x.shape[axis] for axis in x.order]}
        x = replace(x, name=call.graph.add(call.name, settings, [x]))
    return x


def repeated(call: Call) -> Tensor:
    counts = call.args[1] if isinstance(call.args[1], (tuple, list)) else call.args[1:]
    if counts[0] != 1:
        raise Refused("needs 1 as its first number, which is that of the batch")
    return expanded(call)


MODULES.update(
    {
        nn.AdaptiveMaxPool1d: _adaptive_max_pool(1),
        nn.AdaptiveMaxPool2d: _adaptive_max_pool(2),
        nn.CosineSimilarity: similarity,
    }
)
