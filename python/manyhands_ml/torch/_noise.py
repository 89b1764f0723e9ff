"""Random numbers that a forward draws: for each row, to leave out rows of a branch as `drop_path` of timm does, or for each number, as noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from torch.utils import _pytree

from ._graph import Held, Tensor
from ._layers import Call, Refused, argument
from ._layers.arithmetic import of_two

#: Functions that draw, or make room for what is drawn, by what the numbers are then.
BEGIN = {"empty": "room", "empty_like": "room", "new_empty": "room", "rand": "uniform", "randn": "normal", "randn_like": "normal"}
#: Functions that draw.
DRAW = frozenset("bernoulli bernoulli_ normal_ rand randn randn_like".split())
_TIMES, _PLUS = frozenset("imul mul mul_".split()), frozenset("add add_ iadd".split())
_BY = frozenset("div div_ itruediv truediv".split())
#: Functions that are read as a whole, not by what they call.
WHOLE = frozenset({"stochastic_depth"})


@dataclass(frozen=True)
class Noise:
    """One number for each row, 1 for those that are kept and 0 for others, or a number of the normal distribution for each number of a tensor."""

    shape: tuple[int, ...]
    #: Room for numbers, uniform ones from 0 to 1, 0 and 1 once these are drawn, or normal ones.
    kind: str
    #: Part of the rows that is kept.
    keep: float = 0.0
    #: Is it divided by this part?
    is_scaled: bool = False
    #: Factor of normal ones, of mean 0 and variance 1.
    factor: float = 1.0
    #: What was made of the draw so far, whatever was done with its numbers since.
    drawn: list[Tensor] = field(default_factory=list)


def of_noise(call: Call, kind: Any) -> Callable[[Call], Any] | None:
    """The handler of a function that draws, or reads what was drawn; nothing for others."""
    if kind == "stochastic_depth":
        return _stochastic_depth
    is_read = any(isinstance(part, Noise) for part in _pytree.tree_leaves((call.args, call.kwargs)))
    if is_read or kind in ("bernoulli", "bernoulli_", "normal_"):
        return lambda call: _read(call, kind)
    return (lambda call: Noise(tuple(call.value.shape), BEGIN[kind])) if kind in BEGIN else None


def drawn_by(call: Call, kind: Any) -> Counter[str]:
    """Draws of PyTorch within a function."""
    p, _, training = _settings_of_depth(call) if kind == "stochastic_depth" else (0.0, "", False)
    name = "bernoulli_" if p and training else kind
    return Counter([f"`{name}`"] if name in DRAW else [])


def _settings_of_depth(call: Call) -> Any:
    return [argument(call, at, name, default) for at, (name, default) in enumerate((("p", 0.0), ("mode", "row"), ("training", True)), 1)]


def _stochastic_depth(call: Call) -> Tensor:
    """Of torchvision, which a trace does not look into."""
    p, mode, training = _settings_of_depth(call)
    if not training or not p:
        return call.x
    if mode != "row":
        raise Refused(f'`mode` needs "row", but is "{mode}"')
    return call.graph.unary(call.name, {"type": "StochasticDepth", "drop_path_rate": p}, call.x, call.x.is_positive)


def _read(call: Call, kind: Any) -> Any:
    first, second = (*call.args, None, None)[:2]
    noise, other = (first, second) if isinstance(first, Noise) else (second, first)
    made = _read_normal(call, kind, noise, other) if isinstance(noise, Noise) and noise.kind in ("normal", "room") else None
    if made is not None:
        return made
    if isinstance(noise, Noise):
        if kind in ("fill_", "zero_") and noise.kind == "room":
            # Such as a mask that a forward makes.
            return Held(call.value, noise.shape)
        is_number = isinstance(other, (int, float))
        if kind == "bernoulli_" and noise.kind == "room" and isinstance(keep := argument(call, 1, "p", 0.5), float) and 0 < keep < 1:
            return replace(noise, kind="drawn", keep=keep)
        if kind in _PLUS and noise.kind == "uniform" and is_number and 0 < other < 1 and not noise.keep:
            return replace(noise, keep=float(other))
        if kind in ("floor", "floor_") and noise.kind == "uniform" and noise.keep:
            return replace(noise, kind="drawn")
        if kind in _BY and first is noise and noise.kind == "drawn" and other == noise.keep and not noise.is_scaled:
            return replace(noise, is_scaled=True)
        if kind in _TIMES and noise.kind == "drawn" and isinstance(other, Tensor):
            return _dropped(call, other, noise)
    told = "but for `drop_path` as in timm, and normal ones for each number: give them as an input"
    raise Refused(f"reads random numbers that adapters would not draw again, {told}")


def _read_normal(call: Call, kind: Any, noise: Noise, other: Any) -> Any:
    """What a function makes of normal numbers: those with another factor, or a tensor with noise in it."""
    if kind == "normal_" and noise.kind == "room":
        mean, deviation = (argument(call, at, name, default) for at, name, default in ((1, "mean", 0.0), (2, "std", 1.0)))
        if mean == 0 and isinstance(deviation, (int, float)) and deviation >= 0:
            return replace(noise, kind="normal", factor=float(deviation))
    if noise.kind != "normal":
        return None
    if isinstance(other, (int, float)) and (kind in _TIMES or (kind in _BY and call.args[0] is noise and other)):
        return replace(noise, factor=noise.factor * (other if kind in _TIMES else 1.0 / other))
    if kind not in _TIMES | _PLUS or not isinstance(other, Tensor):
        return None
    if noise.shape != tuple(call.value.shape) or tuple(call.value.shape[1:]) != other.shape:
        raise Refused("needs a random number for each number of the tensor")
    graph = call.graph
    if not noise.drawn:
        # One draw, however often it is read.
        zeros = graph.unary(f"{call.name}.zeros", {"type": "Rescaling", "scale": 0.0, "offset": 0.0}, other)
        noise.drawn.append(graph.unary(f"{call.name}.drawn", {"type": "GaussianNoise", "stddev": 1.0}, zeros))
    numbers = noise.drawn[0]
    if noise.factor != 1.0:
        numbers = graph.unary(f"{call.name}.noise", {"type": "Rescaling", "scale": noise.factor, "offset": 0.0}, numbers)
    return of_two(replace(call, args=(other, numbers), kwargs={}), "Multiply" if kind in _TIMES else "Add")


def _dropped(call: Call, x: Tensor, noise: Noise) -> Tensor:
    """Rows of a tensor, some of which are 0."""
    rows = len(call.value)
    if rows < 2 or noise.shape != (rows, *[1] * len(x.shape)) or tuple(call.value.shape[1:]) != x.shape:
        raise Refused("needs one random number for each row, and more rows than one in the first batch")
    if noise.drawn:
        raise Refused("reads a random number for each row a second time, and the engine would draw again")
    x = call.graph.unary(call.name, {"type": "StochasticDepth", "drop_path_rate": 1.0 - noise.keep}, x, x.is_positive)
    noise.drawn.append(x)
    if noise.is_scaled:
        return x
    # Without the division that the engine does.
    return call.graph.unary(f"{call.name}.whole", {"type": "Rescaling", "scale": noise.keep, "offset": 0.0}, x, x.is_positive)
