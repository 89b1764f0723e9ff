"""Does the guide's page "What runs, what does not" say what the package's tables say? `UPDATE=1` writes it again."""

from __future__ import annotations

import ast
import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import manyhands_ml
from manyhands_ml import ModelError, _objective, _ops, _settings
from manyhands_ml._layers import LAYERS
from manyhands_ml._objective import LOSSES, METRICS, OPTIMIZERS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide" / "what-runs.md"
PACKAGE = ROOT / "python" / "manyhands_ml"

#: Layers that nobody puts into a model as they are.
NO_LAYERS = {"FlaxLayer", "GRUCell", "InputLayer", "JaxLayer", "LSTMCell", "Layer", "SimpleRNNCell", "StackedRNNCells", "Wrapper"}
NO_LAYERS |= {"TFSMLayer", "TorchModuleWrapper"}
#: Layers that the table lacks, and that are read as the operations that they are made of.
MADE_OF_OPERATIONS = {
    *("AdditiveAttention", "Attention", "Cropping3D", "Dot", "EinsumDense", "GlobalAveragePooling3D", "GlobalMaxPooling3D"),
    *("Lambda", "TimeDistributed", "UpSampling3D", "ZeroPadding3D"),
}
#: Arguments of layers that need some, and what they read if that is not a row of 6 numbers.
SETTINGS: dict[str, Callable[[], dict[str, Any]]] = {
    "AlphaDropout": lambda: {"rate": 0.1},
    "Dot": lambda: {"axes": 1},
    "EinsumDense": lambda: {"equation": "ab,bc->ac", "output_shape": 4},
    "Lambda": lambda: {"function": lambda x: 2 * x},
    "RNN": lambda: {"cell": layers.LSTMCell(3)},
    "SpatialDropout3D": lambda: {"rate": 0.1},
    "SpectralNormalization": lambda: {"layer": layers.Dense(3)},
    "TimeDistributed": lambda: {"layer": layers.Dense(3)},
}
SEQUENCE = {"AdditiveAttention", "Attention", "RNN", "TimeDistributed"}
PAIRS = {"AdditiveAttention", "Attention", "Dot"}

#: The way out of a layer that is refused, by a pattern of names.
LAYER_WAYS = {
    "AlphaDropout": "`Dropout` or `GaussianDropout`",
    "Adaptive.*[12]D": "`AveragePooling` and `MaxPooling` with a size of your own, or `GlobalAveragePooling`",
    "(Separable|Depthwise)Conv1D": "`Reshape` to pictures one pixel high, and the layer for pictures",
    "Conv1DTranspose": "`UpSampling1D`, then `Conv1D`",
    "RNN": "`LSTM`, `GRU` or `SimpleRNN`",
    "ConvLSTM1D|ConvLSTM2D": "`TimeDistributed` of a convolution, then `LSTM`",
    "SpectralNormalization": "the layer without it, with a penalty such as `kernel_regularizer`",
    "UnitNormalization": "`RMSNormalization`: its rows of n numbers are √n times as long",
    "ActivityRegularization": "the argument `activity_regularizer` of the layer before it",
    ".*3D.*": "none: train it with Keras itself",
}
#: A callback that needs a package of its own, and is not compared with Keras'.
NO_CASES = {"OrbaxCheckpoint"}
#: The way out of an optimizer that is refused.
OPTIMIZER_WAYS = {
    "LossScaleOptimizer": '`make_parallel(model, precision="mixed_float16")` with the optimizer within it',
    "MultiOptimizer": "one optimizer, and `trainable = False` for layers that shall not change",
}
#: Modules of PyTorch that are refused, and the way out.
TORCH_WAYS = {
    "Conv3d": "none",
    "TransformerDecoder": "`TransformerEncoder` with a causal mask",
}


def _classes(module: Any, base: type) -> list[str]:
    """Classes that a module of Keras has under their own names."""
    return sorted(name for name, kind in vars(module).items() if inspect.isclass(kind) and issubclass(kind, base) and kind.__name__ == name)


def _prepares(name: str) -> bool:
    return getattr(layers, name).__module__.startswith("keras.src.layers.preprocessing.")


