"""What a Keras model was compiled for, resolved by Keras itself: the loss and the metrics of each output."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
from keras.src import backend
from keras.src.trainers.compile_utils import CompileLoss, CompileMetrics

from ._graph import output_names, output_structure
from ._rows import parts
from .errors import SettingError, explained


@dataclass
class Compiled:
    """Losses and metrics by output, in the order of `model.outputs`, and the names that Keras' logs give them."""

    #: Keras' loss of each output; `None` where an output has none.
    losses: list[Any]
    loss_weights: list[float]
    #: Name of each output's loss in the logs; `None` where the logs have the sum of losses alone.
    loss_names: list[str | None]
    #: Metrics of each output: name in the logs, and Keras' object.
    metrics: list[list[tuple[str, Any]]]
    weighted_metrics: bool
    #: Does a sample weight belong to a position of a row, or to one of several outputs?
    weights_by_position: bool = False
    #: Does a metric read a list or dict within the outputs?
    metrics_of_lists: bool = False


def compiled(model: keras.Model, y: Any, *weights: Any) -> Compiled:
    """Losses and metrics of a compiled model. Builds those of Keras for targets, as its own `fit` does with the first batch.

    Args:
        model: A compiled model.
        y: Targets, or what has their structure and shapes.
        weights: Sample weights that will come.
    """
    losses, metrics = model._compile_loss, model._compile_metrics
    if losses is None:
        raise SettingError(explained("`compile`", "needs a loss, but has none", 'give one: `model.compile("adam", loss="mse")`'))
    outputs = _symbolic(output_structure(model))
    targets = keras.tree.pack_sequence_as(outputs, _aligned(model, y))
    if metrics is not None and not metrics.built:
        metrics.build(targets, outputs)
    if not losses.built:
        # Keras keeps the structure of targets; some may be left out of a dict.
        losses.build(_symbolic(y) if isinstance(y, dict) and isinstance(outputs, dict) else targets, outputs)
    return replace(_of(model, losses, metrics), weights_by_position=any(map(are_by_position, weights)))


def are_by_position(weights: Any) -> bool:
    """Has a row several sample weights: for its positions, or for the outputs of the model?"""
    given = keras.tree.flatten(weights)
    parts = [part for part in given if part is not None]
    if parts and len(parts) < len(given):
        return True
    if any(np.prod(part.shape) != part.shape[0] for part in parts):
        return True
    return any(part is not parts[0] and not np.array_equal(part, parts[0]) for part in parts)


