"""A Keras model as a graph of this package's layers, read from its `get_config()`: the format of Keras 3.15."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import keras
from keras.layers import Lambda
from keras.src.backend import KerasTensor
from keras.src.models.functional import Functional
from keras.src.ops.function import make_node_key

from ._front import Front, prepares, whole
from ._layers import ATTENTIONS, FROZEN_BY_LORA, MASKS, RECURRENT, ROWS, STATISTICS, Settings, convert, has_own_activation, is_of_keras_hub
from ._masks import outside_of
from ._masks import read as read_mask
from ._modes import at_rest
from ._nodes import Graph, Node, Unsupported
from ._ops import Value, Writer, written
from ._settings import of_layer, of_model
from ._traced import Shaped, Trace, Traced, is_graph, over_time, reset_before, traced, traced_function
from .errors import ModelError, explained

def read(model: keras.Model, is_trained: bool, behind: Front | None = None) -> tuple[Graph, list[str]]:
    """The graph of a model, and all that is wrong with it for training or for prediction, one line a problem.

    Args:
        model: A model that is a graph, or was traced.
        is_trained: Whether it is to be trained.
        behind: Its layers in front, which are left out.
    """
    reader = _Reader(is_trained)
    graph = reader.graph
    if not model.built or not getattr(model, "inputs", None):
        raise ModelError(
            explained(
                f"model `{model.name}`",
                "needs to know the shape of its inputs, but was not built",
                "begin with `keras.Input(shape)`, or call `model.build((None, ...))`",
            )
        )
    reader.problems += of_model(model)
    inputs = model.inputs if behind is None else behind.outputs
    names = [_free(tensor.name, set()) for tensor in inputs]
    graph.inputs = [(name, _row_shape(reader, name, tensor)) for name, tensor in zip(names, inputs)]
    trace = whole(model) if behind is not None or isinstance(model, Traced) else None
    if trace is None:
        graph.outputs = reader.model(model, names, "")
    else:
        graph.outputs = reader.trace(Trace.of(inputs, trace.outputs, trace.places, trace.modes), names, "")
    if isinstance(model, Traced):
        of_mode = (node.operation.name for node in model.trace.nodes if id(node) in model.trace.modes and prepares(node.operation))
        reader.problems += [f"layer `{name}`: a call with `training` of its own is not supported: leave the argument out" for name in of_mode]
    for idx, output in enumerate(graph.outputs):
        if output in graph.outputs[:idx]:
            # The engine tells outputs apart by their names.
            graph.outputs[idx] = again = _free(f"{output}.again", {node.name for node in graph.nodes})
            graph.nodes.append(Node(again, again, None, {"type": "Activation", "activation": "linear"}, [output], is_first=True))
    if is_trained and not reader.problems:
        # Behind what is refused, nothing is read.
        reader.problems += _of_weights(model, graph)
    return graph, reader.problems


def _of_weights(model: keras.Model, graph: Graph) -> Iterator[str]:
    """Trained weights that no layer of the graph has, or that several have."""
    held: dict[int, int] = {}
    for variable in graph.variables().values():
        held[id(variable)] = held.get(id(variable), 0) + 1
    for variable in model.trainable_variables:
        if id(variable) not in held:
            yield f"weight `{variable.path}`: the outputs don't depend on it as the engine computes them: freeze it, or leave it out"
        elif held[id(variable)] > 1:
            yield f"weight `{variable.path}`: is used in two ways, of which the engine would make two weights"


def output_structure(model: keras.Model) -> Any:
    """A model's outputs in their structure, as calls give them: one in a list stands alone."""
    structure = getattr(getattr(model, "_functional", None) or model, "_outputs_struct", None)
    if not isinstance(structure, (dict, list, tuple)):
        return model.outputs[0]
    return structure[0] if isinstance(structure, (list, tuple)) and len(structure) == 1 else structure


def output_names(model: keras.Model) -> list[str]:
    """Names of a model's outputs, in order: the keys of a dict, or else the layers that give them."""
    outputs = getattr(model, "outputs", None) or []
    structure = output_structure(model) if outputs else None
    if isinstance(structure, dict) and not any(keras.tree.is_nested(part) for part in structure.values()):
        places = keras.tree.pack_sequence_as(structure, list(range(len(structure))))
        return sorted(structure, key=lambda key: int(places[key]))
    names = [tensor._keras_history.operation.name for tensor in outputs]
    # A layer may give several, such as its states.
    return [name if names.index(name) == idx else f"{name}_{names[:idx].count(name)}" for idx, name in enumerate(names)]