def _other_layers() -> list[str]:
    """Layers of Keras that the table lacks, and that are none of preprocessing."""
    names = _classes(layers, layers.Layer)
    return [name for name in names if name not in LAYERS and name not in NO_LAYERS and not _prepares(name)]


def _of_one_layer(name: str) -> Any:
    """A model with a layer, behind weights if these can stand before it."""
    rank = int(found.group(1)) if (found := re.search(r"(\d)D", name)) else 0
    shape: tuple[int, ...] = (4,) * rank + (3,) if rank else (4, 6) if name in SEQUENCE else (6,)
    shape = (2, *shape) if name.startswith("ConvLSTM") else shape
    settings = SETTINGS.get(name, dict)()
    if "Conv" in name:
        settings |= {"kernel_size": 2} if "Depthwise" in name else {"filters": 2, "kernel_size": 2}
    if name.startswith("Adaptive"):
        settings["output_size"] = 2
    elif re.fullmatch(r"(Average|Max)Pooling3D", name):
        settings["pool_size"] = 2
    inputs = keras.Input(shape)
    x = layers.Dense(shape[-1], activation="tanh")(inputs) if len(shape) < 3 else inputs
    made = getattr(layers, name)(**settings)([x, x] if name in PAIRS else x)
    return keras.Model(inputs, layers.Dense(2)(layers.Flatten()(made)))


def _ops_that_run() -> list[str]:
    """Names of operations in `keras.ops`, of those that the package writes as layers."""
    names = (re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind).lower() for kind in _ops._OPERATIONS)
    return sorted({name for name in names if hasattr(keras.ops, name)} - {"abs", "get_item", "true_divide"})


def _tables(folder: Path, table: str, without: str = "") -> set[str]:
    """Keys of a table that files of the package fill, read without importing what they need."""
    found: set[str] = set()
    for path in folder.rglob("*.py"):
        if path.name == without:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            found |= {_key(key) for key in _keys(node, table)}
    return found


def _keys(node: ast.AST, table: str) -> Iterator[Any]:
    """Keys that a statement gives to a table."""

    def is_it(part: ast.AST) -> bool:
        return isinstance(part, ast.Name) and part.id == table

    value: Any = None
    if isinstance(node, ast.AnnAssign) and is_it(node.target) or isinstance(node, ast.AugAssign) and is_it(node.target):
        value = node.value
    elif isinstance(node, ast.Assign) and is_it(node.targets[0]):
        value = node.value
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript) and is_it(node.targets[0].value):
        yield node.targets[0].slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update" and is_it(node.func.value):
        value = node.args[0]
    if isinstance(value, ast.Dict):
        yield from value.keys


def _key(key: Any) -> str:
    return str(key.value) if isinstance(key, ast.Constant) else str(key.attr)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names, key=str.lower))


def _ways(refused: Iterable[tuple[str, str]]) -> str:
    """Rows of a table: all names that have one way out, and that way."""
    by_way: dict[str, list[str]] = {}
    for name, way in refused:
        by_way.setdefault(way, []).append(name)
    return "\n".join(f"| {_listed(names)} | {way} |" for way, names in by_way.items())


def _way_of_layer(name: str) -> str:
    for pattern, way in LAYER_WAYS.items():
        if re.fullmatch(pattern, name):
            return way
    raise AssertionError(f"`{name}` of Keras is refused: give its way out in LAYER_WAYS")


