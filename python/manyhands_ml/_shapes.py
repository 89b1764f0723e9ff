"""Models whose inputs have `None` in their shapes, such as `keras.Input((None,))`: a plan for each length or size that comes."""

from __future__ import annotations

import warnings
from typing import Any

import keras
import numpy as np
from keras.src.trainers.data_adapters import data_adapter_utils
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.epoch_iterator import EpochIterator

from ._compiled import outside
from ._engine import Engine
from ._front import front
from ._traced import Trace, Traced, is_graph

#: Engines that are kept: each holds a copy of the weights on each adapter.
_MOST = 4


def is_open(model: Any) -> bool:
    """Does a graph of layers leave a length or a size open of what the adapters read?"""
    if not (is_graph(model) and model.built and any(None in tensor.shape[1:] for tensor in model.inputs or ())):
        return False
    in_front = front(model)
    return in_front is None or any(None in tensor.shape[1:] for tensor in in_front.outputs)


def shapes_of(data: Any) -> Any:
    """Inputs of a batch, or of a source of arrays; `None` of any other source, which has those that it had before."""
    if not isinstance(data, EpochIterator):
        return data[0]
    if type(data.data_adapter) is not ArrayDataAdapter:
        return None
    x, _, _ = data_adapter_utils.unpack_x_y_sample_weight(data.data_adapter._inputs)
    return x


class Shaped(Traced):
    """A model whose inputs have the shapes of a batch: the same layers, called again on symbolic inputs without `None`."""

    def __init__(self, model: keras.Model, x: Any) -> None:
        inner = getattr(model, "_functional", model)
        self._model, self._functional = model, self
        made: dict[int, Any] = {}
        for tensor, shape in zip(inner.inputs, _key(x)):
            # A last axis of 1 may be left out.
            shape = (*shape, *[1] * (len(tensor.shape) - 1 - len(shape)))
            sizes = [given if size is None else size for size, given in zip(tensor.shape[1:], shape)]
            made[id(tensor)] = keras.Input(batch_shape=(None, *sizes), dtype=tensor.dtype, name=tensor.name)

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
    if a is b or not (isinstance(a, keras.KerasTensor) and isinstance(b, keras.KerasTensor)):
        return a is b and a is not None
    one, other = (tensor._keras_history for tensor in (a, b))
    nodes = [it.operation._inbound_nodes[it.node_index] for it in (one, other)]
    if type(one.operation) is not type(other.operation) or nodes[0].is_input or nodes[1].is_input:
        return False
    flat = [keras.tree.flatten((node.arguments.args, node.arguments.kwargs)) for node in nodes]
    return len(flat[0]) == len(flat[1]) and all(
        _is_same(left, right) if isinstance(left, keras.KerasTensor) else left == right for left, right in zip(*flat)
    )


class Shapes:
    """The engines of a model by the shapes of its inputs, the last used behind the others."""

    def __init__(self) -> None:
        self._engines: dict[Any, Engine] = {}

    def get(self, x: Any) -> Engine | None:
        """The engine for inputs like these, if there is one."""
        key = _key(x)
        engine = self._engines.pop(key, None)
        if engine is not None:
            self._engines[key] = engine
        return engine

    def add(self, x: Any, engine: Engine) -> None:
        """Keeps an engine, in place of the one that was not used for longest."""
        self._engines[_key(x)] = engine
        if len(self._engines) == 2:
            text = f"`{engine.model.name}` leaves lengths of its inputs open: each new one costs a plan; pad rows to a few lengths"
            warnings.warn(text, UserWarning, stacklevel=outside(__package__))
        if len(self._engines) > _MOST:
            del self._engines[next(iter(self._engines))]


def _key(x: Any) -> tuple[Any, ...]:
    return tuple(tuple(np.shape(part)[1:]) for part in keras.tree.flatten(x))
