"""The table of layers: what a layer of Keras is here, and what of its settings must be as the engine has it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np

from . import _native

Settings = dict[str, Any]

#: Settings that do not change what a layer computes once its weights are there.
_IRRELEVANT = ("name", "trainable", "dtype", "seed")


@dataclass(frozen=True)
class Row:
    """One layer of Keras. A setting that the row does not name is refused, so none is lost without a word."""

    #: Its type in a model of this package.
    type: str
    #: Settings that both have under one name.
    take: tuple[str, ...] = ()
    #: Settings that must have this value.
    need: Mapping[str, Any] = field(default_factory=dict)
    #: Its weights: their name here, and the attribute of Keras' layer that holds them.
    weights: Mapping[str, str] = field(default_factory=dict)
    #: What else there is to say of its settings, from settings and input shape. Raises `Refused`.
    make: Callable[[Settings, list[Any]], Settings] = lambda config, shape: {}
    #: Settings that `make` looks at.
    looks_at: tuple[str, ...] = ()


class Refused(Exception):
    """A setting that the engine does not have."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _same(text: str) -> dict[str, str]:
    """Weights that have one name here and in Keras."""
    return {name: name for name in text.split()}


def _last_axis(config: Settings, shape: list[Any]) -> Settings:
    """Settings of a layer that works along the last axis only."""
    axis = config["axis"]
    axis = axis[0] if isinstance(axis, (list, tuple)) and len(axis) == 1 else axis
    if axis not in (-1, len(shape) - 1):
        raise Refused(f"`axis` needs to be the last, but is {axis}")
    return {}


def _last_axes(config: Settings, shape: list[Any]) -> Settings:
    """Settings of a layer that works over one or several last axes."""
    axes = config["axis"]
    axes = [axes] if isinstance(axes, int) else list(axes)
    counted = sorted(axis if axis < 0 else axis - len(shape) for axis in axes)
    if counted != list(range(-len(counted), 0)):
        raise Refused(f"`axis` needs to be the last axes, but is {config['axis']}")
    return {"axis": counted[0] if len(counted) == 1 else counted}


def _reshape(config: Settings, shape: list[Any]) -> Settings:
    """The shape of a row, without a -1."""
    target = list(config["target_shape"])
    if -1 in target:
        known = -math.prod(target)
        target[target.index(-1)] = math.prod(shape[1:]) // known
    return {"target_shape": target}


def _mask(config: Settings, shape: list[Any]) -> Settings:
    """The shape of a row's mask. Keras' has the batch axis in front."""
    mask = config["noise_shape"]
    if mask is None:
        return {}
    if len(mask) != len(shape) or mask[0] is not None:
        raise Refused(f"`noise_shape` needs None and the {len(shape) - 1} axes of a row, but is {tuple(mask)}")
    return {"noise_shape": [have if axis is None else axis for axis, have in zip(mask[1:], shape[1:])]}


def _numbers(config: Settings, shape: list[Any]) -> Settings:
    """A factor and an offset for all, or for each channel."""
    settings = {}
    for key in ("scale", "offset"):
        value = config[key]
        # So Keras writes a NumPy array.
        value = np.asarray(value["config"]["value"] if isinstance(value, dict) else value, np.float64)
        if value.ndim > 1:
            raise Refused(f"`{key}` needs to be a number, or one for each channel, but has shape {value.shape}")
        settings[key] = value.tolist()
    return settings


def _standard(config: Settings, shape: list[Any]) -> Settings:
    """Mean and variance, for each place of the axes that keep their own."""
    axes = config["axis"]
    axes = [] if axes is None else [axes] if isinstance(axes, int) else list(axes)
    places = [int(shape[axis]) for axis in sorted(axis % len(shape) for axis in axes)]
    # Where none are given, what Keras has adapted stands in its weights.
    given = {"mean": 0.0, "variance": 1.0} if config["mean"] is None else config
    stretched = {key: np.broadcast_to(given[key], places).ravel().tolist() for key in ("mean", "variance")}
    return {"axis": axes, **stretched}


def _interpolation(config: Settings, shape: list[Any]) -> Settings:
    known = ("nearest", "bilinear")
    if config["interpolation"] not in known:
        raise Refused(f'`interpolation` needs "nearest" or "bilinear", but is "{config["interpolation"]}"')
    return {"interpolation": config["interpolation"]}


