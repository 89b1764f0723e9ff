"""Loss and metrics that Keras computes on the outputs of the adapters, where the engine lacks one of them."""

from __future__ import annotations

import warnings
from typing import Any

import keras
import numpy as np
from keras.src import backend
from keras.src.utils.python_utils import pythonify_logs

from ._compiled import outside
from ._data import Data
from ._graph import output_structure
from ._objective import Floats
from .errors import ModelError, NonFiniteError, explained


_LOSS = "the loss"


class _Seen(keras.StatelessScope):  # type: ignore[misc]
    """A scope in which Keras computes loss or metrics. At its end it refuses those that read weights of the model."""

    def __init__(self, who: str, model: keras.Model, values: list[tuple[Any, Any]] | None = None) -> None:
        super().__init__(values)
        self._who, self._model = who, model
        frozen = {id(variable) for variable in _frozen(model)}
        self._moved = {id(variable) for variable in model.weights} - frozen
        #: The first variable that was read, of those that training changes.
        self.read: Any = None

    def get_current_value(self, variable: Any) -> Any:
        """The value that a variable has in the scope, if it has one."""
        if self.read is None and id(variable) in self._moved:
            self.read = variable
        return super().get_current_value(variable)

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if self.read is not None and error[0] is None:
            problem = f"needs outputs and targets alone, but reads the weight `{self.read.path}`, which the adapters train"
            help = "give the layer a `kernel_regularizer` or `activity_regularizer`, freeze it, or train the model with Keras itself"
            raise ModelError(explained(f"{self._who} in `compile`", problem, help))

    def keep(self) -> None:
        """Gives the metrics what they have counted in the scope."""
        # Some are made with their first batch.
        for variable in (variable for metric in self._model.metrics for variable in metric.variables):
            value = super().get_current_value(variable)
            if value is not None:
                variable.assign(value)


def _frozen(model: Any) -> list[Any]:
    """Variables that training leaves as they are."""
    return [variable for layer in model._flatten_layers() if not layer.trainable for variable in layer.variables]


class ByKeras:
    """Loss, its gradient by the outputs, and metrics of a compiled model, by the backend of Keras.

    It sees the whole batch at once, so nothing depends on its split over adapters.
    """

    def __init__(self, model: keras.Model, reasons: list[str]) -> None:
        self._model = model
        self._structure = output_structure(model)
        self._gradient = _GRADIENTS[backend.backend()](model)
        listed = "\n    ".join(reasons)
        text = (
            f"Keras computes loss and metrics of `{model.name}` itself:\n    {listed}\n"
            "  In training this costs a second forward pass and a copy of the outputs in each step, and no step begins before the one "
            "before it ends."
        )
        warnings.warn(text, UserWarning, stacklevel=outside(__package__))

    def gradients(self, data: Data, outputs: list[Floats]) -> tuple[float, list[Floats]]:
        """The loss of a batch without penalties, and its gradient by each output."""
        y, weight = _tensors(data)
        loss, gradients = self._gradient(y, self._predicted(outputs), weight)
        flat = [np.asarray(backend.convert_to_numpy(part), np.float32) for part in keras.tree.flatten(gradients)]
        return _finite(loss), flat

    def loss(self, data: Data, outputs: list[Floats]) -> float:
        """The loss of a batch without penalties."""
        y, weight = _tensors(data)
        with _Seen(_LOSS, self._model) as scope:
            loss = self._model._compile_loss(y, self._predicted(outputs), weight)
        scope.keep()
        return _finite(loss)

    def count(self, data: Data, outputs: list[Floats], loss: float) -> dict[str, Any]:
        """Adds a batch to Keras' metrics, and gives the logs."""
        self._model._loss_tracker.update_state(loss, sample_weight=data.batch.rows)
        y, weight = _tensors(data)
        with _Seen("a metric", self._model) as scope:
            logs = self._model.compute_metrics(data.x, y, self._predicted(outputs), weight)
        scope.keep()
        numbers = pythonify_logs(logs)
        # In the order of Keras' metrics, which it sorts for callbacks alone.
        return {name: numbers[name] for name in [*logs, *numbers] if name in numbers}

    def _predicted(self, outputs: list[Floats]) -> Any:
        tensors = [backend.convert_to_tensor(values) for values in outputs]
        is_nested = keras.tree.is_nested(self._structure)
        return keras.tree.pack_sequence_as(self._structure, tensors) if is_nested else tensors[0]


def _tensors(data: Data) -> Any:
    """Targets and sample weights as code of the user's own gets them in Keras."""
    if backend.backend() == "jax":
        import jax.numpy

        # Whole numbers of 64 bits get 32 without a warning.
        tensor = jax.numpy.asarray
    else:
        tensor = backend.convert_to_tensor
    return keras.tree.map_structure(lambda part: None if part is None else tensor(part), (data.y, data.sample_weight))


def _finite(loss: Any) -> float:
    value = float(backend.convert_to_numpy(loss))
    if not np.isfinite(value):
        problem = f"needs to be finite, but Keras computes {value}"
        raise NonFiniteError(explained("the loss", problem, "lower the learning rate, or look for a division by 0 in a loss of your own"))
    return value


def _of_jax(model: Any) -> Any:
    import jax

    frozen = _frozen(model)

    def loss(predicted: Any, y: Any, weight: Any, values: Any) -> Any:
        # What the loss tells its own metrics is told below.
        with _Seen(_LOSS, model, list(zip(frozen, values))):
            return model._compile_loss(y, predicted, weight)

    gradient = jax.value_and_grad(loss)
    if not model.run_eagerly:
        gradient = jax.jit(gradient)

    def both(y: Any, predicted: Any, weight: Any) -> Any:
        # Frozen weights may be set anew, so they are no constants of what is compiled.
        found = gradient(predicted, y, weight, [variable.value for variable in frozen])
        if model._compile_loss.metrics:
            model._compile_loss(y, predicted, weight)
        return found

    return both


def _of_torch(model: Any) -> Any:
    import torch

    def both(y: Any, predicted: Any, weight: Any) -> Any:
        flat = [tensor.requires_grad_() for tensor in keras.tree.flatten(predicted)]
        with _Seen(_LOSS, model) as scope:
            loss = model._compile_loss(y, predicted, weight)
        scope.keep()
        gradients = torch.autograd.grad(loss, flat, allow_unused=True)
        return loss, [torch.zeros_like(part) if found is None else found for part, found in zip(flat, gradients)]

    return both


def _of_tensorflow(model: Any) -> Any:
    import tensorflow as tf

    def both(y: Any, predicted: Any, weight: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(predicted)
            with _Seen(_LOSS, model) as scope:
                loss = model._compile_loss(y, predicted, weight)
        scope.keep()
        return loss, tape.gradient(loss, predicted, unconnected_gradients=tf.UnconnectedGradients.ZERO)

    return both


#: Functions that make one of targets, outputs and weights, which gives the loss and its gradient by the outputs.
_GRADIENTS = {"jax": _of_jax, "torch": _of_torch, "tensorflow": _of_tensorflow}
