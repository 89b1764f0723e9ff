"""A use of a module, or a call of a function, and the table of modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from .._graph import Graph, Settings, Tensor, Weight, channels_last
from .._settings import MODULES as SETTINGS
from .._settings import refusals


class Refused(Exception):
    """A setting or a call that the engine does not have."""


@dataclass
class Call:
    """A use of a module, or a call of a function."""

    graph: Graph
    #: Name of the module or of the node, free of signs that the engine uses itself.
    name: str
    module: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    #: What PyTorch has computed for the example.
    value: Any
    #: Are modules to behave as in training? By identity.
    modes: Mapping[int, bool]
    #: Names of the engine's layers by their settings and PyTorch's tensors, to use them again.
    known: dict[Any, tuple[str, Any]]
    #: Tensors, by identity, that several layers read which are not the same one.
    tied: frozenset[int] = frozenset()
    #: Parameters, by identity, that get a gradient in PyTorch; `None` if that was not observed.
    learning: frozenset[int] | None = None

    @property
    def is_training(self) -> bool:
        """Is the module to behave as in training?"""
        return self.modes.get(id(self.module), True)

    @property
    def x(self) -> Tensor:
        """The first argument."""
        if not self.args or not isinstance(self.args[0], Tensor):
            raise Refused("needs a tensor as its first argument")
        return self.args[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a row of what comes out."""
        return tuple(self.value.shape[1:])

    def part(self, name: str, module: nn.Module, x: Tensor, features: int | None = None) -> Tensor:
        """What a module within the module makes of a tensor, whose last axis it may make another."""
        if type(module) not in MODULES:
            raise Refused(f"its `{name}`, a `{type(module).__name__}`, is not supported")
        value = torch.empty((len(self.value), *x.shape[:-1], features or x.shape[-1]), device="meta")
        result = made(replace(self, name=f"{self.name}.{name}", module=module, args=(x,), kwargs={}, value=value))
        assert isinstance(result, Tensor)
        return result

    def learns(self, parameter: nn.Parameter) -> bool:
        """Does training change a parameter?"""
        return parameter.requires_grad and (self.learning is None or id(parameter) in self.learning)

    def trained(self, settings: Settings) -> Settings:
        """Settings of a layer with weights: frozen, if no weight of the module wants a gradient."""
        wants = {parameter.requires_grad for parameter in self.module.parameters(recurse=False)}
        if wants == {True, False}:
            raise Refused("`requires_grad` needs to be the same for all parameters of a module")
        return {"trainable": False, **settings} if wants == {False} else settings

    def weighted(self, settings: Settings, inputs: list[Tensor], weights: dict[str, Weight], key: Any = None) -> str:
        """Adds a layer with weights, or uses the one again that a module of this class with these settings and weights has become."""
        settings = self.trained(settings)
        tensors = tuple((weight, *map(id, held.tensors)) for weight, held in weights.items())
        same = (type(self.module), repr(sorted(settings.items())), tensors or id(self.module))
        if same in self.known:
            name, before = self.known[same]
            if before != key:
                raise Refused("is used twice in two ways: behind pictures of different sizes, or with and without `padding_idx`")
            return self.graph.reuse(name, inputs)
        name = self.graph.add(self.name, settings, inputs)
        self.known[same] = (name, key)
        self.graph.weights.update({f"{name}/{weight}": held for weight, held in weights.items()})
        return name

    def spatial(self, rank: int) -> Tensor:
        """The first argument as a sequence or a picture, its channels last."""
        if len(self.x.shape) != rank + 1:
            what = "a picture of shape (C, H, W)" if rank == 2 else "a sequence of shape (C, L)"
            raise Refused(f"needs {what} a row, but gets rows of shape {self.x.shape}")
        return self.graph.ordered(self.x, channels_last(rank))

    def picture(self) -> Tensor:
        """The first argument as a picture, its channels last."""
        return self.spatial(2)


Handler = Callable[[Call], Any]


def sizes_of(value: Any, rank: int) -> list[int]:
    """A setting of windows as one number for each axis."""
    return [int(value)] * rank if isinstance(value, int) else [int(part) for part in value]


def pair_of(value: Any) -> list[int]:
    """A setting of a picture's windows as one number for each axis."""
    return sizes_of(value, 2)


def setting_of(sizes: list[int]) -> Any:
    """One number for each axis as the engine reads it: along a sequence the number alone."""
    return sizes if len(sizes) > 1 else sizes[0]


def argument(call: Call, at: int, name: str, default: Any) -> Any:
    """An argument of a call, by its place or its name."""
    return call.args[at] if len(call.args) > at else call.kwargs.get(name, default)


def padded(call: Call, x: Tensor, padding: list[int]) -> Tensor:
    """A tensor with zeros around each axis but that of channels."""
    if not any(padding):
        return x
    settings = {"type": f"ZeroPadding{len(padding)}D", "padding": setting_of(padding)}
    name = call.graph.add(f"{call.name}.padding", settings, [x])
    channels, *sizes = x.shape
    return replace(x, name=name, shape=(channels, *(size + 2 * p for size, p in zip(sizes, padding))))


#: Modules by class: the files of this folder and `_attention` fill it.
MODULES: dict[type, Handler] = {}


def made(call: Call) -> Any:
    """What a module is in the engine, if it has all its settings.

    Raises:
        Refused: If not: with each of them.
    """
    check_settings(call.module)
    return MODULES[type(call.module)](call)


def check_settings(module: nn.Module) -> None:
    """Raises `Refused` with each setting of a module that is not supported."""
    refused = list(refusals(module, SETTINGS[type(module)]))
    if refused:
        raise Refused("; ".join(refused))
