"""Models as people write them: slices, `keras.ops`, layers and models of their own train as in Keras, or are refused with their line."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from conftest import three_or_slow
from keras import layers, ops

from manyhands_ml import ModelError, make_parallel

SEQUENCE, ROW, PICTURE = (6, 4), (8,), (6, 5, 3)
ROWS, BATCH = 40, 8


def _own_gelu(x: Any) -> Any:
    return x * ops.sigmoid(1.7 * x)


#: Operations on a tensor: what a model does before its last layer.
OPERATIONS: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    "the first step": (SEQUENCE, lambda x: x[:, 0]),
    "the last step": (SEQUENCE, lambda x: x[:, -1, :]),
    "a part of the steps": (SEQUENCE, lambda x: x[:, 1:4]),
    "a part of the channels": (PICTURE, lambda x: x[..., 1:]),
    "a part in the middle": (PICTURE, lambda x: x[:, 2:4, 1:-1, 0]),
    "a new axis": (SEQUENCE, lambda x: x[:, None, 2:, :]),
    "mean": (SEQUENCE, lambda x: ops.mean(x, axis=1)),
    "mean of pixels": (PICTURE, lambda x: ops.mean(x, axis=(1, 2), keepdims=True)),
    "mean in the middle": (PICTURE, lambda x: ops.mean(x, axis=2)),
    "sum": (SEQUENCE, lambda x: ops.sum(x, axis=-1)),
    "max": (PICTURE, lambda x: ops.max(x, axis=[1, 2])),
    "min": (SEQUENCE, lambda x: ops.min(x, axis=1)),
    "var": (SEQUENCE, lambda x: ops.var(x, axis=1)),
    "concatenate": (SEQUENCE, lambda x: ops.concatenate([x, ops.tanh(x)], axis=1)),
    "concatenate pictures": (PICTURE, lambda x: ops.concatenate([x, 2 * x, -x], axis=2)),
    "stack": (SEQUENCE, lambda x: ops.stack([x, ops.relu(x)], axis=2)),
    "reshape": (SEQUENCE, lambda x: ops.reshape(x, (-1, 3, 8))),
    "transpose": (PICTURE, lambda x: ops.transpose(x, (0, 3, 1, 2))),
    "swapaxes": (SEQUENCE, lambda x: ops.swapaxes(x, 1, 2)),
    "moveaxis": (PICTURE, lambda x: ops.moveaxis(x, 3, 1)),
    "squeeze": (SEQUENCE, lambda x: ops.squeeze(x[:, :1], axis=1)),
    "expand_dims": (SEQUENCE, lambda x: ops.expand_dims(x, 2)),
    "matmul": (SEQUENCE, lambda x: ops.matmul(x, ops.transpose(x, (0, 2, 1)))),
    "einsum": (SEQUENCE, lambda x: ops.einsum("bic,bjc->bij", x, ops.tanh(x))),
    "softmax": (SEQUENCE, lambda x: ops.softmax(x, axis=1)),
    "gelu": (ROW, lambda x: ops.gelu(x) + ops.gelu(x, approximate=False)),
    "functions": (ROW, lambda x: ops.sigmoid(x) * ops.tanh(x) - ops.softplus(x) + ops.silu(x) + ops.leaky_relu(x) + ops.elu(x)),
    "exp": (ROW, lambda x: ops.exp(-ops.square(x))),
    "negative": (ROW, lambda x: -x),
    "powers": (ROW, lambda x: x**2 + 0.5 * x**3),
    "roots": (ROW, lambda x: ops.sqrt(ops.sum(ops.square(x), axis=1, keepdims=True) + 0.1) * x + ops.rsqrt(1 + x**2) - (2 + ops.abs(x)) ** 0.5),
    "logarithms": (ROW, lambda x: ops.log(ops.exp(x) + 0.5) + ops.reciprocal(2 + ops.abs(x))),
    "quotients": (SEQUENCE, lambda x: x / (1 + ops.max(ops.abs(x), axis=1, keepdims=True)) + 1 / (2 + x**2) + (1 + x**2) ** -1),
    "abs": (ROW, lambda x: ops.abs(x) / 2),
    "clip": (ROW, lambda x: ops.clip(x, -0.5, 0.8)),
    "split": (SEQUENCE, lambda x: ops.subtract(*ops.split(x, 2, axis=1))),
    "split at places": (ROW, lambda x: ops.concatenate(ops.split(x, [2, 5], axis=-1)[::-1], axis=-1)),
    "repeat": (SEQUENCE, lambda x: ops.repeat(x, 2, axis=1)),
    "tile": (SEQUENCE, lambda x: ops.tile(x, (1, 2, 3))),
    "flip": (SEQUENCE, lambda x: ops.flip(x, axis=1)),
    "pad": (SEQUENCE, lambda x: ops.pad(x, ((0, 0), (1, 2), (0, 1)))),
    "broadcast": (SEQUENCE, lambda x: x - ops.mean(x, axis=1, keepdims=True)),
    "where": (ROW, lambda x: ops.where(ops.not_equal(ops.relu(x), 0.0), 2 * x, -0.3)),
    "where, of an array": (SEQUENCE, lambda x: ops.where(np.tri(6, 4, dtype=bool), x, ops.tanh(x))),
    "where, of a row": (SEQUENCE, lambda x: ops.where(ops.logical_not(ops.equal(ops.relu(x[:, :, :1]), 0)), x, 1.5)),
    "cast of a comparison": (ROW, lambda x: x * ops.cast(ops.relu(x) == 0, "float32")),
    "maximum of a number": (ROW, lambda x: ops.maximum(x, 0.1) + ops.minimum(0.3, x)),
    "attention": (SEQUENCE, lambda x: ops.dot_product_attention(*(ops.expand_dims(part, 2) for part in (x, ops.tanh(x), 2 * x)))),
    "causal attention": (
        SEQUENCE,
        lambda x: ops.dot_product_attention(*[ops.reshape(x, (-1, 6, 2, 2))] * 3, is_causal=True, scale=0.9),
    ),
    "attention with a mask": (
        SEQUENCE,
        lambda x: ops.dot_product_attention(*[ops.reshape(x, (-1, 6, 2, 2))] * 3, mask=np.tri(6, dtype=bool)[None, None]),
    ),
    "an activation of one's own": (ROW, lambda x: layers.Dense(4, activation=_own_gelu)(x)),
}


def _of_operation(name: str) -> Any:
    shape, operation = OPERATIONS[name]
    inputs = keras.Input(shape)
    x = layers.Dense(shape[-1], activation="tanh")(inputs)
    return keras.Model(inputs, layers.Dense(2)(layers.Flatten()(operation(x))))


class Linear(layers.Layer):
    """The layer of Keras' guide."""

    def __init__(self, units: int, **more: Any) -> None:
        super().__init__(**more)
        self.units = units

    def build(self, shape: Any) -> None:
        self.w = self.add_weight(shape=(shape[-1], self.units), initializer="glorot_uniform", name="w")
        self.b = self.add_weight(shape=(self.units,), initializer="zeros", name="b")

    def call(self, x: Any) -> Any:
        return ops.matmul(x, self.w) + self.b

    def get_config(self) -> Any:
        return {**super().get_config(), "units": self.units}