def _single(*keys: str) -> Callable[[Settings, list[Any]], Settings]:
    """Settings that Keras keeps as a tuple of one number."""

    def make(config: Settings, shape: list[Any]) -> Settings:
        listed = {key: config[key] for key in keys if config[key] is not None}
        return {key: value[0] if isinstance(value, (list, tuple)) else value for key, value in listed.items()}

    return make


def _gates(config: Settings, shape: list[Any]) -> Settings:
    """The function that makes gates."""
    function = config["recurrent_activation"]
    if function not in ("sigmoid", "hard_sigmoid"):
        raise Refused(f'`recurrent_activation` needs "sigmoid" or "hard_sigmoid", but is {_short(function)}')
    return {"recurrent_activation": function}


def _cell(config: Settings, shape: list[Any]) -> Settings:
    """The function that makes gates, if there are any, and whether outputs behind a mask are zeros."""
    # Unrolled, Keras leaves this out on two of its backends.
    is_left_out = config["unroll"] and keras.config.backend() in ("jax", "numpy")
    gates = _gates(config, shape) if "recurrent_activation" in config else {}
    return {**gates, "zero_output_for_mask": config["zero_output_for_mask"] and not is_left_out}


def _attention(config: Settings, shape: list[Any]) -> Settings:
    """Sizes of an attention over the one axis of a sequence."""
    axes, output = config["attention_axes"], config["output_shape"]
    if len(shape) != 3 or axes is not None and list(axes) != [1]:
        raise Refused(f"`attention_axes` needs the one axis of a sequence, but is {axes} of an input {tuple(shape)}")
    output = [output] if isinstance(output, int) else list(output or [])
    if len(output) > 1:
        raise Refused(f"`output_shape` needs one axis, but is {tuple(output)}")
    return {**_unregularized(config, shape), **({"output_shape": output[0]} if output else {})}


def _unregularized(config: Settings, shape: list[Any]) -> Settings:
    """Refuses regularizers."""
    for key in config:
        if _is_regularizer(key) and config[key] is not None:
            raise Refused(f"`{key}` is not supported here, but is {_short(config[key])}")
    return {}


def _both_directions(config: Settings, shape: list[Any]) -> Settings:
    """The layer of a `Bidirectional`, which has to be one and the same in both directions."""
    if config["merge_mode"] is None:
        raise Refused("`merge_mode` None is not supported: it makes two outputs")
    directions = []
    for key in ("layer", "backward_layer"):
        kind = config[key]["class_name"]
        if kind not in RECURRENT:
            raise Refused(f"`{key}` needs to be one of {', '.join(RECURRENT)}, but is {kind}")
        if config[key]["config"]["return_state"]:
            raise Refused("`return_state` is not supported here: use two layers, one with `go_backwards`, and `Concatenate`")
        settings, problems = convert(kind, config[key]["config"], shape)
        problems += [f"`{name}` is not supported here" for name in settings if _is_regularizer(name)]
        if problems:
            raise Refused(f"`{key}`: {problems[0]}")
        directions.append(settings)
    forward, backward = directions
    if {**forward, "go_backwards": not forward["go_backwards"]} != backward:
        raise Refused("`backward_layer` needs the settings of `layer`, in the other direction")
    return {"layer": forward, "merge_mode": config["merge_mode"]}


def _recurrent(type: str, take: str = "", *, looks_at: str = "") -> Row:
    """A recurrent layer, whose weights are those of its cell."""
    return Row(
        type,
        take=_words(f"units activation use_bias dropout recurrent_dropout return_sequences go_backwards {take}"),
        need={"stateful": False},
        make=_cell,
        looks_at=_words(f"unroll zero_output_for_mask return_state {looks_at}"),
        weights={name: f"cell.{name}" for name in _OF_CELLS},
    )


#: Recurrent layers with the number of their states, and the weights of their cells.
RECURRENT = {"LSTM": 2, "GRU": 1, "SimpleRNN": 1}
_OF_CELLS = ("kernel", "recurrent_kernel", "bias")

#: Projections of an attention, and Keras' names of the layers that make them.
_OF_ATTENTION = {
    f"{part}_{name}": f"_{attribute}_dense.{name}"
    for part, attribute in (("query", "query"), ("key", "key"), ("value", "value"), ("attention_output", "output"))
    for name in ("kernel", "bias")
}

