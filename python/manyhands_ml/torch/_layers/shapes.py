"""Axes of rows: other shapes and orders, and parts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from .._graph import Tensor, is_same
from .arithmetic import concatenated
from .call import MODULES, Call, Refused, argument


def _flatten_module(call: Call) -> Tensor:
    return flattened(call, call.module.start_dim, call.module.end_dim)


def flattened(call: Call, start: int, end: int) -> Tensor:
    rank = len(call.x.shape)
    end = end % (rank + 1)
    if start == 1 and end == rank:
        return _flat(call)
    return reshaped(call)


def _flat(call: Call) -> Tensor:
    """All axes of a row as one."""
    x = call.x
    if len(x.shape) == 1:
        return x
    name = call.graph.add(call.name, {"type": "Flatten"}, [x])
    flat = None if is_same(x.shape, x.order) else (x.shape, x.order)
    return Tensor(name, call.shape, (0,), flat, x.is_positive)


def reshaped(call: Call) -> Tensor:
    """Rows in another shape."""
    x, shape = call.x, call.shape
    if call.value.shape[0] * math.prod(shape) == 0 or math.prod(shape) != math.prod(x.shape):
        raise Refused("needs to keep the first axis, along which batches are split")
    if shape == x.shape:
        return x
    if len(shape) == 1:
        return _flat(call)
    x = call.graph.plain(x)
    if not shape:
        return replace(x, shape=(), order=())
    return call.graph.shaped(call.name, x, shape)


def permute(call: Call) -> Tensor:
    return permuted(call, call.x, new_order(call, "permute", len(call.x.shape) + 1))


def transpose_axes(call: Call) -> Tensor:
    return permuted(call, call.x, new_order(call, "transpose", len(call.x.shape) + 1))


def turned(call: Call) -> Tensor:
    """The last two axes in each other's place."""
    return permuted(call, call.x, new_order(call, "mT", len(call.x.shape) + 1))


def new_order(call: Call, kind: str, rank: int) -> list[int]:
    """PyTorch's axes, the batch among them, as a call of `permute`, `transpose`, `swapaxes` or `mT` puts them."""
    if kind == "permute":
        given = call.kwargs.get("dims", call.args[1:])
        given = given[0] if len(given) == 1 and not isinstance(given[0], int) else given
        return [int(dim) % rank for dim in given]
    first, second = (call.kwargs.get(f"dim{at}", call.kwargs.get(f"axis{at}")) for at in (0, 1))
    a, b = (-2, -1) if kind == "mT" else (argument(call, 1, "dim0", first), argument(call, 2, "dim1", second))
    dims = list(range(rank))
    dims[a], dims[b] = dims[b], dims[a]
    return dims


def permuted(call: Call, x: Tensor, dims: list[int]) -> Tensor:
    """The axes in another order. The numbers stay where they are: what reads them says where it wants them."""
    x = x if x.flat is None else call.graph.plain(x)
    rows = [dim - (dim > x.batch) for dim in dims if dim != x.batch]
    moved = [rows.index(axis) for axis in x.order]
    return replace(x, shape=tuple(x.shape[axis] for axis in rows), order=tuple(moved), batch=dims.index(x.batch))


def cropped(call: Call, x: Tensor, axis: int, begin: int, end: int) -> Tensor:
    """The places from `begin` up to `end` of an axis of a row."""
    x = call.graph.plain(x)
    before, size, behind = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
    if (begin, end) == (0, size):
        return x
    shape = (*x.shape[:axis], end - begin, *x.shape[axis + 1 :])
    whole = call.graph.add(f"{call.name}.whole", {"type": "Reshape", "target_shape": [before, size, behind]}, [x])
    sides = {"type": "Cropping2D", "cropping": [[0, 0], [begin, size - end]]}
    part = call.graph.add(f"{call.name}.part", sides, [replace(x, name=whole)])
    name = call.graph.add(call.name, {"type": "Reshape", "target_shape": list(shape)}, [replace(x, name=part)])
    return Tensor(name, shape, tuple(range(len(shape))), is_positive=x.is_positive)


