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
from .errors import NonFiniteError, explained


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
        loss, gradients = self._gradient(data.y, self._predicted(outputs), data.sample_weight)
        flat = [np.asarray(backend.convert_to_numpy(part), np.float32) for part in keras.tree.flatten(gradients)]
        return _finite(loss), flat

    def loss(self, data: Data, outputs: list[Floats]) -> float:
        """The loss of a batch without penalties."""
        return _finite(self._model._compile_loss(data.y, self._predicted(outputs), data.sample_weight))

    def count(self, data: Data, outputs: list[Floats], loss: float) -> dict[str, Any]:
        """Adds a batch to Keras' metrics, and gives the logs."""
        self._model._loss_tracker.update_state(loss, sample_weight=data.batch.rows)
        logs = self._model.compute_metrics(data.x, data.y, self._predicted(outputs), data.sample_weight)
        return dict(pythonify_logs(logs))

    def _predicted(self, outputs: list[Floats]) -> Any:
        tensors = [backend.convert_to_tensor(values) for values in outputs]
        is_nested = keras.tree.is_nested(self._structure)
        return keras.tree.pack_sequence_as(self._structure, tensors) if is_nested else tensors[0]


def _finite(loss: Any) -> float:
    value = float(backend.convert_to_numpy(loss))
    if not np.isfinite(value):
        problem = f"needs to be finite, but Keras computes {value}"
        raise NonFiniteError(explained("the loss", problem, "lower the learning rate, or look for a division by 0 in a loss of your own"))
    return value


def _of_jax(model: Any) -> Any:
    import jax

    def loss(predicted: Any, y: Any, weight: Any) -> Any:
        # What the loss tells its own metrics is told below.
        with backend.StatelessScope():
            return model._compile_loss(y, predicted, weight)

    gradient = jax.value_and_grad(loss)
    if not model.run_eagerly:
        gradient = jax.jit(gradient)

    def both(y: Any, predicted: Any, weight: Any) -> Any:
        if model._compile_loss.metrics:
            model._compile_loss(y, predicted, weight)
        return gradient(predicted, y, weight)

    return both


def _of_torch(model: Any) -> Any:
    import torch

    def both(y: Any, predicted: Any, weight: Any) -> Any:
        flat = [tensor.requires_grad_() for tensor in keras.tree.flatten(predicted)]
        loss = model._compile_loss(y, predicted, weight)
        gradients = torch.autograd.grad(loss, flat, allow_unused=True)
        return loss, [torch.zeros_like(part) if found is None else found for part, found in zip(flat, gradients)]

    return both


def _of_tensorflow(model: Any) -> Any:
    import tensorflow as tf

    def both(y: Any, predicted: Any, weight: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(predicted)
            loss = model._compile_loss(y, predicted, weight)
        return loss, tape.gradient(loss, predicted, unconnected_gradients=tf.UnconnectedGradients.ZERO)

    return both


#: Functions that make one of targets, outputs and weights, which gives the loss and its gradient by the outputs.
_GRADIENTS = {"jax": _of_jax, "torch": _of_torch, "tensorflow": _of_tensorflow}
