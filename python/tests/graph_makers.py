"""What random graphs are made of: each layer, loss, metric and optimizer that the package takes, with random settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


class Draw:
    """Random choices, all from one seed."""

    def __init__(self, seed: int | list[int]) -> None:
        self.rng = np.random.default_rng(seed)
        #: Shape of a row of the tensor that is read.
        self.shape: tuple[int, ...] = ()

    def pick(self, values: Sequence[Any]) -> Any:
        """One of these."""
        return values[int(self.rng.integers(len(values)))]

    def chance(self, probability: float) -> bool:
        """Yes, with this probability."""
        return bool(self.rng.uniform() < probability)

    def maybe(self, probability: float, text: str) -> list[str]:
        """An argument that is there with this probability."""
        return [text] if self.chance(probability) else []


#: A constructor of random settings, as Python writes it.
Code = Callable[[Draw], str]

ACTIVATIONS = (
    "linear relu relu6 leaky_relu sigmoid tanh gelu silu hard_silu hard_sigmoid elu selu softplus softsign mish softmax".split()
)


@dataclass(frozen=True)
class Maker:
    """One layer: what it reads, and its constructor with random settings."""

    #: "row", "sequence", "picture", "indices" or "padded"; "any" of the first three.
    reads: str
    code: Code
    #: Tensors of one shape that it reads: from the first to the last number.
    count: tuple[int, int] = (1, 1)
    #: How it is called: on its tensors in a list, or one by one.
    call: str = "one"


def call(name: str, *arguments: str) -> str:
    """A call as Python writes it."""
    return f"{name}({', '.join(arguments)})"


def _layer(name: str, *parts: str | list[str]) -> str:
    flat = [text for part in parts for text in ([part] if isinstance(part, str) else part)]
    return call(f"layers.{name}", *flat)


def _activation(d: Draw) -> list[str]:
    return d.maybe(0.5, f'activation="{d.pick(ACTIVATIONS[:-1])}"')


def _penalties(d: Draw, *names: str) -> list[str]:
    kinds = ["keras.regularizers.L2(0.02)", "keras.regularizers.L1(0.01)", "keras.regularizers.L1L2(0.01, 0.02)"]
    return [text for name in names for text in d.maybe(0.12, f"{name}_regularizer={d.pick(kinds)}")]


def _weighted(d: Draw) -> list[str]:
    """Settings that all layers with kernel and bias share."""
    # Without a bias its penalty is one of nothing.
    return [*_activation(d), *d.maybe(0.3, "use_bias=False"), *_penalties(d, "kernel", "bias", "activity")]


def _window(d: Draw) -> list[str]:
    return [*d.maybe(0.4, f"strides={d.pick([1, 2])}"), f'padding="{d.pick(["same", "valid"])}"']


def _conv(name: str, sizes: Sequence[str], more: Code | None = None) -> Code:
    def make(d: Draw) -> str:
        first = [] if name.startswith("Depthwise") else [str(d.pick([4, 6]))]
        reach = d.pick(["strides=1", "strides=2", "dilation_rate=2"])
        extra = [more(d)] if more and d.chance(0.4) else []
        rest = _weighted(d)
        if name.startswith(("Depthwise", "Separable")):
            rest = [text for text in rest if not text.startswith("kernel_regularizer")]
        return _layer(name, first, d.pick(sizes), reach, f'padding="{d.pick(["same", "valid"])}"', extra, rest)

    return make


def _transposed(d: Draw) -> str:
    strides = d.pick(["strides=1", "strides=2", "strides=(1, 2)"])
    return _layer("Conv2DTranspose", str(d.pick([3, 4])), d.pick(["2", "3", "(2, 3)"]), strides, _window(d)[-1], _weighted(d))


def _pool(name: str, sizes: Sequence[str]) -> Code:
    return lambda d: _layer(name, d.pick(sizes), _window(d))


def _recurrent(name: str, *more: str, sequences: float = 0.6) -> Code:
    def make(d: Draw) -> str:
        gates = [] if name == "SimpleRNN" else d.maybe(0.3, 'recurrent_activation="hard_sigmoid"')
        extra = [text for part in more for text in d.maybe(0.4, part)]
        flags = ["use_bias=False", "go_backwards=True", 'activation="sigmoid"', "zero_output_for_mask=True"]
        chosen = [text for part in flags for text in d.maybe(0.2, part)]
        return _layer(
            name, "4", d.maybe(sequences, "return_sequences=True"), gates, extra, chosen, _penalties(d, "kernel", "recurrent"),
            # Each step of a loop that is not unrolled is compiled anew in each model.
            "unroll=True",
        )  # fmt: skip

    return make


def _both_ways(d: Draw) -> str:
    cell = d.pick(["LSTM", "GRU", "SimpleRNN"])
    inner = _layer(cell, "3", d.maybe(0.5, "return_sequences=True"), "unroll=True")
    return _layer("Bidirectional", inner, d.maybe(0.6, f'merge_mode="{d.pick(["sum", "mul", "ave", "concat"])}"'))


def _attention(d: Draw) -> str:
    # Without `value_dim`: Keras on JAX calls the layer only where it is `key_dim`.
    return _layer(
        "MultiHeadAttention", str(d.pick([1, 2])), str(d.pick([2, 3])),
        d.maybe(0.3, "use_bias=False"), d.maybe(0.3, "output_shape=6"),
    )  # fmt: skip


def _grouped_attention(d: Draw) -> str:
    return _layer("GroupQueryAttention", str(d.pick([2, 3])), d.pick(["4, 2", "2, 1", "3, 3"]), d.maybe(0.3, "use_bias=False"))


def _norm(name: str, *settings: str) -> Code:
    return lambda d: _layer(name, [text for setting in settings for text in d.maybe(0.3, setting)])


def _plain(name: str, *choices: str) -> Code:
    """A layer with one of these arguments."""
    return lambda d: _layer(name, d.pick(choices) if choices else [])


#: Rates of layers that draw numbers. Graphs whose training is compared have 0 in their place.
RATE = "RATE"

#: Layers of Keras by class. `_layers.LAYERS` has the same keys.
MAKERS: dict[str, list[Maker]] = {
    "Activation": [Maker("any", lambda d: _layer("Activation", f'"{d.pick(ACTIVATIONS)}"'))],
    "Add": [Maker("any", _plain("Add"), (2, 3), "list")],
    "Average": [Maker("any", _plain("Average"), (2, 3), "list")],
    "AveragePooling1D": [Maker("sequence", _pool("AveragePooling1D", ["2", "3"]))],
    "AveragePooling2D": [Maker("picture", _pool("AveragePooling2D", ["2", "3", "(2, 3)"]))],
    "BatchNormalization": [
        Maker("any", _norm("BatchNormalization", "momentum=0.8", "epsilon=0.01", "center=False", "scale=False"))
    ],
    "Bidirectional": [Maker("sequence", _both_ways)],
    "Concatenate": [Maker("any", _plain("Concatenate"), (2, 3), "list")],
    "Conv1D": [
        Maker("sequence", _conv("Conv1D", ["2", "3"], lambda d: "groups=2")),
        Maker("sequence", lambda d: _layer("Conv1D", "4", "2", 'padding="causal"', _weighted(d))),
    ],
    "Conv2D": [Maker("picture", _conv("Conv2D", ["1", "2", "3", "(2, 3)"], lambda d: "groups=2"))],
    "Conv2DTranspose": [Maker("picture", _transposed)],
    "Cropping1D": [Maker("sequence", _plain("Cropping1D", "1", "(1, 0)", "(0, 2)"))],
    "Cropping2D": [Maker("picture", _plain("Cropping2D", "1", "(1, 0)", "((1, 0), (0, 2))"))],
    "CustomScaleLayer": [Maker("any", lambda d: "CustomScaleLayer(0.3)", (2, 2), "list")],
    "Dense": [Maker("any", lambda d: _layer("Dense", str(d.pick([4, 6])), _weighted(d)))],
    "DepthwiseConv2D": [
        Maker("picture", _conv("DepthwiseConv2D", ["2", "3", "(2, 3)"], lambda d: "depth_multiplier=2"))
    ],
    "Dropout": [Maker("any", lambda d: _layer("Dropout", RATE))],
    "ELU": [Maker("any", _plain("ELU", "", "alpha=0.5"))],
    "Embedding": [Maker("indices", lambda d: _layer("Embedding", "7", str(d.pick([4, 6])), d.maybe(0.6, "mask_zero=True")))],
    "Flatten": [Maker("sequence", _plain("Flatten")), Maker("picture", _plain("Flatten"))],
    "GRU": [Maker("sequence", _recurrent("GRU"))],
    "GaussianDropout": [Maker("any", lambda d: _layer("GaussianDropout", RATE))],
    "GaussianNoise": [Maker("any", lambda d: _layer("GaussianNoise", RATE))],
    "GlobalAveragePooling1D": [Maker("sequence", _plain("GlobalAveragePooling1D", "", "keepdims=True"))],
    "GlobalAveragePooling2D": [Maker("picture", _plain("GlobalAveragePooling2D", "", "keepdims=True"))],
    "GlobalMaxPooling1D": [Maker("sequence", _plain("GlobalMaxPooling1D", "", "keepdims=True"))],
    "GlobalMaxPooling2D": [Maker("picture", _plain("GlobalMaxPooling2D", "", "keepdims=True"))],
    "GroupNormalization": [
        Maker("any", lambda d: _layer("GroupNormalization", f"groups={d.pick([1, 2, -1])}", d.maybe(0.3, "epsilon=0.01")))
    ],
    "GroupQueryAttention": [Maker("sequence", _grouped_attention, (1, 1), how) for how in ("itself", "causal")],
    "Identity": [Maker("any", _plain("Identity"))],
    "LSTM": [Maker("sequence", _recurrent("LSTM", "unit_forget_bias=False"))],
    "LayerNormalization": [
        Maker("any", _norm("LayerNormalization", "epsilon=0.01", "center=False", "scale=False")),
        Maker("picture", lambda d: _layer("LayerNormalization", "axis=[2, 3]")),
    ],
    "LayerScale": [Maker("any", lambda d: f"LayerScale(0.5, {d.shape[-1]})")],
    "LeakyReLU": [Maker("any", _plain("LeakyReLU", "", "negative_slope=0.1"))],
    "Masking": [Maker("padded", _plain("Masking"))],
    "MaxPooling1D": [Maker("sequence", _pool("MaxPooling1D", ["2", "3"]))],
    "MaxPooling2D": [Maker("picture", _pool("MaxPooling2D", ["2", "3", "(2, 3)"]))],
    "Maximum": [Maker("any", _plain("Maximum"), (2, 3), "list")],
    "Minimum": [Maker("any", _plain("Minimum"), (2, 3), "list")],
    "MultiHeadAttention": [
        Maker("sequence", _attention, (1, 1), "itself"),
        Maker("sequence", _attention, (1, 1), "causal"),
        Maker("sequence", _attention, (2, 2), "each"),
    ],
    "Multiply": [Maker("any", _plain("Multiply"), (2, 3), "list")],
    "Normalization": [
        Maker("any", _plain("Normalization", "", "invert=True")),
        Maker("any", _plain("Normalization", "axis=None", "mean=0.5, variance=2.0")),
    ],
    "PReLU": [Maker("any", _plain("PReLU")), Maker("picture", _plain("PReLU", "shared_axes=[1, 2]"))],
    "Permute": [Maker("sequence", _plain("Permute", "(2, 1)")), Maker("picture", _plain("Permute", "(3, 1, 2)", "(2, 1, 3)"))],
    "ReversibleEmbedding": [Maker("indices", lambda d: _layer("ReversibleEmbedding", "7", str(d.pick([4, 6]))))],
    "RMSNormalization": [
        Maker("any", _plain("RMSNormalization", "", "epsilon=0.01")),
        Maker("picture", _plain("RMSNormalization", "axis=[2, 3]")),
    ],
    "ReLU": [Maker("any", _plain("ReLU", "", "max_value=1.0", "negative_slope=0.1, threshold=0.2"))],
    "RepeatVector": [Maker("row", _plain("RepeatVector", "3"))],
    "Rescaling": [Maker("any", _plain("Rescaling", "0.5", "2.0, offset=-0.5"))],
    "Reshape": [
        Maker("row", _plain("Reshape", "(2, -1)")),
        Maker("sequence", _plain("Reshape", "(-1,)", "(-1, 2)")),
        Maker("picture", lambda d: _layer("Reshape", f"(-1, {d.shape[-1]})")),
    ],
    "SeparableConv2D": [
        Maker("picture", _conv("SeparableConv2D", ["2", "3"], lambda d: "depth_multiplier=2"))
    ],
    "SimpleRNN": [Maker("sequence", _recurrent("SimpleRNN"))],
    "Softmax": [Maker("any", _plain("Softmax"))],
    "SpatialDropout1D": [Maker("sequence", lambda d: _layer("SpatialDropout1D", RATE))],
    "SpatialDropout2D": [Maker("picture", lambda d: _layer("SpatialDropout2D", RATE))],
    "StochasticDepth": [Maker("picture", lambda d: call("StochasticDepth", RATE))],
    "Subtract": [Maker("any", _plain("Subtract"), (2, 2), "list")],
    "UpSampling1D": [Maker("sequence", _plain("UpSampling1D", "2", "3"))],
    "UpSampling2D": [Maker("picture", _plain("UpSampling2D", "2", '(2, 1), interpolation="bilinear"'))],
    "ZeroPadding1D": [Maker("sequence", _plain("ZeroPadding1D", "1", "(2, 1)"))],
    "ZeroPadding2D": [Maker("picture", _plain("ZeroPadding2D", "1", "((1, 0), (2, 1))"))],
}

#: Models within, which are no layer of the table.
NESTED = Maker(
    "any", lambda d: 'keras.Sequential([layers.Dense(4, activation="tanh", name="in_a"), layers.LayerNormalization(name="in_b")])'
)


@dataclass(frozen=True)
class Loss:
    """A loss: the function before it, its targets, and metrics that may stand beside it."""

    codes: tuple[str, ...]
    head: str | None
    targets: str
    metrics: tuple[str, ...] = ()


_ERRORS = (
    "keras.metrics.MeanAbsoluteError()", "keras.metrics.MeanSquaredError()", "keras.metrics.RootMeanSquaredError()",
    'keras.metrics.R2Score(class_aggregation="uniform_average")', "keras.metrics.LogCoshError()",
)  # fmt: skip
_OF_CLASSES = (
    '"accuracy"', "keras.metrics.TopKCategoricalAccuracy(k=2)", 'keras.metrics.AUC(name="auc")',
    'keras.metrics.Precision(name="precision")', 'keras.metrics.Recall(class_id=1, name="recall")',
    'keras.metrics.F1Score(average="macro")', "keras.metrics.CategoricalHinge()", "keras.metrics.KLDivergence()",
)  # fmt: skip
_OF_SIGNS = ("keras.metrics.Hinge()", "keras.metrics.SquaredHinge()", "keras.metrics.CosineSimilarity()")

#: Losses by class, with the same keys as `_objective.LOSSES`.
LOSSES: dict[str, Loss] = {
    "SparseCategoricalCrossentropy": Loss(
        ('"sparse_categorical_crossentropy"', "keras.losses.SparseCategoricalCrossentropy(reduction=\"sum\")"),
        "softmax", "labels", ('"accuracy"', "keras.metrics.SparseTopKCategoricalAccuracy(k=2)"),
    ),
    "CategoricalCrossentropy": Loss(
        ('"categorical_crossentropy"', "keras.losses.CategoricalCrossentropy(label_smoothing=0.1)"),
        "softmax", "one_hot", _OF_CLASSES,
    ),
    "BinaryCrossentropy": Loss(
        ('"binary_crossentropy"', "keras.losses.BinaryCrossentropy(label_smoothing=0.1)"),
        "sigmoid", "yes", ("keras.metrics.BinaryAccuracy()", 'keras.metrics.AUC(curve="PR", name="auc")'),
    ),
    "CategoricalFocalCrossentropy": Loss(
        ("keras.losses.CategoricalFocalCrossentropy(alpha=0.5, gamma=1.5)",), "softmax", "one_hot", ('"accuracy"',)
    ),
    "BinaryFocalCrossentropy": Loss(
        ("keras.losses.BinaryFocalCrossentropy(apply_class_balancing=True, gamma=1.5)",),
        "sigmoid", "yes", ("keras.metrics.BinaryAccuracy()", 'keras.metrics.Recall(name="recall")'),
    ),
    "MeanSquaredError": Loss(('"mse"', "keras.losses.MeanSquaredError(reduction=\"sum\")"), None, "real", _ERRORS),
    "MeanAbsoluteError": Loss(('"mae"',), None, "real", _ERRORS),
    "Huber": Loss(("keras.losses.Huber(delta=0.7)",), None, "real", _ERRORS),
    "LogCosh": Loss(('"log_cosh"',), None, "real", _ERRORS),
    "Poisson": Loss(('"poisson"',), "softplus", "counts", ("keras.metrics.Poisson()",)),
    "KLDivergence": Loss(("keras.losses.KLDivergence()",), "softmax", "shares", ("keras.metrics.KLDivergence()",)),
    "CosineSimilarity": Loss(("keras.losses.CosineSimilarity()",), None, "real", ("keras.metrics.CosineSimilarity()",)),
    "Hinge": Loss(('"hinge"',), "tanh", "signs", _OF_SIGNS),
    "SquaredHinge": Loss(('"squared_hinge"',), "tanh", "signs", _OF_SIGNS),
    "CategoricalHinge": Loss(('"categorical_hinge"',), None, "one_hot", ('"accuracy"',)),
}  # fmt: skip

#: Optimizers by class, with the same keys as `_objective.OPTIMIZERS`: their rate, and settings.
#: Where gradients are 0 but for rounding, a rule that divides by their size makes whole steps of it: its epsilon is large here.
OPTIMIZERS: dict[str, tuple[float, tuple[str, ...]]] = {
    "SGD": (0.1, ("", "momentum=0.9", "momentum=0.9, nesterov=True")),
    "Adam": (0.02, ("epsilon=0.01", "epsilon=0.01, beta_1=0.8, beta_2=0.99", "epsilon=0.01, amsgrad=True")),
    "AdamW": (0.02, ("epsilon=0.01", "epsilon=0.01, weight_decay=0.1")),
    "Nadam": (0.02, ("epsilon=0.01", "epsilon=0.01, beta_1=0.8")),
    "Adamax": (0.02, ("epsilon=0.01", "epsilon=0.01, beta_2=0.99")),
    "Lion": (0.002, ("", "beta_1=0.8")),
    "Adagrad": (0.05, ("", "initial_accumulator_value=0.3")),
    "Adadelta": (1.0, ("epsilon=0.01", "epsilon=0.01, rho=0.9")),
    # Without `l1`, which makes weights exactly 0: what they give lies on the kinks of activations, where Keras' backends differ.
    "Ftrl": (0.1, ("", "l2_regularization_strength=0.01, beta=0.5")),
    "RMSprop": (0.01, ("epsilon=0.01", "epsilon=0.01, momentum=0.5", "epsilon=0.01, centered=True")),
    "Adafactor": (0.02, ("epsilon_1=0.01", "epsilon_1=0.01, clip_threshold=0.5")),
    # Few products: many would make whole directions of rounding.
    "Muon": (0.01, ("ns_steps=1, epsilon=0.01", "ns_steps=1, epsilon=0.01, exclude_layers=['d'], nesterov=False")),
}

#: Settings that every optimizer has.
OF_ALL = (
    "clipnorm=0.5", "clipvalue=0.05", "global_clipnorm=1.0", "weight_decay=0.05", "use_ema=True, ema_momentum=0.8",
    "use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=2", "gradient_accumulation_steps=2",
)  # fmt: skip

#: Learning rates that change, for a rate in their place.
SCHEDULES = (
    "keras.optimizers.schedules.ExponentialDecay({0}, 2, 0.5)",
    "keras.optimizers.schedules.CosineDecay({0}, 4)",
    "keras.optimizers.schedules.PiecewiseConstantDecay([2], [{0}, 0.1 * {0}])",
)
