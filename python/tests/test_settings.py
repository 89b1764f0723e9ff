"""Each setting of Keras is honoured, or refused by name: the signatures and configurations are Keras' own, so a new setting fails here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from manyhands_ml import ModelError, NonFiniteError, make_parallel
from manyhands_ml import _settings as settings
from manyhands_ml._layers import _IRRELEVANT, LAYERS
from manyhands_ml._objective import _PLAIN, FREE, LOSSES, METRICS, OPTIMIZERS
from manyhands_ml._parallel import ParallelModel

L, M, O = keras.losses, keras.metrics, keras.optimizers
Array = Any


def named(kind: type) -> dict[str, Any]:
    """Constructor arguments of a class with their defaults, those of the classes that it passes others on to included."""
    found: dict[str, Any] = {}
    for parent in kind.__mro__:
        if "__init__" not in vars(parent):
            continue
        parameters = inspect.signature(parent.__init__).parameters
        takes = {name: parameter for name, parameter in parameters.items() if parameter.kind is parameter.POSITIONAL_OR_KEYWORD}
        takes |= {name: parameter for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY}
        found = {**{name: parameter.default for name, parameter in takes.items() if name != "self"}, **found}
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            break
    return found


def test_each_argument_of_compile_and_each_setting_of_the_process_is_named() -> None:
    known = {*settings.COMPILE_READ, *settings.COMPILE_FREE, "weighted_metrics", "self"}
    assert known == set(inspect.signature(keras.Model.compile).parameters)
    read = {name for name in dir(keras.config) if not name.startswith(("_", "set_", "enable_", "disable_"))}
    assert read == {*settings.CONFIG_NEED, *settings.CONFIG_READ, *settings.CONFIG_FREE}


@pytest.mark.parametrize("method", "fit evaluate predict train_on_batch test_on_batch predict_on_batch".split())
def test_methods_have_the_arguments_of_keras(method: str) -> None:
    ours, theirs = (inspect.signature(getattr(kind, method)).parameters.values() for kind in (ParallelModel, keras.Model))
    plain = [(it.name, it.default) for it in theirs if it.kind is not it.VAR_KEYWORD]
    assert [(it.name, it.default) for it in ours] == plain


@pytest.mark.parametrize("name", LAYERS)
def test_each_setting_of_a_layer_is_named(name: str) -> None:
    """What a row does not name, a configuration brings, and `convert` refuses it; what no configuration brings is named here."""
    kind, row = getattr(layers, name, None), LAYERS[name]
    if kind is None:
        pytest.skip("a layer of `keras.applications` alone")
    known = {*row.take, *row.need, *row.looks_at, *_IRRELEVANT, *settings.OF_LAYERS, "activation", "data_format"}
    ends = ("_initializer", "_regularizer", "_constraint")
    assert [key for key in named(kind) if key not in known and not key.endswith(ends)] == []


@pytest.mark.parametrize("name", LOSSES)
def test_each_setting_of_a_loss_is_named(name: str) -> None:
    row = LOSSES[name]
    known = {*row.take, *row.need, *settings.OF_LOSSES, *(["from_logits"] if row.head else [])}
    assert {*named(getattr(L, name)), *getattr(L, name)().get_config()} - known == set()


@pytest.mark.parametrize("name", sorted({*METRICS, *(kind for row in LOSSES.values() for kind in row.metrics)}))
def test_each_setting_of_a_metric_is_named(name: str) -> None:
    row, own = METRICS.get(name), {"k", "from_sorted_ids"} if "TopK" in name else set()
    known = {*settings.OF_METRICS, *own, *((*row.take, *row.need) if row else ())}
    assert {*named(getattr(M, name)), *getattr(M, name)().get_config()} - known == set()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_setting_of_an_optimizer_is_named(name: str) -> None:
    known = {*OPTIMIZERS[name][0], *_PLAIN, *FREE, *settings.OF_OPTIMIZERS}
    kind = getattr(O, name)
    assert {*named(kind), *kind().get_config()} - known == set()


#: A value of each setting of the optimizers, which is not its default and changes the weights.
OTHER: dict[str, Any] = {
    "learning_rate": 0.02,
    "momentum": 0.7,
    "nesterov": True,
    "beta_1": 0.6,
    "beta_2": 0.8,
    "rho": 0.7,
    "epsilon": 1e-2,
    "centered": True,
    "initial_accumulator_value": 0.3,
    "learning_rate_power": -0.7,
    "l1_regularization_strength": 0.01,
    "l2_regularization_strength": 0.02,
    "l2_shrinkage_regularization_strength": 0.03,
    "beta": 0.4,
    "weight_decay": 0.3,
    "amsgrad": True,
    "beta_2_decay": -0.5,
    "epsilon_1": 1e-4,
    "epsilon_2": 0.1,
    "clip_threshold": 0.6,
    "adam_beta_1": 0.6,
    "adam_beta_2": 0.8,
    "adam_weight_decay": 0.2,
    "exclude_layers": ["dense_1"],
    "exclude_embeddings": False,
    "muon_a": 3.0,
    "muon_b": -4.0,
    "muon_c": 1.5,
    "adam_lr_ratio": 0.5,
    "ns_steps": 3,
    "rms_rate": 0.4,
    "clipnorm": 0.4,
    "use_ema": True,
    "ema_momentum": 0.5,
    "ema_overwrite_frequency": 2,
}


def _model() -> keras.Model:
    return keras.Sequential([keras.Input((6,)), layers.Dense(4, activation="tanh"), layers.Dense(3)])


def _data(rows: int = 16) -> tuple[Array, Array]:
    rng = np.random.default_rng(5)
    return rng.normal(size=(rows, 6)).astype("float32"), rng.normal(size=(rows, 3)).astype("float32")


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_settings_of_an_optimizer_are_honoured(name: str, pair: Callable[..., tuple[Any, Any]]) -> None:
    """All of them at once, each with a value that is not its default."""
    kind, (x, y) = getattr(O, name), _data()
    config = kind().get_config()
    others = {key: OTHER[key] for key in (*OPTIMIZERS[name][0], *OTHER) if key in config}
    if name == "Muon":
        # Its default is the other one.
        others["nesterov"] = False
    assert all(others[key] != config[key] for key in others)
    plain, ours = pair(_model)
    for model in (plain, ours):
        model.compile(kind(**others), "mse", jit_compile=False)
        model.fit(x, y, batch_size=4, epochs=1, shuffle=False, verbose=0)
    for found, needed in zip(ours.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(found, needed, rtol=2e-4, atol=2e-5)


class Own(L.MeanSquaredError):
    """A loss of a program, that has taken a name of Keras."""


Own.__name__ = "MeanSquaredError"


def mean_absolute_error(y_true: Any, y_pred: Any) -> Any:
    """A metric of a program, that has taken a name of Keras."""
    return keras.ops.mean(y_true * y_pred, axis=-1)


def _refused(model: Any, **compiled: Any) -> str:
    model.compile(**{"optimizer": "sgd", "loss": "mse", **compiled})
    with pytest.raises(ModelError) as error:
        make_parallel(model, "cpu").evaluate(*_data(), verbose=0)
    return str(error.value)


@pytest.mark.parametrize(
    ("compiled", "told"),
    [
        ({"optimizer": O.LossScaleOptimizer(O.Adam())}, "give the optimizer within it, and `precision` to `make_parallel`"),
        ({"optimizer": O.SGD(loss_scale_factor=2.0)}, "`loss_scale_factor` needs None, but is 2.0"),
    ],
)
def test_what_was_taken_for_another_is_refused(compiled: dict[str, Any], told: str) -> None:
    keras.utils.clear_session()
    keras.backend.clear_session()
    assert told in _refused(_model(), **compiled)


@pytest.mark.parametrize(
    ("compiled", "told"),
    [
        ({"loss": Own()}, r"loss of `dense_1`: `test_settings.MeanSquaredError`"),
        ({"metrics": [mean_absolute_error]}, "metric `mean_absolute_error` of `dense_1`"),
        ({"loss": L.MeanSquaredError(dtype="float16")}, 'loss of `dense_1`: `dtype` is "float16"'),
        ({"metrics": [M.MeanAbsoluteError(dtype="float16")]}, '`dtype` is "float16"'),
        ({"weighted_metrics": ["mae"]}, "`weighted_metrics`"),
        ({"metrics": [M.TopKCategoricalAccuracy(k=2)]}, "metric `top_k_categorical_accuracy` of `dense_1`"),
    ],
)
def test_what_was_taken_for_another_is_computed_by_keras(compiled: dict[str, Any], told: str) -> None:
    keras.utils.clear_session()
    keras.backend.clear_session()
    model = _model()
    model.compile(**{"optimizer": "sgd", "loss": "mse", **compiled})
    needed = model.evaluate(*_data(), verbose=0, return_dict=True)
    with pytest.warns(UserWarning, match=told):
        found = make_parallel(model, "cpu").evaluate(*_data(), verbose=0, return_dict=True)
    assert list(found) == list(needed)
    np.testing.assert_allclose(list(found.values()), list(needed.values()), rtol=1e-5)


def test_a_top_k_of_sorted_classes_is_computed_by_keras() -> None:
    model, (x, _) = _model(), _data()
    labels = np.arange(len(x)) % int(model.output_shape[-1])
    metric = M.SparseTopKCategoricalAccuracy(k=2, from_sorted_ids=True)
    model.compile("sgd", L.SparseCategoricalCrossentropy(from_logits=True), metrics=[metric])
    needed = model.evaluate(x, labels, verbose=0)
    with pytest.warns(UserWarning, match="`from_sorted_ids` is True"):
        found = make_parallel(model, "cpu").evaluate(x, labels, verbose=0)
    np.testing.assert_allclose(found, needed, rtol=1e-5)


def test_what_was_changed_after_a_layer_was_built_is_refused() -> None:
    model = _model()
    first, last = model.layers
    first.kernel_regularizer = keras.regularizers.L2(0.1)
    last.kernel.regularizer = keras.regularizers.L1(0.1)
    last.bias.constraint = keras.constraints.NonNeg()
    last.call = lambda x: x
    text = _refused(model)
    assert f"layer `{first.name}` (Dense): `kernel_regularizer` was set after the layer was built" in text
    assert f"layer `{last.name}` (Dense): `kernel.regularizer` was set on the variable" in text
    assert f"layer `{last.name}` (Dense): `bias.constraint` was set on the variable" in text
    assert f"layer `{last.name}` (Dense): has a `call` of its own" in text


def test_a_loss_that_is_infinite_in_keras_is_no_mismatch() -> None:
    model, (x, y) = _model(), _data()
    model.compile("sgd", "mse")
    with pytest.raises(NonFiniteError, match="the loss needs to be finite, but Keras, too, computes inf"):
        make_parallel(model, "cpu").fit(x, 1e30 * y, verbose=0)


def test_steps_of_a_models_own_are_refused() -> None:
    model = _model()
    model.compute_loss = lambda *args, **kwargs: 0.0
    assert f"model `{model.name}`: has a `compute_loss` of its own" in _refused(model)


def test_settings_of_the_process_are_honoured_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (x, y) = _model(), _data()
    model.compile("sgd", "mse")
    parallel = make_parallel(model, "cpu")
    try:
        keras.config.set_max_epochs(2)
        keras.config.set_max_steps_per_epoch(3)
        history = parallel.fit(x, y, batch_size=2, epochs=5, verbose=0)
        assert (history.epoch, int(model.optimizer.iterations)) == ([0, 1], 6)
    finally:
        keras.config.set_max_epochs(None)
        keras.config.set_max_steps_per_epoch(None)
    try:
        keras.config.set_epsilon(1e-3)
        assert "keras.config: `epsilon` needs 1e-07, but is 0.001" in _refused(_model())
    finally:
        keras.config.set_epsilon(1e-7)


class Told(keras.callbacks.Callback):
    """All that a callback is told, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []


