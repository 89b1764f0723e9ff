"""Layers of preprocessing in front of a model: Keras draws their random numbers, and training and inference are those of Keras."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops

from manyhands_ml import ModelError, make_parallel

PICTURE, ROWS, BATCH = (10, 8, 3), 40, 8


def _body(x: Any) -> Any:
    x = layers.Conv2D(4, 3, activation="relu")(x)
    return layers.Dense(3, activation="softmax")(layers.GlobalAveragePooling2D()(x))


def _sequential() -> Any:
    return keras.Sequential(
        [
            *(keras.Input(PICTURE), layers.RandomFlip("horizontal", seed=1), layers.RandomRotation(0.1, seed=2), layers.Rescaling(0.5)),
            *(layers.RandomZoom(0.2, seed=3), layers.Conv2D(4, 3, activation="relu"), layers.GlobalAveragePooling2D()),
            layers.Dense(3, activation="softmax"),
        ]
    )


def _within() -> Any:
    """As in Keras' example of image classification: augmentation is a model of its own."""
    augmentation = keras.Sequential([layers.RandomFlip(seed=4), layers.RandomContrast(0.3, seed=5), layers.RandomTranslation(0.1, 0.1, seed=6)])
    inputs = keras.Input(PICTURE)
    return keras.Model(inputs, _body(augmentation(inputs)))


def _sizes() -> Any:
    inputs = keras.Input((None, None, 3))
    return keras.Model(inputs, _body(layers.CenterCrop(8, 6)(layers.Resizing(9, 9)(inputs))))


def _one_of_two() -> Any:
    picture, row = keras.Input(PICTURE, name="picture"), keras.Input((5,), name="row")
    x = layers.Conv2D(4, 3)(layers.RandomBrightness(0.1, value_range=(0, 1), seed=7)(picture))
    x = layers.Concatenate()([layers.GlobalAveragePooling2D()(x), layers.Dense(4, activation="tanh")(row)])
    return keras.Model({"picture": picture, "row": row}, layers.Dense(3, activation="softmax")(x))


class _Own(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.flip, self.dense = layers.RandomFlip(seed=8), layers.Dense(3, activation="softmax")

    def call(self, x: Any, training: bool = False) -> Any:
        return self.dense(ops.mean(ops.square(self.flip(x, training=training)), axis=1)[:, 0])


#: Models, and whether `x` has a row of numbers beside pictures.
MODELS: dict[str, tuple[Callable[[], Any], bool]] = {
    "layers": (_sequential, False),
    "a model": (_within, False),
    "other sizes": (_sizes, False),
    "one of two inputs": (_one_of_two, True),
    "a model of one's own": (_Own, False),
}


def _told(name: str, rig: str | None = None) -> Any:
    """Losses of ten steps, and what comes of the rows, on adapters; without any, in Keras."""
    build, has_row = MODELS[name]
    rng = np.random.default_rng(3)
    x: Any = rng.uniform(size=(ROWS, *PICTURE)).astype("float32")
    x = {"picture": x, "row": rng.normal(size=(ROWS, 5)).astype("float32")} if has_row else x
    y = rng.integers(0, 3, ROWS)
    keras.utils.set_random_seed(5)
    model = build() if rig is None else make_parallel(build(), rig)
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    losses: list[float] = []
    see = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: losses.append(logs["loss"]))
    model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0, callbacks=[see])
    return losses, model.predict(x, verbose=0), model.evaluate(x, y, verbose=0), model.predict_on_batch(x)


@functools.cache
def _by_keras(name: str) -> Any:
    """What Keras does with a model, once for all rigs."""
    return _told(name)


@pytest.mark.parametrize("name", MODELS)
def test_ten_steps_are_those_of_keras(name: str, rig: str) -> None:
    (losses, predicted, evaluated, batch), ours = _by_keras(name), _told(name, rig)
    assert len(losses) == 10
    np.testing.assert_allclose(ours[0], losses, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours[1], predicted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours[2], evaluated, rtol=1e-5)
    np.testing.assert_allclose(ours[3], batch, rtol=1e-4, atol=1e-5)


def test_a_layer_of_preprocessing_behind_weights_is_refused() -> None:
    inputs = keras.Input(PICTURE)
    model = keras.Model(inputs, _body(layers.RandomFlip(name="late")(layers.Conv2D(3, 1)(inputs))))
    with pytest.raises(ModelError, match=r"layer `late` \(RandomFlip\): this kind of layer is not supported"):
        make_parallel(model, "cpu").predict(np.zeros((1, *PICTURE)), verbose=0)


def test_a_model_file_has_no_layers_of_preprocessing() -> None:
    from manyhands_ml import Model

    with pytest.raises(ModelError, match=r"\(RandomFlip\): this kind of layer is not supported"):
        Model.from_keras(_sequential())