def of_parts(call: Call, x: Tensor, axis: int, parts: list[tuple[int, int]]) -> Tensor:
    """A tensor of which an axis is made of parts of itself, each from one place up to another."""
    # As the engine has it, so that no axes change places.
    at, here = x.order.index(axis), [x.shape[axis] for axis in x.order]
    whole = Tensor(x.name, tuple(here), tuple(range(len(here))))
    here[at] = sum(end - begin for begin, end in parts)
    value = torch.empty((1, *here), device="meta")
    pieces = {part: cropped(call, whole, at, *part) for part in dict.fromkeys(parts)}
    made = concatenated(replace(call, args=([pieces[part] for part in parts], at + 1), kwargs={}, value=value))
    return replace(x, name=made.name, shape=(*x.shape[:axis], here[at], *x.shape[axis + 1 :]))


def rolled(call: Call) -> Tensor:
    """Places of axes moved on, and those at the end to the begin."""
    shifts, dims = argument(call, 1, "shifts", None), argument(call, 2, "dims", None)
    shifts, dims = ([part] if isinstance(part, int) else list(part or []) for part in (shifts, dims))
    if not dims:
        raise Refused("needs `dims`, to keep the first axis, along which batches are split")
    x = call.x if call.x.flat is None else call.graph.plain(call.x)
    for shift, dim in zip(shifts, dims):
        axis = _row_axis(call, dim)
        size = x.shape[axis]
        if shift % size:
            x = of_parts(call, x, axis, [(size - shift % size, size), (0, size - shift % size)])
    return x


def _spaced(call: Call, x: Tensor, axis: int, places: range) -> Tensor:
    """Every second place of an axis, or every third, and so on."""
    x, step, size = call.graph.plain(x), places.step, x.shape[axis]
    # A stretch in which each place is the same one of `step`.
    first = places[0] - max(0, min(places[0], places[0] + len(places) * step - size))
    if len(places) == 1:
        return cropped(call, x, axis, places[0], places[0] + 1)
    if first + len(places) * step > size:
        parts = [_spaced(call, x, axis, part) for part in (places[:-1], places[-1:])]
        value = torch.empty((1, *x.shape[:axis], len(places), *x.shape[axis + 1 :]), device="meta")
        return concatenated(replace(call, args=(parts, axis + 1), kwargs={}, value=value))
    stretch = cropped(call, x, axis, first, first + len(places) * step)
    apart = (*x.shape[:axis], len(places), step, *x.shape[axis + 1 :])
    steps = call.graph.shaped(f"{call.name}.apart", stretch, apart)
    one = cropped(call, steps, axis + 1, places[0] - first, places[0] - first + 1)
    return call.graph.shaped(call.name, one, (*apart[: axis + 1], *apart[axis + 2 :]))


