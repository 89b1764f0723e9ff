"""Operations of `keras.ops`, layers of one's own, and losses of one's own, which random graphs are made of."""

from __future__ import annotations

import math
from typing import Any

from graph_makers import Code, Draw, Loss, Maker
from keras import layers, ops


class Linear(layers.Layer):
    """The layer of Keras' guide."""

    def __init__(self, units: int, **more: Any) -> None:
        super().__init__(**more)
        self.units = units

    def build(self, shape: Any) -> None:
        self.w = self.add_weight(shape=(shape[-1], self.units), name="w")
        self.b = self.add_weight(shape=(self.units,), name="b")

    def call(self, x: Any) -> Any:
        return ops.matmul(x, self.w) + self.b


class Placed(layers.Layer):
    """Adds a weight for each place, and multiplies by one for each channel and by one number."""

    def build(self, shape: Any) -> None:
        self.places = self.add_weight(shape=(1, *shape[1:]), name="places")
        self.channels = self.add_weight(shape=(shape[-1],), name="channels")
        self.factor = self.add_weight(shape=(), name="factor")

    def call(self, x: Any) -> Any:
        return self.factor * (x * self.channels + self.places)


class Mixed(layers.Layer):
    """Sums of products with weights along the second last axis."""

    def build(self, shape: Any) -> None:
        self.mixing = self.add_weight(shape=(shape[1], 3), name="mixing")
        self.least = self.add_weight(shape=(shape[-1],), name="least")

    def call(self, x: Any) -> Any:
        return ops.maximum(ops.einsum("btc,ts->bsc", x, self.mixing), self.least)


class Handed(layers.Layer):
    """A recurrent layer that hands its states to another, and the output that it begins with."""

    def __init__(self, kind: str, units: int, sequences: bool, **more: Any) -> None:
        super().__init__(**more)
        self.first = getattr(layers, kind)(units, return_state=True, return_sequences=sequences, unroll=True)
        self.second = getattr(layers, kind)(units, return_sequences=True, return_state=True, unroll=True)

    def call(self, x: Any) -> Any:
        output, *states = self.first(x)
        handed, *after = self.second(x, initial_state=states)
        output = output if len(output.shape) == 3 else ops.expand_dims(output, 1)
        return ops.concatenate([output, handed, ops.expand_dims(after[-1], 1)], axis=1)


#: Classes of layers of one's own, which a program that runs by itself has to hold.
CLASSES = (Linear, Placed, Mixed, Handed)
OWN: dict[str, list[Maker]] = {
    "Linear": [Maker("any", lambda d: f"Linear({d.pick([3, 4])})")],
    "Placed": [Maker("any", lambda d: "Placed()")],
    "Mixed": [Maker("sequence", lambda d: "Mixed()")],
    "Handed": [Maker("sequence", lambda d: f'Handed("{d.pick(["LSTM", "GRU", "SimpleRNN"])}", 3, {d.chance(0.5)})')],
}


def _axis(d: Draw) -> int:
    """An axis that is not the batch, from either end."""
    rank = len(d.shape)
    return int(d.pick([*range(1, rank + 1), *range(-rank, 0)]))


def _array(*shape: int) -> str:
    """Constant numbers, none of them special."""
    return f'np.linspace(-0.9, 1.3, {math.prod(shape)}, dtype="float32").reshape({shape})'


def _reduced(name: str) -> Code:
    def make(d: Draw) -> str:
        axes: Any = _axis(d)
        if len(d.shape) == 3 and d.chance(0.3):
            axes = d.pick([(1, 2), (1, 3), [2, -1]])
        keeps = ", keepdims=True" if len(d.shape) == 1 or d.chance(0.3) else ""
        return f"keras.ops.{name}({{0}}, axis={axes}{keeps})"

    return make


def _along(name: str) -> Code:
    return lambda d: f"keras.ops.{name}({{0}}, axis={_axis(d)})"


def _of_one(*texts: str) -> list[Maker]:
    return [Maker("any", lambda d: str(d.pick(texts)), (1, 1), "text")]


