"""Operations of `keras.ops` as layers of the engine, and weights of the user's own that they read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
from keras.src.backend import KerasTensor

from ._held import Held, Looked, Reshaped, plain
from ._layers import Settings
from ._masks import Attended
from ._nodes import Graph, Node, Unsupported

#: Products of two tensors hold so many numbers for each row at most: they are made before they are added.
MOST_PRODUCTS = 1 << 20

#: Activation functions among the operations, by class.
_FUNCTIONS = {
    **{name.title().replace("_", ""): name for name in "relu relu6 sigmoid tanh silu selu softplus softsign hard_sigmoid hard_silu".split()},
    **{name: name.lower() for name in ("Log", "Reciprocal", "Sqrt")},
    "Exp": "exponential",
}
#: Operations on two tensors, by class: the layer that does the same.
_OF_TWO = {"Add": "Add", "Maximum": "Maximum", "Minimum": "Minimum", "Multiply": "Multiply", "Subtract": "Subtract"}
#: Operations that leave numbers and axes as they are.
_SAME = ("Copy", "ConvertToTensor")
#: Operations that a model may need most, and what to do without.
_LACKING = {
    "StopGradient": "is not supported: freeze the layers before it, or make two models",
}


@dataclass(frozen=True)
class Value:
    """A tensor of the engine: its name, and the shape of a row."""

    name: str
    shape: tuple[int, ...]
    #: Is it true or false in Keras? It is 1 or 0 here.
    is_bool: bool = False


class Writer:
    """Writes what one operation does as layers of the engine."""

    def __init__(self, graph: Graph, name: str) -> None:
        self._graph, self._name, self._count = graph, name, 0

    def layer(self, kind: str, inputs: Sequence[Value], shape: Sequence[int], held: tuple[str, Any] | None = None, **settings: Any) -> Value:
        """Adds a layer that gives rows of a shape; `held` is the name of its weight, and the variable or the array behind it."""
        self._count += 1
        name, reads = f"{self._name}.{self._count}", [value.name for value in inputs]
        node = Node(name, name, None, {"type": kind, **settings}, reads, is_first=True)
        if held is not None:
            node = self._held(node, held[0], _variable(held[1]))
        self._graph.nodes.append(node)
        return Value(node.name, tuple(int(axis) for axis in shape))

    def _held(self, node: Node, weight: str, variable: Any) -> Node:
        """The use of a layer with a weight: a further use of one that has this variable before."""
        for kind in ("regularizer", "constraint"):
            if getattr(variable, kind, None) is not None:
                raise Unsupported(f"reads the weight `{variable.name}`, whose {kind} is not supported")
        if not variable.trainable:
            node.settings["trainable"] = False
        first = self._graph.held.setdefault(id(variable), node)
        if first is not node and first.settings == node.settings:
            uses = sum(other.layer_name == first.layer_name for other in self._graph.nodes)
            return replace(first, name=f"{first.layer_name}:{uses}", inputs=node.inputs, is_first=False)
        node.layer, node.weights = Held(variable), {weight: "variable"}
        return node

    def named(self, value: Value) -> Value:
        """The last layer under the name of the operation."""
        last = self._graph.nodes[-1] if self._count else None
        if last is None or last.name != value.name or not last.is_first:
            return value
        last.name = last.layer_name = self._name
        return Value(self._name, value.shape)

    # Axes.

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """The same numbers with other axes: nothing is copied."""
        return x if tuple(shape) == x.shape else self.layer("Reshape", [x], shape, target_shape=[int(axis) for axis in shape])

    def crop(self, x: Value, axis: int, begin: int, end: int) -> Value:
        """The places from `begin` up to `end` of an axis."""
        before, size, behind = _around(x.shape, axis)
        if (begin, end) == (0, size):
            return x
        if begin >= end:
            raise Unsupported("gives a tensor without numbers, which is not supported")
        shape = (*x.shape[:axis], end - begin, *x.shape[axis + 1 :])
        if before == 1:
            flat = self.layer("Cropping1D", [self.reshape(x, (size, behind))], (end - begin, behind), cropping=[begin, size - end])
        else:
            sides = [[0, 0], [begin, size - end]]
            flat = self.layer("Cropping2D", [self.reshape(x, (before, size, behind))], (before, end - begin, behind), cropping=sides)
        return self.reshape(flat, shape)

    def permute(self, x: Value, order: Sequence[int]) -> Value:
        """Axes in another order."""
        if list(order) == sorted(order):
            return x
        return self.layer("Permute", [x], [x.shape[axis] for axis in order], dims=[axis + 1 for axis in order])

    def concatenate(self, parts: Sequence[Value], axis: int) -> Value:
        """Tensors one after the other along an axis."""
        if len(parts) == 1:
            return parts[0]
        first = parts[0].shape
        length = sum(part.shape[axis] for part in parts)
        before = math.prod(first[:axis])
        flat = [self.reshape(part, (before, math.prod(part.shape[axis:]))) for part in parts]
        joined = self.layer("Concatenate", flat, (before, sum(part.shape[1] for part in flat)), axis=-1)
        return self.reshape(joined, (*first[:axis], length, *first[axis + 1 :]))

    def stack(self, parts: Sequence[Value], axis: int) -> Value:
        """Tensors one after the other along a new axis."""
        shape = parts[0].shape
        return self.concatenate([self.reshape(part, (*shape[:axis], 1, *shape[axis:])) for part in parts], axis)

    # Numbers.

    def affine(self, x: Value, scale: Any = 1.0, offset: Any = 0.0) -> Value:
        """`scale x + offset`, with one number for all, or one for each channel."""
        if np.all(np.asarray(scale) == 1.0) and np.all(np.asarray(offset) == 0.0):
            return x
        scale, offset = (np.asarray(values, np.float64).tolist() for values in (scale, offset))
        return self.layer("Rescaling", [x], x.shape, scale=scale, offset=offset)

    def activation(self, x: Value, function: str) -> Value:
        """A function of each number, or softmax."""
        return self.layer("Activation", [x], x.shape, activation=function)

    def two(self, kind: str, a: Value, b: Value) -> Value:
        """An operation on two tensors, whose axes of 1 are stretched."""
        rank = max(len(a.shape), len(b.shape))
        a, b = (self.reshape(value, (*[1] * (rank - len(value.shape)), *value.shape)) for value in (a, b))
        return self.layer(kind, [a, b], np.broadcast_shapes(a.shape, b.shape))

    def pool(self, kind: str, x: Value, axes: Sequence[int], keeps: bool) -> Value:
        """Mean or maximum over some axes."""
        axes = sorted(axis % len(x.shape) for axis in axes)
        rest = [axis for axis in range(len(x.shape)) if axis not in axes]
        left = tuple(x.shape[axis] for axis in rest)
        size = math.prod(x.shape[axis] for axis in axes)
        flat = self.reshape(self.permute(x, [*axes, *rest]), (size, math.prod(left)))
        pooled = self.layer(kind, [flat], (math.prod(left),))
        return self.reshape(pooled, [1 if axis in axes else size for axis, size in enumerate(x.shape)] if keeps else left or (1,))

    def mean(self, x: Value, axes: Sequence[int], keeps: bool = False) -> Value:
        """The mean over some axes."""
        return self.pool("GlobalAveragePooling1D", x, axes, keeps)

    def sum(self, x: Value, axes: Sequence[int], keeps: bool = False) -> Value:
        """The sum over some axes."""
        return self.affine(self.mean(x, axes, keeps), float(math.prod(x.shape[axis] for axis in axes)))

    # Weights and products.

    def weight(self, values: Any, near: Value) -> Value:
        """A variable or an array as a tensor, the same for each row; `near` is a tensor whose numbers don't matter."""
        shape = tuple(int(axis) for axis in values.shape)
        if id(values) in self._graph.tensors:
            return self.reshape(Value(*self._graph.tensors[id(values)]), shape)
        if isinstance(values, Looked):
            return self.looked(values, near)
        size = math.prod(shape)
        one = self.reshape(self.crop(self.reshape(near, (math.prod(near.shape), 1)), 0, 0, 1), (1,))
        places = self.layer("RepeatVector", [one], (size, 1), n=size)
        table = self.layer("PositionEmbedding", [places], (size, 1), ("embeddings", values), sequence_length=size)
        if isinstance(values, keras.Variable):
            self._graph.tensors[id(values)] = (table.name, table.shape)
        return self.reshape(table, shape)

    def looked(self, values: Looked, near: Value) -> Value:
        """Vectors of an `Embedding` at places that are known."""
        layer, places = values.layer, self.weight(values.places.astype(np.float32), near)
        sizes = {"input_dim": layer.input_dim, "output_dim": layer.output_dim}
        return self.layer("Embedding", [places], values.shape, ("embeddings", layer._embeddings), **sizes)

    def dense(self, x: Value, kernel: Any, n_axes: int = 1) -> Value:
        """The product of a tensor's last axes and weights, of which these are the first."""
        rest, made = x.shape[: len(x.shape) - n_axes], tuple(map(int, kernel.shape[n_axes:]))
        flat, units = self.reshape(x, (*rest, math.prod(x.shape[len(rest) :]))), math.prod(made)
        product = self.layer("Dense", [flat], (*rest, units), ("kernel", kernel), units=units, use_bias=False)
        return self.reshape(product, (*rest, *made))

    def product(self, a: Value, b: Value) -> Value:
        """`a [..., i, k]` times `b [..., k, j]`."""
        rows, inner, cols = a.shape[-2], a.shape[-1], b.shape[-1]
        rank = max(len(a.shape), len(b.shape)) - 2
        heads = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        if math.prod(heads) * rows * inner * cols > MOST_PRODUCTS:
            raise Unsupported(f"makes {math.prod(heads) * rows * inner * cols} products for each row; at most {MOST_PRODUCTS} are made")
        b = self.permute(b, [*range(len(b.shape) - 2), len(b.shape) - 1, len(b.shape) - 2])
        left = self.reshape(a, (*[1] * (rank + 2 - len(a.shape)), *a.shape[:-1], 1, inner))
        right = self.reshape(b, (*[1] * (rank + 2 - len(b.shape)), *b.shape[:-2], 1, cols, inner))
        return self.sum(self.two("Multiply", left, right), [rank + 2])

    def attention(self, sequences: Sequence[Value], scale: float | None, is_causal: bool, keys: Value | None = None, dropout: float = 0.0) -> Value:
        """`softmax(query · keyᵀ · scale) · value` of `[time, heads, dim]`, where `keys` count; `scale` is `1 / √dim` if not given."""
        query, key, value = sequences
        scaled = self.affine(query, 1.0 if scale is None else scale * math.sqrt(query.shape[-1]))
        shape, reads = (*query.shape[:2], value.shape[-1]), [scaled, key, value, *([keys] if keys else [])]
        return self.layer("DotProductAttention", reads, shape, use_causal_mask=is_causal, dropout=dropout)