def _operations(model: Any) -> Any:
    """The layers of a model, and operations of `keras.ops`."""
    return model.layers if isinstance(model, keras.Sequential) else model.operations


def _operation(model: Any, name: str) -> Any:
    return next(operation for operation in _operations(model) if operation.name == name)


def _resets_before(layer: Any) -> bool:
    return type(layer) is keras.layers.GRU and not layer.reset_after


#: Layers of Keras that are written as others, by what does it.
_REWRITTEN = {keras.layers.TimeDistributed: over_time, keras.layers.GRU: reset_before}


def is_code(operation: Any) -> bool:
    """Is it a layer or a model of the user's own, or one of Keras that calls a function of the user's?"""
    is_own = not type(operation).__module__.startswith("keras.") and not is_graph(operation) and not is_of_keras_hub(operation)
    return isinstance(operation, (keras.Layer, Lambda)) and (is_own or isinstance(operation, Lambda))


def _free(name: str, taken: set[str]) -> str:
    """A name without signs that the engine uses itself, and none of those that are taken."""
    name = name.replace("/", ".").replace(":", ".")
    names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(1)))
    return next(free for free in names if free not in taken and f"{free}.1" not in taken)


def _row_shape(reader: _Reader, name: str, tensor: Any) -> list[int]:
    shape = list(tensor.shape[1:])
    if None in shape:
        reader.problems.append(f"input `{name}`: needs a shape without `None`, but has {tuple(tensor.shape)}")
    return [int(axis or 1) for axis in shape]