def _of_two(name: str, sign: str = "") -> list[Maker]:
    function = f"keras.ops.{name}({{0}}, {{1}})"
    stretched = f"keras.ops.{name}({{0}}, keras.ops.mean({{0}}, axis=1, keepdims=True))"

    def array(d: Draw) -> str:
        parts = ["{0}", str(d.pick([_array(d.shape[-1]), _array(1, *d.shape), "0.3"]))]
        return f"keras.ops.{name}({', '.join(parts if d.chance(0.7) else parts[::-1])})"

    signed = [f"{{0}} {sign} {{1}}"] if sign else []
    return [
        Maker("any", lambda d: str(d.pick([function, *signed])), (2, 2), "text"),
        Maker("any", array, (1, 1), "text"),
        Maker("sequence", lambda d: stretched, (1, 1), "text"),
    ]


def _divisor(d: Draw) -> str:
    return str(d.pick(["2.0", "-0.7", f"(0.4 + {_array(d.shape[-1])} ** 2)"]))


def _item(d: Draw) -> str:
    """`x[key]` with places, slices, `...` and `None`."""
    kept, key = 0, []
    for size in d.shape:
        at = int(d.rng.integers(size))
        part = str(d.pick([":", ":", str(at), str(at - size), f"{at}:", f":{at + 1}", f"{at - size}:", ":-1" if size > 1 else ":"]))
        kept += ":" in part
        key.append(part)
    if not kept:
        key[-1] = "1:" if d.shape[-1] > 1 else ":"
    how = d.pick(["all", "all", "last", "new", "first"])
    if how == "last":
        return f"{{0}}[..., {key[-1] if ':' in key[-1] or len(key) > 1 else ':'}]"
    if how == "first":
        return f"{{0}}[:, {key[0] if ':' in key[0] or len(key) > 1 else ':'}]"
    if how == "new":
        key.insert(int(d.rng.integers(len(key) + 1)), "None")
    return f"{{0}}[:, {', '.join(key)}]"


def _permuted(d: Draw) -> str:
    order = [0, *(int(axis) + 1 for axis in d.rng.permutation(len(d.shape)))]
    return f"keras.ops.transpose({{0}}, {tuple(order)})"