#: Classes of layers of attention, to whose calls `use_causal_mask` and masks of the sequences belong.
ATTENTIONS = ("MultiHeadAttention", "GroupQueryAttention")


#: What layers of Keras are here, by class.
LAYERS: dict[str, Row] = {
    "Activation": Row("Activation", take=("activation",)),
    "Add": Row("Add"),
    "Average": Row("Average"),
    "AveragePooling1D": Row(
        "AveragePooling1D", take=("padding",), make=_single("pool_size", "strides"), looks_at=_words("pool_size strides")
    ),
    "AveragePooling2D": Row("AveragePooling2D", take=_words("pool_size strides padding")),
    "BatchNormalization": Row(
        "BatchNormalization",
        take=_words("momentum epsilon center scale synchronized"),
        need={"renorm": False, "renorm_clipping": None, "renorm_momentum": ...},
        weights=_same("gamma beta moving_mean moving_variance"),
        make=_last_axis,
        looks_at=("axis",),
    ),
    "Bidirectional": Row(
        "Bidirectional",
        weights={
            f"{direction}_{name}": f"{direction}_layer.cell.{name}" for direction in ("forward", "backward") for name in _OF_CELLS
        },
        make=_both_directions,
        looks_at=_words("layer backward_layer merge_mode"),
    ),
    "Concatenate": Row("Concatenate", make=_last_axis, looks_at=("axis",)),
    "Conv1D": Row(
        "Conv1D",
        take=_words("filters padding groups activation use_bias"),
        weights=_same("kernel bias"),
        make=_single("kernel_size", "strides", "dilation_rate"),
        looks_at=_words("kernel_size strides dilation_rate"),
    ),
    "Conv2D": Row(
        "Conv2D",
        take=_words("filters kernel_size strides padding dilation_rate groups activation use_bias"),
        weights=_same("kernel bias"),
    ),
    "Conv2DTranspose": Row(
        "Conv2DTranspose",
        take=_words("filters kernel_size strides padding output_padding dilation_rate activation use_bias"),
        weights=_same("kernel bias"),
    ),
    "Cropping1D": Row("Cropping1D", take=("cropping",)),
    "Cropping2D": Row("Cropping2D", take=("cropping",)),
    # The sum of InceptionResNetV2: `_graph` puts the factor of the second tensor into a layer of its own.
    "CustomScaleLayer": Row("Add", looks_at=("scale",)),
    "Dense": Row(
        "Dense",
        take=_words("units activation use_bias lora_rank lora_alpha"),
        weights={"kernel": "_kernel", **_same("bias lora_kernel_a lora_kernel_b")},
    ),
    "DepthwiseConv2D": Row(
        "DepthwiseConv2D",
        take=_words("kernel_size strides padding depth_multiplier dilation_rate activation use_bias"),
        weights=_same("kernel bias"),
    ),
    "Dropout": Row("Dropout", take=("rate",), make=_mask, looks_at=("noise_shape",)),
    "ELU": Row("ELU", take=("alpha",)),
    "Embedding": Row(
        "Embedding",
        take=_words("input_dim output_dim mask_zero lora_rank lora_alpha"),
        need={"quantization_config": None},
        weights={"embeddings": "_embeddings", **_same("lora_embeddings_a lora_embeddings_b")},
    ),
    "Flatten": Row("Flatten"),
    "GRU": _recurrent("GRU", "reset_after", looks_at="recurrent_activation"),
    "GaussianDropout": Row("GaussianDropout", take=("rate",)),
    "GaussianNoise": Row("GaussianNoise", take=("stddev",)),
    "GlobalAveragePooling1D": Row("GlobalAveragePooling1D", take=("keepdims",)),
    "GlobalAveragePooling2D": Row("GlobalAveragePooling2D", take=("keepdims",)),
    "GlobalMaxPooling1D": Row("GlobalMaxPooling1D", take=("keepdims",)),
    "GlobalMaxPooling2D": Row("GlobalMaxPooling2D", take=("keepdims",)),
    "GroupNormalization": Row(
        "GroupNormalization",
        take=_words("groups epsilon center scale"),
        weights=_same("gamma beta"),
        make=_last_axis,
        looks_at=("axis",),
    ),
    "GroupQueryAttention": Row(
        "GroupQueryAttention",
        take=_words("head_dim num_query_heads num_key_value_heads dropout use_bias"),
        need={"use_gate": False, "sliding_window": None},
        weights=_OF_ATTENTION,
        make=_unregularized,
    ),
    "Identity": Row("Activation", make=lambda config, shape: {"activation": "linear"}),
    "LSTM": _recurrent("LSTM", "unit_forget_bias", looks_at="recurrent_activation"),
    "LayerNormalization": Row(
        "LayerNormalization",
        take=_words("epsilon center scale"),
        need={"rms_scaling": False},
        weights=_same("gamma beta"),
        make=_last_axes,
        looks_at=("axis",),
    ),
    # In the models of `keras.applications.convnext`.
    "LayerScale": Row("LayerScale", take=_words("init_values projection_dim"), weights=_same("gamma")),
    "LeakyReLU": Row("LeakyReLU", take=("negative_slope",)),
    "Masking": Row("Masking", take=("mask_value",)),
    "MaxPooling1D": Row(
        "MaxPooling1D", take=("padding",), make=_single("pool_size", "strides"), looks_at=_words("pool_size strides")
    ),
    "MaxPooling2D": Row("MaxPooling2D", take=_words("pool_size strides padding")),
    "Maximum": Row("Maximum"),
    "Minimum": Row("Minimum"),
    # Whether its call says `use_causal_mask` becomes one of its settings.
    "MultiHeadAttention": Row(
        "MultiHeadAttention",
        take=_words("num_heads key_dim value_dim dropout use_bias"),
        need={"use_gate": False, "sliding_window": None},
        weights=_OF_ATTENTION,
        make=_attention,
        looks_at=_words("attention_axes output_shape"),
    ),
    "Multiply": Row("Multiply"),
    "Normalization": Row(
        "Normalization",
        take=("invert",),
        weights={"mean": "adapt_mean", "variance": "adapt_variance"},
        make=_standard,
        looks_at=_words("axis mean variance"),
    ),
    "PReLU": Row("PReLU", take=("shared_axes",), weights=_same("alpha")),
    "Permute": Row("Permute", take=("dims",)),
    "RMSNormalization": Row(
        "RMSNormalization", take=("epsilon",), weights=_same("scale"), make=_last_axes, looks_at=("axis",)
    ),
    "ReLU": Row("ReLU", take=_words("max_value negative_slope threshold")),
    "RepeatVector": Row("RepeatVector", take=("n",)),
    "Rescaling": Row("Rescaling", make=_numbers, looks_at=_words("scale offset")),
    "Reshape": Row("Reshape", make=_reshape, looks_at=("target_shape",)),
    # Whether a call says `reverse` becomes a setting of the use.
    "ReversibleEmbedding": Row(
        "ReversibleEmbedding",
        take=_words("input_dim output_dim mask_zero tie_weights logit_soft_cap"),
        need={"quantization_config": None, "reverse_dtype": None},
        weights={"embeddings": "_embeddings", "reverse_embeddings": "reverse_embeddings"},
    ),
    "SeparableConv2D": Row(
        "SeparableConv2D",
        take=_words("filters kernel_size strides padding depth_multiplier dilation_rate activation use_bias"),
        weights=_same("depthwise_kernel pointwise_kernel bias"),
    ),
    "Softmax": Row("Softmax", make=_last_axis, looks_at=("axis",)),
    "SimpleRNN": _recurrent("SimpleRNN"),
    "SpatialDropout1D": Row("Dropout", take=("rate",), make=lambda config, shape: {"noise_shape": [1, shape[-1]]}),
    "SpatialDropout2D": Row("SpatialDropout2D", take=("rate",)),
    "StochasticDepth": Row("StochasticDepth", take=("drop_path_rate",)),
    "Subtract": Row("Subtract"),
    "UpSampling1D": Row("UpSampling1D", take=("size",)),
    "UpSampling2D": Row("UpSampling2D", take=("size",), make=_interpolation, looks_at=("interpolation",)),
    "ZeroPadding1D": Row("ZeroPadding1D", take=("padding",)),
    "ZeroPadding2D": Row("ZeroPadding2D", take=("padding",)),
}

