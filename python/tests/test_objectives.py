"""Losses and metrics of Keras, over epochs of several batches: the same numbers here and there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from conftest import rigs
from manyhands_ml import make_parallel

L, M = keras.losses, keras.metrics
ROWS = 22


def _model(activation: str | None) -> keras.Model:
    return keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3, activation=activation)]
    )


def _real(rng: np.random.Generator) -> Any:
    return rng.normal(size=(ROWS, 3)).astype("float32")


def _binary(rng: np.random.Generator) -> Any:
    return rng.integers(0, 2, (ROWS, 3)).astype("float32")


def _signs(rng: np.random.Generator) -> Any:
    return 2 * _binary(rng) - 1


def _one_hot(rng: np.random.Generator) -> Any:
    return np.eye(3, dtype="float32")[rng.integers(0, 3, ROWS)]


def _counts(rng: np.random.Generator) -> Any:
    return rng.poisson(1.5, (ROWS, 3)).astype("float32")


def _values() -> list[Any]:
    return [
        M.MeanAbsoluteError(),
        M.MeanSquaredError(),
        M.RootMeanSquaredError(),
        M.R2Score(class_aggregation="variance_weighted_average"),
    ]


def _yes_and_no() -> list[Any]:
    return [
        M.Precision(name="precision"),
        M.Recall(thresholds=0.4, name="found"),
        M.AUC(name="auc"),
        M.AUC(curve="PR", name="area"),
        M.F1Score(average="macro", threshold=0.5, name="f1"),
        M.BinaryAccuracy(threshold=0.3, name="low"),
    ]


CASES: dict[str, tuple[Any, str | None, Callable[[np.random.Generator], Any], Callable[[], list[Any]]]] = {
    "mean absolute error": ("mae", None, _real, _values),
    "huber": (L.Huber(delta=0.5), None, _real, lambda: ["mae", M.LogCoshError()]),
    "log cosh": (L.LogCosh(), None, _real, lambda: [M.CosineSimilarity()]),
    "cosine": (L.CosineSimilarity(), None, _real, lambda: ["mse"]),
    "poisson": ("poisson", "softplus", _counts, lambda: ["poisson"]),
    "divergence": ("kl_divergence", "softmax", _one_hot, lambda: [M.KLDivergence()]),
    "hinge": ("hinge", "tanh", _signs, lambda: [M.Hinge()]),
    "squared hinge": (L.SquaredHinge(), "tanh", _binary, lambda: []),
    "categorical hinge": (L.CategoricalHinge(), None, _one_hot, lambda: ["accuracy", M.CategoricalHinge()]),
    "binary": ("binary_crossentropy", "sigmoid", _binary, _yes_and_no),
    "binary focal": (
        L.BinaryFocalCrossentropy(apply_class_balancing=True, gamma=1.5),
        "sigmoid",
        _binary,
        lambda: [M.Recall(class_id=1, name="of_one")],
    ),
    "focal": (L.CategoricalFocalCrossentropy(from_logits=True, alpha=0.5), None, _one_hot, lambda: ["accuracy"]),
    "classes": (
        "categorical_crossentropy",
        "softmax",
        _one_hot,
        lambda: ["accuracy", M.Precision(top_k=2, name="top"), M.F1Score(average="weighted"), M.AUC(name="auc")],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_losses_and_metrics_are_those_of_keras(
    name: str, pair: Callable[..., tuple[Any, Any]], rng: np.random.Generator
) -> None:
    loss, activation, targets, metrics = CASES[name]
    x, y = rng.normal(size=(ROWS, 6)).astype("float32"), targets(rng)
    plain, ours = pair(lambda: _model(activation), "cpu,cpu")
    for model in (plain, ours):
        model.compile(keras.optimizers.SGD(0.05), loss, metrics=metrics())
    kept = [model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history for model in (plain, ours)]
    assert list(kept[0]) == list(kept[1])
    for key in kept[0]:
        np.testing.assert_allclose(kept[1][key], kept[0][key], rtol=2e-4, atol=2e-5, err_msg=key)

    def batches() -> Any:
        for first in range(0, ROWS, 8):
            yield x[first : first + 8], y[first : first + 8]

    needed = plain.evaluate(x, y, batch_size=8, verbose=0, return_dict=True)
    found = [ours.evaluate(x, y, batch_size=5, verbose=0, return_dict=True)]
    found.append(ours.evaluate(batches(), verbose=0, return_dict=True))
    for numbers in found:
        for key, value in needed.items():
            np.testing.assert_allclose(numbers[key], value, rtol=2e-4, atol=2e-5, err_msg=key)


def test_masked_positions_count_in_no_loss(pair: Callable[..., tuple[Any, Any]], rng: np.random.Generator) -> None:
    def tagger() -> keras.Model:
        return keras.Sequential(
            [
                keras.Input((5,)),
                keras.layers.Embedding(9, 4, mask_zero=True),
                keras.layers.LSTM(6, return_sequences=True),
                keras.layers.Dense(3, activation="softmax"),
            ]
        )

    x, y = rng.integers(1, 9, (ROWS, 5)), rng.integers(0, 3, (ROWS, 5))
    x[np.arange(5) >= rng.integers(1, 7, ROWS)[:, None]] = 0
    plain, ours = pair(tagger, "cpu,cpu")
    for model in (plain, ours):
        model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", metrics=["accuracy"])
    kept = [model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history for model in (plain, ours)]
    # Keras on JAX loses the mask on the way from the gradient to the metrics of `fit`; `evaluate` has it.
    np.testing.assert_allclose(kept[1]["loss"], kept[0]["loss"], rtol=2e-4, atol=2e-5)
    needed = plain.evaluate(x, y, batch_size=8, verbose=0, return_dict=True)
    found = ours.evaluate(x, y, batch_size=8, verbose=0, return_dict=True)
    for key, value in needed.items():
        np.testing.assert_allclose(found[key], value, rtol=2e-4, atol=2e-5, err_msg=key)


@pytest.mark.parametrize(
    ("loss", "metric", "text"),
    [
        (L.BinaryCrossentropy(from_logits=True), M.MeanSquaredError(), "sees logits"),
        (L.MeanSquaredError(), M.Precision(thresholds=[0.2, 0.4]), r"`thresholds` is \[0.2, 0.4\]"),
        (L.MeanSquaredError(), M.F1Score(), "`average` is None"),
        (L.MeanSquaredError(), M.AUC(multi_label=True), "`multi_label` is True"),
        (L.MeanSquaredError(), M.R2Score(class_aggregation=None), "`class_aggregation` is None"),
    ],
)
def test_metrics_that_would_differ_are_computed_by_keras(
    loss: Any, metric: Any, text: str, pair: Callable[..., tuple[Any, Any]], rng: np.random.Generator
) -> None:
    plain, ours = pair(lambda: _model("sigmoid" if isinstance(metric, (M.AUC, M.Precision, M.F1Score)) else None))
    x, y = rng.normal(size=(ROWS, 6)), _binary(rng)
    told = []
    for model in (plain, ours):
        model.compile("sgd", loss, metrics=[type(metric).from_config(metric.get_config())])
        with pytest.warns(UserWarning, match=text) if model is ours else nullcontext():
            history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history
        told.append((history, model.evaluate(x, y, batch_size=8, verbose=0, return_dict=True)))
    for found, needed in zip(told[1], told[0], strict=True):
        assert list(found) == list(needed)
        for key, value in needed.items():
            np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-6, err_msg=key)


def _two(of_dict: bool = False) -> keras.Model:
    inputs = keras.Input((6,))
    x = keras.layers.Dense(8, activation="tanh")(inputs)
    # The head of one is a layer of its own.
    a = keras.layers.Softmax(name="a")(keras.layers.Dense(3)(x))
    b = keras.layers.Dense(1, name="b")(x)
    return keras.Model(inputs, {"reg": b, "cls": a} if of_dict else [a, b])


def _alike() -> keras.Model:
    inputs = keras.Input((6,))
    return keras.Model(inputs, [keras.layers.Dense(2, name=name)(inputs) for name in ("p", "q")])


def _labels(rng: np.random.Generator) -> Any:
    return rng.integers(0, 3, ROWS)


def _column(rng: np.random.Generator) -> Any:
    return rng.integers(0, 2, (ROWS, 1)).astype("float32")


SPARSE = "sparse_categorical_crossentropy"

#: What `compile` resolves: a model, the arguments of `compile`, and targets.
RESOLVED: dict[str, tuple[Callable[[], Any], Callable[[], dict[str, Any]], Callable[[np.random.Generator], Any]]] = {
    "accuracy of several columns": (
        lambda: _model("sigmoid"),
        lambda: {"loss": "binary_crossentropy", "metrics": ["accuracy"]},
        _binary,
    ),
    "accuracy of values": (lambda: _model(None), lambda: {"loss": "mse", "metrics": ["accuracy", "mse"]}, _one_hot),
    "labels in a column": (
        lambda: _model("softmax"),
        lambda: {"loss": SPARSE, "metrics": ["acc"]},
        lambda rng: _labels(rng)[:, None],
    ),
    "a loss by the shapes": (lambda: _model("softmax"), lambda: {"loss": "crossentropy", "metrics": ["accuracy"]}, _labels),
    "logits": (
        lambda: keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)]),
        lambda: {
            "loss": L.BinaryCrossentropy(from_logits=True),
            "metrics": [
                "accuracy",
                M.BinaryAccuracy(threshold=0.0, name="zero"),
                M.Precision(thresholds=0.0, name="precision"),
                M.Recall(name="recall"),
            ],
        },
        _column,
    ),
    "metrics of one name": (lambda: _model(None), lambda: {"loss": "mse", "metrics": [M.MeanSquaredError(), "mse"]}, _real),
    "lists": (
        _two,
        lambda: {"loss": [SPARSE, "mse"], "metrics": [["accuracy"], ["mae"]], "loss_weights": [0.5, 2.0]},
        lambda rng: [_labels(rng), _column(rng)],
    ),
    "dicts by layers": (
        _two,
        lambda: {"loss": {"b": "mse", "a": SPARSE}, "metrics": {"b": ["mae"], "a": "accuracy"}},
        lambda rng: {"b": _column(rng), "a": _labels(rng)},
    ),
    "dicts by keys": (
        lambda: _two(of_dict=True),
        lambda: {"loss": {"cls": SPARSE, "reg": "mse"}, "metrics": {"cls": ["accuracy"], "reg": ["mae"]}},
        lambda rng: {"cls": _labels(rng), "reg": _column(rng)},
    ),
    "one loss for all": (_alike, lambda: {"loss": "mse"}, lambda rng: [_real(rng)[:, :2], _real(rng)[:, 1:]]),
    "no loss of one": (
        _two,
        lambda: {"loss": [None, "mse"], "metrics": [[M.CategoricalAccuracy()], ["mae"]]},
        lambda rng: [_one_hot(rng), _column(rng)],
    ),
    "no loss and no target of one": (_two, lambda: {"loss": [None, "mse"]}, lambda rng: [_column(rng)]),
    "a key without a loss": (lambda: _two(of_dict=True), lambda: {"loss": {"reg": "mse"}}, lambda rng: {"reg": _column(rng)}),
}


@pytest.mark.parametrize("name", RESOLVED)
def test_what_was_compiled_is_what_keras_makes_of_it(
    name: str, pair: Callable[..., tuple[Any, Any]], rng: np.random.Generator
) -> None:
    """Names and order of logs, of lists and of `model.metrics`; numbers; predictions in their structure."""
    build, arguments, targets = RESOLVED[name]
    x, y = rng.normal(size=(ROWS, 6)).astype("float32"), targets(rng)
    plain, ours = pair(build)
    told: list[dict[str, Any]] = []
    for model in (plain, ours):
        model.compile(keras.optimizers.Adam(0.02), **arguments())
        history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history
        after_fit = model.get_metrics_result()
        evaluated = model.evaluate(x, y, batch_size=8, verbose=0)
        metrics = [metric for metric in model.metrics if metric.name != "compile_metrics"]
        told.append(
            {
                "fit": history,
                "after fit": {key: float(value) for key, value in after_fit.items()},
                "evaluate": evaluated,
                "by name": model.evaluate(x, y, batch_size=8, verbose=0, return_dict=True),
                "names": list(model.metrics_names),
                "results": [float(metric.result()) for metric in metrics],
                "train": model.train_on_batch(x, y),
                "test": model.test_on_batch(x, y),
            }
        )
        told[-1]["predict"] = keras.tree.flatten(model.predict(x, verbose=0))
        assert keras.tree.map_structure(lambda part: None, model.predict(x, verbose=0)) == keras.tree.map_structure(
            lambda part: None, plain.predict(x, verbose=0)
        )
    for what, needed in told[0].items():
        found = told[1][what]
        assert what == "names" or type(found) is type(needed) or isinstance(needed, float), what
        if isinstance(needed, dict):
            assert list(found) == list(needed), what
            found, needed = list(found.values()), list(needed.values())
        if what == "names":
            assert found == needed
            continue
        pairs = zip(found if isinstance(found, list) else [found], needed if isinstance(needed, list) else [needed], strict=True)
        for got, expected in pairs:
            np.testing.assert_allclose(got, expected, rtol=5e-4, atol=5e-5, err_msg=what)


@pytest.mark.parametrize("monitor", ["val_accuracy", "accuracy"])
def test_callbacks_know_the_direction_of_a_metric(
    monitor: str, pair: Callable[..., tuple[Any, Any]], rng: np.random.Generator, tmp_path: Path
) -> None:
    x, y = rng.normal(size=(ROWS, 6)).astype("float32"), _labels(rng)
    histories = []
    for name, model in zip(("plain", "ours"), pair(lambda: _model("softmax"))):
        model.compile(keras.optimizers.SGD(0.5), SPARSE, metrics=["accuracy"])
        callbacks = [
            keras.callbacks.EarlyStopping(monitor=monitor, patience=2, restore_best_weights=True),
            keras.callbacks.ReduceLROnPlateau(monitor=monitor, patience=1),
            keras.callbacks.ModelCheckpoint(tmp_path / f"{name}.keras", monitor=monitor, save_best_only=True),
        ]
        arguments: Any = {"epochs": 6, "shuffle": False, "verbose": 0, "validation_data": (x, y)}
        histories.append((model.fit(x, y, callbacks=callbacks, **arguments).history, model.get_weights()))
    assert list(histories[1][0]) == list(histories[0][0])
    for key, values in histories[0][0].items():
        np.testing.assert_allclose(histories[1][0][key], values, rtol=1e-4, err_msg=key)
    for ours, theirs in zip(histories[1][1], histories[0][1], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def _attending() -> keras.Model:
    """Matrices, vectors, embeddings, and weights that Keras keeps in three axes and the engine in two."""
    ids = keras.Input((5,), dtype="int32")
    x = keras.layers.Embedding(9, 8)(ids)
    x = keras.layers.MultiHeadAttention(2, 3)(x, x)
    x = keras.layers.Dense(6, activation="tanh")(keras.layers.GlobalAveragePooling1D()(x))
    return keras.Model(ids, keras.layers.Dense(3, name="head")(x))


O = keras.optimizers
#: Optimizers that the host alone computes.
ON_HOST: dict[str, Callable[[], Any]] = {
    "amsgrad": lambda: O.Adam(0.01, amsgrad=True, beta_2=0.7, epsilon=1e-4),
    "amsgrad, decay": lambda: O.AdamW(0.01, amsgrad=True, weight_decay=0.1, clipnorm=0.01, epsilon=1e-4),
    "adafactor": lambda: O.Adafactor(0.05, epsilon_1=1e-6, weight_decay=0.1, global_clipnorm=0.05),
    "muon": lambda: O.Muon(0.02, exclude_layers=["head"], epsilon=1e-4, use_ema=True, ema_overwrite_frequency=4),
    "muon, no decay": lambda: O.Muon(0.02, nesterov=False, epsilon=1e-4, weight_decay=None, rms_rate=None, adam_weight_decay=None),
}


@pytest.mark.parametrize("name", ON_HOST)
def test_optimizers_of_the_host_are_those_of_keras(
    name: str, pair: Callable[..., tuple[Any, Any]], rng: np.random.Generator
) -> None:
    """Ten steps, on any rig."""
    x, y = rng.integers(0, 9, (ROWS, 5)), _real(rng)
    plain, _ = pair(_attending)
    plain.compile(ON_HOST[name](), "mse")
    needed = [float(plain.train_on_batch(x, y)) for _ in range(10)]
    for adapters in dict.fromkeys(("cpu", "cpu,cpu,cpu", *rigs()[1:])):
        _, ours = pair(_attending, adapters)
        ours.compile(ON_HOST[name](), "mse")
        found = [float(ours.train_on_batch(x, y)) for _ in range(10)]
        np.testing.assert_allclose(found, needed, rtol=1e-5, err_msg=adapters)
        for path, ours_now, theirs in zip((it.path for it in plain.weights), ours.get_weights(), plain.get_weights(), strict=True):
            # The gradient of the keys' bias is 0 but for rounding, of which Muon makes whole steps.
            if not path.endswith("key/bias"):
                np.testing.assert_allclose(ours_now, theirs, atol=2e-5, err_msg=f"{path} on {adapters}")


class _Seen(keras.callbacks.Callback):
    """Updates, learning rate, loss and weights after each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[list[float]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        weights, optimizer = self.model.get_weights(), self.model.optimizer
        sums = [float(np.sum(values)) for values in weights]
        self.steps.append([int(optimizer.iterations), float(optimizer.learning_rate), logs["loss"], *sums])


@pytest.mark.parametrize("adapters", ["cpu", "cpu,cpu,cpu"])
def test_gradients_of_several_batches_make_an_update(
    adapters: str, pair: Callable[..., tuple[Any, Any]], rng: np.random.Generator
) -> None:
    """Three batches an epoch, of which two make an update: each epoch ends between two updates, or goes on with a rest."""
    x, y, told = rng.normal(size=(ROWS, 6)).astype("float32"), _real(rng), list[Any]()
    for model in pair(lambda: _model(None), adapters):
        rate, seen = O.schedules.ExponentialDecay(0.1, 2, 0.5), _Seen()
        model.compile(O.Adam(rate, gradient_accumulation_steps=2, global_clipnorm=0.5, weight_decay=0.1, epsilon=1e-3), "mse")
        history = model.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0, callbacks=[seen]).history
        told.append((history["loss"], seen.steps, [np.array(it) for it in model.optimizer.variables]))
    (needed, needed_seen, needed_state), (found, found_seen, found_state) = told
    np.testing.assert_allclose(found, needed, rtol=1e-5)
    np.testing.assert_allclose(found_seen, needed_seen, rtol=1e-5, atol=1e-5)
    assert [step[0] for step in found_seen] == [0, 1, 1, 2, 2, 3, 3, 4, 4]
    for values, theirs in zip(found_state, needed_state, strict=True):
        np.testing.assert_allclose(values, theirs, atol=1e-5)


