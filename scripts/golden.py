#!/usr/bin/env python3
"""Writes the golden values of tests/golden with Keras 3 on JAX.

    python3 -m venv target/golden-venv
    target/golden-venv/bin/pip install -r scripts/golden-requirements.txt
    target/golden-venv/bin/python scripts/golden.py [FOLDER [FILE...]]

Every value is computed in float64 on the CPU from inputs that float32 holds exactly, and stored as float32.
tests/golden/README.md says what the files hold.
"""

import json
import os
import re
import sys
import tempfile
import zlib
from pathlib import Path

os.environ["KERAS_BACKEND"] = "jax"
os.environ["KERAS_HOME"] = tempfile.mkdtemp()  # a user's keras.json must not change what is written
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_ENABLE_X64"] = "1"

import jax
import jaxlib
import keras
import numpy as np
from keras import layers, losses, metrics, optimizers
from keras.src import backend
from keras.src.applications.convnext import LayerScale
from keras.src.backend.common import dtypes
from keras.src.trainers.data_adapters.data_adapter_utils import class_weight_to_sample_weights
from safetensors.numpy import save_file

# On JAX, Keras takes float64 for float32 wherever it promotes types. `double` makes sure that this cures it.
assert dtypes.BIT64_TO_BIT32_DTYPE["float64"] == "float32"
dtypes.BIT64_TO_BIT32_DTYPE["float64"] = "float64"



class Wide:
    """NumPy for JAX's attention, whose softmax is in float32 whatever its inputs: in float64 where Keras computes in it."""

    def __getattr__(self, name):
        is_wide = name == "float32" and keras.config.floatx() == "float64"
        return np.float64 if is_wide else getattr(np, name)


assert hasattr(jax._src.nn.functions, "_dot_product_attention_core")
jax._src.nn.functions.np = Wide()

VERSIONS = {"keras": keras.__version__, "jax": jax.__version__, "jaxlib": jaxlib.__version__, "numpy": np.__version__}


class File:
    """One file: cases, each with a configuration and named tensors."""

    def __init__(self, stem, about):
        self.stem, self.about, self.cases, self.tensors = stem, about, [], {}

    def add(self, name, tensors, **facts):
        assert all(case["name"] != name for case in self.cases), name
        shapes = {}
        for role, value in tensors.items():
            value = np.array(value, dtype=np.float32, order="C")
            assert np.isfinite(value).all(), (name, role)
            self.tensors[f"{name}/{role}"] = value
            shapes[role] = list(value.shape)
        self.cases.append({"name": name, **facts, "tensors": shapes})

    def write(self, folder):
        manifest = {"about": self.about, "computed_in": "float64", "made_with": VERSIONS, "cases": self.cases}
        path = folder / f"{self.stem}.safetensors"
        save_file(self.tensors, path, metadata={"manifest": json.dumps(manifest, sort_keys=True)})
        print(f"{path}: {len(self.cases)} cases, {path.stat().st_size:,} bytes")


def generator(name):
    """A case's own random numbers, so that a new case changes no other."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def exact(values):
    """The nearest numbers that float32 holds, in float64."""
    return np.asarray(values, dtype=np.float32).astype(np.float64)


def normal(rng, shape, scale=1.0):
    return exact(scale * rng.standard_normal(shape))


def double(function, *arguments):
    """Makes sure that a function computes in float64 throughout, and gives it back."""
    assert "f32" not in str(jax.make_jaxpr(function)(*arguments)), function
    return function


def roles(prefix, values):
    return {f"{prefix}.{index}": value for index, value in enumerate(values)}


# Layers


class Masked(layers.Layer):
    """A layer with its mask as a second input: 1 where a step counts."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def build(self, shapes):
        self.layer.build(shapes[0])

    def call(self, inputs, training=None):
        x, mask = inputs
        mode = {} if training is None else {"training": training}
        return self.layer(x, mask=mask > 0.5, **mode)


class WithStates(layers.Layer):
    """A recurrent layer whose states are inputs behind the sequence, and behind the steps of its output, as its settings say."""

    def __init__(self, layer, begins, is_masked):
        super().__init__()
        self.layer, self.begins, self.is_masked = layer, begins, is_masked

    def build(self, shapes):
        self.layer.build(shapes[0] if isinstance(shapes[0], (list, tuple)) else shapes)

    def call(self, inputs, training=None):
        inputs = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        given = {"mask": inputs.pop() > 0.5} if self.is_masked else {}
        if self.begins:
            given["initial_state"] = inputs[1:]
        outputs = self.layer(inputs[0], **given)
        if not self.layer.return_state:
            return outputs
        output, *states = outputs
        steps = [state[:, None] for state in states]
        return jax.numpy.concatenate([output, *steps] if self.layer.return_sequences else steps, axis=1)


class Attending(layers.Layer):
    """Attention with its masks behind its sequences: of queries and keys, or of the keys alone."""

    def __init__(self, layer, n_sequences, causal):
        super().__init__()
        self.layer, self.n_sequences, self.causal = layer, n_sequences, causal

    def build(self, shapes):
        shapes = shapes if isinstance(shapes[0], (list, tuple)) else [shapes]
        self.layer.build(shapes[0], shapes[min(1, self.n_sequences - 1)], shapes[self.n_sequences - 1])

    def call(self, inputs, training=None):
        inputs = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        sequences, masks = inputs[:self.n_sequences], [mask > 0.5 for mask in inputs[self.n_sequences:]]
        query, value = sequences[0], sequences[min(1, self.n_sequences - 1)]
        query_mask = masks[0] if len(masks) == 2 or self.n_sequences == 1 and masks else None
        if query_mask is not None:
            backend.set_keras_mask(query, query_mask)
        # JAX's attention takes no values of another length than keys; with scores, Keras computes it itself.
        scores = getattr(self.layer, "value_dim", 0) != getattr(self.layer, "key_dim", 0)
        output = self.layer(query, value, *sequences[2:], value_mask=masks[-1] if masks else None,
                            use_causal_mask=self.causal, return_attention_scores=scores)
        return output[0] if scores else output


