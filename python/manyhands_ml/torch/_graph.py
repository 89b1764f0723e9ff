"""A traced module as a graph of the engine's layers: tensors with their axes, and weights with their layouts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Settings = dict[str, Any]
Pack = Callable[[list[Floats]], Floats]
Unpack = Callable[[Floats], list[Floats]]

def channels_last(rank: int) -> tuple[int, ...]:
    """Order of the axes of a row: PyTorch's (C, L) of sequences is (L, C) in the engine, (C, H, W) of pictures (H, W, C)."""
    return (*range(1, rank + 1), 0)


PICTURE = channels_last(2)


@dataclass(frozen=True)
class Tensor:
    """A tensor of the graph."""

    #: Its name in the engine.
    name: str
    #: Shape of a row in PyTorch.
    shape: tuple[int, ...]
    #: PyTorch's axis of a row at each place of the engine's.
    order: tuple[int, ...]
    #: Of a picture that was made flat: the shape and order before, in which its numbers still stand.
    flat: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    #: Can no number be below 0?
    is_positive: bool = False
    #: Is it true or false in PyTorch? It is 1 or 0 here.
    is_bool: bool = False
    #: PyTorch's axis of the batch.
    batch: int = 0
    #: Axis of a row over which PyTorch still takes the logarithm of softmax, which the engine leaves out.
    log_axis: int | None = None

    @property
    def is_plain(self) -> bool:
        """Do its numbers stand as in PyTorch?"""
        return self.flat is None and is_same(self.shape, self.order)


def is_same(shape: Sequence[int], order: Sequence[int]) -> bool:
    """Do axes of length 1 aside, do the others keep their order?"""
    long = [axis for axis in order if shape[axis] > 1]
    return long == sorted(long)


@dataclass(frozen=True)
class Merged:
    """Steps of all rows, one after the other: of PyTorch's axes, the one of the batch holds an axis of the rows, too.

    `view(batch * time, features)` makes such, and so do windows of pictures.
    """

    #: The rows, whose axis at the place of the batch is that of the steps.
    rows: Tensor

    @property
    def steps(self) -> int:
        """Steps of a row."""
        return self.rows.shape[self.rows.batch]


@dataclass(frozen=True)
class Held:
    """A parameter, a buffer, or what a forward computes of such alone: the same for all rows."""

    #: A parameter, or a tensor that is not trained.
    tensor: torch.Tensor
    #: The shape in which it is seen: the axis of the batch, if it has one, is one of copies.
    shape: tuple[int, ...]
    #: Its name in the module.
    name: str = ""
    #: Places of a table's rows that it is made of, where the parameter is a table.
    places: torch.Tensor | None = None
    #: The part of each axis of the parameter that it is, where it is not all of it.
    part: tuple[slice, ...] = ()
    #: Is it a matrix whose axes have changed places?
    is_turned: bool = False
    #: Its axes in another order, and the shape that it had before; none where the order is the parameter's.
    moved: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    @property
    def is_trained(self) -> bool:
        """Does an optimizer change it?"""
        return isinstance(self.tensor, torch.nn.Parameter)

    def row(self, rank: int) -> tuple[int, ...]:
        """Shape of its part of a row, beside a tensor whose rows have so many axes."""
        shape = self.shape[1:] if len(self.shape) == rank + 1 else self.shape
        return (*[1] * (rank - len(shape)), *shape)


@dataclass(frozen=True)
class Sum:
    """A sum of parameters and buffers that a forward computes, such as of numbers and a mask for scores of attention."""

    parts: tuple[Held, ...]


@dataclass(frozen=True)
class Weight:
    """A weight of the engine, and PyTorch's tensors that hold it."""

    tensors: list[torch.Tensor]
    pack: Pack
    unpack: Unpack
    #: Does an optimizer change it?
    is_trained: bool = True

    def read(self, tensors: Sequence[torch.Tensor] | None = None) -> Floats:
        """The values as the engine has them: of the weight, or of tensors of the optimizer that belong to it."""
        arrays = [array_of(tensor) for tensor in tensors or self.tensors]
        return np.array(self.pack(arrays), dtype=np.float32, order="C", copy=True)

    def write(self, values: Floats, tensors: Sequence[torch.Tensor] | None = None) -> None:
        """Copies the engine's values into PyTorch's tensors."""
        with torch.no_grad():
            for tensor, part in zip(tensors or self.tensors, self.unpack(values), strict=True):
                tensor.copy_(torch.tensor(np.ascontiguousarray(part)).reshape(tensor.shape))


def array_of(tensor: torch.Tensor) -> Floats:
    """The values of a tensor."""
    array: Floats = tensor.detach().cpu().numpy()
    return array


def axes(*order: int) -> tuple[Pack, Unpack]:
    """The axes in another order, and back."""
    back = [order.index(axis) for axis in range(len(order))]
    return lambda arrays: arrays[0].transpose(order), lambda values: [values.transpose(back)]


def same() -> tuple[Pack, Unpack]:
    """The values as they are."""
    return lambda arrays: arrays[0], lambda values: [values]


