"""Losses and metrics that the engine lacks are computed by Keras on the outputs of the adapters: the same numbers as in Keras alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from conftest import three_or_slow
from keras import layers, ops

from manyhands_ml import DataError, ModelError, SettingError, make_parallel

L, M = keras.losses, keras.metrics
ROWS, BATCH = 40, 8

pytestmark = pytest.mark.filterwarnings("ignore:Keras computes loss and metrics")


def _weighted_squares(y: Any, p: Any) -> Any:
    """Squares that count more where targets are large."""
    return ops.mean(ops.square(y - p) * (1.0 + ops.abs(y)), axis=-1)


class _Pinball(L.Loss):
    """The loss of quantiles, with a setting of its own."""

    def __init__(self, quantile: float) -> None:
        super().__init__(name="pinball")
        self.quantile = quantile

    def call(self, y: Any, p: Any) -> Any:
        return ops.mean(ops.maximum(self.quantile * (y - p), (self.quantile - 1.0) * (y - p)), axis=-1)


def _largest_error(y: Any, p: Any) -> Any:
    return ops.max(ops.abs(y - p), axis=-1)


class _Count(M.Metric):
    """A metric with a state of its own: the share of outputs above 0."""

    def __init__(self, name: str = "above") -> None:
        super().__init__(name=name)
        self.above, self.all = (self.add_weight(name=name, initializer="zeros") for name in ("above", "all"))

    def update_state(self, y: Any, p: Any, sample_weight: Any = None) -> None:
        self.above.assign_add(ops.sum(ops.cast(p > 0, "float32")))
        self.all.assign_add(ops.cast(ops.size(p), "float32"))

    def result(self) -> Any:
        return self.above / self.all


def _net(units: int = 3, activation: str | None = None) -> Any:
    return keras.Sequential(
        [keras.Input((6,)), layers.Dense(8, activation="tanh", kernel_regularizer="l2"), layers.Dense(units, activation=activation)]
    )


def _sequences() -> Any:
    return keras.Sequential([keras.Input((5, 4)), layers.LSTM(6, return_sequences=True), layers.Dense(2, activation="softmax")])


def _two() -> Any:
    inputs = keras.Input((6,))
    x = layers.Dense(8, activation="tanh", activity_regularizer="l2")(inputs)
    return keras.Model(inputs, {"a": layers.Dense(3, name="a")(x), "b": layers.Dense(1, name="b")(x)})


def _numbers(rng: np.random.Generator) -> Any:
    return rng.normal(size=(ROWS, 3)).astype("float32")


def _yes(rng: np.random.Generator) -> Any:
    return rng.integers(0, 2, (ROWS, 3)).astype("float32")


def _both(rng: np.random.Generator) -> Any:
    return {"a": _numbers(rng), "b": rng.normal(size=(ROWS, 1)).astype("float32")}


Case = tuple[Callable[[], Any], Callable[[], dict[str, Any]], Callable[[np.random.Generator], Any], tuple[int, ...]]

#: What `compile` gets: a model, arguments, targets, and the shape of a row of inputs.
CASES: dict[str, Case] = {
    "a function": (_net, lambda: {"loss": _weighted_squares}, _numbers, (6,)),
    "a class": (_net, lambda: {"loss": _Pinball(0.3), "metrics": ["mae"]}, _numbers, (6,)),
    "Keras' Dice": (lambda: _net(3, "sigmoid"), lambda: {"loss": L.Dice()}, _yes, (6,)),
    "Keras' Tversky": (lambda: _net(3, "sigmoid"), lambda: {"loss": "tversky"}, _yes, (6,)),
    "a setting": (
        lambda: _net(3, "softmax"),
        lambda: {"loss": L.SparseCategoricalCrossentropy(ignore_class=1), "metrics": ["accuracy"]},
        lambda rng: rng.integers(0, 3, ROWS),
        (6,),
    ),
    "a factor for each class": (
        lambda: _net(3, "softmax"),
        lambda: {"loss": L.CategoricalFocalCrossentropy(alpha=[0.2, 0.3, 0.5])},
        lambda rng: np.eye(3, dtype="float32")[rng.integers(0, 3, ROWS)],
        (6,),
    ),
    "a metric": (_net, lambda: {"loss": "mse", "metrics": [_largest_error, _Count(), "mae"]}, _numbers, (6,)),
    "a metric of Keras": (
        lambda: _net(3, "softmax"),
        lambda: {
            "loss": "sparse_categorical_crossentropy",
            "metrics": ["accuracy", "sparse_categorical_crossentropy", M.MeanIoU(3, sparse_y_pred=False, name="iou")],
        },
        lambda rng: rng.integers(0, 3, ROWS),
        (6,),
    ),
    "weighted metrics": (_net, lambda: {"loss": "mse", "weighted_metrics": ["mae"]}, _numbers, (6,)),
    "two outputs": (
        _two,
        lambda: {"loss": {"a": _weighted_squares, "b": "mse"}, "loss_weights": {"a": 1.0, "b": 0.5}, "metrics": {"b": [_largest_error]}},
        _both,
        (6,),
    ),
    "two reductions": (_two, lambda: {"loss": {"a": L.MeanSquaredError("sum"), "b": L.MeanSquaredError()}}, _both, (6,)),
}


def _equal(found: dict[str, Any], needed: dict[str, Any]) -> None:
    assert list(found) == list(needed)
    for name, value in needed.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5, err_msg=name)


def _steps(model: Any, x: Any, y: Any, **more: Any) -> tuple[list[Any], Any]:
    """Logs after each of 10 steps, and those of two epochs with validation."""
    seen: list[dict[str, float]] = []
    see = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(dict(logs)))
    history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0, callbacks=[see], validation_data=(x[:9], _part(y)), **more)
    return seen, history.history


def _part(y: Any) -> Any:
    return keras.tree.map_structure(lambda part: part[:9], y)


def _told(name: str, rig: str | None = None) -> Any:
    """Logs, weights and batches of a case on adapters; without any, in Keras."""
    build, arguments, targets, shape = CASES[name]
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(ROWS, *shape)).astype("float32"), targets(rng)
    weights = {"sample_weight": rng.uniform(0.5, 2, ROWS).astype("float32")} if name == "weighted metrics" else {}
    keras.utils.set_random_seed(7)
    model = build() if rig is None else make_parallel(build(), rig)
    model.compile(keras.optimizers.Adam(0.01), **arguments())
    seen, history = _steps(model, x, y, **weights)
    told = (seen, history, model.evaluate(x, y, batch_size=BATCH, verbose=0, return_dict=True), model.get_weights())
    on_batches = model.train_on_batch(x[:9], _part(y), return_dict=True), model.test_on_batch(x[:9], _part(y), return_dict=True)
    return *told, *on_batches, {metric: float(value) for metric, value in model.get_metrics_result().items()}


@functools.cache
def _by_keras(name: str) -> Any:
    """What Keras does with a case, once for all rigs."""
    return _told(name)


@pytest.mark.parametrize("name", CASES)
def test_ten_steps_are_those_of_keras(name: str, rig: str) -> None:
    (seen, history, evaluated, weights, trained, tested, result), ours = _by_keras(name), _told(name, rig)
    assert len(seen) == len(ours[0]) == 10
    for found, needed in zip(ours[0], seen, strict=True):
        _equal(found, needed)
    _equal(ours[1], history)
    _equal(ours[2], evaluated)
    for value, wanted in zip(ours[3], weights, strict=True):
        np.testing.assert_allclose(value, wanted, atol=2e-5)
    _equal(ours[4], trained)
    _equal(ours[5], tested)
    # In the order of Keras' metrics, in which no logs are.
    _equal(ours[6], result)


@pytest.mark.parametrize("adapters", three_or_slow())
def test_weights_of_positions_are_those_of_keras(adapters: str, pair: Callable[..., tuple[Any, Any]], rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(ROWS, 5, 4)).astype("float32"), rng.integers(0, 2, (ROWS, 5))
    weights = rng.uniform(0, 2, (ROWS, 5)).astype("float32")
    plain, ours = pair(_sequences, adapters)
    told: list[Any] = []
    for model in (plain, ours):
        model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
        told.append(_steps(model, x, y, sample_weight=weights))
        told[-1] += (model.evaluate(x, y, sample_weight=weights, verbose=0),)
    for found, needed in zip(told[1][0], told[0][0], strict=True):
        _equal(found, needed)
    np.testing.assert_allclose(told[1][2], told[0][2], rtol=1e-5)
    # Without them the engine computes the loss, and Keras once they come.
    model = make_parallel(_sequences(), "cpu")
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(x, y, verbose=0)
    assert model._engine.by_keras is None
    model.fit(x, y, sample_weight=weights, verbose=0)
    assert model._engine.by_keras is not None


@pytest.mark.parametrize("places", [(0,), (1,), (0, 1)])
def test_weights_of_outputs_are_those_of_keras(places: tuple[int, ...], pair: Callable[..., tuple[Any, Any]], rng: np.random.Generator) -> None:
    """`None` is no weight of this output: it is not that of another one."""

    def build() -> Any:
        inputs = keras.Input((6,))
        return keras.Model(inputs, [layers.Dense(3, name="a")(inputs), layers.Dense(1, name="b")(inputs)])

    x, y = rng.normal(size=(ROWS, 6)).astype("float32"), list(_both(rng).values())
    given = [rng.uniform(0, 2, ROWS).astype("float32") if place in places else None for place in range(2)]
    told: list[Any] = []
    for model in pair(build):
        model.compile(keras.optimizers.Adam(0.01), "mse")
        told.append([model.fit(x, y, validation_data=(x, y, given), shuffle=False, verbose=0).history])
        told[-1].append(model.fit(x, y, sample_weight=given, shuffle=False, verbose=0).history)
        told[-1].append(model.evaluate(x, y, sample_weight=given, verbose=0, return_dict=True))
        told[-1].append(model.train_on_batch(x, y, sample_weight=given, return_dict=True))
    for found, needed in zip(told[1], told[0], strict=True):
        _equal(found, needed)


def test_weights_of_outputs_that_come_later_are_refused(rng: np.random.Generator) -> None:
    """From a generator, behind a step whose loss was that of the adapters."""
    x, y, weights = rng.normal(size=(ROWS, 6)).astype("float32"), _both(rng), np.ones(ROWS, "float32")
    model = make_parallel(_two(), "cpu")
    model.compile("sgd", "mse")
    model.fit(x, y, verbose=0)
    with pytest.raises(DataError, match="`sample_weight` needs to be the same for all outputs, because those of the first batch were"):
        model.fit(((x, y, {"a": weights, "b": None}) for _ in range(2)), steps_per_epoch=1, verbose=0)


def test_dropout_and_batch_statistics_are_those_of_a_loss_of_the_engine(pair: Callable[..., tuple[Any, Any]], rng: np.random.Generator) -> None:
    """The outputs that Keras sees are those of the step: drawn once, and with the statistics of the same rows."""

    def build() -> Any:
        return keras.Sequential(
            [
                *(keras.Input((6,)), layers.Dense(32), layers.BatchNormalization(momentum=0.8), layers.Dropout(0.4)),
                *(layers.Dense(16, activation="relu"), layers.GaussianNoise(0.1), layers.Dense(3)),
            ]
        )

    def squares(y: Any, p: Any) -> Any:
        return ops.mean(ops.square(y - p), axis=-1)

    x, y = rng.normal(size=(120, 6)).astype("float32"), rng.normal(size=(120, 3)).astype("float32")
    for statistics in ("shard", "batch"):
        for adapters in ("cpu", "cpu,cpu,cpu"):
            first, second = (pair(build, adapters, seed=5, split="even", batch_statistics=statistics)[1] for _ in range(2))
            told = []
            for model, loss in ((first, "mse"), (second, squares)):
                model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss)
                model.fit(x, y, batch_size=60, epochs=5, shuffle=False, verbose=0)
                told.append((model.history.history["loss"], model.get_weights()))
            np.testing.assert_allclose(told[1][0], told[0][0], rtol=1e-5)
            for found, needed in zip(told[1][1], told[0][1], strict=True):
                np.testing.assert_allclose(found, needed, atol=1e-5)


def test_what_it_costs_is_said_once(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(ROWS, 6)).astype("float32"), _numbers(rng)
    model = make_parallel(_net(), "cpu")
    model.compile("sgd", _weighted_squares)
    with pytest.warns(UserWarning, match=r"Keras computes loss and metrics of .* itself:\n    loss of `dense.*_weighted_squares`") as told:
        model.fit(x, y, epochs=2, verbose=0)
        model.fit(x, y, verbose=0)
    ours = [it for it in told if str(it.message).startswith("Keras computes")]
    assert [it.filename for it in ours] == [__file__] and "a second forward pass" in str(ours[0].message)


def test_what_keras_can_not_compute_for_the_engine_is_refused(rng: np.random.Generator) -> None:
    masked = keras.Sequential(
        [keras.Input((5,)), layers.Embedding(9, 4, mask_zero=True), layers.LSTM(6, return_sequences=True), layers.Dense(3)]
    )
    model = make_parallel(masked, "cpu")
    model.compile("sgd", _weighted_squares)
    with pytest.raises(ModelError, match=r"`.*_weighted_squares`: is not supported for the output `dense.*`, which has a mask"):
        model.fit(np.ones((4, 5)), np.ones((4, 5, 3)), verbose=0)
    net = _net()
    names = [layer.name for layer in net.layers]
    stages: Any = [{"layers": [names[0]], "adapters": [0]}, {"layers": [names[1]], "adapters": [1]}]
    staged = make_parallel(net, "cpu,cpu", placement=stages)
    staged.compile("sgd", _weighted_squares)
    with pytest.raises(SettingError, match="can't be computed outside of the adapters while the layers are placed in stages"):
        staged.fit(rng.normal(size=(ROWS, 6)), _numbers(rng), verbose=0)


def _through(is_trained: bool) -> tuple[Any, Any]:
    """A net, and a layer of it that a loss may call."""
    first = layers.Dense(6, activation="tanh", trainable=is_trained)
    return keras.Sequential([keras.Input((6,)), first, layers.Dense(6)]), first


#: What `compile` gets of a layer with weights, and what the message names.
READS_WEIGHTS: dict[str, tuple[Callable[[Any], dict[str, Any]], str]] = {
    "a weight": (lambda layer: {"loss": lambda y, p: ops.mean(ops.square(y - p)) + ops.sum(ops.square(layer.kernel))}, "the loss"),
    "a layer": (lambda layer: {"loss": lambda y, p: ops.mean(ops.square(layer(y) - layer(p)))}, "the loss"),
    "a weight without its gradient": (lambda layer: {"loss": lambda y, p: ops.mean(ops.square(y - p) * ops.stop_gradient(layer.bias))}, "the loss"),
    "a metric": (lambda layer: {"loss": "mse", "metrics": [lambda y, p: ops.sum(ops.square(layer.kernel))]}, "a metric"),
}


@pytest.mark.parametrize("name", READS_WEIGHTS)
def test_a_loss_that_reads_what_is_trained_is_refused(name: str, rng: np.random.Generator) -> None:
    arguments, who = READS_WEIGHTS[name]
    x = rng.normal(size=(ROWS, 6)).astype("float32")
    net, layer = _through(True)
    model = make_parallel(net, "cpu")
    model.compile("sgd", **arguments(layer))
    for run in (model.fit, model.evaluate):
        with pytest.raises(ModelError, match=f"{who} in `compile` needs outputs and targets alone, but reads the weight `.*{layer.name}/"):
            run(x, x, verbose=0)


def test_a_loss_that_reads_what_is_frozen_is_that_of_keras(rng: np.random.Generator) -> None:
    """As a loss by a network of features; weights that a program sets later are read anew."""
    x, told = rng.normal(size=(ROWS, 6)).astype("float32"), []
    for adapters in (None, "cpu"):
        keras.utils.set_random_seed(7)
        net, layer = _through(False)
        model: Any = net if adapters is None else make_parallel(net, adapters)
        model.compile("sgd", READS_WEIGHTS["a layer"][0](layer)["loss"])
        told.append([*_steps(model, x, x)[0]])
        layer.set_weights([2 * value for value in layer.get_weights()])
        told[-1] += [*_steps(model, x, x)[0], {"loss": model.evaluate(x, x, verbose=0)}]
    for found, needed in zip(told[1], told[0], strict=True):
        _equal(found, needed)


def test_a_loss_gets_tensors(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(ROWS, 6)).astype("float32"), _numbers(rng)
    kinds: set[bool] = set()

    def seen(y: Any, p: Any) -> Any:
        kinds.add(isinstance(y, np.ndarray))
        return ops.mean(ops.square(y - p))

    model = make_parallel(_net(), "cpu")
    model.compile("sgd", seen, metrics=[seen])
    model.fit(x, y, verbose=0)
    assert kinds == {False}
