"""Code that calls layers with `training`: in `fit` and in `predict` each layer is in the mode that Keras gives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops

from manyhands_ml import ModelError, make_parallel

ROWS = 24


def _base(is_trained: bool) -> Any:
    parts = [layers.Dense(5, "relu"), layers.BatchNormalization(), layers.Dropout(0.5)]
    base = keras.Sequential([keras.Input((6,)), *parts])
    base.trainable = is_trained
    return base


class Inner(layers.Layer):
    """A layer whose layers are told nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.drop = layers.Dense(4), layers.Dropout(0.5)

    def call(self, x: Any) -> Any:
        return self.drop(self.dense(x))


class Told(Inner):
    """A layer that passes on what it is told."""

    def call(self, x: Any, training: Any = None) -> Any:
        return self.drop(self.dense(x), training=training)


def _own(call: Callable[..., Any], **parts: Callable[[], Any]) -> Callable[[], Any]:
    """Makes models with such a `call`, with layers and a head."""

    def made() -> Any:
        class Own(keras.Model):
            def __init__(self) -> None:
                super().__init__()
                for name, make in parts.items():
                    setattr(self, name, make())
                self.head = layers.Dense(3)

        Own.call = call
        return Own()

    return made


def _steps(x: Any) -> Any:
    return ops.reshape(x, (-1, 3, 2))


def _branch(self: Any, x: Any, training: Any = None) -> Any:
    if training:
        x = self.drop(x, training=False)
    return self.head(x)


def _turned(self: Any, x: Any, training: Any = None) -> Any:
    return self.head(x if training else 2 * x)


def _inverse(self: Any, x: Any, training: Any = None) -> Any:
    return self.head(self.drop(x, training=not training))


def _drop() -> Any:
    return layers.Dropout(0.5)


#: Models without random numbers, if each layer is in its mode.
MODELS: dict[str, Callable[[], Any]] = {
    "a frozen base": _own(lambda self, x: self.head(self.base(x, training=False)), base=lambda: _base(False)),
    "a base that is trained": _own(lambda self, x: self.head(self.base(x, training=False)), base=lambda: _base(True)),
    "a norm without scale": _own(
        lambda self, x: self.head(self.norm(x, training=False)), norm=lambda: layers.BatchNormalization(scale=False, momentum=0.5)
    ),
    "a norm behind a mask": _own(
        lambda self, x: self.head(self.norm(self.mask(_steps(x)), training=False)[:, 0]),
        mask=lambda: layers.Masking(0.5),
        norm=layers.BatchNormalization,
    ),
    # For Keras, what one call says holds for those behind it.
    "a base and dropout": _own(lambda self, x: self.head(self.drop(self.base(x, training=False))), base=lambda: _base(False), drop=_drop),
    "a layer": _own(lambda self, x: self.head(self.inner(x, training=False)), inner=Inner),
    "a layer that passes it on": _own(lambda self, x: self.head(self.inner(x, training=False)), inner=Told),
    "a recurrent layer": _own(lambda self, x: self.head(self.read(_steps(x), training=False)), read=lambda: layers.GRU(3, dropout=0.5)),
    "both directions": _own(
        lambda self, x: self.head(self.read(_steps(x), training=False)), read=lambda: layers.Bidirectional(layers.LSTM(3, dropout=0.5))
    ),
    "attention": _own(
        lambda self, x: self.head(self.see(_steps(x), _steps(x), training=False)[:, 0]),
        see=lambda: layers.MultiHeadAttention(2, 2, dropout=0.5),
    ),
    "noise": _own(lambda self, x: self.head(self.noise(x, training=False)), noise=lambda: layers.GaussianNoise(0.9)),
    "a frozen norm": _own(
        lambda self, x: self.head(self.norm(x, training=True)), norm=lambda: layers.BatchNormalization(trainable=False)
    ),
    "a branch": _own(_branch, drop=_drop),
    "layers made in the call": _own(lambda self, x: self.head(layers.Activation("relu")(layers.Add()([x, x])))),
}


