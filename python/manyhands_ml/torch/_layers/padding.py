"""Axes made longer at their ends: by zeros, or by numbers that are there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from torch import nn

from .._graph import Tensor
from .call import MODULES, Call, Handler, Refused, argument
from .shapes import of_parts


def padding(call: Call) -> Tensor:
    """Numbers before and behind those of some axes, the last one first, as `pad` has them."""
    sizes, mode = argument(call, 1, "pad", ()), argument(call, 2, "mode", "constant")
    if mode == "constant" and argument(call, 3, "value", None) not in (None, 0):
        raise Refused('`value` needs to be 0 where `mode` is "constant"')
    return longer(call, call.x, sizes, mode)


def _padded_by(mode: str) -> Handler:
    """Modules of one mode."""
    return lambda call: longer(call, call.x, call.module.padding, mode)


def longer(call: Call, x: Tensor, sizes: Sequence[int], mode: str) -> Tensor:
    """A tensor with so many numbers before and behind those of its axes, the last one first."""
    x = call.graph.plain(x) if x.flat is not None else x
    if min(sizes) < 0 or len(sizes) // 2 > len(x.shape):
        raise Refused(f"needs numbers from 0, and none for the batch, but gets {list(sizes)}")
    for place, (before, behind) in enumerate(zip(sizes[::2], sizes[1::2])):
        axis = len(x.shape) - 1 - place
        if mode == "constant" and (before or behind):
            x = _with_zeros(call, x, axis, before, behind)
        elif before or behind:
            x = _with_own(call, x, axis, before, behind, mode)
    return x


def _with_own(call: Call, x: Tensor, axis: int, before: int, behind: int, mode: str) -> Tensor:
    """Numbers of an axis at its ends: those beside the end in turn (reflect), the last one (replicate), or those of the other end (circular)."""
    size = x.shape[axis]
    if mode == "circular":
        front, back = ([(size - before, size)] if before else []), ([(0, behind)] if behind else [])
    elif mode == "replicate":
        front, back = [(0, 1)] * before, [(size - 1, size)] * behind
    elif mode == "reflect":
        front = [(place, place + 1) for place in range(before, 0, -1)]
        back = [(place, place + 1) for place in range(size - 2, size - 2 - behind, -1)]
    else:
        raise Refused(f'`mode` needs "constant", "reflect", "replicate" or "circular", but is "{mode}"')
    return of_parts(call, x, axis, [*front, (0, size), *back])


def _with_zeros(call: Call, x: Tensor, axis: int, before: int, behind: int) -> Tensor:
    at, here = x.order.index(axis), [x.shape[axis] for axis in x.order]
    whole = [math.prod(here[:at]), here[at], math.prod(here[at + 1 :])]
    name = call.graph.add(f"{call.name}.whole", {"type": "Reshape", "target_shape": whole}, [x])
    settings = {"type": "ZeroPadding2D", "padding": [[0, 0], [before, behind]]}
    name = call.graph.add(f"{call.name}.zeros", settings, [replace(x, name=name)])
    here[at] += before + behind
    name = call.graph.add(call.name, {"type": "Reshape", "target_shape": here}, [replace(x, name=name)])
    return replace(x, name=name, shape=(*x.shape[:axis], here[at], *x.shape[axis + 1 :]))


#: Modes of `pad` by the first part of names of modules.
_MODES = {"Circular": "circular", "Constant": "constant", "Reflection": "reflect", "Replication": "replicate", "Zero": "constant"}

MODULES.update({getattr(nn, f"{name}Pad{rank}d"): _padded_by(mode) for name, mode in _MODES.items() for rank in (1, 2)})
