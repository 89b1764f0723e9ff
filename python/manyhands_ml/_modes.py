"""Training or inference: of each layer that code calls, as Keras resolves the argument `training`, by two traces of the code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
from keras.src.backend import KerasTensor
from keras.src.backend.common import global_state
from keras.src.layers.layer import CallContext, CallSpec

from ._masks import Attended
from ._nodes import Unsupported

#: Layers that give at inference what they read.
_NOISE = (
    *(keras.layers.Dropout, keras.layers.GaussianDropout, keras.layers.GaussianNoise, keras.layers.AlphaDropout),
    *(keras.layers.SpatialDropout1D, keras.layers.SpatialDropout2D, keras.layers.SpatialDropout3D),
    *(keras.layers.RandomFlip, keras.layers.RandomRotation, keras.layers.RandomTranslation, keras.layers.RandomZoom),
    *(keras.layers.RandomBrightness, keras.layers.RandomContrast),
)
#: Settings of layers that are random in training alone.
_RATES = ("rate", "stddev", "dropout", "recurrent_dropout", "drop_path_rate")


class Differs(Exception):
    """Two traces of one code do other things."""


@contextmanager
def called(layer: Any, training: bool) -> Iterator[Callable[[Any], bool]]:
    """The `call` of a layer within `fit`, or within `predict`. Gives a function that tells the mode of a layer's last call.

    Keras resolves it by its own rule: what a call says holds for the calls behind it, too.
    """
    before, resolve = global_state.get_global_attribute("current_call_ctx"), keras.Layer._resolve_and_populate_arg
    context, last = CallContext(entry_layer=layer), dict[int, bool]()
    context.set_value("training", training)

    def resolved(self: Any, name: str, spec: Any, within: Any, kwargs: Any) -> None:
        resolve(self, name, spec, within, kwargs)
        if name == "training":
            last[id(self)] = bool(within.get_value(name))

    try:
        global_state.set_global_attribute("current_call_ctx", context)
        keras.Layer._resolve_and_populate_arg = resolved
        yield lambda operation: last.get(id(operation), training)
    finally:
        global_state.set_global_attribute("current_call_ctx", before)
        keras.Layer._resolve_and_populate_arg = resolve


def populate(layer: Any, args: Any, kwargs: Any) -> None:
    """Gives the `call` of a layer the argument `training` that Keras would give it."""
    context = global_state.get_global_attribute("current_call_ctx")
    if context is not None:
        spec = CallSpec(layer._call_signature, layer._call_context_args, args, kwargs)
        layer._resolve_and_populate_arg("training", spec, context, kwargs)


def fixed(training: Any, inference: Any) -> dict[int, bool]:
    """The calls in a trace of training whose mode is the same at inference, by the identity of their nodes, with this mode.

    Raises:
        Differs: If the code does other things at inference, beside layers that are random.
        Unsupported: If a layer is random at inference.
    """
    for node in inference.nodes:
        if inference.modes[id(node)] and _draws(node.operation):
            raise Unsupported(_at(inference, node, f"calls `{node.operation.name}` with `training=True`, so that `predict` draws random numbers"))
    return {
        **{id(node): False for node in training.nodes if _is_noise(node.operation) and not training.modes[id(node)]},
        **{id(one): training.modes[id(one)] for one, other in pairs(training, inference) if _is_fixed(training, one, inference, other)},
    }


def _is_fixed(training: Any, one: Any, inference: Any, other: Any) -> bool:
    modes = training.modes[id(one)], inference.modes[id(other)]
    if modes == (False, True):
        raise Differs
    return bool(modes[0] == modes[1])


def _at(trace: Any, node: Any, text: str) -> str:
    place = trace.places.get(id(node))
    return text if place is None else f"{text} (at {place})"


def pairs(trace: Any, other: Any) -> list[tuple[Any, Any]]:
    """The nodes of two traces that do the same. Those of layers that are random are left out.

    Raises:
        Differs: If there is one that does something else.
    """
    one_made, other_made = _made(trace), _made(other)
    waiting = _both(trace.outputs, other.outputs)
    found: dict[tuple[int, int], tuple[Any, Any]] = {}
    while waiting:
        tensors = waiting.pop()
        if not isinstance(tensors[0], KerasTensor) or not isinstance(tensors[1], KerasTensor):
            if not _is_same(*tensors):
                raise Differs
            continue
        (node, place), (twin, its_place) = _source(tensors[0], one_made), _source(tensors[1], other_made)
        if place != its_place or (node is None) != (twin is None):
            raise Differs
        if node is None or (id(node), id(twin)) in found:
            continue
        if not _is_alike(node.operation, twin.operation):
            raise Differs
        found[id(node), id(twin)] = node, twin
        waiting += _both(_arguments(node), _arguments(twin))
    return list(found.values())


def _made(trace: Any) -> dict[int, tuple[Any, int]]:
    """The node that gives each tensor, and the place among its outputs; of an input its place alone."""
    inputs = {id(tensor): (None, place) for place, tensor in enumerate(trace.inputs)}
    return inputs | {id(tensor): (node, place) for node in trace.nodes for place, tensor in enumerate(node.outputs)}


def _source(tensor: Any, made: dict[int, tuple[Any, int]]) -> tuple[Any, int]:
    """What gives a tensor, before layers that are random."""
    # What is no part of the trace stands for itself.
    node, place = made.get(id(tensor), (None, id(tensor)))
    while node is not None and _is_noise(node.operation) and len(node.input_tensors) == 1:
        node, place = made.get(id(node.input_tensors[0]), (None, id(tensor)))
    return node, place


def _both(one: Any, other: Any) -> list[tuple[Any, Any]]:
    parts = [keras.tree.flatten(part) for part in (one, other)]
    if len(parts[0]) != len(parts[1]):
        raise Differs
    return list(zip(*parts))


def _arguments(node: Any) -> Any:
    named = node.arguments.kwargs
    return node.arguments.args, {key: value for key, value in named.items() if key != "training" and value is not None}


def _is_noise(operation: Any) -> bool:
    return isinstance(operation, _NOISE)


def _draws(operation: Any) -> bool:
    """Does it draw random numbers where it is in training?"""
    if isinstance(operation, Attended):
        return operation.dropout > 0
    return _is_noise(operation) and getattr(operation, "rate", getattr(operation, "stddev", 1)) != 0


def _is_alike(one: Any, other: Any) -> bool:
    """Are two operations the same layer, or do they have the same settings?"""
    if one is other:
        return True
    if type(one) is not type(other) or getattr(one, "weights", []) or getattr(other, "weights", []):
        return False
    settings = [{key: value for key, value in vars(part).items() if key not in ("name", "dropout") and key[0] != "_"} for part in (one, other)]
    return settings[0].keys() == settings[1].keys() and all(_is_same(value, settings[1][key]) for key, value in settings[0].items())


def _is_same(one: Any, other: Any) -> bool:
    """Are two values the same? Of objects that can't be compared, the type counts."""
    if one is other:
        return True
    if type(one) is not type(other) or isinstance(one, keras.Variable):
        return False
    if keras.ops.is_tensor(one) or isinstance(one, np.ndarray):
        return np.array_equal(keras.ops.convert_to_numpy(one), keras.ops.convert_to_numpy(other))
    return one == other if isinstance(one, (bool, int, float, str, slice, tuple, list, range, np.generic)) else True


def at_rest(config: dict[str, Any]) -> dict[str, Any]:
    """Settings with which a layer draws no random numbers: what it does at inference."""
    quiet = {key: 0.0 for key in _RATES if config.get(key)}
    inner = {key: config[key] for key in ("layer", "backward_layer") if isinstance(config.get(key), dict)}
    return {**config, **quiet, **{key: {**part, "config": at_rest(part["config"])} for key, part in inner.items()}}
