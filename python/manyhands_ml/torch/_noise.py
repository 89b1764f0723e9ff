"""Random numbers that a forward draws for each row, to leave out rows of a branch: `drop_path` of timm, as many networks have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch.utils import _pytree

from ._graph import Held, Tensor
from ._layers import Call, Refused, argument

#: Functions that draw, or make room for what is drawn, by what the numbers are then.
_BEGIN = {"empty": "room", "new_empty": "room", "rand": "uniform"}
#: Functions that are read as a whole, not by what they call.
WHOLE = frozenset({"stochastic_depth"})


@dataclass(frozen=True)
class Noise:
    """One number for each row: 1 for those that are kept, and 0 for others, perhaps divided by the part that is kept."""

    shape: tuple[int, ...]
    #: Room for numbers, uniform ones from 0 to 1, or 0 and 1.
    kind: str
    #: Part of the rows that is kept.
    keep: float = 0.0
    #: Is it divided by this part?
    is_scaled: bool = False


def of_noise(call: Call, kind: Any) -> Callable[[Call], Any] | None:
    """The handler of a function that draws, or reads what was drawn; nothing for others."""
    if kind == "stochastic_depth":
        return _stochastic_depth
    is_read = any(isinstance(part, Noise) for part in _pytree.tree_leaves((call.args, call.kwargs)))
    if is_read or kind in ("bernoulli", "bernoulli_"):
        return lambda call: _read(call, kind)
    return (lambda call: Noise(tuple(call.value.shape), _BEGIN[kind])) if kind in _BEGIN else None


def drawn_by(call: Call, kind: Any) -> Counter[str]:
    """Draws of PyTorch within a function."""
    p, _, training = _settings_of_depth(call) if kind == "stochastic_depth" else (0.0, "", False)
    name = "bernoulli_" if p and training else kind
    return Counter([f"`{name}`"] if name in ("bernoulli", "bernoulli_", "rand") else [])


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
    if isinstance(noise, Noise):
        if kind in ("fill_", "zero_") and noise.kind == "room":
            # Such as a mask that a forward makes.
            return Held(call.value, noise.shape)
        is_number = isinstance(other, (int, float))
        if kind == "bernoulli_" and noise.kind == "room" and isinstance(keep := argument(call, 1, "p", 0.5), float) and 0 < keep < 1:
            return replace(noise, kind="drawn", keep=keep)
        if kind in ("add", "add_", "iadd") and noise.kind == "uniform" and is_number and 0 < other < 1 and not noise.keep:
            return replace(noise, keep=float(other))
        if kind in ("floor", "floor_") and noise.kind == "uniform" and noise.keep:
            return replace(noise, kind="drawn")
        if kind in ("div", "div_", "truediv", "itruediv") and first is noise and noise.kind == "drawn" and other == noise.keep and not noise.is_scaled:
            return replace(noise, is_scaled=True)
        if kind in ("mul", "mul_", "imul") and noise.kind == "drawn" and isinstance(other, Tensor):
            return _dropped(call, other, noise)
    raise Refused("reads random numbers that adapters would not draw again, but for `drop_path` as in timm: give them as an input")


def _dropped(call: Call, x: Tensor, noise: Noise) -> Tensor:
    """Rows of a tensor, some of which are 0."""
    rows = len(call.value)
    if rows < 2 or noise.shape != (rows, *[1] * len(x.shape)) or tuple(call.value.shape[1:]) != x.shape:
        raise Refused("needs one random number for each row, and more rows than one in the first batch")
    x = call.graph.unary(call.name, {"type": "StochasticDepth", "drop_path_rate": 1.0 - noise.keep}, x, x.is_positive)
    if noise.is_scaled:
        return x
    # Without the division that the engine does.
    return call.graph.unary(f"{call.name}.whole", {"type": "Rescaling", "scale": noise.keep, "offset": 0.0}, x, x.is_positive)