def halves(call: Call, dim: int) -> tuple[Tensor, Tensor]:
    """The two halves of an axis."""
    axis = _row_axis(call, dim)
    size = call.x.shape[axis]
    if size % 2:
        raise Refused(f"needs an axis that has two halves, but it is one of {size}")
    first, second = (cropped(call, call.x, axis, begin, begin + size // 2) for begin in (0, size // 2))
    return first, second


def _shuffled(call: Call) -> Tensor:
    """Channels become squares of places, as `PixelShuffle` of (C · r², H, W) makes (C, H · r, W · r)."""
    x, factor = call.graph.plain(call.x), int(call.module.upscale_factor)
    if len(x.shape) != 3 or x.shape[0] % factor**2:
        raise Refused(f"needs pictures with channels by {factor**2}, but gets rows of shape {x.shape}")
    channels, height, width = x.shape[0] // factor**2, *x.shape[1:]
    return _moved(call, x, [channels, factor, factor, height, width], (0, 3, 1, 4, 2))


def _unshuffled(call: Call) -> Tensor:
    """Squares of places become channels: `PixelShuffle` the other way round."""
    x, factor = call.graph.plain(call.x), int(call.module.downscale_factor)
    if len(x.shape) != 3 or x.shape[1] % factor or x.shape[2] % factor:
        raise Refused(f"needs pictures with height and width by {factor}, but gets rows of shape {x.shape}")
    channels, height, width = x.shape[0], x.shape[1] // factor, x.shape[2] // factor
    return _moved(call, x, [channels, height, factor, width, factor], (0, 2, 4, 1, 3))


def _moved(call: Call, x: Tensor, apart: list[int], order: tuple[int, ...]) -> Tensor:
    """The axes of a row taken apart, in another order, and joined to those that PyTorch gives."""
    name = call.graph.add(f"{call.name}.apart", {"type": "Reshape", "target_shape": apart}, [x])
    name = call.graph.add(f"{call.name}.moved", {"type": "Permute", "dims": [axis + 1 for axis in order]}, [replace(x, name=name)])
    name = call.graph.add(call.name, {"type": "Reshape", "target_shape": list(call.shape)}, [replace(x, name=name)])
    return replace(x, name=name, shape=call.shape)


def _row_axis(call: Call, dim: int) -> int:
    axis = (dim if dim >= 0 else dim + len(call.x.shape) + 1) - 1
    if axis < 0:
        raise Refused("`dim` needs to be another than the first, along which batches are split")
    return axis


def split_axis(call: Call) -> list[Tensor]:
    """Parts of a tensor along an axis, as long as PyTorch has made them: `chunk` and `split`."""
    axis = _row_axis(call, int(argument(call, 2, "dim", 0)))
    ends = np.cumsum([part.shape[axis + 1] for part in call.value])
    return [cropped(call, call.x, axis, int(begin), int(end)) for begin, end in zip([0, *ends], ends)]


def sliced(call: Call, x: Tensor, index: Any) -> Tensor:
    """`x[:, 0]`, `x[..., 1:3]` and the like."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if not all(part is None or part is Ellipsis or isinstance(part, (int, slice)) for part in parts):
        raise Refused(f"an index {index} into a tensor is not supported: take places and slices")
    given = sum(part is not None and part is not Ellipsis for part in parts)
    at = parts.index(Ellipsis) if Ellipsis in parts else len(parts)
    parts[at : at + 1] = [slice(None)] * (len(x.shape) + 1 - given)
    if parts[0] != slice(None):
        raise Refused("needs to keep the first axis, along which batches are split: begin with `:`")
    axis = 0
    for part in parts[1:]:
        if part is None:
            continue
        begin, end, step = (part % x.shape[axis], part % x.shape[axis] + 1, 1) if isinstance(part, int) else part.indices(x.shape[axis])
        if end <= begin:
            raise Refused("needs slices that hold something")
        x = cropped(call, x, axis, begin, end) if step == 1 else _spaced(call, x, axis, range(begin, end, step))
        axis += 1
    return reshaped(replace(call, args=(x,)))


def taken(call: Call, x: Tensor, dim: int, place: int) -> Tensor:
    """The place of an axis, which may stand before that of the batch."""
    x = call.graph.plain(x) if x.flat is not None else x
    dim %= len(x.shape) + 1
    if dim == x.batch:
        raise Refused("`dim` needs to be another than that of the batch, along which rows are split")
    axis, here = dim - (dim > x.batch), tuple(x.shape[axis] for axis in x.order)
    at, place = x.order.index(axis), place % x.shape[axis]
    part = cropped(call, Tensor(x.name, here, tuple(range(len(here)))), at, place, place + 1)
    rest = [size for idx, size in enumerate(here) if idx != at]
    name = call.graph.add(call.name, {"type": "Reshape", "target_shape": rest or [1]}, [part])
    order = tuple(other - (other > axis) for other in x.order if other != axis)
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    return Tensor(name, shape, order, is_positive=x.is_positive, batch=x.batch - (dim < x.batch))


def unbound(call: Call) -> list[Tensor]:
    """The places of an axis, one after the other."""
    dim = int(argument(call, 1, "dim", 0))
    return [taken(call, call.x, dim, place) for place in range(len(call.value))]


def selected(call: Call) -> Tensor:
    """The place `index` of an axis."""
    return taken(call, call.x, int(argument(call, 1, "dim", 0)), int(argument(call, 2, "index", 0)))


def slice_axis(call: Call) -> Tensor:
    """The places of an axis from one up to another, as the operation below `x[:, 1:3]` has them."""
    dim, start, end, step = (argument(call, at, name, None) for at, name in enumerate(("dim", "start", "end", "step"), 1))
    places = slice(start, end, step)
    if not dim and places.indices(len(call.value)) == (0, len(call.value), 1):
        return call.x
    return sliced(call, call.x, (slice(None),) * _row_axis(call, dim or 0) + (slice(None), places))


MODULES.update(
    {
        nn.Flatten: _flatten_module,
        nn.PixelShuffle: _shuffled,
        nn.PixelUnshuffle: _unshuffled,
        nn.Unflatten: reshaped,
    }
)
