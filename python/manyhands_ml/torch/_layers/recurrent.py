"""Recurrent modules, and what programs take of their steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn
from torch.utils import _pytree

from .._graph import Held, Settings, Tensor, Weight, same
from .call import MODULES, Call, Refused, argument
from .shapes import cropped


@dataclass(frozen=True)
class Sequences:
    """What a recurrent module gives: the states of all steps, of which a program may take the last."""

    #: Adds the last layer, with all its steps or the last one.
    last: Callable[[bool], Tensor]
    #: The state behind the last step by its place among those of all layers and directions; those of the last layer are there.
    state: Callable[[int], Tensor]


def _recurrent(call: Call) -> Sequences:
    module, graph = call.module, call.graph
    if not module.batch_first:
        raise Refused("needs `batch_first=True`: batches are split over adapters along the first axis")
    if getattr(module, "proj_size", 0):
        raise Refused("`proj_size` is not supported")
    if module.dropout and module.num_layers > 1:
        raise Refused("`dropout` between its layers is not supported")
    first = [part for part in _pytree.tree_leaves(argument(call, 1, "hx", None)) if part is not None]
    if not all(isinstance(part, Held) and not part.is_trained and not part.tensor.any() for part in first):
        raise Refused("needs to begin with zeros: another initial state is not supported")
    if id(module) in call.known:
        raise Refused("needs to be used once")
    call.known[id(module)] = (call.name, None)
    x = graph.plain(call.x)
    for layer in range(module.num_layers - 1):
        x = _recurrent_layer(call, x, layer, is_sequence=True)
    made: dict[bool, Tensor] = {}
    units, n_states = module.hidden_size, module.num_layers * (2 if module.bidirectional else 1)

    def last(is_sequence: bool) -> Tensor:
        if not is_sequence and (module.bidirectional or True in made):
            steps = last(True)
            return one(steps.shape[0] - 1, 0, steps.shape[1])
        if made and is_sequence not in made:
            raise Refused("needs either all its steps or the last one to be used, but a program uses the last one, and then all")
        if not made:
            made[is_sequence] = _recurrent_layer(call, x, module.num_layers - 1, is_sequence)
        return made[is_sequence]

    def one(step: int, begin: int, end: int) -> Tensor:
        """Numbers of a step."""
        part = cropped(call, cropped(call, last(True), 0, step, step + 1), 1, begin, end)
        return replace(part, name=graph.add(f"{call.name}.step", {"type": "Flatten"}, [part]), shape=(end - begin,), order=(0,))

    def state(place: int) -> Tensor:
        place = place % n_states - n_states
        if place < (-2 if module.bidirectional else -1):
            raise Refused("needs a state of its last layer: `h[-1]`, and `h[-2]` if bidirectional")
        if not module.bidirectional:
            return last(False)
        # The way back ends at the first step.
        return one(0, units, 2 * units) if place == -1 else one(last(True).shape[0] - 1, 0, units)

    return Sequences(last, state)


def _recurrent_layer(call: Call, x: Tensor, layer: int, is_sequence: bool) -> Tensor:
    module, graph = call.module, call.graph
    kind = {nn.LSTM: "LSTM", nn.GRU: "GRU", nn.RNN: "SimpleRNN"}[type(module)]
    settings: Settings = {"type": kind, "units": module.hidden_size, "use_bias": module.bias, "return_sequences": is_sequence}
    if kind == "SimpleRNN":
        settings["activation"] = module.nonlinearity
    if kind == "GRU":
        settings["reset_after"] = True
    elif module.bias:
        x = _with_one(call, x, layer)
    weights, units = _direction(module, kind, f"l{layer}"), module.hidden_size
    if module.bidirectional:
        weights = {f"forward_{name}": weight for name, weight in weights.items()}
        backward = _direction(module, kind, f"l{layer}_reverse")
        weights |= {f"backward_{name}": weight for name, weight in backward.items()}
        settings, units = {"type": "Bidirectional", "layer": settings}, 2 * units
    name = graph.add(f"{call.name}.l{layer}", call.trained(settings), [x])
    graph.weights.update({f"{name}/{weight}": held for weight, held in weights.items()})
    shape = (x.shape[0], units) if is_sequence else (units,)
    return Tensor(name, shape, tuple(range(len(shape))))


def _with_one(call: Call, x: Tensor, layer: int) -> Tensor:
    """PyTorch adds two biases, and both learn. The engine adds one: the other belongs to an input that is always 1."""
    graph, (length, features) = call.graph, x.shape
    one = graph.add(f"{call.name}.one_{layer}", {"type": "Dense", "units": 1, "trainable": False}, [x])
    graph.constants[f"{one}/kernel"] = np.zeros((features, 1), np.float32)
    graph.constants[f"{one}/bias"] = np.ones(1, np.float32)
    wider = graph.add(f"{call.name}.with_one_{layer}", {"type": "Concatenate"}, [x, Tensor(one, (length, 1), (0, 1))])
    return Tensor(wider, (length, features + 1), (0, 1))


def _direction(module: Any, kind: str, suffix: str) -> dict[str, Weight]:
    """Weights of a recurrent layer in one direction."""
    names = ["weight_ih", "weight_hh"] + (["bias_ih", "bias_hh"] if module.bias else [])
    parts = [getattr(module, f"{name}_{suffix}") for name in names]
    swapped = 3 if kind == "GRU" else 0
    weights = {"kernel": Weight([parts[0]], *_gates(swapped)), "recurrent_kernel": Weight([parts[1]], *_gates(swapped))}
    if module.bias and kind == "GRU":
        weights["bias"] = Weight(parts[2:], *_two_biases(swapped))
    elif module.bias:
        weights["kernel"] = Weight(
            [parts[0], parts[2]],
            lambda arrays: np.concatenate([arrays[0].T, arrays[1][None]]),
            lambda values: [values[:-1].T, values[-1]],
        )
        weights["bias"] = Weight([parts[3]], *same())
    return weights


def _swap(values: Any, gates: int) -> Any:
    """A `GRU` has reset and update gate first, and the engine, as Keras, in the other order."""
    if not gates:
        return values
    reset, update, new = np.split(values, gates, axis=0)
    return np.concatenate([update, reset, new], axis=0)


def _gates(gates: int) -> Any:
    return lambda arrays: _swap(arrays[0], gates).T, lambda values: [_swap(values.T, gates)]


def _two_biases(gates: int) -> Any:
    def pack(arrays: list[Any]) -> Any:
        return np.stack([_swap(array, gates) for array in arrays])

    return pack, lambda values: [_swap(part, gates) for part in values]


@dataclass(frozen=True)
class Steps:
    """The first part of what a recurrent module gives: all its steps."""

    source: Sequences


@dataclass(frozen=True)
class States:
    """The second part: its last states."""

    source: Sequences


#: What stands for tensors that depend on an input.
OF_INPUTS = (Tensor, Sequences, Steps, States)


def settled(value: Any) -> Any:
    """An argument as functions take it: a tensor where a recurrent module's steps are meant."""
    if isinstance(value, Steps):
        return value.source.last(True)
    return value


MODULES.update({nn.GRU: _recurrent, nn.LSTM: _recurrent, nn.RNN: _recurrent})