#: Layers of KerasHub that the engine has as they are, by class; all others are traced.
OF_KERAS_HUB: dict[str, Row] = {
    "PositionEmbedding": Row(
        "PositionEmbedding", take=("sequence_length",), weights={"embeddings": "position_embeddings"}, looks_at=("initializer",)
    ),
    "ReversibleEmbedding": LAYERS["ReversibleEmbedding"],
}

#: All of them.
ROWS: dict[str, Row] = OF_KERAS_HUB | LAYERS

#: Layers that do with the mask of a sequence what they do in Keras, of those that Keras passes it through or that take it.
MASKS = frozenset(
    _words(
        "Activation Add Average BatchNormalization Bidirectional Concatenate Dense Dropout ELU GRU GaussianDropout GaussianNoise "
        "GlobalAveragePooling1D GroupNormalization GroupQueryAttention Identity LSTM LayerNormalization LeakyReLU Masking "
        "MultiHeadAttention Normalization PReLU ReLU Rescaling SimpleRNN SpatialDropout1D Subtract"
    )
)

#: Variables that low-rank factors (`enable_lora`) freeze: others are still trained.
FROZEN_BY_LORA = frozenset({"kernel", "embeddings"})

#: Variables of Keras' layers that no optimizer changes, trainable or not.
STATISTICS = frozenset({"moving_mean", "moving_variance", "mean", "variance", "count", "seed_generator_state"})