def of_dense(flat: tuple[tuple[int, ...], tuple[int, ...]] | None) -> tuple[Pack, Unpack]:
    """The kernel of a `Linear`: transposed, and behind a flat picture with its rows in the engine's order."""
    if flat is None:
        return axes(1, 0)
    shape, order = flat
    back = [order.index(axis) for axis in range(len(order))]
    here = [shape[axis] for axis in order]

    def pack(arrays: list[Floats]) -> Floats:
        kernel = arrays[0].T.reshape(*shape, -1)
        return kernel.transpose(*order, len(order)).reshape(math.prod(shape), -1)

    def unpack(values: Floats) -> list[Floats]:
        kernel = values.reshape(*here, -1).transpose(*back, len(order))
        return [kernel.reshape(math.prod(shape), -1).T]

    return pack, unpack


@dataclass
class Graph:
    """The layers that a trace has become."""

    inputs: list[Tensor] = field(default_factory=list)
    layers: list[Settings] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    #: What forward returns, with the number of an output in place of each tensor, and `None` where it gives that.
    returned: Any = 0
    #: Weights by the engine's names, `layer/kernel`.
    weights: dict[str, Weight] = field(default_factory=dict)
    #: Weights that are fixed numbers.
    constants: dict[str, Floats] = field(default_factory=dict)
    #: Counters of steps of batch normalizations.
    counters: list[torch.Tensor] = field(default_factory=list)
    #: Parameters that are tensors of the graph, by identity.
    held: dict[int, Tensor] = field(default_factory=dict)

    def config(self) -> Settings:
        """The architecture as the engine reads it."""
        return {
            "inputs": [{"name": tensor.name, "shape": shape_here(tensor)} for tensor in self.inputs],
            "layers": self.layers,
            "outputs": self.output_names(),
        }

    def output_names(self) -> list[str]:
        """Names of the outputs: what forward returns twice, or in two shapes, is one of the engine's."""
        return list(dict.fromkeys(tensor.name for tensor in self.outputs))

    def names(self) -> list[str]:
        """Names of all layers in order; a further use of one has a number."""
        names, uses = list[str](), dict[str, int]()
        for layer in self.layers:
            reused = layer.get("reuse")
            if reused is not None:
                uses[reused] = uses.get(reused, 0) + 1
            names.append(layer["name"] if reused is None else f"{reused}:{uses[reused]}")
        return names

    def add(self, name: str, settings: Settings, inputs: Sequence[Tensor]) -> str:
        """Adds a layer; gives the name of its output, which no other layer has."""
        taken = {layer.get("name") for layer in self.layers} | {tensor.name for tensor in self.inputs}
        free = name
        count = 1
        while free in taken:
            count += 1
            free = f"{name}_{count}"
        self.layers.append({"name": free, "inputs": [tensor.name for tensor in inputs], **settings})
        return free

    def reuse(self, name: str, inputs: Sequence[Tensor], reverse: bool = False) -> str:
        """Uses a layer again, perhaps the other way round; gives the name of its output."""
        uses = sum(layer.get("reuse") == name for layer in self.layers)
        self.layers.append({"reuse": name, "inputs": [tensor.name for tensor in inputs], **({"reverse": True} if reverse else {})})
        return f"{name}:{uses + 1}"

    def table(self, weight: torch.Tensor) -> Settings | None:
        """The `Embedding` that has this weight."""
        names = {name.removesuffix("/embeddings") for name, held in self.weights.items() if held.tensors[0] is weight}
        kinds = ("Embedding", "ReversibleEmbedding")
        return next((layer for layer in self.layers if layer.get("name") in names and layer["type"] in kinds), None)

    def unary(self, name: str, settings: Settings, x: Tensor, is_positive: bool = False) -> Tensor:
        """A layer that does the same with each number."""
        return replace(x, name=self.add(name, settings, [x]), is_positive=is_positive)

    def shaped(self, name: str, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The numbers of a tensor in another shape."""
        if shape == x.shape:
            return x
        x = self.plain(x)
        name = self.add(name, {"type": "Reshape", "target_shape": list(shape) or [1]}, [x])
        return Tensor(name, shape, tuple(range(len(shape))), is_positive=x.is_positive)

    def ordered(self, x: Tensor, order: tuple[int, ...]) -> Tensor:
        """The tensor with its axes in this order."""
        if x.flat is not None:
            shape, inner = x.flat
            here = [shape[axis] for axis in inner]
            unfolded = self.add(f"{x.name}.unfolded", {"type": "Reshape", "target_shape": here}, [x])
            picture = self.ordered(Tensor(unfolded, shape, inner), tuple(range(len(shape))))
            name = self.add(f"{x.name}.flat", {"type": "Flatten"}, [picture])
            return Tensor(name, x.shape, (0,), is_positive=x.is_positive)
        if x.order == order:
            return x
        dims = [x.order.index(axis) + 1 for axis in order]
        name = self.add(f"{x.name}.permuted", {"type": "Permute", "dims": dims}, [x])
        return replace(x, name=name, order=order)

    def plain(self, x: Tensor) -> Tensor:
        """The tensor with its axes as in PyTorch."""
        return self.ordered(x, tuple(range(len(x.shape))))


def shape_here(x: Tensor) -> list[int]:
    """Shape of a row in the engine, which has no row without an axis."""
    return [x.shape[axis] for axis in x.order] or [1]