class Block(layers.Layer):
    """Layers within a layer, used twice, with weights of its own before and behind a tensor."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.dense = layers.Dense(4, activation="tanh")
        self.norm = layers.LayerNormalization()
        self.drop = layers.Dropout(0.0)

    def build(self, shape: Any) -> None:
        self.places = self.add_weight(shape=(1, *shape[1:]), initializer="random_normal", name="places")
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")
        self.gain = self.add_weight(shape=(shape[-1],), initializer="ones", name="gain", trainable=False)
        self.dense.build(shape)
        self.norm.build(shape)

    def call(self, x: Any, training: bool = False) -> Any:
        x = self.scale * (x + self.places)
        x = x + self.drop(self.norm(self.dense(self.gain * self.dense(x))), training=training)
        return x


class Mlp(keras.Model):
    """A model of layers that its `call` uses."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = layers.Dense(8, activation="relu"), layers.Dense(2)
        self.drop = layers.Dropout(0.0)

    def call(self, x: Any, training: bool = False) -> Any:
        x = self.first(x)
        if training:
            x = self.drop(x, training=training)
        return self.last(x)


class Vision(keras.Model):
    """Patches with a class token, as vision transformers have them."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = layers.Conv2D(8, 2, strides=2)
        self.attention, self.norm = layers.MultiHeadAttention(2, 4), layers.LayerNormalization()
        self.head = layers.Dense(2)

    def build(self, shape: Any) -> None:
        self.token = self.add_weight(shape=(1, 1, 8), initializer="random_normal", name="token")
        self.positions = self.add_weight(shape=(1, 7, 8), initializer="random_normal", name="positions")
        super().build(shape)

    def call(self, x: Any) -> Any:
        x = ops.reshape(self.patches(x), (-1, 6, 8))
        x = ops.concatenate([0.0 * x[:, :1] + self.token, x], axis=1) + self.positions
        x = x + self.attention(self.norm(x), self.norm(x))
        return self.head(x[:, 0])


class Placed(layers.Layer):
    """Vectors of positions that the code knows: of all places, of some in another order, and before the tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.factor = layers.Embedding(6, 4), layers.Embedding(9, 4), layers.Embedding(6, 4)

    def call(self, x: Any) -> Any:
        length = ops.shape(x)[1]
        places = ops.arange(start=0, stop=length, step=1)
        x = x + self.first(places)
        x = self.second(ops.expand_dims(ops.flip(places), 0)) + x
        return x + self.factor(np.arange(length)) * x