#: Layers of this package that are no layers in Keras, but functions, as `Activation("gelu")`, or at work within it.
FUNCTIONS = frozenset(
    {"ComputeMask", "DotProductAttention", "GELU", "PositionEmbedding", "RotaryEmbedding", "Sigmoid", "SinePositionEncoding", "Tanh"}
)


#: Layers whose activation may be a function of the user's own: a layer behind them.
ACTIVATED = ("Activation", "Conv1D", "Conv2D", "Conv2DTranspose", "Dense", "DepthwiseConv2D", "SeparableConv2D")


def has_own_activation(kind: str, config: Settings) -> bool:
    """Is its activation a function that the engine does not know by name?"""
    activation = config.get("activation", "linear")
    return kind in ACTIVATED and not isinstance(activation, str) and _activation(activation) is not None


def is_of_keras_hub(layer: Any) -> bool:
    """Is it a layer of KerasHub that the engine has as it is?"""
    return type(layer).__module__.startswith("keras_hub.") and type(layer).__name__ in OF_KERAS_HUB


def convert(kind: str, config: Settings, shape: list[Any]) -> tuple[Settings, list[str]]:
    """Type and settings of a layer, and what is wrong with it."""
    row = ROWS[kind]
    problems = [text for key, value in config.items() if (text := _refusal(row, key, value))]
    settings = {"type": row.type, **{key: config[key] for key in row.take if config.get(key) is not None}}
    settings.update({key: _penalty(value) for key, value in config.items() if _is_regularizer(key) and _penalty(value)})
    if config.get("use_bias") is False:
        # Keras penalizes no bias where there is none.
        settings.pop("bias_regularizer", None)
    try:
        settings.update(row.make(config, shape))
    except Refused as refused:
        problems.append(str(refused))
    return settings, problems


def _refusal(row: Row, key: str, value: Any) -> str | None:
    """Why a setting can't be taken; `None` if it can."""
    if key == "activation":
        return _activation(value)
    if _is_regularizer(key):
        return None if value is None or _penalty(value) else f"`{key}` is not supported, but is {_short(value)}"
    if key in row.take or key in row.looks_at or key in _IRRELEVANT or key.endswith("_initializer"):
        return None
    if key == "data_format":
        return None if value == "channels_last" else f'`data_format` needs "channels_last", but is "{value}"'
    if key in row.need:
        needed = row.need[key]
        same = needed is ... or value == needed or (isinstance(value, (list, tuple)) and tuple(value) == needed)
        return None if same else f"`{key}` needs {needed}, but is {value}"
    if value is None:
        return None
    return f"`{key}` is not supported, but is {_short(value)}"


def _is_regularizer(key: str) -> bool:
    return key.endswith("_regularizer")


def _penalty(value: Any) -> Settings | None:
    """Factors of a penalty; `None` if there is none, or one that the engine does not have."""
    if isinstance(value, dict) and value.get("class_name") in ("L1", "L2", "L1L2"):
        return {key: float(value["config"][key]) for key in ("l1", "l2") if key in value["config"]}
    return None


def _activation(value: Any) -> str | None:
    if isinstance(value, str) and _native.has_activation(value):
        return None
    return f"`activation` {_short(value)} is not supported"


def _short(value: Any) -> str:
    """A value as it goes into a message: of an object, its class."""
    return str(value["class_name"]) if isinstance(value, dict) and "class_name" in value else repr(value)