def _hook(name: str) -> Any:
    def hook(self: Told, *args: Any, logs: Any = None) -> None:
        *first, logs = (*args, logs) if logs is not None or not args or not isinstance(args[-1], dict) else args
        self.calls.append((name, *first, sorted(logs or {})))
        getattr(keras.callbacks.Callback, name)(self, *first, logs=logs)

    return hook


for _name in [name for name in dir(keras.callbacks.Callback) if name.startswith("on_")]:
    setattr(Told, _name, _hook(_name))


def test_each_hook_of_a_callback_is_called_as_by_keras(pair: Callable[..., tuple[Any, Any]]) -> None:
    x, y = _data()
    told = []
    for model in pair(_model):
        model.compile("sgd", "mse")
        callback = Told()
        model.fit(x, y, batch_size=8, epochs=2, validation_data=(x, y), validation_freq=2, callbacks=[callback], verbose=0)
        model.evaluate(x, y, batch_size=8, callbacks=[callback], verbose=0)
        model.predict(x, batch_size=8, callbacks=[callback], verbose=0)
        told.append((callback.calls, callback.params))
    hooks = {name for name, *_ in told[0][0]}
    assert hooks >= {name for name in dir(keras.callbacks.Callback) if name.startswith("on_") and "_batch_" in name}
    assert told[1] == told[0]