class Two(keras.Model):
    """Inputs and outputs by names."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = layers.Dense(4), layers.Dense(2)

    def call(self, inputs: Any) -> Any:
        return self.b(ops.concatenate([self.a(inputs["left"]), inputs["right"]], axis=-1))


def _functional(shape: tuple[int, ...], *parts: Any) -> Any:
    inputs = x = keras.Input(shape)
    for part in parts:
        x = part(x)
    return keras.Model(inputs, layers.Dense(2)(layers.Flatten()(x)))


def _frames() -> Any:
    """Reads a picture of a film."""
    parts = [layers.Conv2D(3, 3, activation="relu"), layers.Dropout(0.0), layers.GlobalAveragePooling2D(), layers.Dense(4)]
    return keras.Sequential([keras.Input((6, 5, 2)), *parts])


def _twice(x: Any) -> Any:
    """As a siamese network: one layer of one's own, and its gain, read two tensors."""
    shared = Block()
    parts = [layers.Reshape((2, 4))(part) for part in (x, ops.tanh(x))]
    return ops.abs(shared(parts[0]) - shared(parts[1]))


def _handed(kind: str, **settings: Any) -> Any:
    """An encoder of a part of the steps, whose states a decoder of the others begins with, and one that reads them once more."""
    inputs = keras.Input(SEQUENCE)
    recurrent = functools.partial(getattr(layers, kind), 5, return_state=True, **settings)
    first, *states = recurrent(return_sequences=True)(inputs[:, :3])
    last, *_ = recurrent()(inputs[:, 3:], initial_state=states)
    _, *after = recurrent(go_backwards=True)(inputs, states)
    shared = recurrent()
    again = [shared(part)[-1] for part in (inputs[:, :4], inputs[:, 2:])]
    return keras.Model(inputs, layers.Dense(2)(ops.concatenate([first[:, 0], last, *after, *again], axis=-1)))


def _translator() -> Any:
    """Words to words with padding, as in Keras' example: the states of the decoder are there for prediction alone."""
    inputs = [keras.Input((5,)), keras.Input((7,))]
    embedded = [layers.Embedding(6, 4, mask_zero=True)(part) for part in inputs]
    _, *states = layers.LSTM(5, return_state=True)(embedded[0])
    decoded, _, _ = layers.LSTM(5, return_sequences=True, return_state=True)(embedded[1], initial_state=states)
    named = layers.GRU(5, return_sequences=True)(embedded[1], initial_state=states[:1], mask=embedded[1]._keras_mask)
    decoded = layers.Add()([decoded, named])
    return keras.Model(inputs, layers.Dense(2)(layers.GlobalAveragePooling1D()(decoded)))