def _of_keras() -> str:
    """The half of the page that is about Keras."""
    front = [name for name in _classes(layers, layers.Layer) if _prepares(name) and name not in LAYERS]
    refused = [(name, _way_of_layer(name)) for name in _other_layers() if name not in MADE_OF_OPERATIONS]
    lacking = [(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind).lower(), text.partition(": ")[2]) for kind, text in _ops._LACKING.items()]
    losses, metrics = _classes(keras.losses, keras.losses.Loss), _classes(keras.metrics, keras.metrics.Metric)
    of_losses = {name for row in LOSSES.values() for name in row.metrics}
    optimizers = _classes(keras.optimizers, keras.optimizers.Optimizer)
    no_optimizers = [(name, OPTIMIZER_WAYS.get(name, "`AdamW`")) for name in optimizers if name not in OPTIMIZERS and name != "Optimizer"]
    callbacks = set(_classes(keras.callbacks, keras.callbacks.Callback)) - NO_CASES
    callbacks -= {"Callback", "CallbackList", "History", "ProgbarLogger"}
    fits = list(inspect.signature(manyhands_ml.ParallelModel.fit).parameters)[1:]
    no_metrics = {"Metric", "Mean", "Sum", "MeanMetricWrapper", *METRICS, *of_losses}
    return f"""## Keras

### Layers

On the adapters: {_listed(name for name in LAYERS)}.

Also on the adapters, as the operations that they are made of: {_listed(MADE_OF_OPERATIONS)}, models within models, [models of KerasHub](../../python/README.md), and layers of
your own.

In front of the first layer with weights, computed by Keras on each batch: {_listed(front)}. Some of them need TensorFlow.

| refused | way out |
| --- | --- |
{_ways(refused)}
| `constraint` of a weight | a penalty (`kernel_regularizer`), or `clipnorm` of the optimizer |
| `stateful=True` | give the whole sequence at once |
| `return_state=True`, `initial_state` of `Bidirectional` | two layers, one with `go_backwards=True`, and `Concatenate` |
| a mask of `Embedding(mask_zero=True)` behind most other layers | the message names the layer: `mask_zero=False`, or another layer |
| `data_format="channels_first"` | channels last |
| a `dtype` other than `float32` | `make_parallel(model, precision="mixed_float16")` |

### Operations

Of `keras.ops`: {_listed(_ops_that_run())}. Also `+`, `-`, `*`, `/`, powers 2 to 4, 1/2 and -1 to -4, places and slices (`x[:, 0]`), and
`Embedding` at places that are known (`ops.arange(length)`).

| refused | way out |
| --- | --- |
{_ways(lacking)}
| other operations | a layer that does it; the message names the line |
| values that decide what is computed, `add_loss`, variables that `call` changes | a loss of your own in `compile`, which sees outputs and targets: what else it needs becomes an output |
| `layer(x, training=True)` in code of your own, of a layer that is random in training | none: `predict` would be random |
| a layer called both with `training=False` and without it | the same `training` in each call |
| `train_step`, `test_step`, `compute_loss` of your own | a loss and metrics of your own in `compile` |
| `fit`, `evaluate`, `predict` and the methods on batches of your own | a function that calls those of the model |

### Losses and metrics

Losses on the adapters: {_listed(LOSSES)}. Computed by Keras, which costs a second forward pass: {_listed(set(losses) - set(LOSSES) - {"Loss"})},
and losses of your own.

Metrics on the adapters: {_listed({*METRICS, *of_losses})}. Computed by Keras: {_listed(set(metrics) - no_metrics)}, and metrics of your own.

| refused | way out |
| --- | --- |
| what Keras computes, behind a mask | a loss from the first list, or no mask |
| what Keras computes, with layers in stages | a loss from the first list, or no stages |

### Optimizers

{_listed(OPTIMIZERS)}, with every schedule, `clipnorm`, `clipvalue`, `global_clipnorm`, `weight_decay`,
`gradient_accumulation_steps` and `use_ema`.

| refused | way out |
| --- | --- |
{_ways(no_optimizers)}
{_settings_of_optimizers()}

### `compile`, `fit`, callbacks

- `compile` reads {_listed([*_settings.COMPILE_READ, "weighted_metrics"])}. {_listed(_settings.COMPILE_FREE)} change nothing.
- `fit` takes all arguments of Keras: {_listed(fits)}. So do `evaluate`, `predict` and the methods on batches.
- Callbacks of Keras and your own are called as in Keras. Tests compare {_listed(callbacks)}."""


def _settings_of_optimizers() -> str:
    return "\n".join(f"| `{key}` other than `{value}` | leave it out |" for key, value in _objective._PLAIN.items())