@pytest.mark.parametrize("adapters", ["cpu", "cpu,cpu"])
@pytest.mark.parametrize("by_name", [True, False])
@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
def test_variables_without_weight_decay_are_those_of_keras(
    kind: str, by_name: bool, adapters: str, pair: Callable[..., tuple[Any, Any]], rng: np.random.Generator
) -> None:
    x, y = rng.normal(size=(ROWS, 6)).astype("float32"), _real(rng)

    def build() -> keras.Model:
        dense = [keras.layers.Dense(units, bias_initializer="ones") for units in (8, 3)]
        return keras.Sequential([keras.Input((6,)), *dense])

    plain, ours = pair(build, adapters)
    for model in (plain, ours):
        optimizer = getattr(keras.optimizers, kind)(0.01, weight_decay=1.0)
        chosen = {"var_names": ["bias"]} if by_name else {"var_list": [model.layers[0].bias, model.layers[1].kernel]}
        optimizer.exclude_from_weight_decay(**chosen)
        model.compile(optimizer, "mse")
        model.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0)
    for found, needed in zip(ours.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(found, needed, atol=1e-5)


def test_functions_and_classes_of_the_user_are_none_of_keras(rng: np.random.Generator) -> None:
    """Though they have a name that is known."""

    def poisson(y: Any, p: Any) -> Any:
        return keras.ops.mean(keras.ops.square(y - p), -1)

    class Huber(keras.losses.Huber):
        def call(self, y: Any, p: Any) -> Any:
            return 2 * super().call(y, p)

    x, y = rng.normal(size=(ROWS, 6)), _real(rng)
    for arguments in ({"loss": "mse", "metrics": [poisson]}, {"loss": poisson}, {"loss": Huber()}):
        plain = _model(None)
        plain.compile("sgd", **arguments)
        needed = plain.evaluate(x, y, verbose=0)
        with pytest.warns(UserWarning, match="Keras computes loss and metrics"):
            found = make_parallel(plain, "cpu").evaluate(x, y, verbose=0)
        np.testing.assert_allclose(found, needed, rtol=1e-5)
