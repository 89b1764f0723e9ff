"""The adapters of a model and what each of them computes, as the native half takes it."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypedDict

from . import _native
from .errors import SettingError, explained

#: Rows of a batch for each adapter.
Split = Literal["learned", "even"] | Sequence[float]


class Stage(TypedDict):
    """Layers of a model that adapters of their own compute.

    Attributes:
        layers: Names of layers, and ranges of them in the model's order: `"first..last"` with both ends, `"..last"`, `"first.."`.
        adapters: Positions of adapters among those that are used, from 0.
    """

    layers: Sequence[str]
    adapters: Sequence[int]


#: Where layers are computed.
Placement = str | Sequence[Stage]


@dataclass(frozen=True)
class Rig:
    """The adapters of a model, and what each of them computes."""

    #: Choice of adapters; empty for the default ones.
    adapters: str
    #: A share of the rows for each; empty for even ones, `None` for learned ones.
    shares: list[float] | None
    #: Limits of the memory that the model takes on each.
    memory: str | None
    placement: str | list[Stage]
    micro_batches: int

    @staticmethod
    def of(adapters: str, split: Split, memory: str | None, placement: Placement, micro_batches: int) -> Rig:
        """The rig of a user's settings.

        Raises:
            AdapterError: If an adapter is not there.
            SettingError: If a setting makes no sense by itself.
        """
        _native.adapters(adapters)
        if micro_batches < 1:
            text = explained("`micro_batches`", f"needs to be at least 1, but is {micro_batches}", "1 computes a batch in one go")
            raise SettingError(text)
        placement = placement if isinstance(placement, str) else [_stage(stage) for stage in placement]
        return Rig(adapters, _shares(split), memory, placement, micro_batches)

    def placed(self, names: Sequence[str], kept: Collection[str]) -> Rig:
        """The rig with each layer of its stages by its name in the engine.

        Args:
            names: All layers in order. A name with points is that of a part: `tower.dense` of `tower`.
            kept: The layers that the engine has: a function that belongs to the loss is none.

        Raises:
            SettingError: If a name is none of a layer.
        """
        if isinstance(self.placement, str):
            return self
        stages = [[place for layers in stage["layers"] for place in _places(layers, names)] for stage in self.placement]
        known = {place: number for number, places in enumerate(stages) for place in places}
        for place, name in enumerate(names):
            wholes = [other for other in known if name.startswith(f"{names[other]}.")]
            if place not in known and wholes:
                # What a translation has added to a layer stays with it.
                stages[known[max(wholes, key=lambda other: len(names[other]))]].append(place)
        placement: list[Stage] = [
            {"layers": [names[place] for place in places if names[place] in kept], "adapters": stage["adapters"]}
            for places, stage in zip(stages, self.placement)
        ]
        for number, stage in enumerate(placement):
            if not stage["layers"]:
                problem = f"needs layers in each stage, but stage {number} has none that is computed apart from the loss"
                raise SettingError(explained("`placement`", problem, "leave out this stage, or give it layers of another one"))
        return replace(self, placement=placement)

    def json(self) -> str:
        """The form that the native half reads."""
        return json.dumps(asdict(self))


def _shares(split: Split) -> list[float] | None:
    if split == "learned":
        return None
    if split == "even":
        return []
    if isinstance(split, str):
        raise SettingError(explained("`split`", f'needs "learned", "even" or shares, but is "{split}"', "take `[3, 1]`"))
    return [float(share) for share in split]


def _stage(stage: Stage) -> Stage:
    """A stage whose parts have the right types."""
    if isinstance(stage, Mapping) and set(stage) == {"layers", "adapters"}:
        layers, adapters = stage["layers"], stage["adapters"]
        if _is_list(layers, str) and _is_list(adapters, int):
            return {"layers": list(layers), "adapters": [int(position) for position in adapters]}
    help = 'take `[{"layers": ["..hidden"], "adapters": [0]}, {"layers": ["scores"], "adapters": [1]}]`'
    raise SettingError(explained("`placement`", f"needs lists of layers and of adapters in each stage, but has {stage!r}", help))


def _is_list(values: Any, kind: type) -> bool:
    is_listed = isinstance(values, Sequence) and not isinstance(values, str)
    return is_listed and all(isinstance(value, kind) for value in values)


def _places(layers: str, names: Sequence[str]) -> list[int]:
    """Places of the layers that a name or a range of names means."""
    first, dots, last = (part.strip() for part in layers.partition(".."))
    if not dots:
        return _places_of(first, names)
    begin = _places_of(first, names)[0] if first else 0
    end = _places_of(last, names)[-1] if last else len(names) - 1
    if begin > end:
        problem = f"needs ranges in the order of the layers, but has `{layers}`"
        raise SettingError(explained("`placement`", problem, f"take `{last}..{first}`"))
    return list(range(begin, end + 1))


def _places_of(name: str, names: Sequence[str]) -> list[int]:
    """Places of a layer, or of the layers of a model within."""
    # So names with slashes are written here.
    name = name.replace("/", ".")
    places = [place for place, known in enumerate(names) if known == name]
    places = places or [place for place, known in enumerate(names) if known.startswith(f"{name}.")]
    if not places:
        near = difflib.get_close_matches(name, names, 1)
        help = f"`{near[0]}` is there" if near else f"they go from `{names[0]}` to `{names[-1]}`"
        raise SettingError(explained("`placement`", f"needs names of layers of the model, but `{name}` is none", help))
    return places