def _of_torch() -> str:
    """The half of the page that is about PyTorch."""
    folder = PACKAGE / "torch"
    modules = _tables(folder, "MODULES") - {"NonDynamicallyQuantizableLinear"}
    tables = ("FUNCTIONS", "AS_MODULES", "OF_TWO", "_TABLE")
    functions = set[str]().union(*(_tables(folder, table, without="_objective.py") for table in tables))
    # Operators, and names that `torch.export` alone writes.
    functions -= {"alias", "getitem", "iadd", "imul", "invert", "isub", "split_with_sizes", "truediv", "linalg_vector_norm", "log_sigmoid"}
    functions -= {name for name in functions if name.startswith("upsample_")}
    functions -= {f"{kind}_pad{rank}d" for kind in ("reflection", "replication") for rank in (1, 2)}
    functions -= {name for name in functions if name.startswith("_") or name.endswith("_")}
    assert not modules & set(TORCH_WAYS), "a module that runs has a way out in TORCH_WAYS"
    return f"""## PyTorch

- Modules: {_listed(modules)}.
- Functions and methods: {_listed(functions)}; `+`, `-`, `*`, `/` by a number, places and slices.
- Attention that `forward` writes out: the product of queries and keys, also by `einsum`, a scale, numbers beside the scores, `masked_fill`, `where` or a sum by a buffer that hides later keys, `masked_fill` by keys of padding, `softmax`, dropout, the product with values; also within windows of a picture, as in Swin. Other products of two tensors are refused.
- Random numbers, drawn `if self.training`: dropout, `drop_path` as in timm and torchvision, and `randn_like`, `randn` or `normal_` as noise on a tensor or as its factor, as in variational autoencoders.
- Losses on the adapters: {_listed(_tables(folder, "LOSSES"))}. PyTorch computes others, also functions of your own.
- Optimizers: {_listed(_tables(folder, "OPTIMIZERS"))}.

| refused | way out |
| --- | --- |
{_ways(TORCH_WAYS.items())}
| hooks, parametrizations | remove them |
| code that decides by values, or that `torch.fx` and `torch.export` can't read | a module that does without |
| a loss of `torch.nn` for several outputs | a function of what `forward` returns and targets, with a term for each |"""


def _page() -> str:
    return f"""# What runs, what does not

The lists come from the package itself; a test keeps them so. Whatever is refused is refused before the first step, in one message that
names each place and a way out. Nothing is computed in another way than Keras or PyTorch would: the first batch goes through both.
[What differs](../../python/README.md#what-differs-from-keras) tells of random numbers and rounding.

{_of_keras()}

{_of_torch()}
"""


def test_the_page_says_what_the_tables_say() -> None:
    page = _page()
    if os.environ.get("UPDATE") == "1":
        PAGE.write_text(page)
    assert PAGE.read_text() == page, "the page is old: UPDATE=1 writes it again"


def test_every_callback_of_keras_has_an_everyday_case() -> None:
    cases = "".join(path.read_text() for path in Path(__file__).parent.glob("everyday_*.py"))
    missing = {name for name in _classes(keras.callbacks, keras.callbacks.Callback) if f"{name}(" not in cases}
    assert missing == NO_CASES


@pytest.mark.parametrize("module", [manyhands_ml, manyhands_ml.make_parallel, manyhands_ml.ParallelModel])
def test_help_points_to_the_page(module: Any) -> None:
    assert "docs/guide/what-runs.md" in (module.__doc__ or "")


@pytest.mark.slow
@pytest.mark.parametrize("name", _other_layers())
def test_other_layers_are_trained_as_in_keras_or_refused(name: str, rng: np.random.Generator) -> None:
    plain = _of_one_layer(name)
    ours = manyhands_ml.make_parallel(_of_one_layer(name), "cpu,cpu,cpu")
    ours.set_weights(plain.get_weights())
    if name not in MADE_OF_OPERATIONS:
        # By its name, or by the operation of it that is lacking.
        with pytest.raises(ModelError, match=rf"\({name}\)|operation `{ours.layers[-3].name}\."):
            ours.predict(np.zeros((1, *plain.inputs[0].shape[1:])), verbose=0)
        return
    x = rng.normal(size=(40, *plain.inputs[0].shape[1:])).astype("float32")
    y, told = rng.normal(size=(40, 2)).astype("float32"), []
    for model in (plain, ours):
        model.compile(keras.optimizers.SGD(0.05), "mse")
        losses: list[float] = []
        see = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs, kept=losses: kept.append(logs["loss"]))
        model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0, callbacks=[see])
        told.append(losses)
    assert len(told[0]) == 10
    np.testing.assert_allclose(told[1], told[0], rtol=1e-5)