class DotProductAttention(layers.Layer):
    """The function of Keras, which heads of keys are repeated for."""

    def __init__(self, use_causal_mask=False, documents=False, sliding_window=None):
        super().__init__()
        self.causal, self.documents, self.window = use_causal_mask, documents, sliding_window

    def call(self, inputs):
        query, key, value, *masks = inputs
        key, value = (keras.ops.repeat(x, query.shape[2] // x.shape[2], axis=2) for x in (key, value))
        mask = masks[0][:, None, None, :] > 0.5 if masks else None
        if self.documents:
            mask = masks[0][:, None, None, :] == masks[0][:, None, :, None]
        if self.window:
            distance = np.arange(query.shape[1])[:, None] - np.arange(key.shape[1])
            near = (distance < self.window)[None, None]
            mask = near if mask is None else mask & near
        if mask is not None:
            mask = keras.ops.broadcast_to(mask, (len(query), 1, query.shape[1], key.shape[1]))
        return keras.ops.dot_product_attention(query, key, value, mask=mask, is_causal=self.causal, flash_attention=False)


class PositionEmbedding(layers.Layer):
    """That of KerasHub."""

    def __init__(self, sequence_length):
        super().__init__()
        self.sequence_length = sequence_length

    def build(self, shape):
        self.embeddings = self.add_weight(name="embeddings", shape=(self.sequence_length, shape[-1]))

    def call(self, x):
        return keras.ops.broadcast_to(self.embeddings[:x.shape[1]], x.shape)


class SinePositionEncoding(layers.Layer):
    """That of KerasHub."""

    def __init__(self, max_wavelength=10000):
        super().__init__()
        self.max_wavelength = max_wavelength

    def call(self, x):
        time, features = x.shape[1:]
        scales = keras.ops.power(1 / self.max_wavelength,
                                 keras.ops.cast(2 * (keras.ops.arange(features) // 2), x.dtype) / features)
        angles = keras.ops.cast(keras.ops.arange(time), x.dtype)[:, None] * scales[None]
        is_cosine = keras.ops.cast(keras.ops.arange(features) % 2, x.dtype)
        encodings = keras.ops.sin(angles) * (1 - is_cosine) + keras.ops.cos(angles) * is_cosine
        return keras.ops.broadcast_to(encodings, x.shape)


class Reversed(layers.Layer):
    """A layer that is called with `reverse=True`."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def call(self, x):
        if not self.layer.built:
            self.layer.build(x.shape)
        return self.layer(x, reverse=True)


class RotaryEmbedding(layers.Layer):
    """That of KerasHub, with the frequencies of its `LlamaRotaryEmbedding`."""

    def __init__(self, max_wavelength=10000, scaling_factor=1, frequency_adjustment_factor=None, low_freq_factor=None,
                 high_freq_factor=None, pretraining_sequence_length=None):
        super().__init__()
        self.max_wavelength, self.scaling_factor = max_wavelength, scaling_factor
        self.adjustment = (frequency_adjustment_factor, low_freq_factor, high_freq_factor, pretraining_sequence_length)

    def frequencies(self, features, dtype):
        ops = keras.ops
        inverse = 1.0 / (self.max_wavelength ** (ops.arange(0, features, 2, dtype=dtype) / features))
        factor, low, high, length = self.adjustment
        if factor is None:
            return inverse
        wave = 2 * np.pi / inverse
        smooth = (length / wave - low) / (high - low)
        between = (1 - smooth) * inverse / factor + smooth * inverse
        return ops.where(wave > length / low, inverse / factor, ops.where(wave < length / high, inverse, between))

    def call(self, x):
        ops = keras.ops
        positions = ops.arange(x.shape[1], dtype=x.dtype) / self.scaling_factor
        angles = positions[:, None] * self.frequencies(x.shape[-1], x.dtype)[None]
        angles = ops.concatenate([angles, angles], axis=-1)
        angles = ops.reshape(angles, (x.shape[1], *[1] * (len(x.shape) - 3), x.shape[-1]))
        first, second = ops.split(x, 2, axis=-1)
        return x * ops.cos(angles) + ops.concatenate([-second, first], axis=-1) * ops.sin(angles)


def layer_name(layer):
    if isinstance(layer, layers.GroupQueryAttention):
        return "GroupQueryAttention"  # its class has another name
    return layer_name(layer.layer) if isinstance(layer, (Attending, Masked, Reversed, WithStates)) else type(layer).__name__


def parameter_name(layer, variable):
    """As here: Keras calls that of a layer scale otherwise, and those of both directions the same."""
    if isinstance(layer, LayerScale):
        return "gamma"
    if layer_name(layer) in ("MultiHeadAttention", "GroupQueryAttention"):
        return "_".join(variable.path.split("/")[-2:])
    direction = next((part for part in ("forward", "backward") if f"/{part}_" in f"/{variable.path}"), None)
    return f"{direction}_{variable.name}" if layer_name(layer) == "Bidirectional" else variable.name


def layer_case(file, name, layer, inputs, config, training=False):
    """Output, and the gradients of `sum(output * output_gradient)`."""
    rng = generator(name)
    inputs = [normal(rng, value) if isinstance(value, tuple) else exact(value) for value in inputs]
    call = (lambda xs: xs) if len(inputs) > 1 else (lambda xs: xs[0])
    layer(call(inputs))
    for variable in layer.variables:
        if isinstance(layer, layers.Normalization):
            continue  # adapted before
        values = normal(rng, variable.shape, 0.5)
        if variable.name in ("gamma", "moving_variance"):
            values = exact(0.5 + np.abs(values))
        variable.assign(values)
    trainable = [variable.value for variable in layer.trainable_variables]
    fixed = [variable.value for variable in layer.non_trainable_variables]

    # Only layers with statistics that move take it.
    mode = {"training": training} if fixed and not isinstance(layer, (layers.Normalization, layers.Embedding)) else {}

    def forward(parameters, xs):
        return layer.stateless_call(parameters, fixed, call(xs), **mode)

    output, pull, updated = jax.vjp(double(forward, trainable, inputs), trainable, inputs, has_aux=True)
    output_gradient = normal(rng, output.shape)
    gradients, input_gradients = pull(output_gradient)
    names = [parameter_name(layer, variable) for variable in layer.trainable_variables]
    assert len(set(names)) == len(names), names
    statistics = [variable.name for variable in layer.non_trainable_variables]
    tensors = {
        **roles("input", inputs),
        **{f"parameter.{key}": value for key, value in zip(names, trainable)},
        **{f"statistic.{key}": value for key, value in zip(statistics, fixed)
           if key not in ("count", "seed_generator_state")},
        "output": output,
        "output_gradient": output_gradient,
        **roles("input_gradient", input_gradients),
        **{f"gradient.{key}": value for key, value in zip(names, gradients)},
    }
    if training:
        tensors |= {f"updated.{key}": value for key, value in zip(statistics, updated)}
    file.add(name, tensors, layer=layer_name(layer), config=config, training=training)


ACTIVATIONS = {
    "relu": {"name": "relu"},
    "leaky_relu": {"name": "leaky_relu", "negative_slope": 0.2},
    "sigmoid": {"name": "sigmoid"},
    "tanh": {"name": "tanh"},
    "gelu": {"name": "gelu", "approximate": False},
    "gelu_approximate": {"name": "gelu", "approximate": True},
}


def activation(config):
    settings = {key: value for key, value in config.items() if key != "name"}
    function = getattr(keras.activations, config["name"])
    return lambda x: function(x, **settings)


def dense_cases(file):
    def case(name, shape, **config):
        settings = dict(config)
        if "activation" in config:
            settings["activation"] = activation(config["activation"])
        config = {"units": 4, "activation": None, "use_bias": True, **config}
        layer_case(file, name, layers.Dense(**{"units": 4, **settings}), [shape], config)

    case("dense", (3, 5))
    case("dense_no_bias", (3, 5), use_bias=False)
    case("dense_one_row_one_unit", (1, 7), units=1)
    case("dense_rank_3", (2, 3, 5), units=6)
    for name, config in ACTIVATIONS.items():
        case(f"dense_{name}", (3, 5), activation=config)


def convolution_cases(file):
    def case(name, shape, kernel_size, strides=(1, 1), padding="valid", **settings):
        config = {"filters": 3, "kernel_size": kernel_size, "strides": strides, "padding": padding,
                  "activation": None, "use_bias": True, **settings}
        layer_case(file, name, layers.Conv2D(**config), [shape], config)

    for padding in ("valid", "same"):
        for stride in (1, 2):
            for height, width in ((3, 3), (1, 1), (5, 3)):
                case(f"conv2d_{height}x{width}_stride{stride}_{padding}", (2, 6, 7, 2), (height, width),
                     (stride, stride), padding)
    case("conv2d_even_kernel_same", (2, 5, 6, 2), (2, 4), padding="same")
    case("conv2d_unequal_strides_same", (2, 7, 5, 2), (3, 3), (2, 1), "same")
    case("conv2d_no_bias", (2, 5, 4, 3), (3, 3), padding="same", use_bias=False)
    case("conv2d_relu", (2, 5, 4, 1), (3, 3), padding="same", activation="relu")
    case("conv2d_stride_over_kernel", (1, 7, 8, 2), (2, 2), (3, 3))


def batch_norm_cases(file):
    def case(name, shape, training, **settings):
        config = {"momentum": 0.99, "epsilon": 1e-3, "center": True, "scale": True, **settings}
        layer_case(file, name, layers.BatchNormalization(**config), [shape], config, training)

    for mode, training in (("training", True), ("inference", False)):
        case(f"batch_normalization_{mode}", (6, 5), training)
        case(f"batch_normalization_{mode}_rank_4", (3, 4, 2, 3), training)
        case(f"batch_normalization_{mode}_no_scale", (6, 5), training, scale=False)
        case(f"batch_normalization_{mode}_no_center", (6, 5), training, center=False)
        case(f"batch_normalization_{mode}_bare", (6, 5), training, center=False, scale=False)
    case("batch_normalization_training_momentum", (6, 5), True, momentum=0.9, epsilon=1e-5)
    offset = exact(1000 + generator("offset").standard_normal((16, 3)))
    layer_case(file, "batch_normalization_training_large_mean", layers.BatchNormalization(), [offset],
               {"momentum": 0.99, "epsilon": 1e-3, "center": True, "scale": True}, True)


def pooling_cases(file):
    for kind in ("MaxPooling2D", "AveragePooling2D"):
        for padding in ("valid", "same"):
            for pool, strides in (((2, 2), (2, 2)), ((3, 3), (2, 2)), ((2, 3), (1, 2)), ((2, 2), (3, 3))):
                config = {"pool_size": pool, "strides": strides, "padding": padding}
                name = f"{kind.removesuffix('2D').lower()}2d_{pool[0]}x{pool[1]}_stride{strides[0]}x{strides[1]}"
                layer_case(file, f"{name}_{padding}", getattr(layers, kind)(**config), [(2, 7, 6, 2)], config)
    layer_case(file, "global_average_pooling2d", layers.GlobalAveragePooling2D(), [(3, 4, 5, 2)], {})


# Where exponentials overflow in float32. Zero is left out: which derivative the kinks have is a convention.
EXTREMES = [[-100.0, -20.0, -5.0, -1e-3, 1e-3, 5.0, 20.0, 100.0]]


def activation_cases(file):
    def case(name, layer, config):
        layer_case(file, name, layer(), [(2, 3, 4)], config)
        layer_case(file, f"{name}_extreme", layer(), [EXTREMES], config)

    case("relu", layers.ReLU, {})
    case("leaky_relu", layers.LeakyReLU, {"negative_slope": 0.3})
    for name in ("sigmoid", "tanh", "gelu", "gelu_approximate"):
        config = ACTIVATIONS[name]
        case(f"activation_{name}", lambda config=config: layers.Activation(activation(config)), {"activation": config})
    case("softmax", layers.Softmax, {"axis": -1})
    layer_case(file, "softmax_rank_4", layers.Softmax(), [(2, 2, 3, 5)], {"axis": -1})


def merging_cases(file):
    layer_case(file, "add", layers.Add(), [(3, 4), (3, 4)], {})
    layer_case(file, "add_three_rank_4", layers.Add(), [(2, 3, 2, 2)] * 3, {})
    layer_case(file, "concatenate", layers.Concatenate(), [(3, 4), (3, 2)], {"axis": -1})
    layer_case(file, "concatenate_three_rank_4", layers.Concatenate(), [(2, 3, 2, 2), (2, 3, 2, 1), (2, 3, 2, 3)],
               {"axis": -1})
    layer_case(file, "flatten", layers.Flatten(), [(3, 2, 4, 2)], {})


def layer_file():
    file = File("layers", "single layers: output, and gradients of sum(output * output_gradient)")
    for cases in (dense_cases, convolution_cases, batch_norm_cases, pooling_cases, activation_cases, merging_cases):
        cases(file)
    return file


def activation_file():
    file = File("activations", "activation functions alone and behind Dense, as in the file `layers`")
    for name in ("relu6", "silu", "hard_silu", "hard_sigmoid", "elu", "selu", "softplus", "softsign", "mish",
                 "exponential"):
        config = {"name": name}
        layer_case(file, name, layers.Activation(name), [(2, 3, 4)], {"activation": config})
        extremes = np.minimum(EXTREMES, 20.0) if name == "exponential" else EXTREMES
        layer_case(file, f"{name}_extreme", layers.Activation(name), [extremes], {"activation": config})
        layer_case(file, f"dense_{name}", layers.Dense(4, activation=name), [(3, 5)], {"units": 4, "activation": config})
    for name in ("log", "sqrt", "reciprocal"):
        positive = 0.1 + np.abs(normal(generator(f"positive {name}"), (2, 3, 4)))
        layer_case(file, name, layers.Activation(getattr(keras.ops, name)), [positive], {"activation": {"name": name}})
    for name, config in {
        "max_value": {"max_value": 0.9},
        "negative_slope": {"negative_slope": 0.2},
        "threshold": {"threshold": 0.3},
        "all": {"max_value": 1.1, "negative_slope": 0.25, "threshold": 0.4},
        "max_value_below_threshold": {"max_value": 0.25, "negative_slope": 0.5, "threshold": 0.75},
    }.items():
        layer_case(file, f"relu_{name}", layers.ReLU(**config), [(2, 3, 4)], config)
        layer_case(file, f"relu_{name}_extreme", layers.ReLU(**config), [EXTREMES], config)
    for alpha in (1.0, 0.4):
        layer_case(file, f"elu_alpha_{alpha}", layers.ELU(alpha), [(2, 3, 4)], {"alpha": alpha})
        layer_case(file, f"elu_alpha_{alpha}_extreme", layers.ELU(alpha), [EXTREMES], {"alpha": alpha})
    return file


def merging_file():
    file = File("merging", "layers that merge tensors element by element, as in the file `layers`")
    rng = generator("halves")
    for kind in ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum"):
        name, three = kind.lower(), kind != "Subtract"
        layer_case(file, f"{name}_two", getattr(layers, kind)(), [(3, 4), (3, 4)], {})
        layer_case(file, f"{name}_channels", getattr(layers, kind)(), [(2, 3, 2, 4), (2, 1, 1, 4)], {})
        layer_case(file, f"{name}_positions", getattr(layers, kind)(), [(2, 3, 2, 1), (2, 3, 2, 4)], {})
        layer_case(file, f"{name}_both", getattr(layers, kind)(), [(2, 3, 1, 2), (2, 1, 4, 1)], {})
        layer_case(file, f"{name}_ranks", getattr(layers, kind)(), [(3, 4), (3, 2, 4)], {})
        if three:
            layer_case(file, f"{name}_three", getattr(layers, kind)(), [(2, 3), (2, 3), (2, 3)], {})
            layer_case(file, f"{name}_growing", getattr(layers, kind)(), [(2, 1, 3), (2, 2, 1), (2, 4, 1, 1)], {})
        if kind in ("Maximum", "Minimum"):  # halves, so that some are equal
            halves = [np.round(2 * rng.standard_normal((3, 8))) / 2 for _ in range(3)]
            layer_case(file, f"{name}_equal", getattr(layers, kind)(), halves, {})
    return file


def separable_cases(file):
    def case(name, kind, shape, kernel_size, strides=(1, 1), padding="valid", **settings):
        config = {"kernel_size": kernel_size, "strides": strides, "padding": padding, "activation": None,
                  "use_bias": True, **settings}
        layer_case(file, name, getattr(layers, kind)(**config), [shape], config)

    for padding in ("valid", "same"):
        for stride in (1, 2):
            for height, width in ((3, 3), (5, 2)):
                case(f"depthwise_conv2d_{height}x{width}_stride{stride}_{padding}", "DepthwiseConv2D", (2, 6, 7, 3),
                     (height, width), (stride, stride), padding)
    case("depthwise_conv2d_multiplier", "DepthwiseConv2D", (2, 5, 4, 3), (3, 3), padding="same", depth_multiplier=2)
    case("depthwise_conv2d_dilated", "DepthwiseConv2D", (2, 8, 7, 2), (3, 3), dilation_rate=(2, 3))
    case("depthwise_conv2d_dilated_same", "DepthwiseConv2D", (2, 8, 7, 17), (3, 3), padding="same", dilation_rate=2)
    case("depthwise_conv2d_no_bias_relu", "DepthwiseConv2D", (2, 5, 6, 20), (3, 3), padding="same", use_bias=False,
         activation="relu")
    for padding in ("valid", "same"):
        for stride in (1, 2):
            case(f"separable_conv2d_stride{stride}_{padding}", "SeparableConv2D", (2, 6, 7, 3), (3, 3),
                 (stride, stride), padding, filters=4)
    case("separable_conv2d_multiplier", "SeparableConv2D", (2, 5, 4, 3), (3, 2), filters=5, depth_multiplier=2)
    case("separable_conv2d_dilated_relu", "SeparableConv2D", (2, 7, 6, 4), (3, 3), padding="same", dilation_rate=2,
         filters=4, use_bias=False, activation="relu")


def grouped_cases(file):
    def case(name, shape, kernel_size, strides=(1, 1), padding="valid", **settings):
        config = {"filters": 6, "kernel_size": kernel_size, "strides": strides, "padding": padding,
                  "activation": None, "use_bias": True, **settings}
        layer_case(file, name, layers.Conv2D(**config), [shape], config)

    case("conv2d_groups", (2, 5, 6, 4), (3, 2), padding="same", groups=2)
    case("conv2d_groups_strides", (2, 7, 6, 8), (3, 3), (2, 2), "same", groups=2, filters=8)
    case("conv2d_groups_1x1", (2, 3, 4, 9), (1, 1), groups=3)
    case("conv2d_groups_as_channels", (2, 5, 4, 3), (3, 3), padding="same", groups=3)
    case("conv2d_dilated", (2, 7, 8, 3), (3, 3), dilation_rate=(2, 3))
    case("conv2d_dilated_same", (2, 7, 8, 4), (2, 3), padding="same", dilation_rate=2, filters=4)
    case("conv2d_dilated_groups", (2, 6, 7, 8), (3, 2), padding="same", dilation_rate=(1, 3), groups=2, filters=8)


def transposed_cases(file):
    def case(name, shape, kernel_size, strides=(1, 1), padding="valid", **settings):
        config = {"filters": 3, "kernel_size": kernel_size, "strides": strides, "padding": padding,
                  "activation": None, "use_bias": True, **settings}
        layer_case(file, name, layers.Conv2DTranspose(**config), [shape], config)

    for padding in ("valid", "same"):
        for height, width in ((3, 3), (1, 2), (4, 5)):
            for down, across in ((1, 1), (2, 2), (3, 2)):
                case(f"conv2d_transpose_{height}x{width}_stride{down}x{across}_{padding}", (2, 3, 4, 2),
                     (height, width), (down, across), padding)
        for more in ((0, 0), (1, 2)):
            case(f"conv2d_transpose_output_padding{more[0]}x{more[1]}_{padding}", (2, 3, 4, 2), (3, 4), (2, 3), padding,
                 output_padding=more)
        case(f"conv2d_transpose_dilated_{padding}", (2, 4, 3, 4), (3, 2), (1, 1), padding, dilation_rate=(2, 3))
    case("conv2d_transpose_no_bias_relu", (2, 4, 3, 8), (3, 3), (2, 2), "same", use_bias=False, activation="relu",
         filters=4)


def convolution_file():
    file = File("convolution", "convolutions with groups, gaps and steps of their own, as in `layers`")
    for cases in (separable_cases, grouped_cases, transposed_cases):
        cases(file)
    return file


def normalization_file():
    file = File("normalization", "layers that normalize each row by itself, as in `layers`")

    def case(name, kind, shape, **config):
        layer_case(file, name, getattr(layers, kind)(**config), [shape], config)

    case("layer_normalization", "LayerNormalization", (4, 6))
    case("layer_normalization_rank_4", "LayerNormalization", (2, 3, 2, 5))
    case("layer_normalization_wide", "LayerNormalization", (2, 300))
    case("layer_normalization_two_axes", "LayerNormalization", (3, 4, 5), axis=[-2, -1], epsilon=1e-5)
    case("layer_normalization_all_axes", "LayerNormalization", (3, 2, 3, 4), axis=[1, 2, 3])
    case("layer_normalization_no_scale", "LayerNormalization", (4, 6), scale=False)
    case("layer_normalization_no_center", "LayerNormalization", (4, 6), center=False)
    case("layer_normalization_bare", "LayerNormalization", (4, 6), center=False, scale=False)
    case("rms_normalization", "RMSNormalization", (4, 6))
    case("rms_normalization_rank_3", "RMSNormalization", (2, 3, 40), epsilon=1e-2)
    case("rms_normalization_two_axes", "RMSNormalization", (3, 4, 5), axis=[-2, -1])
    case("group_normalization", "GroupNormalization", (2, 3, 4, 6), groups=3)
    case("group_normalization_defaults", "GroupNormalization", (2, 3, 64))
    case("group_normalization_rank_2", "GroupNormalization", (4, 8), groups=2)
    case("group_normalization_one", "GroupNormalization", (2, 5, 3), groups=1, epsilon=1e-5)
    case("group_normalization_instance", "GroupNormalization", (2, 3, 4, 5), groups=-1)
    case("group_normalization_no_scale", "GroupNormalization", (2, 6, 4), groups=2, scale=False)
    case("group_normalization_no_center", "GroupNormalization", (2, 6, 4), groups=2, center=False)
    for kind, settings in (("LayerNormalization", {}), ("GroupNormalization", {"groups": 1})):
        offset = exact(1000 + generator(f"{kind}_offset").standard_normal((3, 7, 4)))
        layer_case(file, f"{kind}_large_mean", getattr(layers, kind)(**settings), [offset], settings)
    return file


def reshaping_file():
    file = File("reshaping", "layers that copy, repeat and interpolate, and pooling over all positions, as in the file `layers`")

    def case(name, kind, shapes, **config):
        layer_case(file, name, getattr(layers, kind)(**config), shapes, config)

    case("zero_padding2d", "ZeroPadding2D", [(2, 3, 2, 2)])
    case("zero_padding2d_sides", "ZeroPadding2D", [(2, 2, 3, 1)], padding=((0, 2), (1, 3)))
    case("cropping2d_pair", "Cropping2D", [(2, 5, 4, 2)], cropping=(2, 1))
    case("cropping2d_sides", "Cropping2D", [(2, 5, 4, 2)], cropping=((1, 0), (0, 2)))
    case("permute", "Permute", [(2, 3, 4)], dims=(2, 1))
    case("permute_three", "Permute", [(2, 2, 3, 4)], dims=(3, 1, 2))
    case("permute_five", "Permute", [(1, 2, 3, 2, 2, 3)], dims=(3, 5, 2, 4, 1))
    case("repeat_vector", "RepeatVector", [(2, 3)], n=4)
    for interpolation in ("nearest", "bilinear"):
        case(f"up_sampling2d_{interpolation}", "UpSampling2D", [(2, 3, 2, 2)], interpolation=interpolation)
        case(f"up_sampling2d_{interpolation}_unequal", "UpSampling2D", [(1, 2, 4, 1)], size=(3, 2),
             interpolation=interpolation)
        case(f"up_sampling2d_{interpolation}_pixel", "UpSampling2D", [(2, 1, 1, 3)], size=(2, 5),
             interpolation=interpolation)
    case("concatenate_first_axis", "Concatenate", [(2, 3, 2), (2, 1, 2), (2, 2, 2)], axis=1)
    case("concatenate_middle_axis", "Concatenate", [(2, 3, 1, 2), (2, 3, 2, 2)], axis=-2)
    case("global_average_pooling2d_keepdims", "GlobalAveragePooling2D", [(2, 3, 4, 2)], keepdims=True)
    case("global_max_pooling2d", "GlobalMaxPooling2D", [(2, 3, 4, 3)])
    case("global_max_pooling2d_keepdims", "GlobalMaxPooling2D", [(2, 2, 3, 2)], keepdims=True)
    halves = np.round(2 * generator("pooled").standard_normal((3, 3, 4, 2))) / 2
    case("global_max_pooling2d_equal", "GlobalMaxPooling2D", [halves])
    return file


def scaling_file():
    file = File("scaling", "layers with factors and offsets, fixed, adapted or learned, as in the file `layers`")

    def case(name, layer, shape, **config):
        layer_case(file, name, layer(**config), [shape], config)

    case("rescaling", layers.Rescaling, (2, 3, 4), scale=0.25, offset=-1.5)
    case("rescaling_channels", layers.Rescaling, (2, 2, 2, 3), scale=[0.5, -2.0, 3.0], offset=1.0)
    case("rescaling_both", layers.Rescaling, (2, 3), scale=[0.5, -2.0, 3.0], offset=[0.0, 0.25, -4.0])
    case("normalization", layers.Normalization, (2, 2, 2, 3), mean=[0.5, -1.0, 2.0], variance=[4.0, 0.25, 0.0625])
    case("normalization_invert", layers.Normalization, (2, 3), mean=[0.5, -1.0, 2.0], variance=[4.0, 0.25, 0.0625],
         invert=True)
    case("normalization_scalar", layers.Normalization, (2, 3), axis=None, mean=0.5, variance=4.0)
    for name, axis in (("last", -1), ("all", None), ("first", 1), ("two", (1, 3))):
        layer = layers.Normalization(axis=axis)
        layer.adapt(normal(generator(f"adapt_{name}"), (5, 2, 3, 4), 2.0) + 1)
        layer_case(file, f"normalization_adapted_{name}", layer, [(2, 2, 3, 4)], {"axis": axis})
    case("prelu", layers.PReLU, (3, 4))
    case("prelu_channels", layers.PReLU, (2, 3, 2, 4), shared_axes=[1, 2])
    case("prelu_last", layers.PReLU, (2, 3, 4), shared_axes=[2])
    case("prelu_middle", layers.PReLU, (2, 2, 3, 4), shared_axes=[2])
    case("layer_scale", LayerScale, (3, 4), init_values=0.5, projection_dim=4)
    case("layer_scale_rank_4", LayerScale, (2, 3, 2, 4), init_values=1e-6, projection_dim=4)
    return file


def one_dimensional_cases(file):
    def case(name, kind, shape, **config):
        layer_case(file, name, getattr(layers, kind)(**config), [shape], config)

    def convolution(name, shape, kernel_size, **settings):
        case(f"conv1d_{name}", "Conv1D", shape, **{"filters": 3, "kernel_size": kernel_size, "activation": None, **settings})

    for padding in ("valid", "same", "causal"):
        convolution(padding, (2, 7, 2), 3, padding=padding)
        convolution(f"{padding}_strides", (2, 8, 2), 4, padding=padding, strides=3)
        convolution(f"{padding}_dilated", (2, 9, 2), 3, padding=padding, dilation_rate=2)
    convolution("one", (2, 5, 4), 1, use_bias=False)
    convolution("groups_causal_relu", (2, 6, 4), 2, padding="causal", groups=2, filters=6, activation="relu")
    convolution("depthwise_causal", (2, 6, 3), 3, padding="causal", groups=3, dilation_rate=2)
    for kind in ("MaxPooling1D", "AveragePooling1D"):
        for padding in ("valid", "same"):
            case(f"{kind.lower()}_{padding}", kind, (2, 7, 3), padding=padding, pool_size=2)
            case(f"{kind.lower()}_{padding}_strides", kind, (2, 8, 3), padding=padding, pool_size=3, strides=2)
    for kind in ("GlobalAveragePooling1D", "GlobalMaxPooling1D"):
        case(kind.lower(), kind, (2, 5, 3))
        case(f"{kind.lower()}_keepdims", kind, (2, 5, 3), keepdims=True)
    case("zero_padding1d", "ZeroPadding1D", (2, 3, 2))
    case("zero_padding1d_ends", "ZeroPadding1D", (2, 3, 2), padding=(0, 2))
    case("cropping1d", "Cropping1D", (2, 4, 2))
    case("cropping1d_ends", "Cropping1D", (2, 4, 2), cropping=(2, 1))
    case("up_sampling1d", "UpSampling1D", (2, 3, 2))
    case("up_sampling1d_five", "UpSampling1D", (2, 2, 3), size=5)


def embedding_cases(file):
    def case(name, shape, input_dim, output_dim):
        ids = generator(f"{name}_ids").integers(0, input_dim, shape)
        config = {"input_dim": input_dim, "output_dim": output_dim}
        layer_case(file, name, layers.Embedding(**config), [ids], config)

    case("embedding", (3, 5), 7, 4)
    case("embedding_wide", (2, 40), 4, 20)
    case("embedding_rank_1", (4,), 3, 2)
    case("embedding_rank_3", (2, 3, 2), 5, 3)
    padded = np.array(normal(generator("masking_x"), (3, 4, 2)))
    padded[0, 2:] = padded[1, 0] = padded[2, 1, 0] = 0.5
    layer_case(file, "masking", layers.Masking(mask_value=0.5), [padded], {"mask_value": 0.5})


def recurrent_cases(file):
    def case(name, kind, shape, mask=None, both=None, units=3, **config):
        config = {"units": units, **config}
        layer = getattr(layers, kind)(**config)
        if both is not None:
            layer, config = layers.Bidirectional(layer, **both), {"layer": {"type": kind, **config}, **both}
        inputs = [shape]
        if mask is not None:
            inputs = [shape, np.array(mask)]
            layer = Masked(layer)
        layer_case(file, name, layer, inputs, config)

    def states(name, kind, shape, mask=None, begins=False, units=3, **config):
        config = {"units": units, **config}
        layer = WithStates(getattr(layers, kind)(**config), begins, mask is not None)
        given = [(shape[0], units)] * ((2 if kind == "LSTM" else 1) if begins else 0)
        inputs = [shape, *given, *([] if mask is None else [np.array(mask)])]
        layer_case(file, name, layer, inputs, {**config, "initial_state": True} if begins else config)

    ragged = [[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 1]]
    for kind in ("LSTM", "GRU", "SimpleRNN"):
        low = kind.lower()
        case(low, kind, (3, 5, 2))
        case(f"{low}_sequences", kind, (2, 4, 3), return_sequences=True, units=5)
        case(f"{low}_backwards", kind, (2, 4, 3), return_sequences=True, go_backwards=True)
        case(f"{low}_no_bias_one_step", kind, (3, 1, 2), use_bias=False)
        case(f"{low}_masked", kind, (4, 4, 2), ragged)
        case(f"{low}_masked_sequences", kind, (4, 4, 2), ragged, return_sequences=True)
        case(f"{low}_masked_zeros", kind, (4, 4, 2), ragged, return_sequences=True, go_backwards=True,
             zero_output_for_mask=True)
        for mode in ("concat", "sum", "ave", "mul"):
            case(f"bidirectional_{low}_{mode}", kind, (2, 4, 2), both={"merge_mode": mode}, return_sequences=mode != "ave")
        case(f"bidirectional_{low}_masked", kind, (4, 4, 2), ragged, both={"merge_mode": "concat"}, return_sequences=True)
        both_ends = {"begins": True, "return_state": True}
        states(f"{low}_states", kind, (3, 5, 2), return_sequences=True, **both_ends)
        states(f"{low}_states_masked_backwards", kind, (4, 4, 2), ragged, return_sequences=True, go_backwards=True, **both_ends)
        states(f"{low}_initial_state", kind, (2, 3, 2), begins=True)
        states(f"{low}_return_state", kind, (2, 3, 2), return_state=True)
    states("lstm_states_masked_zeros", "LSTM", (4, 4, 2), ragged, return_sequences=True, zero_output_for_mask=True, **both_ends)
    # More steps than a dispatch has.
    states("lstm_states_long", "LSTM", (2, 35, 1), units=2, return_sequences=True, **both_ends)
    case("bidirectional_lstm_last", "LSTM", (3, 4, 2), both={"merge_mode": "concat"})
    case("lstm_hard", "LSTM", (3, 5, 2), activation="softsign", recurrent_activation="hard_sigmoid")
    case("gru_hard", "GRU", (3, 5, 2), activation="elu", recurrent_activation="hard_sigmoid", return_sequences=True)
    case("lstm_wide", "LSTM", (2, 9, 4), units=20)
    counted = [[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1]]
    layer_case(file, "global_average_pooling1d_masked", Masked(layers.GlobalAveragePooling1D()), [(3, 4, 2), np.array(counted)], {})


def attention_file():
    file = File("attention", "attention and positions, as in the file `layers`; masks are inputs behind the sequences")

    def case(name, shapes, masks=(), causal=False, kind=layers.MultiHeadAttention, **config):
        layer = Attending(kind(**config), len(shapes), causal)
        config = {"use_causal_mask": causal, **config}
        layer_case(file, name, layer, [*shapes, *map(np.array, masks)], config)

    ragged = [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 1, 0, 1, 0]]
    keys = [[1, 1, 1], [1, 0, 0], [0, 0, 0]]
    case("attention", [(2, 5, 6)], num_heads=2, key_dim=3)
    case("attention_causal", [(2, 5, 4)], num_heads=3, key_dim=2, causal=True)
    case("attention_one_position", [(3, 1, 4)], num_heads=2, key_dim=2, causal=True)
    case("attention_sizes", [(2, 4, 3)], num_heads=2, key_dim=5, value_dim=3, use_bias=False, output_shape=7)
    case("attention_masked", [(3, 5, 4)], [ragged], num_heads=2, key_dim=4)
    case("attention_masked_causal", [(3, 5, 4)], [ragged], num_heads=2, key_dim=4, causal=True)
    case("attention_nothing_counts", [(2, 3, 4)], [[[0, 0, 0], [1, 1, 0]]], num_heads=1, key_dim=4, causal=True)
    case("attention_cross", [(3, 5, 4), (3, 3, 6)], num_heads=2, key_dim=3)
    case("attention_cross_causal", [(3, 5, 4), (3, 3, 6)], num_heads=2, key_dim=3, causal=True)
    case("attention_cross_keys_masked", [(3, 5, 4), (3, 3, 6)], [keys], num_heads=2, key_dim=3)
    case("attention_cross_both_masked", [(3, 5, 4), (3, 3, 6)], [ragged, keys], num_heads=2, key_dim=3)
    case("attention_keys_and_values", [(2, 4, 4), (2, 6, 3), (2, 6, 5)], num_heads=2, key_dim=3)
    case("attention_long", [(1, 70, 4)], num_heads=1, key_dim=8, causal=True)

    def grouped(name, shapes, masks=(), causal=False, heads=(4, 2), **config):
        heads = {"num_query_heads": heads[0], "num_key_value_heads": heads[1]}
        case(f"grouped_{name}", shapes, masks, causal, layers.GroupQueryAttention, **heads, **config)

    grouped("attention", [(2, 5, 6)], head_dim=3)
    grouped("attention_causal", [(2, 5, 4)], causal=True, heads=(6, 2), head_dim=2)
    grouped("attention_one_head", [(2, 4, 4)], heads=(3, 1), head_dim=2, use_bias=False)
    grouped("attention_masked_causal", [(3, 5, 4)], [ragged], causal=True, head_dim=4)
    grouped("attention_cross_both_masked", [(3, 5, 4), (3, 3, 4)], [ragged, keys], head_dim=3)
    grouped("attention_keys_and_values", [(2, 4, 4), (2, 6, 4), (2, 6, 5)], heads=(2, 2), head_dim=3)
    grouped("attention_long", [(1, 70, 4)], causal=True, head_dim=8)
    for name, shapes, masks, causal in (
        ("", [(2, 5, 3, 4)] * 3, [], False),
        ("_causal_grouped", [(2, 5, 6, 2), (2, 5, 2, 2), (2, 5, 2, 2)], [], True),
        ("_keys_masked", [(3, 4, 2, 3), (3, 3, 1, 3), (3, 3, 1, 3)], [keys], False),
        ("_long", [(1, 70, 2, 8), (1, 70, 1, 8), (1, 70, 1, 8)], [], True),
        ("_documents", [(1, 6, 2, 2), (1, 6, 1, 2), (1, 6, 1, 2)], [[[1, 1, 1, 2, 2, 0]]], True),
        ("_window", [(1, 66, 2, 1), (1, 66, 1, 1), (1, 66, 1, 1)], [], True),
        ("_window_documents", [(1, 7, 2, 2), (1, 7, 1, 2), (1, 7, 1, 2)], [[[1, 1, 1, 1, 2, 2, 2]]], True),
    ):
        config = {"use_causal_mask": causal} | ({"documents": True} if "documents" in name else {})
        config |= {"sliding_window": 3} if "window" in name else {}
        layer_case(file, f"dot_product_attention{name}", DotProductAttention(**config), [*shapes, *map(np.array, masks)], config)
    for shape, length in (((2, 5, 4), 5), ((3, 4, 7), 9), ((2, 1, 3), 1)):
        name = f"position_embedding_{shape[1]}_of_{length}"
        layer_case(file, name, PositionEmbedding(length), [shape], {"sequence_length": length})
    layer_case(file, "sine_position_encoding", SinePositionEncoding(), [(2, 7, 5)], {})
    layer_case(file, "sine_position_encoding_short", SinePositionEncoding(50), [(2, 3, 8)], {"max_wavelength": 50})
    llama = {"frequency_adjustment_factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "pretraining_sequence_length": 40}
    for name, shape, config in (
        ("rotary_embedding", (2, 5, 6), {}),
        ("rotary_embedding_heads", (2, 7, 3, 4), {"max_wavelength": 50}),
        ("rotary_embedding_scaled", (1, 9, 2), {"scaling_factor": 2.5}),
        ("rotary_embedding_llama", (2, 30, 2, 16), {"max_wavelength": 500, **llama}),
    ):
        layer_case(file, name, RotaryEmbedding(**config), [shape], config)
    return file


def enable_lora(layer, rank, alpha):
    """Keras' own, whose weights are in float32 whatever the layer computes in: in float64."""
    add_weight = layer.add_weight
    layer.add_weight = lambda **settings: add_weight(**{**settings, "dtype": None})
    layer.enable_lora(rank, alpha)


def language_file():
    """Layers of language models. Keras takes `lora_alpha` from `enable_lora` alone."""
    file = File("language", "layers of language models, as in the file `layers`")
    for name, shape, rank, alpha, config in (
        ("dense_lora", (3, 5), 2, 2, {}),
        ("dense_lora_alpha", (2, 3, 5), 3, 0.75, {"units": 6, "use_bias": False}),
        ("dense_lora_relu", (4, 7), 1, 2.5, {"activation": {"name": "relu"}}),
        ("dense_lora_gelu", (3, 5), 2, 4, {"activation": {"name": "gelu", "approximate": False}}),
    ):
        config = {"units": 4, "activation": None, "use_bias": True, **config}
        function = config["activation"] and activation(config["activation"])
        layer = layers.Dense(**{**config, "activation": function})
        layer.build(shape)
        enable_lora(layer, rank, alpha)
        layer_case(file, name, layer, [shape], {**config, "lora_rank": rank, "lora_alpha": alpha})
    for name, shape, input_dim, output_dim, rank, alpha in (
        ("embedding_lora", (3, 5), 7, 4, 2, 2),
        ("embedding_lora_alpha", (2, 40), 4, 20, 3, 0.5),
    ):
        config = {"input_dim": input_dim, "output_dim": output_dim}
        layer = layers.Embedding(**config)
        layer.build(shape)
        enable_lora(layer, rank, alpha)
        ids = generator(f"{name}_ids").integers(0, input_dim, shape)
        layer_case(file, name, layer, [ids], {**config, "lora_rank": rank, "lora_alpha": alpha})
    for name, shape, reverse, config in (
        ("reversible_embedding", (3, 5), False, {}),
        ("reversible_embedding_reverse", (3, 5, 4), True, {}),
        ("reversible_embedding_reverse_row", (2, 4), True, {}),
        ("reversible_embedding_untied", (2, 3, 4), True, {"tie_weights": False}),
        ("reversible_embedding_capped", (2, 3, 4), True, {"logit_soft_cap": 1.5}),
    ):
        config = {"input_dim": 7, "output_dim": 4, **config}
        layer = layers.ReversibleEmbedding(**config)
        inputs = shape if reverse else generator(f"{name}_ids").integers(0, 7, shape)
        layer_case(file, name, Reversed(layer) if reverse else layer, [inputs], {**config, **({"reverse": True} if reverse else {})})
    return file


def sequence_file():
    file = File("sequences", "layers of sequences, as in the file `layers`")
    for cases in (one_dimensional_cases, embedding_cases, recurrent_cases):
        cases(file)
    return file


def adapting_file():
    """Means and variances of data in batches, over axes that are kept."""
    file = File("adapting", "`Normalization.adapt`: mean and variance of `data`")
    for name, axis in (("last", -1), ("all", None), ("first", 1), ("two", (1, 3))):
        data = exact(normal(generator(f"data_{name}"), (7, 2, 3, 4), 2.0) + 100)
        layer = layers.Normalization(axis=axis)
        layer.adapt(data)
        file.add(name, {"data": data, "mean": layer.adapt_mean.value, "variance": layer.adapt_variance.value},
                 config={"axis": axis})
    return file


# Batch normalization over shards


def shard_file():
    file = File("sync_batch_norm", "batch normalization over a whole batch of 8 rows, held as shards of 5, 3 and 0")
    split = [5, 3, 0]
    for name, shape in (("rank_2", (8, 3)), ("rank_4", (8, 3, 2, 4))):
        config = {"momentum": 0.99, "epsilon": 1e-3, "center": True, "scale": True}
        layer_case(file, name, layers.BatchNormalization(**config), [shape], config, training=True)
        case, x = file.cases[-1], file.tensors[f"{name}/input.0"].astype(np.float64)
        case["split"] = split
        start, axes = 0, tuple(range(len(shape) - 1))
        for index, rows in enumerate(split[:2]):
            shard = x[start:start + rows]
            start += rows
            mean = shard.mean(axes)
            for role, value in (("mean", mean), ("squared_deviations", np.square(shard - mean).sum(axes))):
                file.tensors[f"{name}/shard.{index}.{role}"] = value.astype(np.float32)
                case["tensors"][f"shard.{index}.{role}"] = list(value.shape)
    return file


# Losses


def loss_case(file, name, kind, targets, logits, weights=None, reduction="sum_over_batch_size", **config):
    loss = getattr(losses, kind)(reduction=reduction, **config)
    each = getattr(losses, kind)(reduction=None, **config)
    reduced = double(lambda x: loss(targets, x, sample_weight=weights), logits)
    value, gradient = jax.value_and_grad(reduced)(logits)
    tensors = {"logits": logits, "targets": targets, "values": each(targets, logits), "loss": value,
               "logits_gradient": gradient}
    if weights is not None:
        tensors["sample_weight"] = weights
    file.add(name, tensors, loss=kind, config={"reduction": reduction, **config})


def snake(name):
    return re.sub("(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def row_weights(name, logits):
    """One a row, whatever the positions; one of them is zero."""
    weights = exact(generator(f"{name}_weights").uniform(0.25, 2.0, len(logits)))
    weights[1] = 0.0
    return weights.reshape((-1, *[1] * (np.ndim(logits) - 2)))


def weighted_loss_cases(file, name, kind, targets, logits, **config):
    """Without sample weights, with one a row (one of them zero), and divided by their sum."""
    weights = row_weights(name, logits)
    loss_case(file, name, kind, targets, logits, **config)
    loss_case(file, f"{name}_weighted", kind, targets, logits, weights, **config)
    if np.ndim(logits) == 2:  # Keras forgets the positions in its divisor for more axes: see the README
        loss_case(file, f"{name}_weighted_mean", kind, targets, logits, weights, "mean_with_sample_weight", **config)


def loss_file():
    file = File("losses", "loss of a batch, of each sample, and the gradient with respect to the model's output")
    rng = generator("losses")
    for suffix, shape in (("", (6, 5)), ("_rank_3", (4, 3, 5))):
        logits, labels = normal(rng, shape, 2.0), rng.integers(0, 5, shape[:-1])
        soft, real = rng.dirichlet(np.ones(5), shape[:-1]), normal(rng, shape)
        one_hot, binary = np.eye(5)[labels], exact(rng.integers(0, 2, shape))
        name = "sparse_categorical_crossentropy" + suffix
        weighted_loss_cases(file, name, "SparseCategoricalCrossentropy", labels, logits, from_logits=True)
        name = "categorical_crossentropy" + suffix
        settings = {"from_logits": True, "label_smoothing": 0.0}
        smooth = {"from_logits": True, "label_smoothing": 0.1}
        weighted_loss_cases(file, name, "CategoricalCrossentropy", one_hot, logits, **settings)
        weighted_loss_cases(file, name + "_smoothed", "CategoricalCrossentropy", one_hot, logits, **smooth)
        weighted_loss_cases(file, name + "_soft_targets", "CategoricalCrossentropy", exact(soft), logits, **settings)
        name = "binary_crossentropy" + suffix
        weighted_loss_cases(file, name, "BinaryCrossentropy", binary, logits, **settings)
        weighted_loss_cases(file, name + "_smoothed", "BinaryCrossentropy", binary, logits, **smooth)
        weighted_loss_cases(file, "mean_squared_error" + suffix, "MeanSquaredError", real, logits)
        weighted_loss_cases(file, "cosine_similarity" + suffix, "CosineSimilarity", real, logits, axis=-1)
        more = generator("losses" + suffix)
        for kind, targets, given, settings in (
                ("MeanAbsoluteError", real, logits, {}),
                ("Huber", real, logits, {"delta": 0.75}),
                ("LogCosh", real, logits, {}),
                ("Poisson", exact(more.poisson(1.5, shape)), exact(np.exp(logits / 2)), {}),
                ("KLDivergence", exact(soft), exact(more.dirichlet(np.ones(5), shape[:-1])), {}),
                ("Hinge", 2 * binary - 1, logits, {}),
                ("SquaredHinge", binary, logits, {}),
                ("CategoricalHinge", one_hot, logits, {}),
                ("BinaryFocalCrossentropy", binary, logits, {"from_logits": True, "gamma": 1.5, "label_smoothing": 0.1}),
                ("CategoricalFocalCrossentropy", exact(soft), logits,
                 {"from_logits": True, "alpha": 0.5, "gamma": 1.5, "label_smoothing": 0.1})):
            weights = None if suffix == "" else row_weights(kind, logits)
            loss_case(file, snake(kind) + suffix, kind, targets, given, weights, **settings)
    balanced = {"from_logits": True, "apply_class_balancing": True, "alpha": 0.75, "gamma": 2.0}
    loss_case(file, "binary_focal_crossentropy_balanced", "BinaryFocalCrossentropy", binary[0], logits[0], **balanced)
    # Where two slopes meet, and beyond the ends of ranges. That of |x| at 0 is a convention: 1 on JAX, 0 elsewhere.
    for kind, targets, given in (
            ("Huber", [[0.0, 0.0]], [[1.0, -1.5]]),
            ("Hinge", [[1.0, -1.0, 1.0]], [[1.0, -1.0, 0.5]]),
            ("SquaredHinge", [[1.0, 0.0, 1.0]], [[1.0, -1.0, 0.5]]),
            ("KLDivergence", [[0.0, 1.0, 0.5]], [[0.0, 1.0, 1.5]]),
            ("CategoricalHinge", [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]], [[2.0, 1.0, 2.0], [1.0, 0.0, 0.0]]),
            ("LogCosh", [[0.0, 0.0]], [[80.0, -80.0]])):
        loss_case(file, snake(kind) + "_at_ends", kind, exact(targets), exact(given))
    extreme = exact([[80.0, -80.0, 0.0], [-100.0, 100.0, 99.0], [30.0, 30.0, 30.0]])
    for kind in ("BinaryFocalCrossentropy", "CategoricalFocalCrossentropy"):
        loss_case(file, snake(kind) + "_extreme", kind, np.array([[0.0, 1, 1], [1, 0, 0], [0, 1, 0]]), extreme,
                  from_logits=True)
    loss_case(file, "sparse_categorical_crossentropy_extreme", "SparseCategoricalCrossentropy",
              np.array([1, 2, 0]), extreme, from_logits=True)
    loss_case(file, "binary_crossentropy_extreme", "BinaryCrossentropy", np.array([[0.0, 1, 1], [1, 0, 1], [0, 1, 0]]),
              extreme, from_logits=True, label_smoothing=0.0)
    return file


def metric_case(file, name, logits, labels):
    """Accuracy takes the first of the largest logits; a class is among the top k if fewer than k are larger."""
    classes = logits.shape[-1]
    tensors = {"logits": logits, "labels": labels,
               "accuracy": np.mean(metrics.sparse_categorical_accuracy(labels, logits)),
               "top_k": [np.mean(metrics.sparse_top_k_categorical_accuracy(labels, logits, k=k + 1))
                         for k in range(classes)]}
    one_hot = np.eye(classes)[labels]
    assert tensors["accuracy"] == np.mean(metrics.categorical_accuracy(one_hot, logits))
    assert tensors["top_k"] == [np.mean(metrics.top_k_categorical_accuracy(one_hot, logits, k=k + 1))
                                for k in range(classes)]
    file.add(name, tensors)


def metric_file():
    file = File("metrics", "accuracy, and top-k accuracy for k from 1 to the number of classes")
    rng = generator("metrics")
    metric_case(file, "distinct", normal(rng, (40, 5), 2.0), rng.integers(0, 5, 40))
    # One of three values each: most rows have ties.
    metric_case(file, "tied", exact(rng.integers(0, 3, (60, 7))), rng.integers(0, 7, 60))
    metric_case(file, "tied_wide", exact(rng.integers(0, 3, (20, 70))), rng.integers(0, 70, 20))
    metric_case(file, "all_equal", exact(np.ones((8, 6))), np.array([0, 1, 2, 3, 4, 5, 0, 5]))
    return file


def counted_metric_file():
    file = File("counted_metrics", "metrics that are counted over a dataset from outputs and targets, in two batches")
    rng = generator("counted_metrics")
    logits, rows = normal(rng, (40, 4), 2.0), (slice(0, 24), slice(24, 40))
    sigmoid, softmax = 1 / (1 + np.exp(-logits)), np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    binary, labels = exact(rng.integers(0, 2, logits.shape)), rng.integers(0, 4, 40)
    one_hot, real = np.eye(4)[labels], normal(rng, logits.shape) + logits / 2

    def case(name, loss, kind, class_name, given, outputs, targets, **config):
        metric = getattr(metrics, class_name)(**config)
        for part in rows:
            metric.update_state(targets[part], outputs[part])
        shown = {key: value for key, value in config.items() if value is not None}
        file.add(name, {"outputs": given, "targets": targets, "result": np.array(metric.result())},
                 loss=loss, metric=kind, config=shown)

    def of_binary(name, kind, class_name, **config):
        case(name, "BinaryCrossentropy", kind, class_name, logits, sigmoid, binary, **config)

    def of_classes(name, kind, class_name, **config):
        case(name, "CategoricalCrossentropy", kind, class_name, logits, softmax, one_hot, **config)

    def of_values(kind, class_name, outputs=logits, targets=exact(real), loss="MeanSquaredError", name=None, **config):
        case(name or kind, loss, kind, class_name, outputs, outputs, targets, **config)

    for kind, class_name in (("precision", "Precision"), ("recall", "Recall")):
        of_binary(kind, kind, class_name)
        of_binary(kind + "_high", kind, class_name, thresholds=0.75)
        of_classes(kind + "_top_k", kind, class_name, top_k=2)
        of_classes(kind + "_class", kind, class_name, class_id=1, thresholds=0.25)
    for average in ("macro", "micro", "weighted"):
        of_classes("f1_score_" + average, "f1_score", "F1Score", average=average)
    of_binary("f1_score_threshold", "f1_score", "F1Score", average="macro", threshold=0.75)
    of_binary("auc", "auc", "AUC")
    of_classes("auc_classes", "auc", "AUC")
    of_binary("pr_auc", "auc", "AUC", curve="PR")
    for method in ("minoring", "majoring"):
        of_binary("auc_" + method, "auc", "AUC", summation_method=method, num_thresholds=11)
        of_binary("pr_auc_" + method, "auc", "AUC", curve="PR", summation_method=method, num_thresholds=11)
    of_binary("binary_accuracy", "binary_accuracy", "BinaryAccuracy", threshold=0.25)
    of_values("mean_squared_error", "MeanSquaredError")
    of_values("root_mean_squared_error", "RootMeanSquaredError")
    of_values("logcosh", "LogCoshError")
    of_values("cosine_similarity", "CosineSimilarity")
    for aggregation in ("uniform_average", "variance_weighted_average"):
        of_values("r2_score", "R2Score", name="r2_score_" + aggregation, class_aggregation=aggregation)
    of_values("poisson", "Poisson", exact(np.exp(logits / 2)), exact(rng.poisson(1.5, logits.shape)), "Poisson")
    of_values("kl_divergence", "KLDivergence", exact(softmax), exact(rng.dirichlet(np.ones(4), 40)), "KLDivergence")
    of_values("hinge", "Hinge", targets=2 * binary - 1, loss="Hinge")
    of_values("squared_hinge", "SquaredHinge", targets=2 * binary - 1, loss="SquaredHinge")
    of_values("categorical_hinge", "CategoricalHinge", targets=one_hot, loss="CategoricalHinge")
    # Of several targets of 1 the first counts.
    of_binary("categorical_accuracy", "categorical_accuracy", "CategoricalAccuracy")
    return file


def masked_file():
    """A model whose mask reaches its output: each position has a loss."""
    file = File("masked", "losses of steps of gradient descent at rate 0.5, with masks of positions")
    rng = generator("masked")
    x, labels = normal(rng, (5, 4, 3)), rng.integers(0, 6, (5, 4))
    for row, length in enumerate((4, 2, 0, 3, 1)):
        x[row, length:] = 0.0
    weights = exact(rng.uniform(0.25, 2.0, (5, 1)))
    inputs = keras.Input((4, 3))
    model = keras.Model(inputs, layers.Dense(6)(layers.Masking()(inputs)))
    initial = [normal(rng, tuple(variable.shape)) for variable in model.trainable_variables]
    for name, given, reduction in (("plain", None, "sum_over_batch_size"), ("weighted", weights, "sum_over_batch_size"),
                                   ("sum", weights, "sum"), ("weighted_mean", weights, "mean_with_sample_weight")):
        criterion = losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction)

        def loss(variables):
            logits, _ = model.stateless_call(variables, [], x)
            assert keras.src.backend.get_keras_mask(logits) is not None
            return criterion(labels, logits, sample_weight=given)

        variables, history = [jax.numpy.asarray(value) for value in initial], []
        for _ in range(5):
            value, gradients = jax.value_and_grad(loss)(variables)
            history.append(value)
            variables = [variable - 0.5 * gradient for variable, gradient in zip(variables, gradients)]
        logits, _ = model.stateless_call(variables, [], x)
        accuracy = metrics.SparseCategoricalAccuracy()
        accuracy.update_state(labels, logits)
        tensors = {"x": x, "labels": labels, "kernel": initial[0], "bias": initial[1], "losses": np.array(history),
                   "updated_kernel": variables[0], "updated_bias": variables[1], "accuracy": np.array(accuracy.result())}
        if given is not None:
            tensors["sample_weight"] = given[:, 0]
        file.add(name, tensors, config={"reduction": reduction})
    return file


# Optimizers and learning rates

STEPS = 5


def problem():
    """Two parameters, and their gradients in each step."""
    rng = generator("optimizers")
    initial = {key: normal(rng, shape) for key, shape in (("kernel", (3, 4)), ("bias", (4,)))}
    gradients = [{key: normal(rng, value.shape, 10.0 if step == 2 else 0.3) for key, value in initial.items()}
                 for step in range(STEPS)]
    return initial, gradients


def optimizer_case(file, name, kind, **config):
    initial, gradients = problem()
    variables = [keras.Variable(value, name=key) for key, value in initial.items()]
    optimizer = getattr(optimizers, kind)(**config)
    optimizer.build(variables)
    values, state = [variable.value for variable in variables], [variable.value for variable in optimizer.variables]
    tensors = {}
    for step in range(STEPS):
        arguments = state, list(gradients[step].values()), values
        values, state = double(optimizer.stateless_apply, *arguments)(*arguments)
        tensors |= {f"parameter.{step}.{key}": value for key, value in zip(initial, values)}
        if optimizer.use_ema:
            averages = [id(variable) for variable in optimizer._model_variables_moving_average]
            of = [value for variable, value in zip(optimizer.variables, state) if id(variable) in averages]
            tensors |= {f"average.{step}.{key}": value for key, value in zip(initial, of)}
    full = {key: value for key, value in optimizer.get_config().items()
            if key != "name" and (optimizer.use_ema or not key.startswith(("ema_", "use_ema")))}
    file.add(name, tensors, optimizer=kind, config=full)


def optimizer_file():
    file = File("optimizers", "five steps of each optimizer with the same gradients, the third of them large")
    initial, gradients = problem()
    file.add("problem", {f"initial.{key}": value for key, value in initial.items()}
             | {f"gradient.{step}.{key}": value for step, named in enumerate(gradients) for key, value in named.items()},
             steps=STEPS)
    families = {
        "SGD": {"sgd": {}, "sgd_momentum": {"momentum": 0.9}, "sgd_nesterov": {"momentum": 0.9, "nesterov": True}},
        "Adam": {"adam": {}, "adam_settings": {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-3},
                 "adam_amsgrad": {"beta_2": 0.5, "amsgrad": True}},
        "AdamW": {"adam_w": {}, "adam_w_amsgrad": {"amsgrad": True}},
        "Nadam": {"nadam": {}, "nadam_settings": {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-3}},
        "Adamax": {"adamax": {}, "adamax_settings": {"beta_1": 0.8, "beta_2": 0.75, "epsilon": 1e-3}},
        "Lion": {"lion": {}, "lion_settings": {"beta_1": 0.7, "beta_2": 0.8}},
        "Adagrad": {"adagrad": {}, "adagrad_settings": {"initial_accumulator_value": 0.0, "epsilon": 1e-3}},
        "Adadelta": {"adadelta": {}, "adadelta_settings": {"rho": 0.8, "epsilon": 1e-2}},
        "Ftrl": {"ftrl": {}, "ftrl_settings": {
            "learning_rate_power": -0.75, "initial_accumulator_value": 0.0, "l1_regularization_strength": 0.5,
            "l2_regularization_strength": 0.25, "l2_shrinkage_regularization_strength": 0.125, "beta": 0.5}},
        "Adafactor": {"adafactor": {}, "adafactor_settings": {
            "beta_2_decay": -0.5, "epsilon_1": 1e-3, "epsilon_2": 0.5, "clip_threshold": 0.5}},
        "Muon": {"muon": {}, "muon_excluded": {"exclude_layers": ["kernel"], "adam_lr_ratio": 0.5}, "muon_settings": {
            "momentum": 0.8, "nesterov": False, "ns_steps": 3, "rms_rate": None, "adam_weight_decay": 0.05,
            "adam_beta_1": 0.8, "adam_beta_2": 0.95, "epsilon": 1e-3}},
        "RMSprop": {"rmsprop": {}, "rmsprop_momentum": {"momentum": 0.9}, "rmsprop_centered": {"centered": True},
                    "rmsprop_all": {"rho": 0.8, "momentum": 0.5, "epsilon": 1e-3, "centered": True}},
    }
    for kind, variants in families.items():
        for name, config in variants.items():
            config = {"learning_rate": 0.05, **config}
            optimizer_case(file, name, kind, **config)
            if kind not in ("SGD", "Adam", "AdamW", "RMSprop"):
                # What is common to all optimizers is common code.
                optimizer_case(file, f"{name}_decayed_clipped", kind, **config, weight_decay=0.1, global_clipnorm=2.0)
                continue
            optimizer_case(file, f"{name}_clipped", kind, **config, global_clipnorm=2.0)
            if name == kind.lower():
                optimizer_case(file, f"{name}_clipnorm", kind, **config, clipnorm=1.0)
                optimizer_case(file, f"{name}_clipvalue", kind, **config, clipvalue=0.25)
            if kind != "AdamW":
                optimizer_case(file, f"{name}_decayed", kind, **config, weight_decay=0.1)
            optimizer_case(file, f"{name}_decayed_clipped", kind, **config, weight_decay=0.1, global_clipnorm=2.0)
    for name, ema in {"ema": {"ema_momentum": 0.75}, "ema_overwrite": {"ema_momentum": 0.5, "ema_overwrite_frequency": 2}}.items():
        optimizer_case(file, f"sgd_momentum_{name}", "SGD", learning_rate=0.05, momentum=0.9, use_ema=True, **ema)
        optimizer_case(file, f"adam_decayed_clipped_{name}", "Adam", learning_rate=0.05, weight_decay=0.1, global_clipnorm=2.0,
                       use_ema=True, **ema)
    for name, config in {"sgd_accumulated": {"momentum": 0.9}, "adam_accumulated": {"use_ema": True, "ema_momentum": 0.75}}.items():
        optimizer_case(file, name, "SGD" if "sgd" in name else "Adam", learning_rate=0.05, gradient_accumulation_steps=2,
                       weight_decay=0.1, global_clipnorm=2.0, **config)
    schedule = optimizers.schedules.CosineDecay(0.01, 3, warmup_target=0.1, warmup_steps=2)
    optimizer_case(file, "sgd_momentum_cosine", "SGD", learning_rate=schedule, momentum=0.9)
    return file


def schedule_file():
    file = File("schedules", "learning rates at steps; step 0 is the first update")

    def case(name, schedule, steps, kind, config):
        rates = [float(double(schedule, step)(step)) if schedule else config["learning_rate"] for step in steps]
        file.add(name, {"steps": steps, "rates": rates}, schedule=kind, config=config)

    case("constant", None, [0, 1, 1000], "Constant", {"learning_rate": 0.01})
    config = {"boundaries": [10, 20, 50], "values": [0.1, 0.05, 0.01, 0.001]}
    steps = [0, 1, 9, 10, 11, 19, 20, 21, 50, 51, 1000]
    case("step", optimizers.schedules.PiecewiseConstantDecay(**config), steps, "PiecewiseConstantDecay", config)
    for name, config in {
        "cosine": {"initial_learning_rate": 0.1, "decay_steps": 100, "alpha": 0.0},
        "cosine_floor": {"initial_learning_rate": 0.1, "decay_steps": 100, "alpha": 0.1},
        "cosine_warmup": {"initial_learning_rate": 0.0, "decay_steps": 100, "alpha": 0.0, "warmup_target": 0.1,
                          "warmup_steps": 10},
        "cosine_warmup_floor": {"initial_learning_rate": 0.01, "decay_steps": 90, "alpha": 0.05, "warmup_target": 0.2,
                                "warmup_steps": 15},
    }.items():
        steps = [0, 1, 5, 9, 10, 11, 14, 15, 16, 50, 90, 99, 100, 105, 109, 110, 111, 1000]
        case(name, optimizers.schedules.CosineDecay(**config), steps, "CosineDecay", config)
    return file


# Ten training steps

BATCH, BATCHES = 32, 10


def images():
    """Ten classes of 8 x 8 pictures: a prototype each, and noise; values are multiples of 1/16."""
    rng = generator("images")
    prototypes = rng.standard_normal((10, 8, 8, 1))
    labels = rng.integers(0, 10, BATCH * BATCHES)
    noisy = prototypes[labels] + 0.8 * rng.standard_normal((len(labels), 8, 8, 1))
    return np.round(noisy * 16) / 16, labels


def compute_in(dtype):
    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)  # the default policy does not follow floatx once it was read


def network(dtype):
    compute_in(dtype)
    return keras.Sequential([
        layers.Input((8, 8, 1)),
        layers.Conv2D(8, 3, padding="same", use_bias=False, name="conv1"),
        layers.BatchNormalization(momentum=0.9, name="norm1"),
        layers.ReLU(name="relu1"),
        layers.MaxPooling2D(2, name="pool"),
        layers.Conv2D(16, 3, padding="same", use_bias=False, name="conv2"),
        layers.BatchNormalization(momentum=0.9, name="norm2"),
        layers.ReLU(name="relu2"),
        layers.GlobalAveragePooling2D(name="average"),
        layers.Dense(10, name="logits"),
    ], name="network")


def label(variable):
    """`conv1.kernel`; `both.forward_kernel` of a layer in both directions."""
    layer, *inner, name = variable.path.removeprefix("network/").split("/")
    if layer.startswith("attention"):
        return f"{layer}.{inner[0]}_{name}"
    direction = next((f"{part}_" for part in ("forward", "backward") if inner and inner[0].startswith(part)), "")
    return f"{layer}.{direction}{name}"


def weights(model):
    """Without the seeds that recurrent layers keep."""
    return [variable for variable in model.variables if "seed" not in variable.name]


NODES = [
    {"name": "conv1", "layer": "Conv2D", "config": {"filters": 8, "kernel_size": [3, 3], "padding": "same",
                                                    "use_bias": False}},
    {"name": "norm1", "layer": "BatchNormalization", "config": {"momentum": 0.9, "epsilon": 1e-3}},
    {"name": "relu1", "layer": "ReLU", "config": {}},
    {"name": "pool", "layer": "MaxPooling2D", "config": {"pool_size": [2, 2]}},
    {"name": "conv2", "layer": "Conv2D", "config": {"filters": 16, "kernel_size": [3, 3], "padding": "same",
                                                    "use_bias": False}},
    {"name": "norm2", "layer": "BatchNormalization", "config": {"momentum": 0.9, "epsilon": 1e-3}},
    {"name": "relu2", "layer": "ReLU", "config": {}},
    {"name": "average", "layer": "GlobalAveragePooling2D", "config": {}},
    {"name": "logits", "layer": "Dense", "config": {"units": 10}},
]


def train(dtype, initial, data, labels, kind, config, frozen=(), network=network):
    """Losses before each step, the loss at inference after the last, and all variables then."""
    model = network(dtype)
    for variable in weights(model):
        variable.assign(initial[label(variable)])
    for name in frozen:
        model.get_layer(name).trainable = False
    optimizer = getattr(optimizers, kind)(**config)
    criterion = losses.SparseCategoricalCrossentropy(from_logits=True)
    data = data.astype(dtype)

    def objective(trainable, fixed, x, y, training):
        logits, fixed, penalties = model.stateless_call(trainable, fixed, x, training=training, return_losses=True)
        return sum(penalties, criterion(y, logits)), fixed

    def variables():
        return [[variable.value for variable in group]
                for group in (model.trainable_variables, model.non_trainable_variables)]

    if dtype == "float64":
        double(lambda *state: objective(*state, data[:BATCH], labels[:BATCH], True), *variables())
    differentiate = jax.jit(jax.value_and_grad(objective, has_aux=True), static_argnames="training")
    assert all(variable.dtype == dtype for variable in weights(model))
    history = []
    for start in range(0, len(data), BATCH):
        batch = data[start:start + BATCH], labels[start:start + BATCH]
        trainable, fixed = variables()
        (value, fixed), gradients = differentiate(trainable, fixed, *batch, training=True)
        optimizer.apply(gradients, model.trainable_variables)
        for variable, updated in zip(model.non_trainable_variables, fixed):
            variable.assign(updated)
        assert value.dtype == dtype
        history.append(value)
    # As at the end of `fit`.
    optimizer.finalize_variable_values(model.trainable_variables)
    after, _ = objective(*variables(), data, labels, False)
    return {"losses": np.array(history), "loss_at_inference": np.array(after),
            **{f"final.{label(variable)}": np.array(variable.value) for variable in weights(model)}}


def training_file():
    file = File("training", "ten steps of a small network with batch normalization, 32 rows each, in the order given")
    data, labels = images()
    file.add("data", {"inputs": data, "labels": labels}, batch_rows=BATCH)
    rng, initial = generator("network"), {}
    for variable in network("float64").variables:
        shape, fan_in = variable.shape, np.prod(variable.shape[:-1])
        values = normal(rng, shape, 1 / np.sqrt(fan_in)) if variable.name == "kernel" else np.zeros(shape)
        initial[label(variable)] = values + (variable.name in ("gamma", "moving_variance"))
    file.add("initial", initial, nodes=NODES,
             loss="SparseCategoricalCrossentropy")
    for name, kind, config in (("adam", "Adam", {"learning_rate": 0.01}),
                               ("sgd_momentum", "SGD", {"learning_rate": 0.05, "momentum": 0.9})):
        truth = train("float64", initial, data, labels, kind, config)
        single = train("float32", initial, data, labels, kind, config)
        # What rounding alone does in Keras itself: a measure for the tolerance of a test.
        drift = {role: float(np.abs(truth[role] - single[role]).max()) for role in truth}
        file.add(name, truth, optimizer=kind, config=config, float32_differs_by=drift)
    return file


FROZEN = ["conv1", "norm1", "norm2"]


def frozen_file():
    """The network of `training` behind which a trunk is frozen, and between whose layers a normalization is."""
    file = File("frozen", "ten steps of the network of `training`, of which some layers are not trainable")
    data, labels = images()
    rng, initial = generator("frozen"), {}
    for variable in network("float64").variables:
        shape, fan_in = variable.shape, np.prod(variable.shape[:-1])
        scale = 1 / np.sqrt(fan_in) if variable.name == "kernel" else 0.25
        values = normal(rng, shape, scale)
        if variable.name in ("gamma", "moving_variance"):
            values = exact(0.5 + np.abs(values))
        initial[label(variable)] = values
    file.add("initial", initial, nodes=NODES, frozen=FROZEN, loss="SparseCategoricalCrossentropy")
    for name, kind, config in (("adam", "Adam", {"learning_rate": 0.01}),
                               ("sgd_momentum", "SGD", {"learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0.01}),
                               ("sgd_ema", "SGD", {"learning_rate": 0.05, "use_ema": True, "ema_momentum": 0.75}),
                               ("adam_ema", "Adam", {"learning_rate": 0.01, "use_ema": True, "ema_momentum": 0.5,
                                                     "ema_overwrite_frequency": 4})):
        truth = train("float64", initial, data, labels, kind, config, FROZEN)
        for name_of, value in initial.items():
            is_frozen = name_of.split(".")[0] in FROZEN
            assert (truth[f"final.{name_of}"] == value).all() == is_frozen, name_of
        single = train("float32", initial, data, labels, kind, config, FROZEN)
        drift = {role: float(np.abs(truth[role] - single[role]).max()) for role in truth}
        file.add(name, truth, optimizer=kind, config=config, float32_differs_by=drift)
    return file


# Sequences

STEPS_OF_ROW, WORDS = 9, 20


def recurrent_network(dtype):
    compute_in(dtype)
    return keras.Sequential([
        layers.Input((STEPS_OF_ROW,)),
        layers.Embedding(WORDS, 6, mask_zero=True, name="words"),
        layers.LSTM(8, return_sequences=True, name="first"),
        layers.Bidirectional(layers.GRU(6, return_sequences=True), name="both"),
        layers.LSTM(5, name="last"),
        layers.Dense(4, name="logits"),
    ], name="network")


RECURRENT_NODES = [
    {"name": "words", "layer": "Embedding", "config": {"input_dim": WORDS, "output_dim": 6, "mask_zero": True}},
    {"name": "first", "layer": "LSTM", "config": {"units": 8, "return_sequences": True}},
    {"name": "both", "layer": "Bidirectional", "config": {"layer": {"type": "GRU", "units": 6, "return_sequences": True}}},
    {"name": "last", "layer": "LSTM", "config": {"units": 5}},
    {"name": "logits", "layer": "Dense", "config": {"units": 4}},
]


def recurrent_file():
    file = File("recurrent", "ten steps of a network of recurrent layers on rows of words, 0 where they are padded")
    rng, rows = generator("recurrent"), BATCH * BATCHES
    words, lengths = rng.integers(1, WORDS, (rows, STEPS_OF_ROW)), rng.integers(0, STEPS_OF_ROW + 1, rows)
    data = np.where(np.arange(STEPS_OF_ROW) < lengths[:, None], words, 0)
    data[::7] = data[::7, ::-1]  # some are padded before
    labels = data.sum(axis=1) % 4
    file.add("data", {"inputs": data, "labels": labels}, batch_rows=BATCH)
    initial = {}
    for variable in weights(recurrent_network("float64")):
        initial[label(variable)] = normal(rng, variable.shape, 0.5 if variable.name != "bias" else 0.25)
    file.add("initial", initial, nodes=RECURRENT_NODES, loss="SparseCategoricalCrossentropy")
    for name, kind, config in (("adam", "Adam", {"learning_rate": 0.01}),
                               ("sgd_momentum", "SGD", {"learning_rate": 0.05, "momentum": 0.9})):
        truth = train("float64", initial, data, labels, kind, config, network=recurrent_network)
        single = train("float32", initial, data, labels, kind, config, network=recurrent_network)
        drift = {role: float(np.abs(truth[role] - single[role]).max()) for role in truth}
        file.add(name, truth, optimizer=kind, config=config, float32_differs_by=drift)
    return file


def transformer(dtype):
    compute_in(dtype)
    words = layers.Input((STEPS_OF_ROW,), name="input")
    embedded = layers.Embedding(WORDS, 8, mask_zero=True, name="words")(words)
    x = layers.Add(name="placed")([embedded, NamedPositions(STEPS_OF_ROW, name="positions")(embedded)])
    for block in range(2):
        normed = layers.LayerNormalization(name=f"norm{block}")(x)
        attended = layers.MultiHeadAttention(2, 4, name=f"attention{block}")(normed, normed, use_causal_mask=block == 0)
        x = layers.Add(name=f"attended{block}")([x, attended])
        normed = layers.LayerNormalization(name=f"wide_norm{block}")(x)
        wide = layers.Dense(16, activation="gelu", name=f"wide{block}")(normed)
        narrow = layers.Dense(8, name=f"narrow{block}")(wide)
        x = layers.Add(name=f"block{block}")([x, narrow])
    x = layers.GlobalAveragePooling1D(name="average")(x)
    return keras.Model(words, layers.Dense(4, name="logits")(x), name="network")


class NamedPositions(PositionEmbedding):
    """In a model, with a name; masks go through."""

    def __init__(self, sequence_length, name):
        super().__init__(sequence_length)
        self.name, self.supports_masking = name, True


def transformer_nodes():
    def node(name, layer, inputs=None, **config):
        return {"name": name, "layer": layer, "config": config, **({"inputs": inputs} if inputs else {})}

    nodes = [node("words", "Embedding", input_dim=WORDS, output_dim=8, mask_zero=True),
             node("positions", "PositionEmbedding", sequence_length=STEPS_OF_ROW),
             node("placed", "Add", ["words", "positions"])]
    before = "placed"
    for block in range(2):
        nodes += [
            node(f"norm{block}", "LayerNormalization", [before]),
            node(f"attention{block}", "MultiHeadAttention", num_heads=2, key_dim=4, use_causal_mask=block == 0),
            node(f"attended{block}", "Add", [before, f"attention{block}"]),
            node(f"wide_norm{block}", "LayerNormalization"),
            node(f"wide{block}", "Dense", units=16, activation="gelu"),
            node(f"narrow{block}", "Dense", units=8),
            node(f"block{block}", "Add", [f"attended{block}", f"narrow{block}"]),
        ]
        before = f"block{block}"
    return [*nodes, node("average", "GlobalAveragePooling1D"), node("logits", "Dense", units=4)]


def transformer_file():
    file = File("transformer", "ten steps of a small transformer on rows of words, 0 where they are padded")
    rng, rows = generator("transformer"), BATCH * BATCHES
    words, lengths = rng.integers(1, WORDS, (rows, STEPS_OF_ROW)), rng.integers(1, STEPS_OF_ROW + 1, rows)
    data = np.where(np.arange(STEPS_OF_ROW) < lengths[:, None], words, 0)
    data[::7] = data[::7, ::-1]  # some are padded before
    labels = data.sum(axis=1) % 4
    file.add("data", {"inputs": data, "labels": labels}, batch_rows=BATCH)
    initial = {}
    for variable in weights(transformer("float64")):
        values = normal(rng, variable.shape, 0.25 if variable.name in ("bias", "beta", "gamma") else 0.4)
        initial[label(variable)] = exact(values + (variable.name == "gamma"))
    file.add("initial", initial, nodes=transformer_nodes(), loss="SparseCategoricalCrossentropy")
    for name, kind, config in (("adam", "Adam", {"learning_rate": 0.003}),
                               ("sgd_momentum", "SGD", {"learning_rate": 0.02, "momentum": 0.9})):
        truth = train("float64", initial, data, labels, kind, config, network=transformer)
        single = train("float32", initial, data, labels, kind, config, network=transformer)
        drift = {role: float(np.abs(truth[role] - single[role]).max()) for role in truth}
        file.add(name, truth, optimizer=kind, config=config, float32_differs_by=drift)
    return file


def regularized(dtype):
    compute_in(dtype)
    penalties = keras.regularizers
    return keras.Sequential([
        layers.Input((8, 8, 1)),
        layers.Conv2D(6, 3, padding="same", activation="relu", name="conv", kernel_regularizer=penalties.L2(0.02),
                      bias_regularizer=penalties.L1(0.01)),
        layers.BatchNormalization(momentum=0.9, name="norm", gamma_regularizer=penalties.L1(0.01),
                                  beta_regularizer=penalties.L2(0.05)),
        layers.ReLU(name="relu", activity_regularizer=penalties.L2(0.001)),
        layers.GlobalAveragePooling2D(name="average"),
        layers.Dense(12, activation="tanh", name="dense", kernel_regularizer=penalties.L1L2(0.001, 0.002),
                     activity_regularizer=penalties.L1(0.01)),
        layers.Dense(12, name="frozen", kernel_regularizer=penalties.L2(0.1), activity_regularizer=penalties.L2(0.002)),
        layers.Dense(10, name="logits", kernel_regularizer="l2"),
    ], name="network")


REGULARIZED_NODES = [
    {"name": "conv", "layer": "Conv2D",
     "config": {"filters": 6, "kernel_size": [3, 3], "padding": "same", "activation": "relu",
                "kernel_regularizer": {"L2": 0.02}, "bias_regularizer": {"L1": 0.01}}},
    {"name": "norm", "layer": "BatchNormalization",
     "config": {"momentum": 0.9, "epsilon": 1e-3, "gamma_regularizer": {"L1": 0.01}, "beta_regularizer": {"L2": 0.05}}},
    {"name": "relu", "layer": "ReLU", "config": {"activity_regularizer": {"L2": 0.001}}},
    {"name": "average", "layer": "GlobalAveragePooling2D", "config": {}},
    {"name": "dense", "layer": "Dense",
     "config": {"units": 12, "activation": "tanh", "kernel_regularizer": {"l1": 0.001, "l2": 0.002},
                "activity_regularizer": {"l1": 0.01}}},
    {"name": "frozen", "layer": "Dense",
     "config": {"units": 12, "kernel_regularizer": {"l2": 0.1}, "activity_regularizer": {"l2": 0.002}}},
    {"name": "logits", "layer": "Dense", "config": {"units": 10, "kernel_regularizer": "l2"}},
]


def regularizer_file():
    """Penalties of weights and outputs; that of a frozen layer's weights does not count in Keras."""
    file = File("regularizers", "ten steps of a small network with penalties, on the rows of `training`")
    data, labels = images()
    rng, initial = generator("regularizers"), {}
    for variable in regularized("float64").variables:
        shape, fan_in = variable.shape, np.prod(variable.shape[:-1])
        values = normal(rng, shape, 1 / np.sqrt(fan_in) if variable.name == "kernel" else 0.25)
        if variable.name in ("gamma", "moving_variance"):
            values = exact(0.5 + np.abs(values))
        initial[label(variable)] = values
    file.add("initial", initial, nodes=REGULARIZED_NODES, frozen=["frozen"], loss="SparseCategoricalCrossentropy")
    momentum = {"learning_rate": 0.02, "momentum": 0.9}
    for name, kind, config in (("adam", "Adam", {"learning_rate": 0.01}),
                               ("sgd_momentum", "SGD", momentum),
                               ("global_clipnorm", "SGD", {**momentum, "global_clipnorm": 0.5}),
                               ("clipnorm", "SGD", {**momentum, "clipnorm": 0.2}),
                               ("clipvalue", "SGD", {**momentum, "clipvalue": 0.01})):
        arguments = data, labels, kind, config, ["frozen"], regularized
        truth, single = train("float64", initial, *arguments), train("float32", initial, *arguments)
        drift = {role: float(np.abs(truth[role] - single[role]).max()) for role in truth}
        file.add(name, truth, optimizer=kind, config=config, float32_differs_by=drift)
    return file


def class_weight_file():
    file = File("class_weight", "weights of rows by their class")
    rng = generator("class_weight")
    labels, table = rng.integers(0, 5, 20), {0: 2.0, 3: 0.25, 4: 0.0}
    for name, targets in (("labels", labels), ("column", labels[:, None]), ("one_hot", np.eye(5)[labels]),
                          ("soft", rng.dirichlet(np.ones(5), 20))):
        weights = class_weight_to_sample_weights(np.asarray(targets, dtype=np.float32), table)
        file.add(name, {"targets": targets, "weights": weights}, config={str(k): v for k, v in table.items()})
    return file


def augmentation_file():
    """Layers that change images at random, with drawn numbers given."""
    file = File("augmentation", "keras layers that change images at random, by given numbers")
    image = exact(generator("augmentation").random((7, 10, 3)))
    for mode in ("reflect", "nearest", "wrap", "constant"):
        fill = {"fill_mode": mode, "fill_value": 0.3}
        zooms = [("zoom_in", 0.6, 0.75), ("zoom_out", 1.7, 1.4)]
        changes = {"rotation": (layers.RandomRotation(0.5, **fill), {"turn": 0.09})}
        changes |= {name: (layers.RandomZoom(0.9, **fill), {"height": h, "width": w}) for name, h, w in zooms}
        changes["translation"] = (layers.RandomTranslation(0.5, 0.5, **fill), {"down": 0.35, "right": -1.3})
        for name, (layer, facts) in changes.items():
            given = {key: np.asarray([[value]]) for key, value in facts.items()}
            transformation = {
                "rotation": lambda: {"rotation_matrix": layer._compute_affine_matrix(
                    0.5, 0.5, given["turn"][0] * 360.0, *(np.zeros(1), np.zeros(1), np.ones(1), np.zeros(1), np.zeros(1)), 7, 10)},
                "zoom_in": lambda: {"height_zoom": given["height"], "width_zoom": given["width"]},
                "zoom_out": lambda: {"height_zoom": given["height"], "width_zoom": given["width"]},
                "translation": lambda: {"translations": np.concatenate([given["right"] * 10, given["down"] * 7], axis=1)},
            }[name]()
            output = layer.transform_images(image[None], transformation, training=True)[0]
            file.add(f"{name}_{mode}", {"image": image, "output": output}, fill_mode=mode, **facts)
    contrast = layers.RandomContrast(0.5, value_range=(0.0, 1.0))
    brightness = layers.RandomBrightness(0.5, value_range=(0.0, 1.0))
    saturation = layers.RandomSaturation(0.5, value_range=(0.0, 1.0))
    for factor in (0.4, 1.6):
        output = contrast.transform_images(image[None], {"contrast_factor": np.full((1, 1, 1, 1), factor)})[0]
        file.add(f"contrast_{factor}", {"image": image, "output": output}, factor=factor)
        output = saturation.transform_images(image[None], {"factor": np.asarray([factor])})[0]
        file.add(f"saturation_{factor}", {"image": image, "output": output}, factor=factor)
        output = brightness.transform_images(image[None], {"rgb_delta": np.full((1, 1, 1, 1), factor - 1.0)})[0]
        file.add(f"brightness_{factor}", {"image": image, "output": output}, factor=factor - 1.0)
    return file


FILES = {
    "layers": layer_file,
    "activations": activation_file,
    "merging": merging_file,
    "convolution": convolution_file,
    "normalization": normalization_file,
    "reshaping": reshaping_file,
    "scaling": scaling_file,
    "sequences": sequence_file,
    "language": language_file,
    "attention": attention_file,
    "transformer": transformer_file,
    "adapting": adapting_file,
    "sync_batch_norm": shard_file,
    "losses": loss_file,
    "metrics": metric_file,
    "counted_metrics": counted_metric_file,
    "masked": masked_file,
    "optimizers": optimizer_file,
    "schedules": schedule_file,
    "training": training_file,
    "frozen": frozen_file,
    "recurrent": recurrent_file,
    "regularizers": regularizer_file,
    "class_weight": class_weight_file,
    "augmentation": augmentation_file,
}


def main():
    root = Path(__file__).resolve().parent.parent
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else root / "tests" / "golden"
    folder.mkdir(parents=True, exist_ok=True)
    for stem in sys.argv[2:] or FILES:
        compute_in("float64")
        FILES[stem]().write(folder)


if __name__ == "__main__":
    main()