class Named(keras.Model):
    """A subclass whose constructor makes the graph."""

    def __init__(self) -> None:
        inputs = keras.Input(ROW)
        super().__init__(inputs, layers.Dense(2)(layers.Dense(5, activation="tanh")(inputs)))


#: Models with code of the user's own, and the shape of a row.
MODELS: dict[str, tuple[tuple[int, ...], Callable[[], Any]]] = {
    "a layer of the guide": (ROW, lambda: _functional(ROW, Linear(5), layers.ReLU(), Linear(3))),
    "a layer on two tensors": (ROW, lambda: _functional(ROW, _twice)),
    "a layer in a Sequential": (ROW, lambda: keras.Sequential([keras.Input(ROW), Linear(5, name="own"), layers.Dense(2)])),
    "layers in a layer": (SEQUENCE, lambda: _functional(SEQUENCE, Block(), Block())),
    "vectors of positions": (SEQUENCE, lambda: _functional(SEQUENCE, Placed())),
    "a lambda": (SEQUENCE, lambda: _functional(SEQUENCE, layers.Dense(3), layers.Lambda(lambda x: ops.mean(x, axis=1) * 2.0))),
    "a model": (ROW, Mlp),
    "a vision transformer": (PICTURE, Vision),
    "a model within a model": (ROW, lambda: _functional(ROW, Mlp(), layers.ReLU())),
    "a constructor's own": (ROW, Named),
    "an open Sequential": (ROW, lambda: keras.Sequential([layers.Dense(4, activation="relu"), layers.Dense(2)])),
    "attention of Keras": (
        SEQUENCE,
        lambda: _functional(SEQUENCE, layers.Dense(4), lambda x: layers.Attention(use_scale=True)([x, ops.tanh(x)])),
    ),
    "additive attention": (SEQUENCE, lambda: _functional(SEQUENCE, lambda x: layers.AdditiveAttention()([x, ops.tanh(x)]))),
    "a layer on each step": (SEQUENCE, lambda: _functional(SEQUENCE, layers.TimeDistributed(layers.Dense(3, activation="tanh")))),
    "a model on each step": ((4, 6, 5, 2), lambda: _functional((4, 6, 5, 2), layers.TimeDistributed(_frames()), layers.LSTM(3))),
    **{f"{kind} that hands on its state": (SEQUENCE, functools.partial(_handed, kind)) for kind in ("LSTM", "GRU", "SimpleRNN")},
    "an old GRU that hands on its state": (SEQUENCE, lambda: _handed("GRU", reset_after=False)),
    "an old GRU": (SEQUENCE, lambda: _functional(SEQUENCE, layers.GRU(4, reset_after=False, return_sequences=True))),
    "products of Keras": (SEQUENCE, lambda: _functional(SEQUENCE, layers.Dense(4, activation="tanh"), lambda x: layers.Dot(axes=(2, 2))([x, 0.2 * x]))),
}


class Decoder(layers.Layer):
    """Attention with a mask that code makes, as the examples of keras.io and KerasHub have it, and its parts as `EinsumDense`."""

    def __init__(self, dropout: float = 0.0, is_seen: Callable[[Any, Any], Any] = lambda i, j: i >= j, **more: Any) -> None:
        super().__init__(**more)
        self.is_seen = is_seen
        self.attention = layers.MultiHeadAttention(2, 3, dropout=dropout)
        self.parts = layers.EinsumDense("abc,cde->abde", (None, 2, 2), bias_axes="de")

    def build(self, shape: Any) -> None:
        self.attention.build(shape, shape)
        self.parts.build(shape)

    def call(self, x: Any, padding_mask: Any) -> Any:
        places = ops.arange(x.shape[1])
        seen = ops.cast(self.is_seen(ops.expand_dims(places, 1), places), "int32")
        seen = ops.broadcast_to(ops.expand_dims(seen, 0), (ops.shape(x)[0], x.shape[1], x.shape[1]))
        seen = ops.minimum(seen, ops.cast(ops.expand_dims(padding_mask, 1), "int32"))
        return ops.reshape(self.parts(x + self.attention(x, x, attention_mask=seen)), (-1, x.shape[1], 4))


