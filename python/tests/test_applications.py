"""Known networks of `keras.applications`, with random weights and small pictures, predict and train as in Keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from manyhands_ml import make_parallel

apps = keras.applications
STEPS = 4


def _settings(size: int) -> dict[str, Any]:
    return {"weights": None, "input_shape": (size, size, 3), "classes": 10}


#: Networks with the side of their pictures.
NETWORKS: dict[str, tuple[Callable[..., Any], int]] = {
    "MobileNetV2": (apps.MobileNetV2, 32),
    "ResNet50": (apps.ResNet50, 32),
    "VGG16": (apps.VGG16, 32),
    "EfficientNetB0": (apps.EfficientNetB0, 32),
    "ConvNeXtTiny": (apps.ConvNeXtTiny, 32),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_known_networks_predict_as_in_keras(name: str, rng: np.random.Generator) -> None:
    keras.utils.set_random_seed(7)
    build, size = NETWORKS[name]
    model = build(**_settings(size))
    x = rng.uniform(0, 255, (3, size, size, 3)).astype(np.float32) / (1 if name == "EfficientNetB0" else 255)
    expected = keras.ops.convert_to_numpy(model(x, training=False))
    np.testing.assert_allclose(make_parallel(model, "cpu").predict_on_batch(x), expected, atol=1e-5)


def _steps(model: Any, weights: list[Any], x: Any, y: Any, steps: int) -> tuple[list[float], list[Any]]:
    """Losses of some steps of gradient descent, and how far the weights have moved."""
    model.set_weights(weights)
    model.compile(keras.optimizers.SGD(1e-3), "sparse_categorical_crossentropy")
    losses = [float(model.train_on_batch(x, y)) for _ in range(steps)]
    return losses, [now - then for now, then in zip(model.get_weights(), weights)]


def _distance(ours: list[Any], theirs: list[Any]) -> float:
    """Median over the tensors of the relative difference."""
    norms = [(np.linalg.norm(a - b), np.linalg.norm(b)) for a, b in zip(ours, theirs) if np.linalg.norm(b) > 0]
    return float(np.median([difference / norm for difference, norm in norms]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MobileNetV2", "ResNet50", "VGG16"])
def test_known_networks_train_as_in_keras(name: str, rng: np.random.Generator) -> None:
    """Fifty layers of batch normalization over few rows multiply rounding: Keras' own gradients move by percents where the input
    moves by 1e-6. Ours have to be nearer to Keras than that; without batch normalization, to 1e-4."""
    keras.utils.set_random_seed(7)
    build, size = NETWORKS[name]
    model = build(**_settings(size))
    parallel, weights = make_parallel(keras.models.clone_model(model), "cpu", batch_statistics="batch"), model.get_weights()
    x, y = rng.uniform(0, 1, (8, size, size, 3)).astype(np.float32), rng.integers(0, 10, 8)
    steps = STEPS if name == "VGG16" else 1
    losses, moved = _steps(model, weights, x, y, steps)
    our_losses, ours = _steps(parallel, weights, x, y, steps)
    assert our_losses == pytest.approx(losses, rel=1e-4)
    if name == "VGG16":
        assert _distance(ours, moved) < 1e-4
    else:
        _, nearby = _steps(model, weights, (x * (1 + 1e-6 * rng.normal(size=x.shape))).astype(np.float32), y, steps)
        assert _distance(ours, moved) < _distance(nearby, moved) < 0.1