class _Reader:
    """Reads a model, and the models within it."""

    def __init__(self, is_trained: bool) -> None:
        self.is_trained = is_trained
        self.graph = Graph()
        self.problems: list[str] = []
        #: Is what is read in training or at inference, whatever the model is? `None` if it is as the model.
        self.mode: bool | None = None
        #: Settings of layers in the mode of their first call.
        self.modes: dict[int, Settings] = {}
        #: Names of tensors by their identity, and the tensors, which keep it.
        self.names: dict[int, tuple[str, Any]] = {}

    def model(self, model: Any, inputs: list[str], prefix: str) -> list[str]:
        """Adds the layers of a model that reads these tensors; gives its outputs."""
        if type(model) not in (keras.Sequential, keras.Model, Functional) or any(map(is_code, _operations(model))):
            # Its configuration may not tell it.
            inner = getattr(model, "_functional", model)
            return self.trace(Trace.of(inner.inputs, inner.outputs), inputs, prefix)
        config = model.get_config()
        if "input_layers" in config:
            return self._functional(model, config, inputs, prefix)
        return self._sequential(model, config, inputs, prefix)

    def _sequential(self, model: Any, config: Settings, inputs: list[str], prefix: str) -> list[str]:
        tensors = inputs
        for entry in config["layers"]:
            if entry["class_name"] != "InputLayer":
                layer = _operation(model, entry["config"]["name"])
                calls = _calls(model, layer)
                # All that the last one gives are outputs; between layers there is one tensor.
                use = _Use(0, {}, calls, {(0, idx) for idx in range(len(calls[0].output_tensors))})
                tensors = self._without_mask(layer, calls, self._layer(layer, entry, tensors, prefix, use))
        return tensors

    def _functional(self, model: Any, config: Settings, inputs: list[str], prefix: str) -> list[str]:
        places = [place for place, _ in zip(_places(config["input_layers"]), inputs, strict=True)]
        known = dict(zip(places, ([tensor] for tensor in inputs)))
        waiting = [
            (entry, use, node)
            for entry in config["layers"]
            if entry["class_name"] != "InputLayer"
            for use, node in _as_run(model, entry)
        ]
        needed = _needed(waiting, _places(config["output_layers"]))
        waiting = [item for item in waiting if (item[0]["name"], item[1]) in needed]
        wanted = itertools.chain(_outputs(config["output_layers"]), *(_read_by(node) for _, _, node in waiting))
        read = {(layer, use, idx) for layer, use, idx in wanted}
        while waiting:
            # A layer's calls come as Keras makes them: weights are those of the first, moving averages those of the last.
            following = {entry["name"]: use for entry, use, _ in reversed(waiting)}
            ready = [
                (entry, use, node)
                for entry, use, node in waiting
                if following[entry["name"]] == use and all(_key(place) in known for place in _read_by(node))
            ]
            if not ready:
                raise ModelError(explained(f"model `{model.name}`", "needs to be a graph without circles", "mend it"))
            entry, use, node = ready[0]
            waiting.remove(ready[0])
            reads = [known[_key(place)][place[2]] for place in _read_by(node)]
            layer = _operation(model, entry["name"])
            calls = _calls(model, layer)
            if isinstance(layer, keras.Layer):
                of_layer = {(number, idx) for name, number, idx in read if name == entry["name"]}
                made = self._layer(layer, entry, reads, prefix, _Use(use, node["kwargs"], calls, of_layer))
                made = self._without_mask(layer, calls[use : use + 1], made)
            else:
                made = self._of_ops(layer, calls[use], reads, prefix)
            known[(entry["name"], use)] = made
        return [known[_key(place)][place[2]] for place in _outputs(config["output_layers"])]

    def trace(self, trace: Trace, inputs: list[str], prefix: str) -> list[str]:
        """Adds the layers and operations of traced code that reads these tensors; gives its outputs."""
        known = {id(tensor): name for tensor, name in zip(trace.inputs, inputs) if name}
        self._note(trace.inputs, inputs)
        needed = _read_for(trace)
        read = {id(tensor) for tensor in keras.tree.flatten(trace.outputs)} | {id(tensor) for node in needed for tensor in _read_tensors(node)}
        for node in needed:
            operation, first, mode = node.operation, len(self.problems), self.mode
            self.mode = trace.modes.get(id(node), mode)
            calls = [other for other in trace.nodes if other.operation is operation]
            reads = [known.get(id(tensor), "") for tensor in _read_tensors(node)]
            if "" in reads:
                self.problems.append(f"operation `{prefix}{operation.name}`: computes with a mask, which attention alone can take")
                made = [next(iter(known.values()))] * len(node.outputs)
            elif isinstance(operation, keras.Layer):
                outputs = ((number, idx, tensor) for number, call in enumerate(calls) for idx, tensor in enumerate(call.output_tensors))
                of_layer = {(number, idx) for number, idx, tensor in outputs if id(tensor) in read}
                use = _Use(calls.index(node), node.arguments.kwargs, calls, of_layer)
                made = self._without_mask(operation, [node], self._layer(operation, _entry(operation), reads, prefix, use))
            else:
                made = self._of_ops(operation, node, reads, prefix)
            known.update((id(tensor), name) for tensor, name in zip(node.outputs, made))
            self._note(node.outputs, made)
            self.mode = mode
            if place := trace.places.get(id(node)):
                self.problems[first:] = [problem if " (at " in problem else f"{problem} (at {place})" for problem in self.problems[first:]]
        return [known[id(tensor)] for tensor in keras.tree.flatten(trace.outputs)]

    def _note(self, tensors: list[Any], names: list[str]) -> None:
        self.names.update((id(tensor), (name, tensor)) for tensor, name in zip(tensors, names) if name)

    def _mask(self, mask: Any, query: Any, key: Any) -> tuple[Value | None, bool]:
        """The keys that count, if a mask of attention says so, and whether it is causal."""
        meaning = read_mask(mask, int(query.shape[1]), int(key.shape[1]))
        if meaning.keys is None:
            return None, meaning.is_causal
        if id(meaning.keys) not in self.names:
            raise Unsupported("has a mask of a tensor that is none of the model's inputs")
        return Value(self.names[id(meaning.keys)][0], tuple(map(int, meaning.keys.shape[1:]))), meaning.is_causal

    def _code(self, layer: Any, inputs: list[str], name: str, use: _Use) -> list[str]:
        """Adds what a layer of the user's own does; gives its outputs."""
        who, node = f"layer `{name}` ({type(layer).__name__})", use.calls[use.number]
        problems = [*_of_own(layer)]
        if layer.supports_masking and _has_mask(use.calls):
            problems.append("is not supported behind a mask, which `Embedding` and `Masking` make")
        try:
            rewritten = _REWRITTEN.get(type(layer))
            trace = rewritten(layer, *_read_tensors(node)) if rewritten else traced(layer, node.arguments.args, node.arguments.kwargs, self.mode)
        except Unsupported as error:
            is_named = is_code(layer) or type(layer) in _REWRITTEN or type(layer).__name__ in ATTENTIONS
            problems.append(str(error) if is_named else "this kind of layer is not supported")
        if problems:
            self.problems += [f"{who}: {problem}" for problem in problems if use.number == 0]
            return [inputs[0]] * len(node.outputs)
        reads = [self._unmasked(tensor, read, f"{name}.{idx}") for idx, (tensor, read) in enumerate(zip(_read_tensors(node), inputs))]
        if not rewritten:
            outside = [outside_of(tensor) for tensor in trace.inputs]
            of_tensor = {id(tensor): read for tensor, read in zip(_read_tensors(node), reads)}
            reads = [of_tensor.get(id(tensor)) or self.names.get(id(tensor), ("",))[0] for tensor in outside]
        return self.trace(trace, reads, f"{name}." if use.number == 0 else f"{name}.{use.number}.")

    def _unmasked(self, tensor: Any, read: str, name: str) -> str:
        """A tensor without its mask."""
        if getattr(tensor, "_keras_mask", None) is None:
            return read
        settings = {"type": "Reshape", "target_shape": [int(axis) for axis in tensor.shape[1:]]}
        self.graph.nodes.append(Node(f"{name}.unmasked", f"{name}.unmasked", None, settings, [read], is_first=True))
        return f"{name}.unmasked"

    def _layer(self, layer: Any, entry: Settings, inputs: list[str], prefix: str, use: _Use) -> list[str]:
        """Adds a use of a layer; gives its outputs."""
        kind, name = entry["class_name"], prefix + entry["config"]["name"].replace("/", ".")
        row = ROWS.get(kind)
        has_own_mask = kind == "MultiHeadAttention" and use.kwargs.get("attention_mask") is not None
        if is_code(layer) or (row is None and not is_graph(layer)) or _resets_before(layer) or has_own_mask:
            return self._code(layer, inputs, name, use)
        who, kwargs = f"layer `{name}` ({kind})", use.kwargs
        # Keras' own graphs pay no attention to `training` in a call: `fit` and `predict` say what it is.
        ignored = {"training", "mask"} if _reads_mask(use.calls) else {"training"}
        is_causal = bool(kwargs.get("use_causal_mask"))
        is_reversed = kind == "ReversibleEmbedding" and _is_reversed(kwargs, use.calls[use.number])
        if kind == "ReversibleEmbedding":
            ignored |= {"reverse"}
        if kind == "PositionEmbedding" and kwargs.get("start_index") == 0:
            ignored |= {"start_index"}
        if kind in RECURRENT:
            ignored |= {"initial_state"}
        if kind in ATTENTIONS:
            ignored |= {*_SEQUENCES, "use_causal_mask"}
            ignored |= {f"{part}_mask" for part in _SEQUENCES if _finds_mask(use.calls, part)}
            ignored |= {key for key in ("return_attention_scores",) if kwargs.get(key) is False}
            # One sequence for all, and keys that are the values, are not named again.
            inputs = inputs[:2] if len(inputs) == 3 and inputs[1] == inputs[2] else inputs
            inputs = inputs[:1] if len(inputs) == 2 and inputs[0] == inputs[1] else inputs
        # A model of several inputs is called with a list of masks.
        given = {key: value for key, value in kwargs.items() if key not in ignored and any(part is not None for part in keras.tree.flatten(value))}
        self.problems += [f"{who}: the argument `{key}={value}` of its call is not supported" for key, value in given.items()]
        if kind in RECURRENT and use.number == 0:
            self.problems += [f"{who}: {problem}" for problem in _of_states(layer, use, len(inputs) - 1)]
        if use.number == 0 and (layer.supports_masking or is_graph(layer)) and _has_mask(use.calls):
            self.problems += [f"{who}: {problem}" for problem in self._of_mask(kind, layer)]
        if use.number == 0 and _may_be_itself(kind, use.calls) and _has_mask(use.calls):
            self.problems.append(f"{who}: is not supported behind a mask, which `Embedding` and `Masking` make")
        if is_graph(layer) and any(None in tensor.shape[1:] for tensor in layer.inputs):
            # Its own symbolic tensors leave a length open, which is known here.
            shaped = Shaped(layer, use.calls[use.number].input_tensors)
            return self.trace(shaped.trace, inputs, f"{name}.")
        if is_graph(layer):
            return self.model(layer, inputs, f"{name}.")
        is_activated = has_own_activation(kind, entry["config"])
        if is_activated and getattr(layer, "activity_regularizer", None) is not None:
            self.problems.append(f"{who}: `activity_regularizer` is not supported behind an activation of your own")
        if is_activated:
            entry = {**entry, "config": {**entry["config"], "activation": "linear"}}
        entry = {**entry, "config": self._in_mode(who, layer, kind, entry["config"])}
        settings = self._settings(who, layer, entry, kind, use)
        if self._has_fixed_statistics(kind, layer):
            settings["fixed_statistics"] = True
        if kind in ATTENTIONS:
            settings["use_causal_mask"] = is_causal
            earlier = next((node.settings for node in self.graph.nodes if node.layer is layer), settings)
            if earlier["use_causal_mask"] != is_causal:
                self.problems.append(f"{who}: the argument `use_causal_mask` has to be the same in each of its calls")
        if is_reversed and all(node.layer is not layer for node in self.graph.nodes):
            settings["reverse"], is_reversed = True, False
        elif not is_reversed and any(node.layer is layer and node.settings.get("reverse") for node in self.graph.nodes):
            self.problems.append(f"{who}: needs a first call without `reverse`, or `reverse` in each of its calls")
        if kind in RECURRENT:
            # With several tensors Keras looks for no mask, but gives that of the sequence to the output.
            is_ignored = len(inputs) > 1 and kwargs.get("mask") is None
            settings |= {"return_state": use.has_states, "initial_state": len(inputs) > 1, "ignore_mask": is_ignored}
            earlier = next((node.settings for node in self.graph.nodes if node.layer is layer), settings)
            for key, what in (("return_state", "return_state"), ("initial_state", "initial_state"), ("ignore_mask", "mask")):
                if earlier[key] != settings[key]:
                    self.problems.append(f"{who}: `{what}` has to be used in each of its calls, or in none")
        weights = row.weights if row else {}
        is_first = all(node.layer is not layer for node in self.graph.nodes)
        uses = sum(node.layer is layer for node in self.graph.nodes)
        taken = {node.layer_name for node in self.graph.nodes if node.layer is not layer}
        first = next((node.layer_name for node in self.graph.nodes if node.layer is layer), _free(name, taken))
        tensor = first if uses == 0 else f"{first}:{uses}"
        if kind == "CustomScaleLayer":
            inputs = [inputs[0], self._scaled(f"{tensor}.scaled", entry["config"], inputs[1])]
        self.graph.nodes.append(Node(tensor, first, layer, settings, inputs, is_first, weights, is_reversed))
        if is_activated:
            return self._activated(who, layer, use, tensor)
        is_cut = kind in RECURRENT and use.has_states
        return self._with_states(layer, tensor, use) if is_cut else [tensor] * len(use.calls[use.number].output_tensors)

    def _in_mode(self, who: str, layer: Any, kind: str, config: Settings) -> Settings:
        """Settings with which a layer does in training and at inference what the code that calls it says."""
        quiet, is_frozen = at_rest(config), kind != "BatchNormalization" or not layer.trainable
        if self.mode and (quiet != config or not is_frozen):
            self.problems.append(f"{who}: a call with `training=True` is not supported: it holds for `predict`, too")
        quiet = quiet if self.mode is False else config
        mode = {**quiet, "fixed_statistics": self._has_fixed_statistics(kind, layer)}
        if self.modes.setdefault(id(layer), mode) != mode:
            self.problems.append(f"{who}: needs the same `training` in each of its calls")
        return quiet

    def _has_fixed_statistics(self, kind: str, layer: Any) -> bool:
        """Does code call a layer with `training=False` whose scale and center learn all the same?"""
        return bool(kind == "BatchNormalization" and layer.trainable and self.mode is False)

    def _activated(self, who: str, layer: Any, use: _Use, tensor: str) -> list[str]:
        """What a function of the user's own makes of a layer's output."""
        try:
            trace = traced_function(layer.activation, use.calls[use.number].output_tensors[0])
        except Unsupported as error:
            self.problems.append(f"{who}: `activation` {error}")
            return [tensor]
        return self.trace(trace, [tensor], f"{tensor.replace(':', '.')}.activation.")

    def _with_states(self, layer: Any, tensor: str, use: _Use) -> list[str]:
        """The output of a recurrent layer, and its states, which stand behind the steps of the output."""
        writer = Writer(self.graph, _free(tensor, {node.name for node in self.graph.nodes}))
        count, units = RECURRENT[type(layer).__name__], int(layer.units)
        steps = int(use.calls[use.number].output_tensors[0].shape[1]) if layer.return_sequences else 0
        whole = Value(tensor, (steps + count, units))

        def part(idx: int) -> str:
            if (use.number, idx) not in use.read:
                return tensor
            if idx == 0 and layer.return_sequences:
                return writer.crop(whole, 0, 0, steps).name
            at = steps + max(idx - 1, 0)
            return writer.reshape(writer.crop(whole, 0, at, at + 1), (units,)).name

        return [part(idx) for idx in range(1 + count)]

    def _of_mask(self, kind: str, layer: Any) -> list[str]:
        """What the engine does with a mask in another way than Keras."""
        if kind not in MASKS:
            return ["is not supported behind a mask, which `Embedding` and `Masking` make"]
        if kind == "BatchNormalization" and self.is_trained and layer.trainable and self.mode is not False:
            # There Keras leaves positions of padding out of mean and variance.
            return ["is not supported in training behind a mask; freeze it, or take `LayerNormalization`"]
        return []

    def _without_mask(self, layer: Any, calls: list[Any], outputs: list[str]) -> list[str]:
        """Outputs without a mask, where Keras drops it and the engine's layer would pass it on."""
        if is_graph(layer) or is_code(layer) or type(layer).__name__ not in ROWS:
            return outputs
        is_dropped = not layer.supports_masking
        if not (is_dropped and _has_mask(calls)):
            return outputs
        name = f"{outputs[0]}.unmasked"
        settings = {"type": "Reshape", "target_shape": [int(axis) for axis in calls[0].output_tensors[0].shape[1:]]}
        self.graph.nodes.append(Node(name, name, None, settings, outputs, is_first=True))
        return [name]

    def _scaled(self, name: str, config: Settings, tensor: str) -> str:
        """Adds the product of a tensor and a number; gives its output."""
        settings = {"type": "Rescaling", "scale": float(config["scale"])}
        self.graph.nodes.append(Node(name, name, None, settings, [tensor], is_first=True))
        return name

    def _of_ops(self, operation: Any, node: Any, inputs: list[str], prefix: str) -> list[str]:
        """Adds an operation of `keras.ops`, such as `x + y`; gives its outputs."""
        name = _free(prefix + operation.name, {node.name for node in self.graph.nodes})
        reads: dict[int, Value] = {}
        for idx, (tensor, read) in enumerate(zip(_read_tensors(node), inputs)):
            shape, is_bool = tuple(map(int, tensor.shape[1:])), tensor.dtype == "bool"
            reads.setdefault(id(tensor), Value(self._unmasked(tensor, read, f"{name}.{idx}"), shape, is_bool))

        def settled(value: Any) -> Any:
            return reads.get(id(value), value) if isinstance(value, KerasTensor) else value

        args, kwargs = keras.tree.map_structure(settled, node.arguments.args), dict(node.arguments.kwargs)
        shapes = [tuple(int(axis or 0) for axis in tensor.shape[1:]) for tensor in node.outputs]
        try:
            if kwargs.get("mask") is not None and len(args) > 1:
                kwargs["mask"] = self._mask(kwargs["mask"], *node.arguments.args[:2])
            return [value.name for value in written(Writer(self.graph, name), operation, args, kwargs, shapes[0])]
        except Unsupported as error:
            self.problems.append(f"operation `{name}` ({type(operation).__name__}): this operation of `keras.ops` {error}")
            return [inputs[0]] * len(node.outputs)

    def _settings(self, who: str, layer: Any, entry: Settings, kind: str, use: _Use) -> Settings:
        settings, problems = convert(kind, entry["config"], list(use.calls[use.number].input_tensors[0].shape))
        policy = getattr(layer.dtype_policy, "name", "float32")
        if policy != "float32":
            other = ': `make_parallel(..., precision="mixed_float16")` computes so' if policy == "mixed_float16" else ""
            problems.append(f'`dtype` needs "float32", but is "{policy}"{other}')
        if layer.weights and not layer.trainable:
            settings["trainable"] = False
        else:
            expected = STATISTICS | FROZEN_BY_LORA if getattr(layer, "lora_enabled", False) else STATISTICS
            fixed = [variable.name for variable in layer.non_trainable_variables if variable.name not in expected]
            problems += [f"`trainable=False` of `{name}` alone is not supported: freeze the whole layer" for name in fixed]
        if use.number == 0:
            self.problems += [*(f"{who}: {problem}" for problem in problems), *of_layer(who, layer)]
        return settings


