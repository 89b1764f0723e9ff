"""Everyday cases: arguments of `fit`, `evaluate` and `predict`, methods on batches, losses and metrics, several outputs."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from everyday import Cases, Scene
from keras import layers

CASES = Cases()
case, each = CASES.one, CASES.each
M = keras.metrics


@case
def plain_fit(s: Scene) -> Any:
    return s.fit(), s.evaluate(), s.predict()


@case
def history_of_the_model(s: Scene) -> Any:
    s.fit()
    return s.model.history.history, s.model.history.epoch, s.model.history.params["epochs"]


@case
def initial_epoch(s: Scene) -> Any:
    return s.fit(epochs=2), s.fit(initial_epoch=2, epochs=5), s.model.history.epoch


@case
def fit_twice(s: Scene) -> Any:
    return s.fit(), s.fit()


@each(0, 1)
def epochs(s: Scene, count: int) -> Any:
    return s.fit(epochs=count), s.evaluate()


@each(1, 7, 22, 50, None)
def batch_size(s: Scene, size: Any) -> Any:
    return s.fit(batch_size=size, epochs=1), s.predict()


@each(True, False, "batch")
def shuffle(s: Scene, how: Any) -> Any:
    # While it builds the model, Keras draws an order that it doesn't use.
    return s.fit(shuffle=how), s.fit(shuffle=how)


@each(0, 1, 2, "auto")
def verbose(s: Scene, how: Any) -> Any:
    return s.validated(verbose=how), s.evaluate(verbose=how), s.predict(verbose=how)


@case
def one_row(s: Scene) -> Any:
    return s.fit(x=s.x[:1], y=s.y[:1]), s.model.evaluate(s.x[:1], s.y[:1], verbose=0), s.model.predict(s.x[:1], verbose=0)


@case
def fit_of_no_rows(s: Scene) -> Any:
    return s.fit(x=s.x[:0], y=s.y[:0])


@case
def evaluate_of_no_rows(s: Scene) -> Any:
    return s.model.evaluate(s.x[:0], s.y[:0], verbose=0)


@case
def predict_of_no_rows(s: Scene) -> Any:
    return s.model.predict(s.x[:0], verbose=0)


@case
def steps_per_epoch_of_arrays(s: Scene) -> Any:
    return s.fit(steps_per_epoch=2)


@case
def steps_per_epoch_beyond_the_data(s: Scene) -> Any:
    return s.fit(steps_per_epoch=5, epochs=1)


@each(0.25, 0.5)
def validation_split(s: Scene, part: float) -> Any:
    return s.fit(validation_split=part)


@case
def validation_split_with_weights(s: Scene) -> Any:
    return s.fit(validation_split=0.3, sample_weight=np.linspace(0, 1, 22))


@case
def validation_data_as_a_list(s: Scene) -> Any:
    return s.fit(validation_data=list(s.held_out))


@case
def validation_data_with_weights(s: Scene) -> Any:
    return s.fit(validation_data=(*s.held_out, np.linspace(0, 2, 9)))


@case
def validation_data_of_a_generator(s: Scene) -> Any:
    return s.fit(validation_data=(batch for batch in s.batches() * 9), validation_steps=2)


@each(2, [1, 3])
def validation_freq(s: Scene, freq: Any) -> Any:
    return s.validated(validation_freq=freq, epochs=4)


@case
def validation_steps_and_batch_size(s: Scene) -> Any:
    return s.validated(validation_steps=2, validation_batch_size=4)


@case
def class_weight(s: Scene) -> Any:
    return s.fit(class_weight={0: 0.5, 1: 2.0, 2: 1.0})


@case
def class_weight_without_a_class(s: Scene) -> Any:
    return s.fit(class_weight={1: 2.0})


@case
def class_weight_of_one_hot_targets(s: Scene) -> Any:
    s.compile(loss="categorical_crossentropy")
    return s.fit(y=np.eye(3)[s.y], class_weight={0: 0.5, 1: 2.0, 2: 1.0})


@each("row", "column")
def sample_weight(s: Scene, shape: str) -> Any:
    weights = np.linspace(0, 2, 22)
    return s.fit(sample_weight=weights if shape == "row" else weights[:, None])


@case
def class_and_sample_weight(s: Scene) -> Any:
    return s.fit(class_weight={0: 1.0, 1: 2.0, 2: 3.0}, sample_weight=np.ones(22))


@case
def evaluate_with_weights(s: Scene) -> Any:
    return s.evaluate(sample_weight=np.linspace(0, 2, 22))


@each(True, False)
def evaluate_as_a_dict(s: Scene, as_dict: bool) -> Any:
    return s.evaluate(return_dict=as_dict)


@case
def evaluate_without_metrics(s: Scene) -> Any:
    s.use(s.plain(), metrics=None)
    return s.evaluate(), s.evaluate(return_dict=True), s.fit()


@case
def steps_of_evaluate_and_predict(s: Scene) -> Any:
    return s.evaluate(steps=2), s.predict(steps=2)


@case
def predict_before_compile(s: Scene) -> Any:
    s.use(s.plain())
    return s.model.predict(s.x, verbose=0)


@case
def fit_before_compile(s: Scene) -> Any:
    s.use(s.plain())
    return s.fit()


@each(True, False)
def train_on_batch(s: Scene, as_dict: bool) -> Any:
    return [s.model.train_on_batch(*batch, return_dict=as_dict) for batch in s.batches()]


@case
def train_on_batch_with_weights(s: Scene) -> Any:
    weighted = s.model.train_on_batch(s.x, s.y, sample_weight=np.linspace(0, 2, 22))
    return weighted, s.model.train_on_batch(s.x, s.y, class_weight={0: 0.5, 1: 2.0, 2: 1.0}), int(s.model.optimizer.iterations)


@each(True, False)
def test_on_batch(s: Scene, as_dict: bool) -> Any:
    return [s.model.test_on_batch(*batch, return_dict=as_dict) for batch in s.batches()]


@case
def predict_on_batch(s: Scene) -> Any:
    return s.model.predict_on_batch(s.x[:5]), s.model.predict_on_batch(s.x[:1])


@case
def a_loop_of_batches(s: Scene) -> Any:
    found: list[Any] = []
    for _ in range(2):
        for batch in s.batches():
            found.append(s.model.train_on_batch(*batch))
        found.append(s.model.test_on_batch(*s.held_out))
        s.model.reset_metrics()
    return found


# Losses and metrics.


def _binary(s: Scene, units: int, activation: str | None, loss: Any, metrics: Any) -> Any:
    parts = [keras.Input((6,)), layers.Dense(units, activation, kernel_initializer=keras.initializers.GlorotUniform(3))]
    s.use(keras.Sequential(parts), optimizer=keras.optimizers.SGD(0.1), loss=loss, metrics=metrics)
    targets = (s.y > 0) if units == 1 else np.eye(3)[s.y]
    return s.fit(y=targets.astype("float32").reshape(22, units)), s.model.evaluate(s.x, targets.reshape(22, units), verbose=0)


@each("accuracy", "acc", "binary_accuracy", "mse", "Precision", "AUC")
def yes_or_no_with(s: Scene, metric: str) -> Any:
    return _binary(s, 1, "sigmoid", "binary_crossentropy", [metric])


@each("accuracy", "binary_accuracy", "categorical_accuracy")
def several_yes_or_no_with(s: Scene, metric: str) -> Any:
    return _binary(s, 3, "sigmoid", "binary_crossentropy", [metric])


@each("accuracy", "threshold")
def yes_or_no_from_logits_with(s: Scene, metric: str) -> Any:
    metrics = ["accuracy"] if metric == "accuracy" else [M.BinaryAccuracy(threshold=0.0)]
    return _binary(s, 1, None, keras.losses.BinaryCrossentropy(from_logits=True), metrics)


@each("mae", "mse", "accuracy", "sparse_categorical_crossentropy")
def classes_with(s: Scene, metric: str) -> Any:
    s.compile(loss="categorical_crossentropy" if metric in ("mae", "mse") else "sparse_categorical_crossentropy", metrics=[metric])
    return s.fit(y=np.eye(3)[s.y] if metric in ("mae", "mse") else s.y)


@each("mse", "mae", "huber", "log_cosh")
def numbers_with(s: Scene, loss: str) -> Any:
    parts = [keras.Input((6,)), layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(3))]
    s.use(keras.Sequential(parts), optimizer="rmsprop", loss=loss, metrics=["mae", "mse"])
    return s.fit(y=s.y.astype("float32")), s.evaluate()


@case
def metrics_that_are_objects(s: Scene) -> Any:
    s.compile(metrics=[M.SparseCategoricalAccuracy(), M.SparseTopKCategoricalAccuracy(2, name="top")])
    return s.validated(), s.evaluate(return_dict=True)


@case
def weighted_metrics(s: Scene) -> Any:
    s.use(s.plain(), metrics=None, weighted_metrics=["accuracy"])
    return s.fit(sample_weight=np.linspace(0, 2, 22))


# Several inputs and outputs.


def _two(s: Scene, outputs_as: str = "list", **compiled: Any) -> Any:
    inputs = keras.Input((6,), name="in")
    hidden = layers.Dense(8, "tanh", kernel_initializer=keras.initializers.GlorotUniform(1))(inputs)
    a = layers.Dense(3, "softmax", kernel_initializer=keras.initializers.GlorotUniform(2), name="a")(hidden)
    b = layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(3), name="b")(hidden)
    outputs: Any = {"list": [a, b], "dict": {"a": a, "b": b}, "others": {"cls": a, "reg": b}}[outputs_as]
    s.use(keras.Model(inputs, outputs), optimizer="adam", **compiled)
    return s.model


def _told(s: Scene, y: Any) -> Any:
    """All that tells of several outputs."""
    history = s.fit(y=y, validation_data=(s.x, y))
    of_batch = [getattr(s.model, f"{what}_on_batch")(s.x, y) for what in ("test", "train")]
    of_batch += [getattr(s.model, f"{what}_on_batch")(s.x, y, return_dict=True) for what in ("test", "train")]
    evaluated = [s.model.evaluate(s.x, y, verbose=0, return_dict=as_dict) for as_dict in (False, True)]
    return history, of_batch, evaluated, s.model.predict(s.x, verbose=0), s.model.predict_on_batch(s.x[:3])


def _targets(s: Scene) -> list[Any]:
    return [s.y, s.x.sum(1)]


@case
def outputs_in_a_list(s: Scene) -> Any:
    _two(s, loss=["sparse_categorical_crossentropy", "mse"], metrics=[["accuracy"], ["mae"]])
    return _told(s, _targets(s))


@case
def outputs_in_a_list_by_name(s: Scene) -> Any:
    _two(s, loss={"a": "sparse_categorical_crossentropy", "b": "mse"}, metrics={"b": ["mae"], "a": "accuracy"})
    return _told(s, _targets(s))


@case
def outputs_in_a_dict(s: Scene) -> Any:
    _two(s, "dict", loss={"a": "sparse_categorical_crossentropy", "b": "mse"}, metrics={"a": ["accuracy"], "b": ["mae"]})
    return _told(s, dict(zip("ab", _targets(s))))


@case
def outputs_in_a_dict_with_keys_of_its_own(s: Scene) -> Any:
    _two(s, "others", loss={"cls": "sparse_categorical_crossentropy", "reg": "mse"}, metrics={"cls": ["accuracy"]})
    return _told(s, dict(zip(("cls", "reg"), _targets(s))))


@each("list", "dict")
def weights_of_losses(s: Scene, kind: str) -> Any:
    given: Any = [0.5, 2.0] if kind == "list" else {"a": 0.5, "b": 2.0}
    _two(s, loss=["sparse_categorical_crossentropy", "mse"], loss_weights=given, metrics=None)
    return _told(s, _targets(s))


@case
def one_loss_for_two_outputs(s: Scene) -> Any:
    _two(s, loss="mse", metrics=None)
    return s.fit(y=[np.eye(3)[s.y], s.x.sum(1)])


@each("none", "missing")
def no_loss_for_one_output(s: Scene, how: str) -> Any:
    loss: Any = ["sparse_categorical_crossentropy", None] if how == "none" else {"a": "sparse_categorical_crossentropy"}
    _two(s, loss=loss, metrics=None)
    return s.fit(y=_targets(s))


@case
def early_stopping_by_one_output(s: Scene) -> Any:
    _two(s, loss=["sparse_categorical_crossentropy", "mse"], metrics=[["accuracy"], ["mae"]])
    y = _targets(s)
    stop = keras.callbacks.EarlyStopping("val_a_accuracy", patience=1, min_delta=0.3, mode="max")
    return s.fit(stop, y=y, validation_data=(s.x, y), epochs=5)


@case
def weights_of_samples_for_two_outputs(s: Scene) -> Any:
    _two(s, loss=["sparse_categorical_crossentropy", "mse"], metrics=None)
    weights = np.linspace(0, 2, 22)
    return s.fit(y=_targets(s), sample_weight=[weights, weights])
