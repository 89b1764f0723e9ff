"""Code of the user's own, traced with symbolic tensors: models, layers and functions."""

from __future__ import annotations

import inspect
import os
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
from keras.src import backend
from keras.src.backend import KerasTensor
from keras.src.models.functional import Functional
from keras.src.ops import node as keras_node
from keras.src.ops.function import map_graph

from ._held import Looked
from ._masks import attended, stands_for
from ._modes import Differs, called, fixed, pairs, populate
from ._nodes import Unsupported

#: Operators that a weight may begin with, and the operations that they are.
_OPERATORS = {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "matmul": "matmul"}


@dataclass
class Trace:
    """Uses of layers and operations between symbolic tensors, in an order in which they can be computed."""

    inputs: list[Any]
    #: Outputs in their structure.
    outputs: Any
    nodes: list[Any]
    #: The line of the user's code that made each node, by its identity.
    places: dict[int, str]
    #: By the identity of nodes: are they in training, whatever the model is? Others are as the model.
    modes: dict[int, bool] = field(default_factory=dict)

    @staticmethod
    def of(inputs: Any, outputs: Any, places: dict[int, str] | None = None, modes: dict[int, bool] | None = None) -> Trace:
        """What lies between symbolic tensors."""
        inputs, flat = keras.tree.flatten(inputs), keras.tree.flatten(outputs)
        _, by_depth, _, _ = map_graph(inputs, flat)
        nodes = [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth] if not node.is_input]
        return Trace(inputs, outputs, nodes, places or {}, modes or {})


class Traced:
    """A model whose `call` is code, with the inputs, outputs and names that a functional model has. All else is the model's own."""

    def __init__(self, model: keras.Model, x: Any) -> None:
        self._model = model
        inputs = keras.tree.map_structure(_input, x)
        # This builds it, as the first batch does in Keras.
        _guarded(lambda: model(inputs))
        self.trace = traced(model, (inputs,), {})
        self.inputs, self.outputs = self.trace.inputs, keras.tree.flatten(self.trace.outputs)
        is_nested = keras.tree.is_nested(inputs)
        self._inputs_struct = keras.tree.pack_sequence_as(inputs, self.inputs) if is_nested else self.inputs[0]
        self._outputs_struct = self.trace.outputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_model"], name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._model(*args, **kwargs)


class Shaped(Traced):
    """A model whose inputs have the shapes of a batch: the same layers, called again on symbolic inputs without `None`."""

    def __init__(self, model: keras.Model, x: Any) -> None:
        inner = getattr(model, "_functional", model)
        self._model, self._functional = model, self
        made: dict[int, Any] = {}
        for tensor, shape in zip(inner.inputs, sizes(x)):
            # A last axis of 1 may be left out.
            shape = (*shape, *[1] * (len(tensor.shape) - 1 - len(shape)))
            row = [given if size is None else size for size, given in zip(tensor.shape[1:], shape)]
            made[id(tensor)] = keras.Input(batch_shape=(None, *row), dtype=tensor.dtype, name=tensor.name)

        def again(value: Any) -> Any:
            return made.get(id(value), value)

        for node in Trace.of(inner.inputs, inner.outputs).nodes:
            # Layers find masks again by themselves.
            masks = [getattr(tensor, "_keras_mask", None) for tensor in node.input_tensors]
            kwargs = {key: value for key, value in node.arguments.kwargs.items() if not any(_is_same(value, mask) for mask in masks)}
            args, kwargs = keras.tree.map_structure(again, (node.arguments.args, kwargs))
            outputs = keras.tree.flatten(node.operation(*args, **kwargs))
            made.update((id(tensor), new) for tensor, new in zip(node.outputs, outputs))
        self.inputs = [made[id(tensor)] for tensor in inner.inputs]
        self._inputs_struct = keras.tree.map_structure(again, inner._inputs_struct)
        self._outputs_struct = keras.tree.map_structure(again, inner._outputs_struct)
        self.outputs = keras.tree.flatten(self._outputs_struct)
        self.trace = Trace.of(self.inputs, self._outputs_struct)