@dataclass
class _Use:
    """One of the calls of a layer in a model."""

    number: int
    kwargs: Settings
    #: All of them, as Keras has recorded them.
    calls: list[Any]
    #: Call and index of each output of the layer that something reads.
    read: set[tuple[int, int]] = field(default_factory=set)

    @property
    def has_states(self) -> bool:
        """Does anything read more than the first output?"""
        return any(idx > 0 for _, idx in self.read)


def _entry(layer: Any) -> Settings:
    """Class and configuration of a layer, as a model's configuration has them."""
    if is_code(layer) or is_graph(layer):
        return {"class_name": type(layer).__name__, "config": {"name": layer.name}}
    return dict(keras.saving.serialize_keras_object(layer))


def _read_for(trace: Trace) -> list[Any]:
    """The nodes that outputs are computed from. What only makes masks is none: the engine makes its own."""
    made_by = {id(tensor): node for node in trace.nodes for tensor in node.outputs}
    waiting, needed = keras.tree.flatten(trace.outputs), set[int]()
    while waiting:
        node = made_by.get(id(waiting.pop()))
        if node is not None and id(node) not in needed:
            needed.add(id(node))
            waiting += _read_tensors(node)
    return [node for node in trace.nodes if id(node) in needed]


def _read_tensors(node: Any) -> list[Any]:
    """Tensors that a use of a layer reads, apart from masks."""
    kwargs = node.arguments.kwargs
    if is_code(node.operation):
        # Code may read anything. A mask is not computed, but read by its meaning where attention takes it.
        named = [value for key, value in kwargs.items() if "mask" not in key]
    else:
        named = [kwargs.get(part) for part in _READ]
    return [tensor for tensor in keras.tree.flatten([node.arguments.args, named]) if isinstance(tensor, KerasTensor)]