def outside(package: str) -> int:
    """How many frames a warning's place is above the caller: that of the user's code."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__package__") == package:
        level, frame = level + 1, frame.f_back
    return level - 1


def _aligned(model: keras.Model, y: Any) -> list[Any]:
    """A target for each output. One that is left out, because its output has no loss, is as the output."""
    outputs = [_symbolic(tensor) for tensor in model.outputs]
    given = parts(y, output_names(model))
    losses = model._compile_loss._user_loss
    if len(given) < len(outputs) and isinstance(losses, (list, tuple)) and len(losses) == len(outputs):
        left = iter(given)
        given = [None if loss is None else next(left, None) for loss in losses]
    given += [None] * (len(outputs) - len(given))
    return [output if target is None else _symbolic(target) for target, output in zip(given, outputs)]


def guessed(model: keras.Model) -> Compiled:
    """Losses and metrics of a compiled model whose targets are unknown: each has the shape that its loss takes.

    Keras' own objects in the model stay as they are.
    """
    config = model._compile_config.config
    names = getattr(model, "output_names", None)
    outputs = _symbolic(output_structure(model))
    losses = CompileLoss(config["loss"], config["loss_weights"], output_names=names)
    # Only which loss an output has depends on the structure of targets, and not on their shapes.
    losses.build(outputs, outputs)
    of_output = {_place(model, loss.path): loss.loss for loss in losses._flat_losses}
    targets = [_target(of_output.get(idx), tensor) for idx, tensor in enumerate(keras.tree.flatten(outputs))]
    metrics = None
    if config["metrics"] is not None or config["weighted_metrics"] is not None:
        metrics = CompileMetrics(config["metrics"], config["weighted_metrics"], output_names=names)
        metrics.build(keras.tree.pack_sequence_as(outputs, targets), outputs)
    return _of(model, losses, metrics)


def tell(model: keras.Model, compiled: Compiled, logs: dict[str, float]) -> None:
    """Keras' metrics say the numbers of the logs. One that is no mean says NaN: its own sums can't be known from its result."""
    named = [(name, metric) for listed in compiled.metrics for name, metric in listed]
    trackers = [model._loss_tracker, *model._compile_loss.metrics]
    for name, metric in [*((tracker.name, tracker) for tracker in trackers), *named]:
        if name not in logs:
            continue
        if isinstance(metric, keras.metrics.Mean):
            is_root = isinstance(metric, keras.metrics.RootMeanSquaredError)
            metric.total.assign(logs[name] ** 2 if is_root else logs[name])
            metric.count.assign(1.0)
            continue
        for variable in metric.variables:
            if backend.is_float_dtype(variable.dtype):
                variable.assign(keras.ops.full(variable.shape, float("nan"), variable.dtype))


def _target(loss: Any, output: Any) -> Any:
    # Its name may be the user's own.
    is_sparse = "sparse" in (type(loss).__name__ + getattr(getattr(loss, "fn", None), "__name__", "")).lower()
    return backend.KerasTensor(output.shape[:-1] if is_sparse else output.shape, "float32")


def _symbolic(values: Any) -> Any:
    """Tensors of the same shapes, without values and masks, for any number of rows."""

    def tensor(value: Any) -> Any:
        if value is None:
            return None
        shape = tuple(value.shape) if hasattr(value, "shape") else ()
        return backend.KerasTensor((None, *shape[1:]), backend.standardize_dtype(getattr(value, "dtype", "float32")))

    return keras.tree.map_structure(tensor, values)


def _places(model: keras.Model) -> Any:
    """Positions of the outputs, in the structure of the model."""
    structure = output_structure(model)
    return keras.tree.pack_sequence_as(structure, list(range(len(keras.tree.flatten(structure)))))


def _place(model: keras.Model, path: tuple[Any, ...]) -> int:
    """Position of the output that a loss has, by Keras' path to it."""
    place = _places(model)
    if path and isinstance(path[0], str) and not isinstance(place, dict):
        # Losses of a dict, by the names of the outputs.
        return int(model.output_names.index(path[0]))
    for part in path:
        place = place[part]
    if not isinstance(place, int):
        problem = f"needs a loss for each output, but has one for several at once: {path}"
        raise SettingError(explained("`compile`", problem, "give a loss for each output, or one for all"))
    return place


def _of(model: keras.Model, losses: Any, metrics: Any) -> Compiled:
    n_outputs = len(model.outputs)
    found = Compiled([None] * n_outputs, [0.0] * n_outputs, [None] * n_outputs, [[] for _ in range(n_outputs)], False)
    for loss in losses._flat_losses:
        place = _place(model, loss.path)
        if found.losses[place] is not None:
            problem = "needs one loss for each output, but an output has several"
            raise SettingError(explained("`compile`", problem, "add them up in a second output, or train with Keras itself"))
        found.losses[place] = loss.loss
        found.loss_weights[place] = 1.0 if loss.loss_weights is None else float(loss.loss_weights)
        if len(losses._flat_losses) > 1:
            found.loss_names[place] = f"{loss.name}_loss"
    if metrics is not None:
        found.weighted_metrics = any(metrics._flat_weighted_metrics)
        names: dict[str, int] = {}
        for place, listed in zip(metrics._flatten_y(_places(model)), metrics._flat_metrics):
            # Within an outer list or dict, Keras gives metrics the inner one as it is.
            found.metrics_of_lists |= bool(listed) and keras.tree.is_nested(place)
            place = keras.tree.flatten(place)[0]
            for metric in listed.metrics if listed else ():
                name = f"{listed.output_name}_{metric.name}" if listed.output_name else metric.name
                # Keras numbers those of one name.
                names[name] = names.get(name, -1) + 1
                found.metrics[place].append((f"{name}_{names[name]}" if names[name] else name, metric))
    return found