def _reshaped(d: Draw) -> str:
    size = math.prod(d.shape)
    shapes = [(-1, size), (-1, 2, size // 2), (-1, d.shape[-1], size // d.shape[-1]), (-1, 1, *d.shape[:2])]
    return f"keras.ops.reshape({{0}}, {d.pick(shapes)})"


def _expanded(d: Draw) -> str:
    return f"keras.ops.expand_dims({{0}}, {d.pick([1, len(d.shape) + 1, -1, -2])})"


def _squeezed(d: Draw) -> str:
    return str(d.pick(["keras.ops.squeeze({0}[:, :1], axis=1)", "keras.ops.squeeze(keras.ops.expand_dims({0}, 1), axis=1)"]))


def _split(d: Draw) -> str:
    axis = _axis(d)
    size = d.shape[axis - 1] if axis > 0 else d.shape[axis]
    parts = d.pick([[1], [1, size - 1]]) if size % 2 or d.chance(0.5) else 2
    return f"keras.ops.concatenate(keras.ops.split({{0}}, {parts}, axis={axis})[::-1], axis={axis})"


def _padded(d: Draw) -> str:
    widths = [(0, 0), *((int(d.rng.integers(3)), int(d.rng.integers(2))) for _ in d.shape)]
    return f"keras.ops.pad({{0}}, {widths})"


def _tiled(d: Draw) -> str:
    counts = (1, *(int(d.rng.integers(1, 3)) for _ in d.shape))
    return f"keras.ops.tile({{0}}, {counts})"


def _multiplied(d: Draw) -> str:
    weights = _array(d.shape[-1], 3)
    return str(d.pick([f"keras.ops.matmul({{0}}, {weights})", "keras.ops.matmul({0}, keras.ops.transpose({0}, (0, 2, 1)))"]))


def _summed(d: Draw) -> str:
    rows, channels = d.shape
    weights = [
        f'"btc,cd->btd", {{0}}, {_array(channels, 3)}',
        f'"btc,tcd->bd", {{0}}, {_array(rows, channels, 2)}',
        f'"td,btc->bcd", {_array(rows, 2)}, {{0}}',
    ]
    products = [
        '"bic,bjc->bij", {0}, {0}',
        '"btc,btd->bdc", {0}, keras.ops.tanh({0})',
        '"btc,btc->bc", {0}, {0}',
        '"btc, btc -> bct", {0}, {0}',
    ]
    return f"keras.ops.einsum({d.pick([*weights, *products])})"


def _attended(d: Draw) -> str:
    rows, channels = d.shape
    heads = d.pick([1, 2])
    parts = f"*[keras.ops.reshape(part, (-1, {rows}, {heads}, {channels // heads})) for part in ({{0}}, keras.ops.tanh({{0}}), {{0}})]"
    more = d.pick(["", ", is_causal=True", ", scale=0.7"])
    return f"keras.ops.dot_product_attention({parts}{more})"


_IS_ZERO, _IS_NOT = "keras.ops.equal(keras.ops.relu({0}), 0.0)", "keras.ops.not_equal(keras.ops.relu({0}), 0.0)"


def _chosen(d: Draw) -> str:
    # A constant condition has an axis of the batch, of 1, or is a row.
    constant = f"(np.arange({math.prod(d.shape)}).reshape((1, *{d.shape})) % 3 == 0)"
    condition = d.pick([_IS_ZERO, _IS_NOT, constant])
    return f"keras.ops.where({condition}, {d.pick(['2.0 * {0}', '0.4'])}, {d.pick(['keras.ops.tanh({0})', '{0}'])})"


def _one(name: str, *more: str) -> list[Maker]:
    return _of_one(f"keras.ops.{name}({{0}})", *(f"keras.ops.{name}({{0}}, {text})" for text in more))


def _text(code: Code, *reads: str, count: tuple[int, int] = (1, 1)) -> list[Maker]:
    return [Maker(kind, code, count, "text") for kind in reads or ("any",)]


#: Operations by class. `_ops._OPERATIONS` has the same keys.
OPS: dict[str, list[Maker]] = {
    "Absolute": _of_one("keras.ops.absolute({0})", "keras.ops.abs({0})"),
    "Add": _of_two("add", "+"),
    "Cast": _of_one(f'{{0}} * keras.ops.cast({_IS_ZERO}, "float32")'),
    "Clip": _of_one("keras.ops.clip({0}, -0.5, 0.8)"),
    "Concatenate": _text(lambda d: f"keras.ops.concatenate([{{0}}, {{1}}, keras.ops.tanh({{0}})], axis={_axis(d)})", count=(2, 2)),
    "ConvertToTensor": _one("convert_to_tensor"),
    "Copy": _one("copy"),
    "Divide": _text(lambda d: f"keras.ops.divide({{0}}, {_divisor(d)})"),
    "Dot": _text(lambda d: f"keras.ops.dot({{0}}, {_array(d.shape[-1], 3)})"),
    "DotProductAttention": _text(_attended, "sequence"),
    "Einsum": _text(_summed, "sequence") + _text(lambda d: 'keras.ops.einsum("bi,bj->bij", {0}, keras.ops.tanh({0}))', "row"),
    "Elu": _one("elu", "0.5"),
    "Equal": _of_one(f"{{0}} * keras.ops.where({_IS_ZERO}, 0.5, 1.5)"),
    "Exp": _of_one("keras.ops.exp(-keras.ops.square({0}))", "keras.ops.exp(0.3 * {0})"),
    "ExpandDims": _text(_expanded, "row", "sequence"),
    "Flip": _text(_along("flip")),
    "Gelu": _one("gelu", "approximate=False", "approximate=True"),
    "GetItem": _text(_item),
    "HardSigmoid": _one("hard_sigmoid"),
    "HardSilu": _one("hard_silu"),
    "LeakyRelu": _one("leaky_relu", "0.1"),
    "Log": _of_one("keras.ops.log(0.5 + keras.ops.square({0}))"),
    "LogicalNot": _of_one(f"keras.ops.where(keras.ops.logical_not({_IS_ZERO}), {{0}}, -0.2)"),
    "Matmul": _text(_multiplied, "sequence"),
    "Max": _text(_reduced("max")),
    "Maximum": _of_two("maximum"),
    "Mean": _text(_reduced("mean")),
    "Min": _text(_reduced("min")),
    "Minimum": _of_two("minimum"),
    "Moveaxis": _text(lambda d: f"keras.ops.moveaxis({{0}}, {_axis(d)}, {_axis(d)})"),
    "Multiply": _of_two("multiply", "*"),
    "Negative": _of_one("-{0}", "keras.ops.negative({0})"),
    "NotEqual": _of_one(f"{{0}} * keras.ops.where({_IS_NOT}, 0.5, 1.5)"),
    "Pad": _text(_padded),
    "Power": _of_one("{0} ** 2", "0.3 * {0} ** 3", "keras.ops.power({0}, 4) * 0.1", "(1.0 + keras.ops.abs({0})) ** -0.5", "(2.0 + {0} ** 2) ** -2"),
    "Reciprocal": _of_one("keras.ops.reciprocal(1.0 + keras.ops.square({0}))"),
    "Relu": _one("relu"),
    "Relu6": _one("relu6"),
    "Repeat": _text(lambda d: f"keras.ops.repeat({{0}}, {d.pick([2, 3])}, axis={_axis(d)})"),
    "Reshape": _text(_reshaped),
    "Rsqrt": _of_one("{0} * keras.ops.rsqrt(0.5 + keras.ops.square({0}))"),
    "Selu": _one("selu"),
    "Sigmoid": _one("sigmoid"),
    "Silu": _one("silu"),
    "Softmax": _text(_along("softmax")),
    "Softplus": _one("softplus"),
    "Softsign": _one("softsign"),
    "Split": _text(_split),
    "Sqrt": _of_one("keras.ops.sqrt(0.3 + keras.ops.square({0}))"),
    "Square": _one("square"),
    "Squeeze": _text(_squeezed, "sequence", "picture"),
    "Stack": _text(lambda d: f"keras.ops.stack([{{0}}, {{1}}], axis={_axis(d)})", "row", "sequence", count=(2, 2)),
    "Subtract": _of_two("subtract", "-"),
    "Sum": _text(_reduced("sum")),
    "Swapaxes": _text(lambda d: f"keras.ops.swapaxes({{0}}, {_axis(d)}, {_axis(d)})"),
    "Tanh": _one("tanh"),
    "Tile": _text(_tiled),
    "Transpose": _text(_permuted),
    "TrueDivide": [*_text(lambda d: f"{{0}} / {_divisor(d)}"), *_of_one("{0} / (1.0 + keras.ops.exp({0}))", "(1.0 - {0}) / (1.5 + keras.ops.abs({0}))")],
    "Var": _text(_reduced("var")),
    "Where": _text(_chosen),
}

_FAR = "keras.ops.mean(keras.ops.maximum({0} * (y - p), ({0} - 1.0) * (y - p)), axis=-1)"
#: Losses and metrics of one's own, which Keras computes on the outputs.
OWN_LOSSES: list[Loss] = [
    Loss(
        (
            "lambda y, p: keras.ops.mean(keras.ops.square(y - p) * (1.0 + keras.ops.abs(y)), axis=-1)",
            f"lambda y, p: {_FAR.format(0.3)}",
            "lambda y, p: keras.ops.sum(keras.ops.sqrt(1.0 + keras.ops.square(y - p)), axis=-1)",
        ),
        None,
        "real",
        ("lambda y, p: keras.ops.max(keras.ops.abs(y - p), axis=-1)", "keras.metrics.MeanSquaredError()"),
    ),
    Loss(("lambda y, p: -keras.ops.sum(y * keras.ops.log(p + 0.1), axis=-1)",), "softmax", "one_hot", ('"accuracy"',)),
    Loss(("keras.losses.Dice()", "keras.losses.Tversky()"), "sigmoid", "yes", ("keras.metrics.BinaryAccuracy()",)),
]