def _of_own(layer: Any) -> Iterator[str]:
    """What is not supported of a layer or model of the user's own and of its variables."""
    if getattr(layer, "activity_regularizer", None) is not None:
        yield "`activity_regularizer` is not supported"
    policy = getattr(layer.dtype_policy, "name", "float32")
    if policy != "float32":
        yield f'`dtype` needs "float32", but is "{policy}"'
    for variable in layer._trainable_variables + layer._non_trainable_variables:
        for kind in ("regularizer", "constraint"):
            if getattr(variable, kind, None) is not None:
                yield f"`{variable.name}`: its {kind} is not supported"


def _calls(model: Any, operation: Any) -> list[Any]:
    """The calls of a layer or operation that belong to a model, in order. Other models may have called it, too."""
    nodes = getattr(model, "_functional", model)._nodes
    calls = enumerate(operation._inbound_nodes)
    return [node for idx, node in calls if make_node_key(operation, idx) in nodes and node.input_tensors]


def _as_run(model: Any, entry: Settings) -> list[tuple[int, Settings]]:
    """The calls of a layer with their numbers, in the order in which Keras makes them in each step."""
    numbered = list(enumerate(entry["inbound_nodes"]))
    if len(numbered) < 2:
        return numbered
    by_depth = getattr(model, "_functional", model)._nodes_by_depth
    order = [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]]
    calls = _calls(model, _operation(model, entry["name"]))
    return sorted(numbered, key=lambda call: order.index(calls[call[0]]))


