"""Each layer of the table: predictions are those of Keras. A layer of the engine without a row here fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers
from keras.src.applications.convnext import LayerScale, StochasticDepth
from keras.src.applications.inception_resnet_v2 import CustomScaleLayer

import manyhands_ml
from manyhands_ml import _native
from manyhands_ml._layers import FUNCTIONS, LAYERS

ACTIVATIONS = (
    "linear relu relu6 leaky_relu sigmoid tanh gelu silu hard_silu hard_sigmoid elu selu softplus softsign mish exponential "
    "softmax"
).split()
IMAGE, ROW, SEQUENCE = (6, 7, 3), (10,), (6, 4)
#: Whole numbers from 0 to 3, and such numbers through an `Embedding` that masks 0.
INDICES, MASKED = (8,), (9,)



class Reversed:
    """A layer that is called with `reverse=True`."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer

    def __call__(self, x: Any) -> Any:
        self.layer.build((None,))
        return self.layer(x, reverse=True)


class BothWays(Reversed):
    """One that is called without before."""

    def __call__(self, x: Any) -> Any:
        return self.layer(layers.Dense(5, activation="tanh")(self.layer(x)), reverse=True)


#: Layers to try, by class: the shape of a row of each input, and settings that are not the default.
TRIED: dict[str, list[tuple[list[tuple[int, ...]], Callable[[], Any]]]] = {
    "Activation": [
        ([ROW], lambda name=name: layers.Activation(name))
        for name in ACTIVATIONS
    ],
    "Add": [([ROW, ROW, ROW], layers.Add)],
    "Average": [([ROW, ROW, ROW], layers.Average)],
    "AveragePooling1D": [
        ([SEQUENCE], lambda: layers.AveragePooling1D(2)),
        ([SEQUENCE], lambda: layers.AveragePooling1D(3, strides=2, padding="same")),
    ],
    "AveragePooling2D": [
        ([IMAGE], lambda: layers.AveragePooling2D(2)),
        ([IMAGE], lambda: layers.AveragePooling2D((3, 2), strides=(1, 2), padding="same")),
    ],
    "BatchNormalization": [
        ([IMAGE], layers.BatchNormalization),
        ([ROW], lambda: layers.BatchNormalization(epsilon=0.1, center=False)),
        ([ROW], lambda: layers.BatchNormalization(axis=1, scale=False)),
    ],
    "Bidirectional": [
        ([SEQUENCE], lambda: layers.Bidirectional(layers.LSTM(4, return_sequences=True))),
        ([SEQUENCE], lambda: layers.Bidirectional(layers.GRU(3), merge_mode="sum")),
        ([MASKED], lambda: layers.Bidirectional(layers.SimpleRNN(3, use_bias=False), merge_mode="ave")),
    ],
    "Concatenate": [([IMAGE, IMAGE], layers.Concatenate), ([ROW, (4,)], lambda: layers.Concatenate(axis=1))],
    "Conv1D": [
        ([SEQUENCE], lambda: layers.Conv1D(4, 3)),
        ([SEQUENCE], lambda: layers.Conv1D(4, 2, strides=2, padding="same", activation="relu", use_bias=False)),
        ([SEQUENCE], lambda: layers.Conv1D(6, 2, padding="causal", dilation_rate=2, groups=2)),
    ],
    "Conv2D": [
        ([IMAGE], lambda: layers.Conv2D(4, 3)),
        ([IMAGE], lambda: layers.Conv2D(5, (2, 3), strides=2, padding="same", activation="tanh", use_bias=False)),
        ([IMAGE], lambda: layers.Conv2D(6, 2, groups=3, dilation_rate=2)),
    ],
    "Conv2DTranspose": [
        ([IMAGE], lambda: layers.Conv2DTranspose(4, 3)),
        ([IMAGE], lambda: layers.Conv2DTranspose(4, (2, 3), strides=2, padding="same", output_padding=1, use_bias=False)),
    ],
    "Cropping1D": [([SEQUENCE], lambda: layers.Cropping1D((2, 1)))],
    "Cropping2D": [([IMAGE], lambda: layers.Cropping2D(1)), ([IMAGE], lambda: layers.Cropping2D(((1, 0), (2, 3))))],
    "CustomScaleLayer": [([IMAGE, IMAGE], lambda: CustomScaleLayer(0.3))],
    "Dense": [
        ([ROW], lambda: layers.Dense(4, activation="sigmoid")),
        ([(3, 5)], lambda: layers.Dense(4, use_bias=False)),
        ([(3, 5)], lambda: layers.Dense(4, activation="gelu", lora_rank=2)),
    ],
    "DepthwiseConv2D": [
        ([IMAGE], lambda: layers.DepthwiseConv2D(3)),
        ([IMAGE], lambda: layers.DepthwiseConv2D((2, 3), strides=2, padding="same", depth_multiplier=2, use_bias=False)),
        ([IMAGE], lambda: layers.DepthwiseConv2D(2, dilation_rate=(2, 1), activation="relu")),
    ],
    "Dropout": [
        ([ROW], lambda: layers.Dropout(0.4)),
        ([IMAGE], lambda: layers.Dropout(0.4, noise_shape=(None, 1, 1, None))),
    ],
    "ELU": [([ROW], lambda: layers.ELU(alpha=0.5))],
    "Embedding": [
        ([INDICES], lambda: layers.Embedding(4, 5)),
        ([INDICES], lambda: layers.Embedding(4, 5, mask_zero=True)),
        ([INDICES], lambda: layers.Embedding(4, 5, lora_rank=3)),
    ],
    "Flatten": [([IMAGE], layers.Flatten)],
    "GRU": [
        ([SEQUENCE], lambda: layers.GRU(4)),
        ([MASKED], lambda: layers.GRU(3, return_sequences=True, recurrent_activation="hard_sigmoid", go_backwards=True)),
    ],
    "GaussianDropout": [([ROW], lambda: layers.GaussianDropout(0.3))],
    "GaussianNoise": [([ROW], lambda: layers.GaussianNoise(0.3))],
    "GlobalAveragePooling1D": [
        ([SEQUENCE], layers.GlobalAveragePooling1D),
        ([MASKED], lambda: layers.GlobalAveragePooling1D(keepdims=True)),
    ],
    "GlobalAveragePooling2D": [
        ([IMAGE], layers.GlobalAveragePooling2D),
        ([IMAGE], lambda: layers.GlobalAveragePooling2D(keepdims=True)),
    ],
    "GlobalMaxPooling1D": [
        ([SEQUENCE], layers.GlobalMaxPooling1D),
        ([SEQUENCE], lambda: layers.GlobalMaxPooling1D(keepdims=True)),
    ],
    "GlobalMaxPooling2D": [
        ([IMAGE], layers.GlobalMaxPooling2D),
        ([IMAGE], lambda: layers.GlobalMaxPooling2D(keepdims=True)),
    ],
    "GroupNormalization": [
        ([IMAGE], lambda: layers.GroupNormalization(groups=3)),
        ([IMAGE], lambda: layers.GroupNormalization(groups=1, epsilon=0.1, center=False)),
    ],
    "GroupQueryAttention": [
        ([SEQUENCE], lambda: _to_itself(layers.GroupQueryAttention(3, 4, 2))),
        ([MASKED], lambda: _to_itself(layers.GroupQueryAttention(3, 4, 2), use_causal_mask=True)),
        ([SEQUENCE], lambda: _to_itself(layers.GroupQueryAttention(2, 3, 1, dropout=0.2, use_bias=False))),
        ([SEQUENCE, (3, SEQUENCE[-1])], lambda: lambda both: layers.GroupQueryAttention(3, 2, 1)(*both)),
    ],
    "Identity": [([ROW], layers.Identity)],
    "LSTM": [
        ([SEQUENCE], lambda: layers.LSTM(4)),
        ([SEQUENCE], lambda: layers.LSTM(4, return_sequences=True, activation="relu", unit_forget_bias=False)),
        ([MASKED], lambda: layers.LSTM(3, dropout=0.2, recurrent_dropout=0.1, zero_output_for_mask=True, return_sequences=True)),
        ([MASKED], lambda: layers.LSTM(3, zero_output_for_mask=True, return_sequences=True, unroll=True)),
    ],
    "LayerNormalization": [
        ([ROW], layers.LayerNormalization),
        ([IMAGE], lambda: layers.LayerNormalization(axis=[2, 3], epsilon=0.1, scale=False)),
    ],
    "LayerScale": [([IMAGE], lambda: LayerScale(init_values=0.5, projection_dim=3))],
    "LeakyReLU": [([ROW], lambda: layers.LeakyReLU(negative_slope=0.02))],
    "Masking": [([SEQUENCE], layers.Masking), ([SEQUENCE], lambda: layers.Masking(mask_value=1.0))],
    "MaxPooling1D": [
        ([SEQUENCE], layers.MaxPooling1D),
        ([SEQUENCE], lambda: layers.MaxPooling1D(3, strides=2, padding="same")),
    ],
    "MaxPooling2D": [
        ([IMAGE], lambda: layers.MaxPooling2D(2)),
        ([IMAGE], lambda: layers.MaxPooling2D((3, 2), strides=(2, 1), padding="same")),
    ],
    "Maximum": [([ROW, ROW], layers.Maximum)],
    "Minimum": [([ROW, ROW], layers.Minimum)],
    "MultiHeadAttention": [
        ([SEQUENCE], lambda: _to_itself(layers.MultiHeadAttention(2, 3))),
        ([MASKED], lambda: _to_itself(layers.MultiHeadAttention(2, 3), use_causal_mask=True)),
        ([SEQUENCE], lambda: _to_itself(layers.MultiHeadAttention(1, 4, dropout=0.2, use_bias=False, output_shape=3))),
        ([SEQUENCE, (3, 5)], lambda: lambda both: layers.MultiHeadAttention(2, 3)(*both)),
        ([SEQUENCE, (3, 5), (3, 2)], lambda: lambda all: layers.MultiHeadAttention(2, 3)(all[0], key=all[2], value=all[1])),
    ],
    "Multiply": [([IMAGE, (1, 1, 3)], layers.Multiply)],
    "Normalization": [
        ([IMAGE], layers.Normalization),
        ([IMAGE], lambda: layers.Normalization(axis=(1, 3), invert=True)),
        ([ROW], lambda: layers.Normalization(axis=None)),
        ([IMAGE], lambda: layers.Normalization(mean=[0.5, -1.0, 2.0], variance=[1.0, 0.25, 4.0])),
        ([ROW], lambda: layers.Normalization(mean=0.5, variance=0.0)),
    ],
    "PReLU": [([IMAGE], layers.PReLU), ([IMAGE], lambda: layers.PReLU(shared_axes=[1, 2]))],
    "Permute": [([IMAGE], lambda: layers.Permute((3, 1, 2)))],
    "RMSNormalization": [
        ([ROW], layers.RMSNormalization),
        ([IMAGE], lambda: layers.RMSNormalization(axis=[2, 3], epsilon=0.1)),
    ],
    "ReLU": [
        ([ROW], layers.ReLU),
        ([ROW], lambda: layers.ReLU(negative_slope=0.1, threshold=0.2)),
        ([ROW], lambda: layers.ReLU(max_value=1.0)),
    ],
    "RepeatVector": [([ROW], lambda: layers.RepeatVector(3))],
    "Rescaling": [
        ([IMAGE], lambda: layers.Rescaling(1 / 255, offset=-0.5)),
        ([IMAGE], lambda: layers.Rescaling([0.5, 2.0, 3.0], np.array([0.0, 1.0, 2.0]))),
    ],
    "Reshape": [([IMAGE], lambda: layers.Reshape((7, -1))), ([IMAGE], lambda: layers.Reshape((3, 42)))],
    "ReversibleEmbedding": [
        ([INDICES], lambda: layers.ReversibleEmbedding(4, 5)),
        ([SEQUENCE], lambda: Reversed(layers.ReversibleEmbedding(7, 4))),
        ([SEQUENCE], lambda: Reversed(layers.ReversibleEmbedding(7, 4, tie_weights=False, logit_soft_cap=2.0))),
        ([INDICES], lambda: BothWays(layers.ReversibleEmbedding(4, 5))),
    ],
    "SeparableConv2D": [
        ([IMAGE], lambda: layers.SeparableConv2D(4, 3)),
        ([IMAGE], lambda: layers.SeparableConv2D(4, 2, padding="same", depth_multiplier=2, activation="tanh")),
    ],
    "SimpleRNN": [
        ([SEQUENCE], lambda: layers.SimpleRNN(4)),
        ([MASKED], lambda: layers.SimpleRNN(4, return_sequences=True)),
        # Unrolled on JAX, Keras repeats the output before a masked step whatever `zero_output_for_mask` says.
        ([MASKED], lambda: layers.SimpleRNN(4, return_sequences=True, zero_output_for_mask=True, unroll=True)),
    ],
    "SpatialDropout1D": [([SEQUENCE], lambda: layers.SpatialDropout1D(0.4))],
    "SpatialDropout2D": [([IMAGE], lambda: layers.SpatialDropout2D(0.4))],
    "StochasticDepth": [([IMAGE], lambda: StochasticDepth(0.4))],
    "Subtract": [([ROW, ROW], layers.Subtract)],
    "Softmax": [([ROW], layers.Softmax), ([(3, 5)], lambda: layers.Softmax(axis=2))],
    "UpSampling1D": [([SEQUENCE], lambda: layers.UpSampling1D(3))],
    "UpSampling2D": [
        ([IMAGE], lambda: layers.UpSampling2D(2)),
        ([IMAGE], lambda: layers.UpSampling2D((3, 2), interpolation="bilinear")),
    ],
    "ZeroPadding1D": [([SEQUENCE], lambda: layers.ZeroPadding1D((2, 1)))],
    "ZeroPadding2D": [
        ([IMAGE], lambda: layers.ZeroPadding2D(2)),
        ([IMAGE], lambda: layers.ZeroPadding2D(((1, 0), (2, 3)))),
    ],
}