#: Values of the arguments of `fit` that change what is trained, or what is told of it.
FIT: dict[str, dict[str, Any]] = {
    "batch_size": {"batch_size": 5},
    "epochs": {"epochs": 3},
    "validation_split": {"validation_split": 0.25},
    "validation_data": {"validation_data": _data(8)},
    "shuffle": {"shuffle": "batch", "batch_size": 4},
    "sample_weight": {"sample_weight": np.linspace(0, 2, 16)},
    "initial_epoch": {"initial_epoch": 1, "epochs": 3},
    "steps_per_epoch": {"steps_per_epoch": 2, "batch_size": 4},
    "validation_steps": {"validation_data": _data(8), "validation_steps": 1, "validation_batch_size": 3},
    "validation_batch_size": {"validation_data": _data(8), "validation_batch_size": 3},
    "validation_freq": {"validation_data": _data(8), "validation_freq": [2, 3], "epochs": 3},
}


def test_arguments_of_fit_are_honoured(pair: Callable[..., tuple[Any, Any]]) -> None:
    """`class_weight` has a test beside classes; `verbose` and `callbacks` change no number."""
    assert {*FIT, "self", "x", "y", "verbose", "callbacks", "class_weight"} == set(inspect.signature(keras.Model.fit).parameters)
    x, y = _data()
    plain, ours = pair(_model)
    for model in (plain, ours):
        model.compile("sgd", "mse", jit_compile=False)
    for name, arguments in FIT.items():
        histories = []
        for model in (plain, ours):
            np.random.seed(3)
            histories.append(model.fit(x, y, verbose=0, **{"shuffle": False, **arguments}))
        assert histories[1].epoch == histories[0].epoch, name
        assert list(histories[1].history) == list(histories[0].history), name
        for key, needed in histories[0].history.items():
            np.testing.assert_allclose(histories[1].history[key], needed, rtol=1e-4, atol=1e-6, err_msg=f"{name}: {key}")