def _is_reversed(kwargs: Settings, call: Any) -> bool:
    """Does a call say `reverse`, by name or as its second argument?"""
    return bool(kwargs.get("reverse")) or any(argument is True for argument in call.arguments.args[1:])


def _reads_mask(calls: list[Any]) -> bool:
    """Does it read a sequence of which some positions don't count, as an `Embedding` or `Masking` has said?"""
    masks = ((node, getattr(node.input_tensors[0], "_keras_mask", None)) for node in calls)
    return any(mask is not None and node.arguments.kwargs.get("mask", mask) is mask for node, mask in masks)


def _may_be_itself(kind: str, calls: list[Any]) -> bool:
    """May Keras give the very tensor that the layer reads? Then it keeps its mask, though the layer's own rule drops it."""
    if kind == "Permute":
        return any(list(node.operation.dims) == sorted(node.operation.dims) for node in calls)
    has_same_shape = any(node.input_tensors[0].shape == node.output_tensors[0].shape for node in calls)
    return kind == "StochasticDepth" or (kind in ("Reshape", "Cropping1D") and has_same_shape)


def _has_mask(calls: list[Any]) -> bool:
    """Does any of the tensors that it reads have a mask?"""
    return any(getattr(tensor, "_keras_mask", None) is not None for node in calls for tensor in node.input_tensors)


