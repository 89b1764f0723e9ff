"""Models that leave lengths and sizes of their inputs open: batches of several, beside Keras."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
from conftest import three_or_slow
from keras import layers

from manyhands_ml import DataError, make_parallel


def _texts() -> Any:
    x = y = keras.Input((None,))
    y = layers.Embedding(20, 6, mask_zero=True)(y)
    y = layers.LSTM(5, return_sequences=True)(y)
    return keras.Model(x, layers.Dense(3)(layers.GlobalAveragePooling1D()(y)))


def _series() -> Any:
    parts = [layers.Conv1D(5, 3, padding="same", activation="relu"), layers.GlobalMaxPooling1D(), layers.Dense(3)]
    return keras.Sequential([keras.Input((None, 4)), *parts])


def _pictures() -> Any:
    convolutions = [layers.Conv2D(4, 3), layers.BatchNormalization(), layers.Activation("relu"), layers.MaxPooling2D()]
    return keras.Sequential([keras.Input((None, None, 3)), *convolutions, layers.GlobalAveragePooling2D(), layers.Dense(3)])


def _scaled() -> Any:
    """A layer in front that Keras computes, and no size that it settles."""
    parts = [layers.RandomContrast(0.0), layers.Conv2D(4, 3, activation="relu"), layers.GlobalMaxPooling2D(), layers.Dense(3)]
    return keras.Sequential([keras.Input((None, None, 3)), *parts])


def _two() -> Any:
    x, other = keras.Input((None, 4)), keras.Input((2,))
    y = layers.GlobalAveragePooling1D()(layers.Dense(5, "relu")(x))
    return keras.Model([x, other], layers.Dense(3)(layers.Concatenate()([y, other])))


#: A model, and its inputs for a length.
CASES: dict[str, tuple[Callable[[], Any], Callable[[np.random.Generator, int, int], Any]]] = {
    "texts": (_texts, lambda rng, rows, length: rng.integers(1, 20, (rows, length))),
    "series": (_series, lambda rng, rows, length: rng.normal(size=(rows, length, 4)).astype("float32")),
    "pictures": (_pictures, lambda rng, rows, length: rng.normal(size=(rows, length, 2 * length, 3)).astype("float32")),
    "behind Keras": (_scaled, lambda rng, rows, length: rng.uniform(size=(rows, length, 5, 3)).astype("float32")),
    "two": (_two, lambda rng, rows, length: [rng.normal(size=(rows, size, 4) if size > 2 else (rows, 2)) for size in (length, 2)]),
}


def _compile(*models: Any) -> None:
    for model in models:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01, epsilon=1e-3), loss, metrics=["accuracy"])


@pytest.mark.parametrize("adapters", three_or_slow())
@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:.*leaves lengths of its inputs open")
def test_each_length_trains_as_in_keras(case: str, adapters: str, pair: Any, rng: np.random.Generator) -> None:
    """Steps on batches of three lengths, in turn; then an epoch, its validation and a prediction, each with one of its own."""
    build, make = CASES[case]
    plain, ours = pair(build, adapters, batch_statistics="batch")
    _compile(plain, ours)
    for step in range(10):
        x, y = make(rng, 12, (6, 9, 7)[step % 3]), rng.integers(0, 3, 12)
        assert ours.train_on_batch(x, y) == pytest.approx(plain.train_on_batch(x, y), rel=1e-5)
        if case != "pictures":
            # Keras' logs are means over all batches so far.
            plain.reset_metrics()
            ours.reset_metrics()
    data, held_out = ((make(rng, 12, length), rng.integers(0, 3, 12)) for length in (8, 10))
    settings: dict[str, Any] = {"epochs": 2, "batch_size": 4, "shuffle": False, "verbose": 0, "validation_data": held_out}
    expected, found = (model.fit(*data, **settings).history for model in (plain, ours))
    for name, values in expected.items():
        assert found[name] == pytest.approx(values, rel=1e-4), name
    x = make(rng, 5, 11)
    np.testing.assert_allclose(ours.predict(x, verbose=0), plain.predict(x, verbose=0), atol=1e-5)
    for a, b in zip(ours.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_a_second_length_is_told_once(rng: np.random.Generator) -> None:
    model = make_parallel(_series(), "cpu")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for length in (5, 6, 5, 7, 8, 9, 6):
            assert model.predict_on_batch(rng.normal(size=(2, length, 4))).shape == (2, 3)
    lengths = [warning for warning in told if "leaves lengths of its inputs open: each new one costs a plan" in str(warning.message)]
    assert len(lengths) == 1 and lengths[0].filename == __file__


def test_batches_of_one_call_need_one_length(rng: np.random.Generator) -> None:
    def batches() -> Iterator[Any]:
        for length in (5, 6):
            yield rng.normal(size=(2, length, 4)).astype("float32"), rng.integers(0, 3, 2)

    model = make_parallel(_series(), "cpu")
    _compile(model)
    with pytest.raises(DataError, match=r"needs shape \[None, 5, 4\], but the data have \[2, 6, 4\]"):
        model.fit(batches(), verbose=0)