def _told(model: Any, x: Any, y: Any) -> Any:
    _move_statistics(model, x)
    model.compile(keras.optimizers.SGD(0.01), "mse")
    history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history
    return history["loss"], model.evaluate(x, y, verbose=0), model.predict(x, verbose=0), model.get_weights()


def _move_statistics(model: Any, x: Any) -> None:
    """Makes moving statistics other than 0 and 1, so that it shows whether a layer takes them."""
    model(x)
    for weight in model.weights:
        if weight.name in ("moving_mean", "moving_variance"):
            weight.assign(np.linspace(0.5, 2.0, int(np.prod(weight.shape)), dtype="float32"))


def _data() -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    return rng.normal(1.0, 2.0, (ROWS, 6)).astype("float32"), rng.normal(size=(ROWS, 3)).astype("float32")


@pytest.mark.parametrize("name", MODELS)
def test_each_layer_is_in_the_mode_of_keras(name: str) -> None:
    x, y = _data()
    told = []
    for adapters in (None, "cpu,cpu"):
        keras.utils.set_random_seed(1)
        model = MODELS[name]() if adapters is None else make_parallel(MODELS[name](), adapters)
        told.append(_told(model, x, y))
    for found, needed in zip(told[1], told[0], strict=True):
        for one, other in zip(found, needed, strict=True) if isinstance(needed, list) else [(found, needed)]:
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


#: Models that are refused, and what the message says.
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a norm in training": (
        _own(lambda self, x: self.head(self.norm(x, training=True)), norm=layers.BatchNormalization),
        r"\(BatchNormalization\): a call with `training=True` is not supported: it holds for `predict`, too",
    ),
    "a norm in both modes": (
        _own(lambda self, x: self.head(self.norm(self.norm(x), training=False)), norm=layers.BatchNormalization),
        r"\(BatchNormalization\): needs the same `training` in each of its calls",
    ),
    "random predictions": (
        _own(lambda self, x: self.head(self.drop(x, training=True)), drop=_drop),
        r"calls `dropout.*` with `training=True`, so that `predict` draws random numbers \(at .*test_modes.py:",
    ),
    "random predictions of a model": (
        _own(lambda self, x: self.head(self.part(x, training=True)), part=lambda: keras.Sequential([keras.Input((6,)), _drop()])),
        r"\(Dropout\): a call with `training=True` is not supported: it holds for `predict`, too",
    ),
    "dropout in inference alone": (_own(_inverse, drop=_drop), "so that `predict` draws random numbers"),
    "one layer in both modes": (
        _own(lambda self, x: self.head(self.drop(self.drop(x), training=False)), drop=_drop),
        r"\(Dropout\): needs the same `training` in each of its calls",
    ),
    "another branch": (_own(_turned), "computes something else in training than at inference"),
    "numbers of NumPy": (_own(lambda self, x: self.head(x * np.random.rand())), "computes something else each time it is called"),
    "a layer in front": (
        _own(lambda self, x: self.head(ops.mean(self.flip(ops.reshape(x, (-1, 2, 3, 1)), training=False), axis=1)[:, :, 0]), flip=layers.RandomFlip),
        "layer `random_flip.*`: a call with `training` of its own is not supported",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_modes_are_refused_by_name(name: str) -> None:
    make, text = REFUSED[name]
    x, y = _data()
    model = make_parallel(make(), "cpu")
    model.compile("sgd", "mse")
    with pytest.raises(ModelError, match=text) as error:
        model.fit(x, y, verbose=0)
    assert "error of manyhands_ml" not in str(error.value)


def test_a_layer_in_a_graph_takes_no_mode() -> None:
    """Keras' functional models pay no attention to it either."""
    x, y = _data()
    told = []
    for adapters in (None, "cpu"):
        keras.utils.set_random_seed(1)
        inputs = keras.Input((6,))
        model: Any = keras.Model(inputs, layers.Dense(3)(layers.BatchNormalization()(inputs, training=False)))
        told.append(_told(model if adapters is None else make_parallel(model, adapters), x, y))
    np.testing.assert_allclose(told[1][0], told[0][0], rtol=1e-4)
    np.testing.assert_allclose(told[1][2], told[0][2], atol=1e-4)