#: Sequences that an attention reads, by the names of its arguments.
_SEQUENCES = ("query", "value", "key")
#: Arguments with tensors that are no masks.
_READ = (*_SEQUENCES, "initial_state")


def _of_states(layer: Any, use: _Use, given: int) -> Iterator[str]:
    """What is wrong with the states that a recurrent layer reads or gives."""
    count = RECURRENT[type(layer).__name__]
    if any(len(call.arguments.args) > 2 and call.arguments.args[2] is not None for call in use.calls):
        yield "`mask` needs to be given by its name"
        return
    if given not in (0, count):
        yield f"`initial_state` needs {count} tensor{'s' * (count > 1)} [batch, {layer.units}], but has {given}"
    is_masked = _has_mask(use.calls) and (given == 0 or use.kwargs.get("mask") is not None)
    if use.has_states and (layer.return_sequences and _has_mask(use.calls) or layer.zero_output_for_mask and is_masked):
        yield (
            "`return_state` is not supported behind a mask, which `Embedding` and `Masking` make, "
            "together with `return_sequences` or `zero_output_for_mask`"
        )


def _finds_mask(calls: list[Any], part: str) -> bool:
    """Is the mask of a sequence, which attention reads, its own in each call?"""

    def is_own(node: Any) -> bool:
        named = dict(zip(_SEQUENCES, node.arguments.args)) | node.arguments.kwargs
        mask = named.get(f"{part}_mask")
        return mask is None or mask is getattr(named.get(part), "_keras_mask", None)

    return all(is_own(node) for node in calls)