def _is_same(a: Any, b: Any) -> bool:
    """Are two symbolic tensors computed alike, of the same tensors? Keras makes the mask of an `Embedding` again in each call."""
    if a is b or not (isinstance(a, KerasTensor) and isinstance(b, KerasTensor)):
        return a is b and a is not None
    one, other = (tensor._keras_history for tensor in (a, b))
    nodes = [it.operation._inbound_nodes[it.node_index] for it in (one, other)]
    if type(one.operation) is not type(other.operation) or nodes[0].is_input or nodes[1].is_input:
        return False
    flat = [keras.tree.flatten((node.arguments.args, node.arguments.kwargs)) for node in nodes]
    return len(flat[0]) == len(flat[1]) and all(
        _is_same(left, right) if isinstance(left, KerasTensor) else left == right for left, right in zip(*flat)
    )


def sizes(x: Any) -> tuple[Any, ...]:
    """Shapes of rows."""
    return tuple(tuple(np.shape(part)[1:]) for part in keras.tree.flatten(x))


def is_graph(model: Any) -> bool:
    """Is it a sequential or functional model, whose `call` is that of Keras?"""
    return isinstance(model, (Functional, keras.Sequential)) and type(model).call in (Functional.call, keras.Sequential.call)


def traced(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], mode: bool | None = None) -> Trace:
    """What the `call` of a layer or model does with symbolic tensors.

    Args:
        mode: Whether it is in training; `None` if it is in training in `fit` alone.

    Raises:
        Unsupported: If it can't be told from them.
    """
    trace = _once(layer, args, kwargs, mode is not False)
    if mode is not None:
        return trace
    try:
        trace.modes = fixed(trace, _once(layer, args, kwargs, False))
    except Differs:
        try:
            pairs(trace, _once(layer, args, kwargs, True))
        except Differs:
            raise Unsupported("computes something else each time it is called, as with numbers of `np.random`") from None
        problem = "computes something else in training than at inference: `training` may decide of `Dropout` and the like alone"
        raise Unsupported(problem) from None
    return trace


def _once(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], training: bool) -> Trace:
    """What the `call` of a layer or model does, in training or not."""
    fresh: dict[int, Any] = {}

    def symbol(value: Any) -> Any:
        if isinstance(value, KerasTensor) and id(value) not in fresh:
            fresh[id(value)] = _input(value)
            stands_for(fresh[id(value)], value)
        return fresh.get(id(value), value)

    args, kwargs = keras.tree.map_structure(symbol, (args, kwargs))
    # Keras keeps it from code that doesn't take it.
    kwargs.pop("training", None)
    if "training" in inspect.signature(layer.call).parameters:
        kwargs["training"] = training
    places, modes = dict[int, str](), dict[int, bool]()
    with called(layer, training) as mode, backend.StatelessScope() as scope, _noted(places, modes, mode):
        held = {id(variable): _Weight(variable) for variable in layer.variables}
        scope.state_mapping.update(held)
        outputs = _guarded(lambda: layer.call(*args, **kwargs))
        changed = [weight for key, weight in held.items() if scope.state_mapping.get(key) is not weight]
    if changed:
        raise Unsupported(f"changes the variable `{changed[0].variable.name}` in its `call`")
    if any(not isinstance(tensor, KerasTensor) for tensor in keras.tree.flatten(outputs)):
        raise Unsupported("gives something that is no tensor of its inputs")
    return Trace.of(list(fresh.values()), outputs, places, modes)


def traced_function(function: Callable[[Any], Any], like: Any) -> Trace:
    """What a function does with one tensor, of the shape and type of another.

    Raises:
        Unsupported: If it can't be told from it.
    """
    x, places = _input(like), dict[int, str]()
    with _noted(places):
        outputs = _guarded(lambda: function(x))
    if not isinstance(outputs, KerasTensor):
        raise Unsupported("gives no tensor")
    return Trace.of(x, outputs, places)


#: Layers that do with each step of a sequence what `TimeDistributed` would make them do.
_EACH_STEP = (keras.layers.Dense, keras.layers.Activation, keras.layers.ReLU, keras.layers.Softmax, keras.layers.Identity)


def over_time(layer: Any, tensor: Any) -> Trace:
    """What `TimeDistributed` does: its layer on each step, with the same weights.

    Raises:
        Unsupported: If its layer has statistics, which each step would move.
    """
    inner, x = layer.layer, _input(tensor)
    if any(isinstance(part, keras.layers.BatchNormalization) for part in inner._flatten_layers()):
        raise Unsupported("needs a layer without statistics")
    if any(getattr(part, "activity_regularizer", None) is not None for part in inner._flatten_layers()):
        raise Unsupported("needs a layer without `activity_regularizer`")
    if isinstance(inner, _EACH_STEP):
        return Trace.of(x, inner(x))
    steps = [inner(x[:, step]) for step in range(x.shape[1])]
    return Trace.of(x, keras.ops.stack(steps, axis=1))