#: Layers that each case of settings begins with: arguments that a layer needs, and the shape of a row.
PICTURE, STEPS, ROW = (6, 5, 4), (6, 4), (4,)
BASES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "Activation": ({"activation": "relu"}, ROW),
    "AveragePooling1D": ({}, STEPS),
    "AveragePooling2D": ({}, PICTURE),
    "BatchNormalization": ({}, PICTURE),
    "Conv1D": ({"filters": 4, "kernel_size": 3}, STEPS),
    "Conv2D": ({"filters": 4, "kernel_size": 3}, PICTURE),
    "Conv2DTranspose": ({"filters": 4, "kernel_size": 3}, PICTURE),
    "Cropping1D": ({}, STEPS),
    "Cropping2D": ({}, PICTURE),
    "Dense": ({"units": 3}, ROW),
    "DepthwiseConv2D": ({"kernel_size": 3}, PICTURE),
    "Dropout": ({"rate": 0.2}, ROW),
    "ELU": ({}, ROW),
    "Embedding": ({"input_dim": 5, "output_dim": 3}, ROW),
    "Flatten": ({}, PICTURE),
    "GRU": ({"units": 3}, STEPS),
    "GaussianDropout": ({"rate": 0.2}, ROW),
    "GaussianNoise": ({"stddev": 0.2}, ROW),
    "GlobalAveragePooling1D": ({}, STEPS),
    "GlobalAveragePooling2D": ({}, PICTURE),
    "GlobalMaxPooling1D": ({}, STEPS),
    "GlobalMaxPooling2D": ({}, PICTURE),
    "GroupNormalization": ({"groups": 2}, PICTURE),
    "Identity": ({}, ROW),
    "LSTM": ({"units": 3}, STEPS),
    "LayerNormalization": ({}, STEPS),
    "LeakyReLU": ({}, ROW),
    "Masking": ({}, STEPS),
    "MaxPooling1D": ({}, STEPS),
    "MaxPooling2D": ({}, PICTURE),
    "PReLU": ({}, STEPS),
    "Permute": ({"dims": (2, 1)}, STEPS),
    "RMSNormalization": ({}, STEPS),
    "ReLU": ({}, ROW),
    "RepeatVector": ({"n": 2}, ROW),
    "Rescaling": ({"scale": 2.0}, ROW),
    "Reshape": ({"target_shape": (2, 2)}, ROW),
    "ReversibleEmbedding": ({"input_dim": 5, "output_dim": 3}, ROW),
    "SeparableConv2D": ({"filters": 4, "kernel_size": 3}, PICTURE),
    "SimpleRNN": ({"units": 3}, STEPS),
    "Softmax": ({}, STEPS),
    "SpatialDropout1D": ({"rate": 0.2}, STEPS),
    "SpatialDropout2D": ({"rate": 0.2}, PICTURE),
    "UpSampling1D": ({}, STEPS),
    "UpSampling2D": ({}, PICTURE),
    "ZeroPadding1D": ({}, STEPS),
    "ZeroPadding2D": ({}, PICTURE),
}
#: Another value of each setting than its default, and for some layers one of their own.
VALUES: dict[str, Any] = {
    "activation": "softsign",
    "activity_regularizer": "l2",
    "alpha": 0.7,
    "axis": 1,
    "center": False,
    "cropping": 1,
    "data_format": "channels_first",
    "depth_multiplier": 2,
    "dilation_rate": 2,
    "dims": (1, 2),
    "dropout": 0.3,
    "dtype": "float16",
    "epsilon": 0.2,
    "filters": 8,
    "go_backwards": True,
    "groups": 4,
    "input_dim": 6,
    "interpolation": "bilinear",
    "keepdims": True,
    "kernel_size": 2,
    "logit_soft_cap": 2.0,
    "mask_value": 1.0,
    "mask_zero": True,
    "max_value": 0.5,
    "momentum": 0.4,
    "n": 3,
    "negative_slope": 0.4,
    "noise_shape": (None, 1),
    "offset": 0.5,
    "output_dim": 4,
    "output_padding": 1,
    "padding": "same",
    "pool_size": 3,
    "rate": 0.4,
    "recurrent_activation": "hard_sigmoid",
    "recurrent_dropout": 0.3,
    "renorm": True,
    "reset_after": False,
    "return_sequences": True,
    "return_state": True,
    "reverse_dtype": "float16",
    "rms_scaling": True,
    "scale": False,
    "seed": 3,
    "shared_axes": (1,),
    "size": 3,
    "stateful": True,
    "stddev": 0.4,
    "strides": 2,
    "synchronized": True,
    "target_shape": (4, 1),
    "threshold": 0.2,
    "tie_weights": False,
    "trainable": False,
    "unit_forget_bias": False,
    "units": 5,
    "unroll": True,
    "use_bias": False,
    "zero_output_for_mask": True,
}
OWN_VALUES: dict[tuple[str, str], Any] = {
    ("Rescaling", "scale"): 3.0,
    ("Conv2DTranspose", "output_padding"): 1,
    ("Flatten", "data_format"): "channels_first",
    ("ZeroPadding1D", "padding"): 2,
    ("ZeroPadding2D", "padding"): 2,
}
#: Arguments that no configuration has, or without a part in the result; beside these each has a value above.
NO_RESULT = {"name", "mean", "variance", "renorm_clipping", "renorm_momentum", "moving_mean_initializer", "batch_size", *settings.OF_LAYERS}