def _decoded(rank: int = 0, **settings: Any) -> Any:
    x, padding = keras.Input(SEQUENCE), keras.Input(SEQUENCE[:1], dtype="bool")
    layer = Decoder(**settings)
    y = layer(layers.Dense(4)(x), padding_mask=padding)
    if rank:
        layer.parts.enable_lora(rank)
        layer.parts.lora_kernel_b.assign(0.1 * np.arange(1.0, 2.0 * rank + 1).reshape(rank, 2))
    return keras.Model([x, padding], layers.Dense(2)(layers.Flatten()(y)))


def _told(model: Any, x: Any, y: Any) -> Any:
    """The losses of 10 steps, and weights."""
    losses: list[float] = []
    see = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: losses.append(logs["loss"]))
    before = model.predict(x, verbose=0)
    model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0, callbacks=[see])
    return before, losses, model.evaluate(x, y, batch_size=BATCH, verbose=0), model.get_weights()


def _trained(build: Callable[[], Any], x: Any, y: Any, rig: str | None = None) -> Any:
    """Ten steps on adapters; without any, in Keras."""
    keras.utils.set_random_seed(3)
    model = build() if rig is None else make_parallel(build(), rig)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.5), "mse")
    return _told(model, x, y)


def _data(shape: tuple[int, ...]) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    return rng.normal(size=(ROWS, *shape)).astype("float32"), rng.normal(size=(ROWS, 2)).astype("float32")


@functools.cache
def _by_keras(name: str) -> Any:
    """What Keras does with a model, once for all rigs."""
    shape, build = MODELS[name]
    return _trained(build, *_data(shape))


