"""Layers of preprocessing in front of a model: Keras computes them on each batch, and the adapters read what they give."""

from __future__ import annotations

from typing import Any

import keras

from ._layers import LAYERS
from ._traced import Trace, Traced, is_graph


class Front:
    """The layers in front of a model, which Keras computes: in training with their random numbers, in inference without."""

    def __init__(self, inputs: Any, outputs: list[Any]) -> None:
        self._model = keras.Model(inputs, outputs)
        #: The tensors that the adapters read.
        self.outputs = outputs

    def __call__(self, x: Any, is_training: bool) -> list[Any]:
        """What the adapters read of a batch."""
        made = keras.tree.flatten(self._model(x, training=is_training))
        return [keras.ops.convert_to_numpy(tensor) for tensor in made]


def front(model: Any) -> Front | None:
    """The layers in front of a model that Keras computes; `None` where there are none."""
    trace = whole(model)
    if trace is None:
        return None
    made_by = {id(tensor): node for node in trace.nodes for tensor in node.outputs}
    waiting = [node for node in trace.nodes if prepares(node.operation)]
    before: dict[int, Any] = {}
    while waiting:
        node = waiting.pop()
        if id(node) not in before:
            before[id(node)] = node
            waiting += [made_by[id(tensor)] for tensor in node.input_tensors if id(tensor) in made_by]
    if not before or any(getattr(node.operation, "trainable_weights", []) for node in before.values()):
        # What is behind weights is refused by its name.
        return None
    here = [tensor for node in before.values() for tensor in node.outputs]
    read = {id(tensor) for node in trace.nodes if id(node) not in before for tensor in node.input_tensors}
    read |= {id(tensor) for tensor in keras.tree.flatten(trace.outputs)}
    border = [tensor for tensor in [*trace.inputs, *reversed(here)] if id(tensor) in read]
    return Front(getattr(model, "_functional", model)._inputs_struct, border)


def whole(model: Any) -> Trace | None:
    """All layers and operations of a model, if it is built."""
    if isinstance(model, Traced):
        return model.trace
    inner = getattr(model, "_functional", model)
    return Trace.of(inner.inputs, inner.outputs) if model.built and getattr(inner, "inputs", None) else None


def prepares(operation: Any) -> bool:
    """Is it a layer of preprocessing that the engine lacks, or a model that has one?"""
    if is_graph(operation):
        return any(map(prepares, operation.layers))
    kind = type(operation)
    return kind.__module__.startswith("keras.src.layers.preprocessing.") and kind.__name__ not in LAYERS