#: Layers of several inputs or outputs, or of other layers: `test_layers.py` and `test_refused.py` have their settings.
OTHERS = set(
    "Add Average Bidirectional Concatenate GroupQueryAttention Maximum Minimum MultiHeadAttention Multiply Normalization Subtract".split()
)


def test_each_layer_has_a_case() -> None:
    assert {name for name in LAYERS if hasattr(layers, name)} == {*BASES, *OTHERS}


@pytest.mark.parametrize("name", BASES)
def test_settings_of_a_layer_are_honoured_or_refused_by_name(name: str) -> None:
    """One after the other with another value: the prediction is Keras', or an error names the setting."""
    base, shape = BASES[name]
    kind = getattr(layers, name)
    x = np.random.default_rng(3).integers(0, 4, (2, *shape)).astype("float32") / (1 if name.endswith("Embedding") else 2)
    for setting in named(kind):
        given = OWN_VALUES.get((name, setting), VALUES.get(setting))
        if setting in NO_RESULT or setting.endswith("_initializer"):
            continue
        given = "l2" if setting.endswith("_regularizer") else "non_neg" if setting.endswith("_constraint") else given
        assert given is not None, f"{name}: `{setting}` needs a value here"
        try:
            layer = kind(**{**base, setting: given})
            model = keras.Sequential([keras.Input(shape), layer])
            needed = model(x)
        except (AttributeError, NotImplementedError, TypeError, ValueError):
            # A value that Keras does not take for this layer, or without others beside it.
            continue
        try:
            found = make_parallel(model, "cpu").predict(x, verbose=0)
        except ModelError as error:
            assert f"`{setting}" in str(error), f"{name}: {setting}: {error}"
            continue
        np.testing.assert_allclose(found, np.asarray(needed), rtol=2e-4, atol=2e-5, err_msg=f"{name}: {setting}")