def reset_before(layer: Any, tensor: Any, *initial: Any) -> Trace:
    """What a `GRU(reset_after=False)` does: its steps one after the other, from an initial state on, if there is one.

    Raises:
        Unsupported: If it has a setting that this has not.
    """
    cell, x, given = layer.cell, _input(tensor), [_input(state) for state in initial]
    if layer.dropout or layer.recurrent_dropout or layer.stateful or layer.zero_output_for_mask:
        raise Unsupported("needs neither dropout nor `stateful` with `reset_after=False`")
    ops, units = keras.ops, layer.units
    read = ops.matmul(x, cell.kernel) + cell.bias if layer.use_bias else ops.matmul(x, cell.kernel)
    states: list[Any] = []
    for step in reversed(range(x.shape[1])) if layer.go_backwards else range(x.shape[1]):
        here, state = read[:, step], next(iter([*states[-1:], *given]), None)
        gates = here[:, : 2 * units]
        if state is not None:
            gates = gates + ops.matmul(state, cell.recurrent_kernel)[:, : 2 * units]
        update, reset = ops.split(cell.recurrent_activation(gates), 2, axis=-1)
        kept = here[:, 2 * units :]
        if state is not None:
            kept = kept + ops.matmul(reset * state, cell.recurrent_kernel)[:, 2 * units :]
        made = (1.0 - update) * cell.activation(kept)
        states.append(made if state is None else made + update * state)
    output = ops.stack(states, axis=1) if layer.return_sequences else states[-1]
    return Trace.of([x, *given], [output, states[-1]] if layer.return_state else output)


def _adapted(layer: Any, x: Any, training: Any = None) -> Any:
    """What an `EinsumDense` with low-rank factors gives, without a sum of weights: its kernel is `kernel + scale · a · b`."""
    ops, (inputs, output) = keras.ops, layer.equation.split("->")
    of_x, of_kernel = inputs.split(",")
    if "." in inputs or of_kernel[-1] != output[-1]:
        raise Unsupported(f"has low-rank factors beside the equation `{layer.equation}`")
    rank = next(letter for letter in "zyxwvutsrqponmlkjihgfedcba" if letter not in inputs)
    reduced = ops.einsum(f"{of_x},{of_kernel[:-1]}{rank}->{output[:-1]}{rank}", x, layer.lora_kernel_a)
    change = ops.einsum(f"{output[:-1]}{rank},{rank}{output[-1]}->{output}", reduced, layer.lora_kernel_b)
    made = ops.einsum(layer.equation, x, layer._kernel) + change * (layer.lora_alpha / layer.lora_rank)
    made = made if layer.bias is None else made + layer.bias
    return made if layer.activation is None else layer.activation(made)


class _Weight:
    """Stands for the value of a variable, which code can't read while it is traced."""

    def __init__(self, variable: Any) -> None:
        self.variable = variable

    def _refuse(self, *_: Any) -> Any:
        if self.variable.name == "seed_generator_state":
            raise Unsupported("draws random numbers by `keras.random`; layers such as `GaussianNoise` and `Dropout` draw them here")
        raise Unsupported("computes with a weight alone; begin with a tensor, such as `ops.matmul(x, weight)`")

    __getattr__ = __getitem__ = __array__ = __iter__ = __bool__ = __float__ = __int__ = __neg__ = __pow__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __matmul__ = __rmatmul__ = _refuse


def _input(value: Any) -> Any:
    dtype = backend.standardize_dtype(getattr(value, "dtype", "float32"))
    dtype = "float32" if dtype == "float64" else dtype
    return keras.Input(batch_shape=(None, *value.shape[1:]), dtype=dtype)


def _guarded(call: Callable[[], Any]) -> Any:
    """What code gives; an error of its own with its line."""
    try:
        return call()
    except Unsupported as error:
        raise Unsupported(f"{_first_words(error)}{_line(error)}") from error
    except Exception as error:
        text = f"can't be traced with symbolic tensors: {type(error).__name__}: {_first_words(error)}"
        raise Unsupported(f"{text}{_line(error)}") from error