def _compare(expected: Any, ours: Any) -> None:
    before, losses, evaluated, weights = expected
    np.testing.assert_allclose(ours[0], before, rtol=1e-4, atol=1e-5)
    assert len(losses) == 10
    np.testing.assert_allclose(ours[1], losses, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours[2], evaluated, rtol=1e-5)
    for found, needed in zip(ours[3], weights, strict=True):
        np.testing.assert_allclose(found, needed, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("adapters", three_or_slow())
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_those_of_keras(name: str, adapters: str) -> None:
    data = _data(OPERATIONS[name][0])
    expected, ours = (_trained(lambda: _of_operation(name), *data, rig) for rig in (None, adapters))
    _compare(expected, ours)


@pytest.mark.parametrize("rig", three_or_slow())
@pytest.mark.parametrize("name", MODELS)
def test_code_of_ones_own_trains_as_in_keras(name: str, rig: str) -> None:
    shape, build = MODELS[name]
    _compare(_by_keras(name), _trained(build, *_data(shape), rig))


@pytest.mark.parametrize("rig", three_or_slow())
def test_padded_words_are_translated_as_in_keras(rng: np.random.Generator, rig: str) -> None:
    x, y = [rng.integers(0, 6, (ROWS, length)) for length in (5, 7)], rng.normal(size=(ROWS, 2)).astype("float32")
    _compare(*(_trained(_translator, x, y, adapters) for adapters in (None, rig)))


@pytest.mark.parametrize("rig", three_or_slow())
@pytest.mark.parametrize("rank", [0, 2])
def test_masks_that_code_makes_are_those_of_keras(rng: np.random.Generator, rig: str, rank: int) -> None:
    x, y = _data(SEQUENCE)
    padding = np.arange(SEQUENCE[0]) < rng.integers(0, 7, (ROWS, 1))
    _compare(*(_trained(lambda: _decoded(rank), [x, padding], y, adapters) for adapters in (None, rig)))


def test_other_masks_of_code_are_refused_by_name(rng: np.random.Generator) -> None:
    x, y = _data(SEQUENCE)
    model = make_parallel(_decoded(is_seen=lambda i, j: abs(i - j) < 2), "cpu")
    model.compile("sgd", "mse")
    with pytest.raises(ModelError, match=r"has a mask of another kind than keys that count and a causal one"):
        model.fit([x, np.ones((ROWS, 6), bool)], y, verbose=0)


def test_penalties_that_would_be_lost_are_refused() -> None:
    class Inner(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.parts = layers.EinsumDense("ab,bc->ac", 3, activity_regularizer="l2")
            self.parts.build((None, *ROW))

        def call(self, x: Any) -> Any:
            return self.parts(x)

    own = layers.Dense(3, activation=_own_gelu, activity_regularizer="l2")
    for layer, told in ((Inner(), "a `EinsumDense` with `activity_regularizer`"), (own, "`activity_regularizer` is not supported behind")):
        inputs = keras.Input(ROW)
        model = make_parallel(keras.Model(inputs, layer(inputs)), "cpu")
        model.compile("sgd", "mse")
        with pytest.raises(ModelError, match=told):
            model.fit(np.ones((4, *ROW)), np.ones((4, 3)), verbose=0)


def test_dropped_probabilities_behind_a_mask_train(rng: np.random.Generator) -> None:
    x, y = _data(SEQUENCE)
    model = make_parallel(_decoded(dropout=0.3), "cpu,cpu")
    model.compile(keras.optimizers.Adam(0.01), "mse")
    losses = model.fit([x, np.ones((ROWS, 6), bool)], y, epochs=8, verbose=0).history["loss"]
    assert losses[-1] < 0.9 * losses[0]


def test_states_are_outputs_of_a_model(rng: np.random.Generator) -> None:
    """As of the encoder that a translator has for prediction."""
    x, inputs = rng.normal(size=(ROWS, *SEQUENCE)).astype("float32"), keras.Input(SEQUENCE)
    model = keras.Model(inputs, layers.LSTM(5, return_state=True)(inputs)[1:])
    for found, needed in zip(make_parallel(model, "cpu").predict(x, verbose=0), model.predict(x, verbose=0), strict=True):
        np.testing.assert_allclose(found, needed, rtol=1e-4, atol=1e-5)


def test_inputs_by_names_reach_a_model_of_ones_own(rng: np.random.Generator) -> None:
    x = {"left": rng.normal(size=(ROWS, 3)).astype("float32"), "right": rng.normal(size=(ROWS, 5)).astype("float32")}
    y = rng.normal(size=(ROWS, 2)).astype("float32")
    expected, ours = (_trained(Two, x, y, rig) for rig in (None, "cpu,cpu,cpu"))
    _compare(expected, ours)


def test_a_model_within_may_read_two_tensors() -> None:
    def build() -> Any:
        left, right, inputs = (keras.Input(ROW) for _ in range(3))
        inner = keras.Model([left, right], layers.Dense(4, activation="tanh")(layers.Subtract()([left, right])), name="inner")
        return keras.Model(inputs, layers.Dense(2)(inner([inputs, layers.Dense(8)(inputs)])))

    expected, ours = (_trained(build, *_data(ROW), rig) for rig in (None, "cpu,cpu,cpu"))
    _compare(expected, ours)


class Mistaken(layers.Layer):
    """Lines that can't be traced."""

    def __init__(self, how: str) -> None:
        super().__init__(name="mistaken")
        self.how = how
        self.w = self.add_weight(shape=(4, 4), name="w")
        self.seen = self.add_weight(shape=(), initializer="zeros", trainable=False, name="seen")
        self.seeds = keras.random.SeedGenerator(1)
        self.places = layers.Embedding(4, 4, mask_zero=how == "masks places") if "places" in how else None

    def call(self, x: Any) -> Any:
        if self.places is not None:
            found = self.places(np.arange(1))
            return layers.Add()([x @ self.w, found]) if self.how == "a layer adds places" else x @ self.w + (found + 1.0)
        if self.how == "draws":
            return x @ self.w + keras.random.normal(ops.shape(x), seed=self.seeds)
        if self.how == "sorts":
            return ops.sort(x @ self.w)
        if self.how == "stops":
            return ops.stop_gradient(x @ self.w)
        if self.how == "weight alone":
            return x @ ops.transpose(self.w)
        if self.how == "counts":
            self.seen.assign_add(1.0)
        if self.how == "adds a loss":
            self.add_loss(0.1 * ops.mean(x))
        return x @ self.w if self.how != "unused" else x


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("sorts", r"operation `mistaken.sort` \(Sort\): this operation of `keras.ops` is not supported: use a layer in its place \(at .*test_code.py:\d+\)"),
        ("stops", r"operation `mistaken.stop_gradient` \(StopGradient\): this operation of `keras.ops` is not supported"),
        ("draws", r"layer `mistaken` \(Mistaken\): draws random numbers by `keras.random`; layers such as `GaussianNoise`.*\(at .*test_code.py:\d+\)"),
        ("weight alone", r"layer `mistaken` \(Mistaken\): .*\(at .*test_code.py:\d+\)"),
        ("counts", r"layer `mistaken` \(Mistaken\): .*(changes the variable `seen`|can't be traced|weight alone)"),
        ("adds a loss", r"layer `mistaken` \(Mistaken\): adds a loss in its `call`"),
        ("masks places", r"layer `mistaken` \(Mistaken\): .*looks places up by an `Embedding` with a mask.*\(at .*test_code.py:\d+\)"),
        ("places alone", r"layer `mistaken` \(Mistaken\): computes with a weight alone; begin with a tensor.*\(at .*test_code.py:\d+\)"),
        ("a layer adds places", r"layer `mistaken` \(Mistaken\): .*Only input tensors may be passed.*vectors of an `Embedding`.*\(at .*test_code.py:\d+\)"),
        ("unused", r"weight `mistaken/w`: the outputs don't depend on it"),
    ],
)
def test_what_can_not_be_traced_is_refused_with_its_line(how: str, told: str) -> None:
    inputs = keras.Input((4,))
    model = keras.Model(inputs, layers.Dense(2)(Mistaken(how)(inputs)))
    model.compile("sgd", "mse")
    seen = [np.array(weight) for weight in model.get_weights()]
    with pytest.raises(ModelError, match=told):
        make_parallel(model, "cpu").fit(np.ones((4, 4)), np.ones((4, 2)), verbose=0)
    for found, needed in zip(model.get_weights(), seen, strict=True):
        np.testing.assert_array_equal(found, needed)