def _variable(values: Any) -> Any:
    if isinstance(values, keras.Variable):
        return values
    return keras.Variable(np.asarray(values, np.float32), trainable=False)


def _around(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """Numbers before an axis, its length, and numbers behind it."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


@dataclass
class Call:
    """A call of an operation: its arguments, in which tensors are those of the engine."""

    writer: Writer
    operation: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    #: Shape of a row of what comes out, of the first of several.
    shape: tuple[int, ...]

    @property
    def x(self) -> Value:
        """The first argument."""
        if not self.args or not isinstance(self.args[0], Value):
            raise Unsupported("needs a tensor as its first argument")
        return self.args[0]

    def axis(self, axis: Any, rank: int | None = None) -> int:
        """An axis of a row, by Keras' number of it, which counts the batch."""
        rank = len(self.x.shape) if rank is None else rank
        place = int(axis) if axis >= 0 else int(axis) + rank + 1
        if place == 0:
            raise Unsupported("works along the batch, whose rows are split over the adapters")
        return place - 1

    def axes(self) -> list[int]:
        """The axes that the operation takes away."""
        given = self.operation.axis
        if given is None:
            raise Unsupported("works along the batch, whose rows are split over the adapters: name its axes")
        return [self.axis(axis) for axis in (given if isinstance(given, (list, tuple)) else [given])]


def written(writer: Writer, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shape: tuple[int, ...]) -> list[Value]:
    """What an operation gives, written as layers.

    Raises:
        Unsupported: If the engine has nothing that does it.
    """
    kind = type(operation).__name__
    make = _attention if isinstance(operation, Attended) else _OPERATIONS.get(kind)
    if make is None or not type(operation).__module__.startswith(("keras.", "manyhands_ml.")):
        raise Unsupported(_LACKING.get(kind, "is not supported: use a layer in its place"))
    given = {key: value for key, value in kwargs.items() if value is not None}
    known = _NAMED.get(kind, {})
    other = [key for key, value in given.items() if key not in known or known[key] not in (..., value)]
    if other:
        raise Unsupported(f"has the argument `{other[0]}={given[other[0]]}`, which is not supported")
    made = make(Call(writer, operation, args, given, shape))
    return made if isinstance(made, list) else [writer.named(made)]


def _of_two(call: Call, kind: str = "") -> Value:
    """An operation on two tensors, a tensor and a number, or a tensor and weights."""
    kind = kind or _OF_TWO[type(call.operation).__name__]
    a, b = call.args
    if isinstance(a, Value) and isinstance(b, Value):
        return call.writer.two(kind, a, b)
    x, other = (a, b) if isinstance(a, Value) else (b, a)
    number = _numbers(other, x)
    if number is None or kind in ("Maximum", "Minimum"):
        return _with_weight(call, kind, x, other, is_first=x is a)
    if kind == "Multiply":
        return call.writer.affine(x, scale=number)
    if kind == "Add":
        return call.writer.affine(x, offset=number)
    return call.writer.affine(x, offset=-number) if x is a else call.writer.affine(x, -1.0, number)


def _with_weight(call: Call, kind: str, x: Value, other: Any, is_first: bool) -> Value:
    writer, number = call.writer, _number(other)
    if number is not None:
        # A tensor of one number for all.
        other = np.full((1,), number, np.float32)
    if not hasattr(other, "shape"):
        raise Unsupported(f"has an argument that is neither a tensor nor a number: {type(other).__name__}")
    shape = tuple(other.shape)
    if len(shape) == len(x.shape) + 1:
        if shape[0] != 1:
            raise Unsupported(f"has an array of shape {shape}, whose first axis is that of the batch")
        return _with_weight(call, kind, x, Reshaped(other, shape[1:]), is_first)
    if kind == "Multiply" and len(shape) == 1 and shape == x.shape[-1:] and not isinstance(other, Looked):
        return writer.layer("LayerScale", [x], x.shape, ("gamma", plain(other)), projection_dim=shape[0])
    weight = writer.reshape(writer.weight(plain(other), x), shape)
    return writer.two(kind, *((x, weight) if is_first else (weight, x)))


#: Arguments that are no numbers, though some may be read as such.
_NO_NUMBERS = (keras.Variable, Looked, Value, KerasTensor, str, bool)


def _number(value: Any) -> float | None:
    """A number that no weight holds."""
    if isinstance(value, _NO_NUMBERS) or value is None:
        return None
    array = np.asarray(value)
    return float(array) if array.dtype.kind in "fiu" and array.size == 1 and array.ndim == 0 else None


def _numbers(value: Any, x: Value) -> Any:
    """A number, or an array with one for each channel; `None` if it is neither."""
    if isinstance(value, _NO_NUMBERS) or value is None:
        return None
    array = np.asarray(value, np.float64)
    # It must not make the tensor larger: a row of channels, behind axes of 1.
    if array.size == 1 and array.ndim <= len(x.shape) + 1:
        return array.item()
    is_of_channels = array.size == x.shape[-1] == array.shape[-1] and len(x.shape) + 1 >= array.ndim
    return array.ravel() if is_of_channels else None


def _divide(call: Call) -> Value:
    x, other = call.args
    if isinstance(other, Value):
        return _of_two(replace(call, args=(x, call.writer.activation(other, "reciprocal"))), "Multiply")
    number = _numbers(other, x)
    if number is None or not np.all(number):
        raise Unsupported("is not supported: it needs a tensor, divided by a tensor, a number or one for each channel")
    return call.writer.affine(x, scale=1.0 / number)


def _power(call: Call) -> Value:
    exponent = _number(call.args[1])
    if not isinstance(call.args[0], Value) or exponent is None or abs(exponent) not in (0.5, 1.0, 2.0, 3.0, 4.0):
        raise Unsupported("needs the power 2, 3, 4, 1/2 or -1 to -4 of a tensor")
    made = call.x if abs(exponent) != 0.5 else call.writer.activation(call.x, "sqrt")
    for _ in range(int(abs(exponent)) - 1):
        made = call.writer.two("Multiply", made, call.x)
    return made if exponent > 0.0 else call.writer.activation(made, "reciprocal")


def _unequal(call: Call) -> Value:
    """1 where a number is another than the given one, else 0."""
    x, number = call.args if isinstance(call.args[0], Value) else call.args[::-1]
    if not isinstance(x, Value) or _number(number) is None:
        raise Unsupported("needs a tensor and a number")
    flat = call.writer.reshape(x, (math.prod(x.shape), 1))
    found = call.writer.layer("ComputeMask", [flat], (math.prod(x.shape),), mask_value=_number(number))
    return call.writer.reshape(found, x.shape)


def _not(call: Call) -> Value:
    if not call.x.is_bool:
        raise Unsupported("needs a tensor of true and false")
    return call.writer.affine(call.x, -1.0, 1.0)


def _where(call: Call) -> Value:
    """`condition a + (1 - condition) b`."""
    condition, writer = call.args[0], call.writer
    tensors = [part for part in call.args if isinstance(part, Value)]
    if not isinstance(condition, Value) and hasattr(condition, "shape"):
        values = np.asarray(condition).astype(np.float32)
        if values.ndim == len(tensors[0].shape) + 1 and values.shape[0] == 1:
            values = values[0]
        condition = replace(writer.weight(values, tensors[0]), is_bool=True)
    if len(call.args) != 3 or not isinstance(condition, Value) or not condition.is_bool:
        raise Unsupported("needs a condition by `==` or `!=` with a number, or an array of true and false, and what to take")
    sides = [condition, writer.affine(condition, -1.0, 1.0)]
    parts = []
    for side, part in zip(sides, call.args[1:]):
        number = None if isinstance(part, Value) else _number(part)
        if number is None and not isinstance(part, Value):
            raise Unsupported("takes tensors and numbers")
        parts.append(writer.two("Multiply", side, part) if number is None else writer.affine(side, number))
    return writer.two("Add", *parts)


def _square(call: Call) -> Value:
    return call.writer.two("Multiply", call.x, call.x)


def _absolute(call: Call) -> Value:
    # At 0 the slope is 0, as on TensorFlow and PyTorch.
    sides = (call.writer.activation(call.writer.affine(call.x, sign), "relu") for sign in (1.0, -1.0))
    return call.writer.two("Add", *sides)


def _clip(call: Call) -> Value:
    low, high = _number(call.operation.x_min), _number(call.operation.x_max)
    if low is None or high is None or low >= high:
        raise Unsupported("needs two numbers, the first below the second")
    writer = call.writer
    above = writer.layer("ReLU", [writer.affine(call.x, offset=-low)], call.x.shape, max_value=high - low)
    return writer.affine(above, offset=low)


def _gelu(call: Call) -> Value:
    return call.writer.layer("GELU", [call.x], call.x.shape, approximate=bool(call.operation.approximate))


def _leaky_relu(call: Call) -> Value:
    return call.writer.layer("LeakyReLU", [call.x], call.x.shape, negative_slope=float(call.operation.negative_slope))


def _elu(call: Call) -> Value:
    return call.writer.layer("ELU", [call.x], call.x.shape, alpha=float(call.operation.alpha))


def _softmax(call: Call) -> Value:
    axis = call.axis(call.operation.axis)
    order = [*(place for place in range(len(call.x.shape)) if place != axis), axis]
    moved = call.writer.permute(call.x, order)
    made = call.writer.layer("Softmax", [moved], moved.shape)
    return call.writer.permute(made, [order.index(place) for place in range(len(order))])


def _mean(call: Call) -> Value:
    return call.writer.mean(call.x, call.axes(), bool(call.operation.keepdims))


def _sum(call: Call) -> Value:
    return call.writer.sum(call.x, call.axes(), bool(call.operation.keepdims))


def _max(call: Call) -> Value:
    return call.writer.pool("GlobalMaxPooling1D", call.x, call.axes(), bool(call.operation.keepdims))


def _min(call: Call) -> Value:
    writer = call.writer
    made = writer.pool("GlobalMaxPooling1D", writer.affine(call.x, -1.0), call.axes(), bool(call.operation.keepdims))
    return writer.affine(made, -1.0)


def _variance(call: Call) -> Value:
    writer, axes = call.writer, call.axes()
    apart = writer.two("Subtract", call.x, writer.mean(call.x, axes, keeps=True))
    return writer.mean(writer.two("Multiply", apart, apart), axes, bool(call.operation.keepdims))


def _shaped(call: Call) -> Value:
    """The same numbers with the axes of what comes out: `reshape`, `squeeze`, `expand_dims`."""
    if math.prod(call.shape) != math.prod(call.x.shape):
        raise Unsupported(f"makes rows of shape {call.shape} of rows of shape {call.x.shape}")
    return call.writer.reshape(call.x, call.shape)


def _transpose(call: Call) -> Value:
    axes = call.operation.axes
    if axes is None or axes[0] != 0:
        raise Unsupported("needs the batch as its first axis")
    return call.writer.permute(call.x, [call.axis(axis) for axis in axes[1:]])


def _swapaxes(call: Call) -> Value:
    one, other = call.axis(call.operation.axis1), call.axis(call.operation.axis2)
    order = list(range(len(call.x.shape)))
    order[one], order[other] = other, one
    return call.writer.permute(call.x, order)


def _moveaxis(call: Call) -> Value:
    operation = call.operation
    sources, targets = ([call.axis(axis) for axis in given] for given in (operation.source, operation.destination))
    order = [axis for axis in range(len(call.x.shape)) if axis not in sources]
    for target, source in sorted(zip(targets, sources)):
        order.insert(target, source)
    return call.writer.permute(call.x, order)


def _parts(call: Call) -> list[Value]:
    """Tensors of a list."""
    parts = call.args[0]
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, Value) for part in parts):
        raise Unsupported("needs tensors alone")
    return list(parts)