def _first_words(error: BaseException) -> str:
    """The first line of a message, without what Keras writes around it."""
    lines = [line.strip() for line in re.sub("\x1b\\[[0-9]*m", "", str(error)).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("Exception encountered when calling"):
        del lines[0]
    return lines[0] if lines else ""


def _line(error: BaseException | None) -> str:
    """The last line of the user's code in the tracebacks of an error and of what it came of."""
    while error is not None:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
        if frames:
            return f" (at {frames[-1].filename}:{frames[-1].lineno})"
        error = error.__cause__ or error.__context__
    return ""


#: Folders whose code is none of the user's.
_OTHERS = tuple(f"/{folder}/" for folder in ("keras", "manyhands_ml", "jax", "jaxlib", "torch", "tensorflow", "numpy", "optree"))


def _is_users(filename: str) -> bool:
    if filename.startswith(os.path.dirname(__file__)):
        return False
    filename = filename.replace("\\", "/")
    return not filename.startswith("<frozen") and not any(f"site-packages{folder}" in filename for folder in _OTHERS)


@contextmanager
def _noted(
    places: dict[int, str], modes: dict[int, bool] | None = None, mode: Callable[[Any], bool] = lambda operation: True
) -> Iterator[None]:
    """Notes the line of the user's code that makes each node, and whether the node is in training.

    It lets a weight be the first factor of a tensor, and an `Embedding` look up places that are known. An array that is stretched to
    as many rows as a batch has stays as it is: all rows are alike. Attention with a mask of code's own is one operation, and the
    layers that make its parts are what their code says.
    """
    made, add_loss, look_up = keras_node.Node.__init__, keras.Layer.add_loss, keras.layers.Embedding.call
    attention, stretch = keras.layers.MultiHeadAttention, keras.ops.broadcast_to
    compute = attention._compute_attention
    inlined = (keras.layers.EinsumDense, attention)
    kind = keras.Variable
    names = [f"__{name}__" for name in _OPERATORS]
    plain, own = {name: getattr(kind, name) for name in names}, [name for name in names if name in vars(kind)]

    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        if modes is not None:
            modes[id(self)] = mode(self.operation)
        frame = inspect.currentframe()
        while frame is not None and not _is_users(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is not None:
            places[id(self)] = f"{frame.f_code.co_filename}:{frame.f_lineno}"

    def no_loss(self: Any, loss: Any) -> None:
        raise Unsupported("adds a loss in its `call`: make what it needs an output, and give `compile` a loss of your own of this output")

    def looked(self: Any, inputs: Any) -> Any:
        return look_up(self, inputs) if isinstance(inputs, KerasTensor) else Looked(self, backend.convert_to_numpy(inputs))

    def stretched(x: Any, shape: Any) -> Any:
        is_of_batch = not isinstance(x, KerasTensor) and len(shape) > 0 and shape[0] is None
        return stretch(x, (1, *shape[1:]) if is_of_batch else shape)

    def inline(self: Any, *args: Any, **kwargs: Any) -> Any:
        is_code = type(self) is not attention and self.built
        is_traced = any(isinstance(tensor, KerasTensor) for tensor in keras.tree.flatten([args, kwargs]))
        if not (is_code and is_traced):
            return keras.Layer.__call__(self, *args, **kwargs)
        # These are Keras' own call's, which is left out.
        if self.activity_regularizer is not None or self.dtype_policy.name != "float32":
            raise Unsupported(f"has a `{type(self).__name__}` with `activity_regularizer`, or whose `dtype` is not float32")
        populate(self, args, kwargs)
        return _adapted(self, *args) if getattr(self, "lora_enabled", False) else self.call(*args, **kwargs)

    def operator(name: str) -> Any:
        operation = getattr(keras.ops, _OPERATORS[name.strip("_")])

        def of_both(self: Any, other: Any) -> Any:
            return operation(self, other) if isinstance(other, KerasTensor) else plain[name](self, other)

        return of_both

    try:
        keras_node.Node.__init__, keras.Layer.add_loss, keras.layers.Embedding.call = noted, no_loss, looked
        attention._compute_attention, keras.ops.broadcast_to = attended, stretched
        for layer in inlined:
            layer.__call__ = inline
        for name in names:
            setattr(kind, name, operator(name))
        yield
    finally:
        keras_node.Node.__init__, keras.Layer.add_loss, keras.layers.Embedding.call = made, add_loss, look_up
        attention._compute_attention, keras.ops.broadcast_to = compute, stretch
        for layer in inlined:
            del layer.__call__
        for name, method in plain.items():
            if name in own:
                setattr(kind, name, method)
            else:
                delattr(kind, name)