def test_a_weight_in_two_places_is_refused() -> None:
    class Tied(layers.Layer):
        def __init__(self) -> None:
            super().__init__(name="tied")
            self.w = self.add_weight(shape=(4, 4), name="w")

        def call(self, x: Any) -> Any:
            return ops.matmul(x, self.w) + ops.einsum("bi,ji->bj", x, self.w)

    inputs = keras.Input((4,))
    model = keras.Model(inputs, Tied()(inputs))
    model.compile("sgd", "mse")
    with pytest.raises(ModelError, match="weight `tied/w`: is used in two ways"):
        make_parallel(model, "cpu").fit(np.ones((4, 4)), np.ones((4, 4)), verbose=0)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda x: layers.GRU(5)(x, None, x._keras_mask), "`mask` needs to be given by its name"),
        (lambda x: ops.add(*layers.GRU(5, return_sequences=True, return_state=True)(x)[:2]), "`return_state` is not supported behind a mask"),
        (lambda x: layers.Bidirectional(layers.LSTM(5, return_state=True))(x)[1], "`return_state` is not supported here: use two layers"),
    ],
)
def test_states_that_can_not_be_had_are_refused(call: Callable[[Any], Any], told: str) -> None:
    inputs = keras.Input((5,))
    model = keras.Model(inputs, layers.Dense(2)(call(layers.Embedding(6, 5, mask_zero=True)(inputs))))
    with pytest.raises(ModelError, match=told):
        make_parallel(model, "cpu").predict(np.zeros((2, 5)), verbose=0)