def _read_by(node: Settings) -> Iterator[list[Any]]:
    """`[name, use, index]` of each tensor that a layer reads, apart from masks."""
    yield from _tensors(node["args"])
    yield from _tensors([node["kwargs"].get(part) for part in _READ])


def _needed(uses: list[tuple[Settings, int, Settings]], outputs: list[tuple[str, int]]) -> set[tuple[str, int]]:
    """The uses of layers that outputs are computed from. What only makes masks is none: the engine makes its own."""
    reads = {(entry["name"], use): [_key(place) for place in _read_by(node)] for entry, use, node in uses}
    needed, waiting = set[tuple[str, int]](), list(outputs)
    while waiting:
        place = waiting.pop()
        if place not in needed:
            needed.add(place)
            waiting += reads.get(place, [])
    return needed


def _outputs(value: Any) -> Iterator[list[Any]]:
    """`[name, use, index]` of each output, in the order in which Keras makes them flat."""
    if isinstance(value, dict):
        keys = value if isinstance(value, OrderedDict) else sorted(value)
        for key in keys:
            yield from _outputs(value[key])
    elif len(value) == 3 and isinstance(value[0], str):
        yield list(value)
    else:
        for item in value:
            yield from _outputs(item)


def _key(place: list[Any]) -> tuple[str, int]:
    return (place[0], place[1])


def _places(value: Any) -> list[tuple[str, int]]:
    """Layer and use of each tensor of a structure `[name, use, index]`."""
    return [_key(place) for place in _outputs(value)]


def _tensors(value: Any) -> Iterator[list[Any]]:
    """`[name, use, index]` of each tensor among arguments."""
    if isinstance(value, dict):
        if value.get("class_name") == "__keras_tensor__":
            yield value["config"]["keras_history"]
        else:
            for item in value.values():
                yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