def _concatenate(call: Call) -> Value:
    parts = _parts(call)
    return call.writer.concatenate(parts, call.axis(call.operation.axis, len(parts[0].shape)))


def _stack(call: Call) -> Value:
    parts = _parts(call)
    return call.writer.stack(parts, call.axis(call.operation.axis, len(parts[0].shape) + 1))


def _split(call: Call) -> list[Value]:
    axis = call.axis(call.operation.axis)
    size, given = call.x.shape[axis], call.operation.indices_or_sections
    ends = [size // given * (part + 1) for part in range(given)] if isinstance(given, int) else [*map(int, given), size]
    return [call.writer.crop(call.x, axis, begin, end) for begin, end in zip([0, *ends], ends)]


def _repeat(call: Call) -> Value:
    if call.operation.axis is None or not isinstance(call.operation.repeats, int):
        raise Unsupported("needs one number of repeats, and an axis")
    axis = call.axis(call.operation.axis)
    parts = [call.writer.reshape(call.x, (*call.x.shape[: axis + 1], 1, *call.x.shape[axis + 1 :]))] * call.operation.repeats
    return call.writer.reshape(call.writer.concatenate(parts, axis + 1), call.shape)


def _tile(call: Call) -> Value:
    repeats = call.operation.repeats
    if isinstance(repeats, int) or len(repeats) != len(call.x.shape) + 1 or repeats[0] != 1:
        raise Unsupported("needs a number for each axis, which is 1 for the batch")
    made = call.x
    for axis, count in enumerate(repeats[1:]):
        made = call.writer.concatenate([made] * int(count), axis)
    return made


def _flip(call: Call) -> Value:
    made = call.x
    for axis in call.axes():
        made = call.writer.concatenate([call.writer.crop(made, axis, at, at + 1) for at in reversed(range(made.shape[axis]))], axis)
    return made


def _pad(call: Call) -> Value:
    widths = [tuple(map(int, width)) for width in call.operation.pad_width]
    if call.operation.mode != "constant" or _number(call.kwargs.get("constant_values", 0)) != 0.0 or widths[0] != (0, 0):
        raise Unsupported("needs zeros, and none around the batch")
    made = call.x
    for axis, (before, behind) in enumerate(widths[1:]):
        front, size, rest = _around(made.shape, axis)
        if (before, behind) != (0, 0):
            sides, shape = [[0, 0], [before, behind]], (*made.shape[:axis], size + before + behind, *made.shape[axis + 1 :])
            flat = call.writer.reshape(made, (front, size, rest))
            padded = call.writer.layer("ZeroPadding2D", [flat], (front, size + before + behind, rest), padding=sides)
            made = call.writer.reshape(padded, shape)
    return made


def _item(call: Call) -> Value:
    """`x[key]` with places, slices, `...` and `None`."""
    key = call.args[1] if isinstance(call.args[1], tuple) else (call.args[1],)
    given = sum(part is not None and part is not Ellipsis for part in key)
    if Ellipsis not in key:
        key = (*key, Ellipsis)
    at = key.index(Ellipsis)
    key = (*key[:at], *[slice(None)] * (len(call.x.shape) + 1 - given), *key[at + 1 :])
    if not isinstance(key[0], slice) or key[0] != slice(None):
        raise Unsupported("takes rows of the batch apart, which is split over the adapters: begin with `:`")
    made, axis = call.x, 0
    for part in key[1:]:
        if part is None:
            continue
        if isinstance(part, slice):
            begin, end, step = part.indices(made.shape[axis])
            if step != 1 or end <= begin:
                raise Unsupported("needs slices without a step that hold something")
        elif isinstance(part, (int, np.integer)):
            begin = int(part) % made.shape[axis]
            end = begin + 1
        else:
            raise Unsupported(f"needs places and slices, but has {type(part).__name__}")
        made, axis = call.writer.crop(made, axis, begin, end), axis + 1
    return call.writer.reshape(made, call.shape)


def _matmul(call: Call) -> Value:
    a, b = call.args
    if isinstance(a, Value) and not isinstance(b, Value) and len(b.shape) == 2:
        return call.writer.dense(a, b)
    if isinstance(a, Value) and isinstance(b, Value) and min(len(a.shape), len(b.shape)) >= 2:
        return call.writer.product(a, b)
    raise Unsupported("needs a tensor and a matrix of weights, or two tensors that have rows and columns")


def _einsum(call: Call) -> Value:
    """A sum of products of two tensors, or of a tensor and weights."""
    inputs, arrow, output = call.operation.subscripts.replace(" ", "").partition("->")
    names = inputs.split(",")
    if len(names) != 2 or not arrow or "." in inputs or any(len(set(name)) != len(name) for name in (*names, output)):
        raise Unsupported(f"needs two factors with axes by letters, but has `{call.operation.subscripts}`")
    x, other = call.args
    if not isinstance(x, Value):
        (x, other), names = (other, x), names[::-1]
    batch, (of_x, of_other) = names[0][0], names
    if not isinstance(x, Value) or not output.startswith(batch) or batch in of_x[1:]:
        raise Unsupported("needs the batch as the first axis of tensors and result")
    of_x = of_x[1:]
    if isinstance(other, Value):
        if of_other[0] != batch:
            raise Unsupported("needs the batch as the first axis of both tensors")
        of_other = of_other[1:]
    elif batch in of_other:
        raise Unsupported("needs weights without the batch")
    else:
        # The last axes of the tensor are the first of the weights: a product with a matrix.
        begin = next((at for at in range(len(of_x)) if of_other.startswith(of_x[at:])), len(of_x))
        if begin < len(of_x) and output[1:] == of_x[:begin] + of_other[len(of_x) - begin :]:
            return call.writer.dense(x, other, len(of_x) - begin)
        other = call.writer.weight(other, x)
    return _summed(call.writer, (x, of_x), (other, of_other), output[1:])


def _summed(writer: Writer, one: tuple[Value, str], other: tuple[Value, str], output: str) -> Value:
    """Products of two tensors by the names of their axes, added over those that the result lacks."""
    sizes = {name: size for value, names in (one, other) for name, size in zip(names, value.shape)}
    letters = [*output, *(name for name in sizes if name not in output)]
    if math.prod(sizes.values()) > MOST_PRODUCTS:
        raise Unsupported(f"makes {math.prod(sizes.values())} products for each row; at most {MOST_PRODUCTS} are made")
    aligned = []
    for value, names in (one, other):
        ordered = writer.permute(value, [names.index(name) for name in letters if name in names])
        aligned.append(writer.reshape(ordered, [sizes[name] if name in names else 1 for name in letters]))
    made = writer.two("Multiply", *aligned)
    added = list(range(len(output), len(letters)))
    return writer.sum(made, added) if added else made


def _attention(call: Call) -> Value:
    operation, (keys, is_causal) = call.operation, call.kwargs.get("mask", (None, False))
    if getattr(operation, "attn_logits_soft_cap", None) is not None or any(given is not None for given in call.args[3:]):
        raise Unsupported("needs no bias or cap, and its mask by name")
    scale = call.kwargs.get("scale", getattr(operation, "scale", None))
    is_causal = is_causal or bool(operation.is_causal)
    return call.writer.attention(call.args[:3], None if scale is None else float(scale), is_causal, keys, getattr(operation, "dropout", 0.0))


def _named_function(call: Call) -> Value:
    return call.writer.activation(call.x, _FUNCTIONS[type(call.operation).__name__])


def _cast(call: Call) -> Value:
    if keras.backend.standardize_dtype(call.operation.dtype) != "float32":
        raise Unsupported(f'needs "float32", but is "{call.operation.dtype}"')
    return call.x


#: Named arguments of calls, by class: the value that they need, or `...` for any.
_NAMED: dict[str, dict[str, Any]] = {"Pad": {"constant_values": ...}, "Attended": {"mask": ...}, "DotProductAttention": {"scale": ..., "mask": ...}, "Max": {"initial": None}}

#: What operations are in the engine, by class.
_OPERATIONS: dict[str, Callable[[Call], Value | list[Value]]] = {
    **dict.fromkeys(_OF_TWO, _of_two),
    **dict.fromkeys(_FUNCTIONS, _named_function),
    **dict.fromkeys(_SAME, lambda call: call.x),
    "Absolute": _absolute,
    "Cast": _cast,
    "Clip": _clip,
    "Concatenate": _concatenate,
    "Divide": _divide,
    "Dot": _matmul,
    "DotProductAttention": _attention,
    "Einsum": _einsum,
    "Elu": _elu,
    "Equal": lambda call: call.writer.affine(_unequal(call), -1.0, 1.0),
    "ExpandDims": _shaped,
    "Flip": _flip,
    "Gelu": _gelu,
    "GetItem": _item,
    "LeakyRelu": _leaky_relu,
    "LogicalNot": _not,
    "Matmul": _matmul,
    "Max": _max,
    "Mean": _mean,
    "Min": _min,
    "Moveaxis": _moveaxis,
    "Negative": lambda call: call.writer.affine(call.x, -1.0),
    "NotEqual": _unequal,
    "Pad": _pad,
    "Power": _power,
    "Repeat": _repeat,
    "Reshape": _shaped,
    "Rsqrt": lambda call: call.writer.activation(call.writer.activation(call.x, "sqrt"), "reciprocal"),
    "Softmax": _softmax,
    "Split": _split,
    "Square": _square,
    "Squeeze": _shaped,
    "Stack": _stack,
    "Sum": _sum,
    "Swapaxes": _swapaxes,
    "Tile": _tile,
    "Transpose": _transpose,
    "TrueDivide": _divide,
    "Var": _variance,
    "Where": _where,
}
