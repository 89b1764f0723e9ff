"""Twenty steps here and in Keras, from the same weights on the same batches."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import models
import numpy as np
import pytest

from manyhands_ml import make_parallel

Losses = keras.losses
ROWS = 24


def _classes(shape: tuple[int, ...], classes: int) -> Callable[[np.random.Generator], tuple[Any, Any]]:
    def make(rng: np.random.Generator) -> tuple[Any, Any]:
        return rng.normal(size=(ROWS, *shape)).astype(np.float32), rng.integers(0, classes, ROWS)

    return make


def _pictures(rng: np.random.Generator) -> tuple[Any, Any]:
    """Pictures from 0 to 1, and one-hot labels."""
    x = rng.uniform(0, 1, (ROWS, 28, 28, 1)).astype(np.float32)
    return x, np.eye(10, dtype=np.float32)[rng.integers(0, 10, ROWS)]


def _two_inputs(rng: np.random.Generator) -> tuple[Any, Any]:
    x = [rng.normal(size=(ROWS, 12)).astype(np.float32) for _ in range(2)]
    return x, rng.integers(0, 2, (ROWS, 1))


def _words(rng: np.random.Generator) -> tuple[Any, Any]:
    x = rng.integers(1, 20, (ROWS, 7))
    # The last words of most rows are padding.
    x[np.arange(7) >= rng.integers(1, 9, ROWS)[:, None]] = 0
    return x, rng.integers(0, 3, ROWS)


CASES: dict[str, tuple[Callable[[], Any], Any, Any, Any]] = {
    "perceptron": (models.perceptron, _classes((20,), 5), keras.optimizers.Adam, "sparse_categorical_crossentropy"),
    # Gradients of some weights are sums that nearly cancel out, and Adam would make whole steps of their rounding.
    "mnist": (models.mnist, _pictures, lambda: keras.optimizers.SGD(0.01, momentum=0.9), "categorical_crossentropy"),
    "convnet": (
        models.convnet,
        _classes((14, 14, 1), 10),
        lambda: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
        Losses.SparseCategoricalCrossentropy(),
    ),
    "residual": (
        models.residual,
        _classes((10, 10, 3), 4),
        lambda: keras.optimizers.AdamW(2e-3, global_clipnorm=1.0),
        "sparse_categorical_crossentropy",
    ),
    "penalized": (
        models.penalized,
        _classes((20,), 5),
        lambda: keras.optimizers.Adam(clipnorm=0.05),
        "sparse_categorical_crossentropy",
    ),
    "recurrent": (models.recurrent, _words, lambda: keras.optimizers.SGD(0.1, clipvalue=0.02), "sparse_categorical_crossentropy"),
    "shared": (models.shared, _two_inputs, lambda: keras.optimizers.RMSprop(1e-3, momentum=0.5), "binary_crossentropy"),
}


@dataclass
class Run:
    """Twenty steps in Keras."""

    begin: list[Any]
    batches: list[tuple[Any, Any]]
    logs: list[dict[str, float]]
    end: list[Any]


@functools.cache
def _keras_run(case: str) -> Run:
    """What Keras does, once for all rigs."""
    build, data, optimizer, loss = CASES[case]
    keras.utils.set_random_seed(7)
    rng, model = np.random.default_rng(5), build()
    run = Run(model.get_weights(), [data(rng) for _ in range(20)], [], [])
    model.compile(optimizer(), loss, metrics=["accuracy"])
    run.logs = [model.train_on_batch(*batch, return_dict=True) for batch in run.batches]
    run.end = model.get_weights()
    return run


@pytest.mark.parametrize("case", CASES)
def test_losses_and_weights_are_those_of_keras(case: str, rig: str) -> None:
    expected = _keras_run(case)
    build, _, optimizer, loss = CASES[case]
    model = build()
    model.set_weights(expected.begin)
    # Over the whole batch, batch normalization does not depend on the split.
    parallel = make_parallel(model, rig, batch_statistics="batch")
    parallel.compile(optimizer(), loss, metrics=["accuracy"])
    for step, (batch, logs) in enumerate(zip(expected.batches, expected.logs)):
        got = parallel.train_on_batch(*batch, return_dict=True)
        assert list(got) == list(logs)
        assert got["loss"] == pytest.approx(float(logs["loss"]), rel=1e-5), f"step {step}"
        assert got["accuracy"] == pytest.approx(float(logs["accuracy"]), abs=1e-6)
    for ours, theirs in zip(parallel.get_weights(), expected.end, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_what_keras_has_trained_goes_on_here_and_back(pair: Any, rng: np.random.Generator) -> None:
    """Weights, moments and step of Adam go along: 5 steps in Keras, 5 here, 5 in Keras are as 15 in Keras."""
    plain, parallel = pair(models.perceptron)
    for model in (plain, parallel):
        model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    make = _classes((20,), 5)
    for step in range(15):
        x, y = make(rng)
        plain.train_on_batch(x, y)
        (parallel if 5 <= step < 10 else parallel.keras_model).train_on_batch(x, y)
        assert int(parallel.optimizer.iterations) == step + 1
    for ours, theirs in zip(parallel.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert int(parallel.optimizer.iterations) == 15


OPTIMIZERS: list[Callable[[], Any]] = [
    lambda: keras.optimizers.SGD(0.05, momentum=0.9, use_ema=True, ema_momentum=0.75, ema_overwrite_frequency=4),
    lambda: keras.optimizers.RMSprop(2e-3, momentum=0.5, centered=True),
    lambda: keras.optimizers.Nadam(2e-3),
    lambda: keras.optimizers.Adamax(2e-3),
    lambda: keras.optimizers.Lion(2e-3, weight_decay=0.01),
    lambda: keras.optimizers.Adagrad(0.01, initial_accumulator_value=0.2),
    lambda: keras.optimizers.Adadelta(1.0, use_ema=True),
    lambda: keras.optimizers.Ftrl(0.05, l2_regularization_strength=0.01),
    lambda: keras.optimizers.Adam(0.01, amsgrad=True, beta_2=0.6),
    # Updates after steps 2, 4, …: those before steps 3 and 6 have begun on the other side.
    lambda: keras.optimizers.Nadam(0.01, gradient_accumulation_steps=2, use_ema=True, ema_momentum=0.6),
    lambda: keras.optimizers.Adafactor(0.05, weight_decay=0.01),
    lambda: keras.optimizers.Muon(0.01, exclude_layers=["dense_2"]),
]


@pytest.mark.parametrize("make_optimizer", OPTIMIZERS)
def test_state_of_every_optimizer_goes_along(make_optimizer: Any, pair: Any, rng: np.random.Generator) -> None:
    """3 steps in Keras, 3 here, 3 in Keras are as 9 in Keras: all that the optimizer keeps has gone along, both ways."""
    plain, parallel = pair(models.perceptron)
    for model in (plain, parallel):
        model.compile(make_optimizer(), "sparse_categorical_crossentropy")
    make = _classes((20,), 5)
    for step in range(9):
        x, y = make(rng)
        plain.train_on_batch(x, y)
        (parallel if 3 <= step < 6 else parallel.keras_model).train_on_batch(x, y)
    ours, theirs = parallel.keras_model.optimizer.variables, plain.optimizer.variables
    for our, their in zip([*parallel.keras_model.variables, *ours], [*plain.variables, *theirs], strict=True):
        np.testing.assert_allclose(our.numpy(), their.numpy(), atol=2e-5, err_msg=their.path)


@pytest.mark.parametrize("frequency", [None, 5])
def test_fit_ends_with_the_averages_of_the_weights(frequency: int | None, pair: Any, rng: np.random.Generator, rig: str) -> None:
    """Validation within the run has the weights, the model after it their averages."""
    plain, parallel = pair(models.perceptron, rig)
    (x, y), (val_x, val_y) = _classes((20,), 5)(rng), _classes((20,), 5)(rng)
    for model in (plain, parallel):
        optimizer = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=frequency)
        model.compile(optimizer, "sparse_categorical_crossentropy")
    runs = [m.fit(x, y, batch_size=8, epochs=2, shuffle=False, validation_data=(val_x, val_y), verbose=0) for m in (plain, parallel)]
    for name, values in runs[0].history.items():
        assert runs[1].history[name] == pytest.approx(values, rel=1e-5), name
    for ours, theirs in zip(parallel.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    ours, theirs = (model.evaluate(val_x, val_y, verbose=0) for model in (parallel, plain))
    assert ours == pytest.approx(theirs, rel=1e-5)


def test_losses_with_settings(pair: Any, rng: np.random.Generator) -> None:
    """Logits, smoothing, sums and one-hot targets."""
    for loss, head in [
        (Losses.CategoricalCrossentropy(label_smoothing=0.1), "softmax"),
        (Losses.CategoricalCrossentropy(from_logits=True, reduction="sum"), "linear"),
        (Losses.BinaryCrossentropy(from_logits=True), "linear"),
        (Losses.MeanSquaredError(), "sigmoid"),
    ]:
        plain, parallel = pair(lambda: keras.Sequential([keras.Input((6,)), keras.layers.Dense(3, activation=head)]))
        for model in (plain, parallel):
            model.compile("sgd", loss)
        x, y = rng.normal(size=(9, 6)), np.eye(3)[rng.integers(0, 3, 9)]
        weights = rng.uniform(size=9)
        for _ in range(3):
            expected = plain.train_on_batch(x, y, sample_weight=weights)
            got = parallel.train_on_batch(x, y, sample_weight=weights)
            assert got == pytest.approx(float(expected), rel=1e-5), loss.name
