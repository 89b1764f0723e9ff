"""Losses and metrics of Keras, over epochs of several batches: the same numbers here and there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

L, M = keras.losses, keras.metrics
ROWS = 22


def _model(activation: str | None) -> keras.Model:
    return keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3, activation=activation)]
    )


def _real(rng: np.random.Generator) -> Any:
    return rng.normal(size=(ROWS, 3)).astype("float32")


def _binary(rng: np.random.Generator) -> Any:
    return rng.integers(0, 2, (ROWS, 3)).astype("float32")


def _signs(rng: np.random.Generator) -> Any:
    return 2 * _binary(rng) - 1


def _one_hot(rng: np.random.Generator) -> Any:
    return np.eye(3, dtype="float32")[rng.integers(0, 3, ROWS)]


def _counts(rng: np.random.Generator) -> Any:
    return rng.poisson(1.5, (ROWS, 3)).astype("float32")


def _values() -> list[Any]:
    return [
        M.MeanAbsoluteError(),
        M.MeanSquaredError(),
        M.RootMeanSquaredError(),
        M.R2Score(class_aggregation="variance_weighted_average"),
    ]


def _yes_and_no() -> list[Any]:
    return [
        M.Precision(name="precision"),
        M.Recall(thresholds=0.4, name="found"),
        M.AUC(name="auc"),
        M.AUC(curve="PR", name="area"),
        M.F1Score(average="macro", threshold=0.5, name="f1"),
        M.BinaryAccuracy(threshold=0.3, name="low"),
    ]


CASES: dict[str, tuple[Any, str | None, Callable[[np.random.Generator], Any], Callable[[], list[Any]]]] = {
    "mean absolute error": ("mae", None, _real, _values),
    "huber": (L.Huber(delta=0.5), None, _real, lambda: ["mae", M.LogCoshError()]),
    "log cosh": (L.LogCosh(), None, _real, lambda: [M.CosineSimilarity()]),
    "cosine": (L.CosineSimilarity(), None, _real, lambda: ["mse"]),
    "poisson": ("poisson", "softplus", _counts, lambda: ["poisson"]),
    "divergence": ("kl_divergence", "softmax", _one_hot, lambda: [M.KLDivergence()]),
    "hinge": ("hinge", "tanh", _signs, lambda: [M.Hinge()]),
    "squared hinge": (L.SquaredHinge(), "tanh", _binary, lambda: []),
    "categorical hinge": (L.CategoricalHinge(), None, _one_hot, lambda: ["accuracy", M.CategoricalHinge()]),
    "binary": ("binary_crossentropy", "sigmoid", _binary, _yes_and_no),
    "binary focal": (
        L.BinaryFocalCrossentropy(apply_class_balancing=True, gamma=1.5),
        "sigmoid",
        _binary,
        lambda: [M.Recall(class_id=1, name="of_one")],
    ),
    "focal": (L.CategoricalFocalCrossentropy(from_logits=True, alpha=0.5), None, _one_hot, lambda: ["accuracy"]),
    "classes": (
        "categorical_crossentropy",
        "softmax",
        _one_hot,
        lambda: ["accuracy", M.Precision(top_k=2, name="top"), M.F1Score(average="weighted"), M.AUC(name="auc")],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_losses_and_metrics_are_those_of_keras(
    name: str, pair: Callable[..., tuple[Any, Any]], rng: np.random.Generator
) -> None:
    loss, activation, targets, metrics = CASES[name]
    x, y = rng.normal(size=(ROWS, 6)).astype("float32"), targets(rng)
    plain, ours = pair(lambda: _model(activation), "cpu,cpu")
    for model in (plain, ours):
        model.compile(keras.optimizers.SGD(0.05), loss, metrics=metrics())
    kept = [model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history for model in (plain, ours)]
    assert list(kept[0]) == list(kept[1])
    for key in kept[0]:
        np.testing.assert_allclose(kept[1][key], kept[0][key], rtol=2e-4, atol=2e-5, err_msg=key)

    def batches() -> Any:
        for first in range(0, ROWS, 8):
            yield x[first : first + 8], y[first : first + 8]

    needed = plain.evaluate(x, y, batch_size=8, verbose=0, return_dict=True)
    found = [ours.evaluate(x, y, batch_size=5, verbose=0, return_dict=True)]
    found.append(ours.evaluate(batches(), verbose=0, return_dict=True))
    for numbers in found:
        for key, value in needed.items():
            np.testing.assert_allclose(numbers[key], value, rtol=2e-4, atol=2e-5, err_msg=key)


def test_masked_positions_count_in_no_loss(pair: Callable[..., tuple[Any, Any]], rng: np.random.Generator) -> None:
    def tagger() -> keras.Model:
        return keras.Sequential(
            [
                keras.Input((5,)),
                keras.layers.Embedding(9, 4, mask_zero=True),
                keras.layers.LSTM(6, return_sequences=True),
                keras.layers.Dense(3, activation="softmax"),
            ]
        )

    x, y = rng.integers(1, 9, (ROWS, 5)), rng.integers(0, 3, (ROWS, 5))
    x[np.arange(5) >= rng.integers(1, 7, ROWS)[:, None]] = 0
    plain, ours = pair(tagger, "cpu,cpu")
    for model in (plain, ours):
        model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", metrics=["accuracy"])
    kept = [model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history for model in (plain, ours)]
    # Keras on JAX loses the mask on the way from the gradient to the metrics of `fit`; `evaluate` has it.
    np.testing.assert_allclose(kept[1]["loss"], kept[0]["loss"], rtol=2e-4, atol=2e-5)
    needed = plain.evaluate(x, y, batch_size=8, verbose=0, return_dict=True)
    found = ours.evaluate(x, y, batch_size=8, verbose=0, return_dict=True)
    for key, value in needed.items():
        np.testing.assert_allclose(found[key], value, rtol=2e-4, atol=2e-5, err_msg=key)


@pytest.mark.parametrize(
    ("loss", "metric", "text"),
    [
        (L.BinaryCrossentropy(from_logits=True), M.MeanSquaredError(), "sees logits in Keras, but probabilities here"),
        (L.MeanSquaredError(), M.Precision(thresholds=[0.2, 0.4]), "`thresholds` needs one number"),
        (L.MeanSquaredError(), M.F1Score(), "`average` needs to make one number of the classes', but is None"),
        (L.MeanSquaredError(), M.AUC(multi_label=True), "`multi_label` needs False, but is True"),
        (L.MeanSquaredError(), M.R2Score(num_regressors=2), "`num_regressors` needs 0, but is 2"),
    ],
)
def test_metrics_that_would_differ_are_refused(
    loss: Any, metric: Any, text: str, pair: Callable[..., tuple[Any, Any]], rng: np.random.Generator
) -> None:
    _, ours = pair(lambda: _model(None))
    ours.compile("sgd", loss, metrics=[metric])
    with pytest.raises(Exception, match="not supported|compile|metric") as caught:
        ours.fit(rng.normal(size=(ROWS, 6)), _binary(rng), verbose=0)
    assert text in str(caught.value)