def _to_itself(layer: keras.Layer, **arguments: Any) -> Callable[[Any], Any]:
    return lambda x: layer(x, x, **arguments)


def test_every_layer_of_the_engine_has_a_row() -> None:
    assert set(_native.layer_kinds()) - FUNCTIONS == {row.type for row in LAYERS.values()}


def test_every_row_is_tried() -> None:
    assert set(LAYERS) == set(TRIED)


def _randomised(weight: Any, rng: np.random.Generator) -> Any:
    return rng.uniform(0.5, 1.5, weight.shape)


@pytest.mark.parametrize(
    ("kind", "idx"), [(kind, idx) for kind, tried in TRIED.items() for idx in range(len(tried))], ids=lambda value: str(value)
)
def test_predictions_are_those_of_keras(kind: str, idx: int, rng: np.random.Generator) -> None:
    shapes, make = TRIED[kind][idx]
    inputs = [keras.Input(shape) for shape in shapes]
    given = inputs if len(inputs) > 1 else inputs[0]
    through = layers.Embedding(4, 6, mask_zero=True)(given) if shapes == [MASKED] else given
    model = keras.Model(given, make()(through))
    model.set_weights([_randomised(weight, rng) for weight in model.get_weights()])
    for layer in model.layers:
        if isinstance(layer, layers.Normalization):
            # As `adapt` does: only then are the new weights what it computes with.
            layer.finalize_state()
    x = [rng.normal(size=(5, *shape)).astype(np.float32) for shape in shapes]
    if shapes[0] in (INDICES, MASKED):
        x = [rng.integers(0, 4, (5, *shapes[0]))]
        # Padding at the end of a row, and nothing else in another; of that a mean is none in Keras.
        x[0][1, 5:], x[0][2, 0], x[0][2, int("Pooling" in kind) :] = 0, 3, 0
    got = manyhands_ml.make_parallel(model, "cpu").predict_on_batch(x if len(x) > 1 else x[0])
    expected = keras.ops.convert_to_numpy(model(x if len(x) > 1 else x[0], training=False))
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_low_rank_factors_are_trained_as_in_keras(rng: np.random.Generator) -> None:
    """`enable_lora` on layers that are built: three steps move the factors and the bias, and not the kernel."""
    ids = keras.Input(INDICES)
    model = keras.Model(ids, layers.Dense(3)(layers.Dense(4, activation="tanh")(layers.Embedding(4, 5)(ids))))
    for layer, rank, alpha in zip(model.layers[1:3], (2, 3), (4.0, 0.5)):
        layer.enable_lora(rank, lora_alpha=alpha)
    model.set_weights([_randomised(weight, rng) for weight in model.get_weights()])
    copy = keras.models.clone_model(model)
    for layer, rank, alpha in zip(copy.layers[1:3], (2, 3), (4.0, 0.5)):
        # Keras' clone has the rank, but forgets `lora_alpha`.
        layer.lora_alpha = alpha
    copy.set_weights(model.get_weights())
    x, y = rng.integers(0, 4, (6, *INDICES)), rng.normal(size=(6, *INDICES, 3)).astype(np.float32)
    for each in (model, copy):
        each.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    kernel = keras.ops.convert_to_numpy(model.layers[2]._kernel)
    manyhands_ml.make_parallel(model, "cpu").fit(x, y, epochs=3, batch_size=6, verbose=0)
    copy.fit(x, y, epochs=3, batch_size=6, verbose=0)
    np.testing.assert_array_equal(model.layers[2]._kernel, kernel)
    for got, expected in zip(model.get_weights(), copy.get_weights(), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_operations_are_layers(rng: np.random.Generator) -> None:
    """`x + y` and functions of `keras.ops` in a functional model."""
    inputs = [keras.Input(ROW), keras.Input(ROW)]
    x, y = inputs
    z = keras.ops.maximum(2.0 * x - y, 0.5 - y) / 4 + 1
    model = keras.Model(inputs, keras.ops.minimum(keras.ops.tanh(z), keras.ops.relu(x * y - 0.25)))
    given = [rng.normal(size=(5, *ROW)).astype(np.float32) for _ in inputs]
    expected = keras.ops.convert_to_numpy(model(given))
    np.testing.assert_allclose(manyhands_ml.make_parallel(model, "cpu").predict_on_batch(given), expected, atol=1e-5)


def test_masks_reach_attention_from_both_sequences(rng: np.random.Generator) -> None:
    """Behind residual connections and norms; the mean of the positions that count is what is compared."""
    words = [keras.Input((7,)), keras.Input((5,))]
    x, y = (layers.Embedding(4, 6, mask_zero=True)(ids) for ids in words)
    x = layers.Add()([x, layers.MultiHeadAttention(2, 3)(x, x, use_causal_mask=True)])
    x = layers.Add()([x, layers.MultiHeadAttention(2, 3)(layers.LayerNormalization()(x), y)])
    model = keras.Model(words, layers.GlobalAveragePooling1D()(x))
    ids = [rng.integers(0, 4, (6, length)) for length in (7, 5)]
    ids[0][:, 0] = 1
    ids[1][0] = 0
    got = manyhands_ml.make_parallel(model, "cpu").predict_on_batch(ids)
    np.testing.assert_allclose(got, keras.ops.convert_to_numpy(model(ids, training=False)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("layer", "arguments", "problem"),
    [
        ({"sliding_window": 3}, {}, "`sliding_window` needs None"),
        ({"kernel_regularizer": "l2"}, {}, "`kernel_regularizer` is not supported here"),
        ({}, {"attention_mask": np.eye(6, dtype=bool)[None]}, "has a mask of another kind than keys that count and a causal one"),
    ],
)
def test_what_attention_lacks_is_refused(layer: dict[str, Any], arguments: dict[str, Any], problem: str) -> None:
    x = keras.Input(SEQUENCE)
    model = keras.Model(x, layers.MultiHeadAttention(2, 3, **layer)(x, x, **arguments))
    with pytest.raises(manyhands_ml.ModelError, match=problem.replace("(", r"\(")):
        manyhands_ml.make_parallel(model, "cpu").predict_on_batch(np.zeros((2, *SEQUENCE), np.float32))


def test_masks_go_through_each_layer_as_in_keras(rng: np.random.Generator) -> None:
    """Behind each layer for sequences an `LSTM` or the mean over time tells whether a mask came through."""
    n_seen = 0
    for kind, tried in TRIED.items():
        for shapes, make in tried:
            if any(len(shape) != 2 for shape in shapes) and shapes not in ([MASKED], [INDICES]):
                continue
            n_seen += _masked_as_in_keras(kind, shapes, make, rng)
    assert n_seen >= 20


#: Layers for sequences that Keras gives a mask, and that would compute something else here.
REFUSED_BEHIND_MASKS = {"Maximum", "Minimum", "Multiply", "Softmax", "StochasticDepth"}
#: Layers of the table that work on any sequence, though they are tried with other shapes.
OF_ANY_SHAPE: dict[str, Callable[[], Any]] = {
    "Activation": lambda: layers.Activation("tanh"),
    "Add": layers.Add,
    "Average": layers.Average,
    "BatchNormalization": layers.BatchNormalization,
    "Concatenate": layers.Concatenate,
    "CustomScaleLayer": lambda: CustomScaleLayer(0.3),
    "Dense": lambda: layers.Dense(4),
    "Dropout": lambda: layers.Dropout(0.3),
    "ELU": layers.ELU,
    "Flatten": layers.Flatten,
    "GaussianDropout": lambda: layers.GaussianDropout(0.3),
    "GaussianNoise": lambda: layers.GaussianNoise(0.3),
    "GroupNormalization": lambda: layers.GroupNormalization(groups=2),
    "Identity": layers.Identity,
    "LayerNormalization": layers.LayerNormalization,
    "LayerScale": lambda: LayerScale(init_values=0.5, projection_dim=4),
    "LeakyReLU": layers.LeakyReLU,
    "Maximum": layers.Maximum,
    "Minimum": layers.Minimum,
    "Multiply": layers.Multiply,
    "Normalization": layers.Normalization,
    "PReLU": layers.PReLU,
    "Permute": lambda: layers.Permute((2, 1)),
    "RMSNormalization": layers.RMSNormalization,
    "ReLU": layers.ReLU,
    "Rescaling": lambda: layers.Rescaling(0.5, offset=0.1),
    "Reshape": lambda: layers.Reshape((4, 6)),
    "Softmax": layers.Softmax,
    "StochasticDepth": lambda: StochasticDepth(0.4),
    "Subtract": layers.Subtract,
}


def _masked_as_in_keras(kind: str, shapes: list[tuple[int, ...]], make: Callable[[], Any], rng: np.random.Generator) -> int:
    """Compares a layer behind a mask with Keras; gives 1 if it could."""
    if shapes in ([MASKED], [INDICES]) or len(shapes) > 1:
        return 0
    _compare_behind_mask(kind, make, 1, rng)
    return 1


@pytest.mark.parametrize("kind", OF_ANY_SHAPE)
def test_masks_go_through_layers_of_any_shape_as_in_keras(kind: str, rng: np.random.Generator) -> None:
    is_merge = kind in ("Add", "Average", "Concatenate", "CustomScaleLayer", "Maximum", "Minimum", "Multiply", "Subtract")
    _compare_behind_mask(kind, OF_ANY_SHAPE[kind], 2 if is_merge else 1, rng)


def _compare_behind_mask(kind: str, make: Callable[[], Any], n_inputs: int, rng: np.random.Generator) -> None:
    inputs = [keras.Input(SEQUENCE) for _ in range(n_inputs)]
    masked = [layers.Masking()(given) for given in inputs]
    x = make()(masked if n_inputs > 1 else masked[0])
    if len(x.shape) == 3:
        x = layers.LSTM(3)(x)
    model = keras.Model(inputs, x)
    model.set_weights([_randomised(weight, rng) for weight in model.get_weights()])
    for layer in model.layers:
        if isinstance(layer, layers.Normalization):
            layer.finalize_state()
    given = [rng.normal(size=(5, *SEQUENCE)).astype(np.float32) for _ in inputs]
    for values in given:
        values[1, 3:], values[2, 0], values[3, 2:4] = 0, 0, 0
    parallel = manyhands_ml.make_parallel(model, "cpu")
    if kind in REFUSED_BEHIND_MASKS:
        with pytest.raises(manyhands_ml.ModelError, match="behind a mask"):
            parallel.predict_on_batch(given)
        return
    expected = keras.ops.convert_to_numpy(model(given, training=False))
    np.testing.assert_allclose(parallel.predict_on_batch(given), expected, rtol=1e-5, atol=1e-5, err_msg=kind)


def test_operations_drop_masks_as_in_keras(rng: np.random.Generator) -> None:
    inputs = keras.Input(SEQUENCE)
    x = layers.Masking()(inputs)
    model = keras.Model(inputs, [layers.LSTM(3)(y) for y in (x + x, keras.ops.tanh(x), 2.0 * x, layers.Activation("tanh")(x))])
    given = rng.normal(size=(5, *SEQUENCE)).astype(np.float32)
    given[1, 3:] = 0
    for got, expected in zip(manyhands_ml.make_parallel(model, "cpu").predict_on_batch(given), model(given, training=False)):
        np.testing.assert_allclose(got, keras.ops.convert_to_numpy(expected), rtol=1e-5, atol=1e-5)


def test_arrays_are_factors_and_offsets_of_channels(rng: np.random.Generator) -> None:
    """As in `preprocess_input`, which also turns channels around."""
    row = np.array([1.0, -2.0, 0.5])
    inputs = keras.Input(IMAGE)
    applications = keras.applications
    ways = [
        (inputs - row) * np.array([2.0]) / (row + 4).astype("float32"),
        keras.ops.subtract(keras.ops.convert_to_tensor(row), inputs),
        inputs[..., 1] + inputs[:, :, :, -1],
        *(module.preprocess_input(inputs) for module in (applications.resnet, applications.densenet, applications.resnet_v2)),
    ]
    model = keras.Model(inputs, ways)
    given = (255 * rng.random(size=(3, *IMAGE))).astype(np.float32)
    for got, expected in zip(manyhands_ml.make_parallel(model, "cpu").predict_on_batch(given), model(given), strict=True):
        np.testing.assert_allclose(got, keras.ops.convert_to_numpy(expected), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("shape", [(7, 1), (6, 7, 3), (1, 6, 1, 3)])
def test_arrays_of_other_shapes_are_constants(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    inputs, constant = keras.Input(IMAGE), rng.normal(size=shape).astype(np.float32)
    model = keras.Model(inputs, [inputs + constant, inputs * constant, keras.ops.maximum(inputs, constant)])
    given = rng.normal(size=(2, *IMAGE)).astype(np.float32)
    for got, expected in zip(manyhands_ml.make_parallel(model, "cpu").predict_on_batch(given), model(given), strict=True):
        np.testing.assert_allclose(got, keras.ops.convert_to_numpy(expected), rtol=1e-6)


def test_an_array_with_rows_of_a_batch_is_refused() -> None:
    inputs = keras.Input(IMAGE)
    with pytest.raises(manyhands_ml.ModelError, match=r"operation `add\S*` \(Add\): .* whose first axis is that of the batch"):
        model = keras.Model(inputs, inputs + np.ones((2, *IMAGE)))
        manyhands_ml.make_parallel(model, "cpu").predict_on_batch(np.zeros((2, *IMAGE)))


def test_a_layer_that_another_model_called_first_has_the_shape_of_this_one(rng: np.random.Generator) -> None:
    shared = layers.Reshape((-1, 3))
    shared(keras.Input((14, 3)))
    inputs = keras.Input((5, 6))
    model = keras.Model(inputs, shared(inputs))
    given = rng.normal(size=(2, 5, 6)).astype(np.float32)
    got = manyhands_ml.make_parallel(model, "cpu").predict_on_batch(given)
    np.testing.assert_array_equal(got, given.reshape(2, 10, 3))


def test_dicts_go_by_their_keys(rng: np.random.Generator) -> None:
    """Keras makes them flat by the names, not in the order in which they were written."""
    inputs = {"b": keras.Input((2,), name="b"), "a": keras.Input((3,), name="a")}
    model = keras.Model(inputs, {"z": layers.Dense(2)(inputs["b"]), "y": layers.Dense(4)(inputs["a"])})
    given = {"b": rng.normal(size=(5, 2)).astype("float32"), "a": rng.normal(size=(5, 3)).astype("float32")}
    got, expected = manyhands_ml.make_parallel(model, "cpu").predict(given, verbose=0), model.predict(given, verbose=0)
    assert set(got) == set(expected)
    for key in expected:
        np.testing.assert_allclose(got[key], expected[key], rtol=1e-5, atol=1e-6)


def test_a_penalty_of_a_bias_that_is_not_there_is_none() -> None:
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2, use_bias=False, bias_regularizer="l2")])
    model.compile("sgd", "mse")
    x, y = np.ones((4, 3)), np.ones((4, 2))
    expected = model.evaluate(x, y, verbose=0)
    assert manyhands_ml.make_parallel(model, "cpu").evaluate(x, y, verbose=0) == pytest.approx(expected, rel=1e-5)


def test_each_call_of_a_layer_adds_the_penalty_of_its_outputs() -> None:
    """Half the sum of squares, over the rows; Keras on JAX counts the last call alone."""
    inputs = keras.Input((3,))
    shared = layers.Dense(2, use_bias=False, kernel_initializer="ones", activity_regularizer=keras.regularizers.L2(0.5))
    model = keras.Model(inputs, layers.Add()([shared(inputs), shared(inputs), shared(layers.Rescaling(2.0)(inputs))]))
    model.compile("sgd", "mse")
    x = np.array([[1, 2, 3], [0, 1, -1]], np.float32)
    # Each row of `shared` is [6, 6] and [0, 0].
    y, penalty = np.array([[24, 24], [0, 0]], np.float32), 0.5 * (36 + 36) * (1 + 1 + 4) / 2
    assert manyhands_ml.make_parallel(model, "cpu").evaluate(x, y, verbose=0) == pytest.approx(penalty, rel=1e-6)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_shared_layer_keeps_moving_averages_in_keras_order(rng: np.random.Generator, is_reversed: bool) -> None:
    """Keras runs the calls furthest from the outputs first, and of those at the same distance the last first."""
    inputs, shared = keras.Input((3,)), layers.BatchNormalization(momentum=0.5)
    calls = [
        lambda: layers.Activation("tanh")(shared(layers.Activation("relu")(inputs))),
        lambda: shared(layers.Dense(3)(inputs)),
        lambda: shared(inputs),
    ]
    made = [call() for call in (reversed(calls) if is_reversed else calls)]
    model = keras.Model(inputs, layers.Dense(2)(layers.Concatenate()(made)))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    x, y = rng.normal(size=(8, 3)).astype(np.float32), rng.normal(size=(8, 2)).astype(np.float32)
    start = model.get_weights()
    model.fit(x, y, batch_size=8, verbose=0)
    expected = model.get_weights()
    model.set_weights(start)
    parallel = manyhands_ml.make_parallel(model, "cpu", batch_statistics="batch")
    parallel.fit(x, y, batch_size=8, verbose=0)
    for got, weight in zip(parallel.get_weights(), expected):
        np.testing.assert_allclose(got, weight, rtol=1e-4, atol=1e-5)
