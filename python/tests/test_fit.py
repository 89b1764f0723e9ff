"""`fit` and its relatives do what a Keras user expects: the same numbers in the same logs, callbacks, interrupts, files."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import keras
import models
import numpy as np
import pytest
from conftest import rigs

from manyhands_ml import ModelError, ParallelModel, make_parallel
from manyhands_ml._data import Arrays

LOSS = "sparse_categorical_crossentropy"


@pytest.fixture
def data(rng: np.random.Generator) -> tuple[Any, Any]:
    return rng.normal(size=(57, 20)).astype(np.float32), rng.integers(0, 5, 57)


def _both(pair: Any, data: Any, adapters: str = "cpu", **arguments: Any) -> tuple[Any, Any]:
    """Histories of Keras and of the adapters."""
    plain, parallel = pair(models.perceptron, adapters)
    histories = []
    for model in (plain, parallel):
        model.compile("adam", LOSS, metrics=["accuracy"])
        histories.append(model.fit(*data, verbose=0, shuffle=False, **arguments).history)
    for ours, theirs in zip(parallel.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
    return histories[0], histories[1]


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_size": 8, "epochs": 2, "validation_split": 0.25},
        {"batch_size": 28, "validation_data": (np.ones((5, 20)), np.ones(5))},
        {"batch_size": 16, "class_weight": {0: 1.0, 1: 2.0, 2: 0.5, 3: 0.0, 4: 1.5}},
        {"batch_size": 16, "sample_weight": np.linspace(0, 1, 57)},
        {"batch_size": 10, "steps_per_epoch": 2, "epochs": 3, "initial_epoch": 1},
    ],
    ids=["validation_split", "last batch of 1", "class_weight", "sample_weight", "steps_per_epoch"],
)
def test_history_is_that_of_keras(arguments: dict[str, Any], pair: Any, data: Any) -> None:
    expected, got = _both(pair, data, **arguments)
    assert set(got) == set(expected)
    for name, values in expected.items():
        assert got[name] == pytest.approx(values, rel=1e-4, abs=1e-6), name


@pytest.mark.parametrize("adapters", ["cpu,cpu,cpu", rigs()[-1]])
def test_seven_rows_and_a_last_batch_of_one_on_three_adapters(adapters: str, pair: Any, data: Any) -> None:
    rows = (data[0][:15], data[1][:15])
    expected, got = _both(pair, rows, adapters, batch_size=7, epochs=3)
    assert got["loss"] == pytest.approx(expected["loss"], rel=1e-5)


@pytest.mark.parametrize("shuffle", [True, "batch", False])
def test_batches_that_are_gathered_natively_are_those_of_keras(
    shuffle: Any, pair: Any, data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rows in the same order, also where they lie apart in memory, and are 64-bit."""
    wide = np.zeros((57, 40))
    wide[:, ::2] = data[0]
    x, weights = wide[:, ::2], np.linspace(0, 2, 57)
    assert not x.flags.c_contiguous
    results = []
    for is_native in (True, False):
        if not is_native:
            monkeypatch.setattr(Arrays, "of", lambda *arguments, **named: None)
        _, parallel = pair(models.perceptron)
        parallel.compile("adam", LOSS, metrics=["accuracy"])
        keras.utils.set_random_seed(11)
        history = parallel.fit(x, data[1], batch_size=8, epochs=2, shuffle=shuffle, sample_weight=weights, verbose=0)
        results.append((history.history, parallel.evaluate(x, data[1], batch_size=9, verbose=0), parallel.predict(x, verbose=0)))
    assert results[0][0] == results[1][0]
    assert results[0][1] == results[1][1]
    np.testing.assert_array_equal(results[0][2], results[1][2])


@pytest.mark.parametrize("adapters", rigs())
@pytest.mark.parametrize("is_generator", [False, True], ids=["arrays", "generator"])
def test_an_adapter_that_is_lost_in_mid_epoch_costs_nothing(
    adapters: str, is_generator: bool, pair: Any, data: Any
) -> None:
    class Lose(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 2 and self.params["is_lost"]:
                parallel._engine.trainer.lose(0)
                self.params["is_lost"] = False

    batches = [tuple(part[begin : begin + 8] for part in data) for begin in range(0, 56, 8)]
    plain, parallel = pair(models.perceptron, adapters)
    for model in (plain, parallel):
        model.compile("adam", LOSS)
        lose = Lose()
        lose.params = {"is_lost": model is parallel}
        lose.set_params = lambda params: None
        source = ((batch for batch in itertools.cycle(batches)),) if is_generator else tuple(part[:56] for part in data)
        steps = {"steps_per_epoch": 7} if is_generator else {"batch_size": 8, "shuffle": False}
        model.fit(*source, epochs=2, verbose=0, callbacks=[lose], **steps)
    assert parallel.history.history["loss"] == pytest.approx(plain.history.history["loss"], rel=1e-5)
    assert int(parallel.optimizer.iterations) == 14
    for ours, theirs in zip(parallel.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_evaluate_and_predict_are_those_of_keras(rig: str, pair: Any, data: Any) -> None:
    plain, parallel = pair(models.perceptron, rig)
    for model in (plain, parallel):
        model.compile("adam", LOSS, metrics=["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(k=2, name="top2")])
    expected = plain.evaluate(*data, batch_size=16, verbose=0)
    assert parallel.evaluate(*data, batch_size=16, verbose=0) == pytest.approx(expected, rel=1e-5)
    assert set(parallel.evaluate(*data, verbose=0, return_dict=True)) == {"loss", "accuracy", "top2"}
    expected = plain.predict(data[0], verbose=0)
    np.testing.assert_allclose(parallel.predict(data[0], batch_size=16, verbose=0), expected, atol=1e-5)


def test_data_of_every_kind_give_the_same(pair: Any, data: Any) -> None:
    """Arrays, generators and `PyDataset`; images as bytes, dicts of inputs."""

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, idx: int) -> Any:
            return tuple(part[idx * 8 : idx * 8 + 8] for part in data)

    def generated() -> Any:
        while True:
            for idx in range(6):
                yield tuple(part[idx * 8 : idx * 8 + 8] for part in data)

    losses = []
    for source, arguments in [
        ((data[0][:48], data[1][:48]), {"batch_size": 8}),
        ((Batches(),), {}),
        ((generated(),), {"steps_per_epoch": 6}),
    ]:
        _, parallel = pair(models.perceptron)
        parallel.compile("adam", LOSS)
        losses.append(parallel.fit(*source, epochs=2, shuffle=False, verbose=0, **arguments).history["loss"])
    assert losses[0] == losses[1] == losses[2]


def test_bytes_and_dicts(rng: np.random.Generator) -> None:
    left, right = rng.integers(0, 255, (2, 9, 12), dtype=np.uint8)
    y = rng.integers(0, 2, (9, 1))
    model = models.shared()
    # Bytes are not scaled: with these weights no probability is cut off.
    model.set_weights([0.01 * weight for weight in model.get_weights()])
    model.compile("sgd", "binary_crossentropy")
    parallel = make_parallel(model, "cpu")
    expected = model.predict([left, right], verbose=0)
    np.testing.assert_allclose(parallel.predict([left, right], verbose=0), expected, atol=1e-5)
    named = parallel.evaluate({"right": right, "left": left}, y, verbose=0)
    assert named == pytest.approx(model.evaluate([left, right], y, verbose=0), rel=1e-5)


def test_callbacks_of_keras_work(pair: Any, data: Any, tmp_path: Path) -> None:
    """Best weights, rates, files: as in Keras with the same callbacks."""

    def callbacks(folder: Path) -> list[Any]:
        return [
            keras.callbacks.EarlyStopping(monitor="val_loss", patience=2, restore_best_weights=True, min_delta=10.0),
            keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=1, min_delta=10.0),
            keras.callbacks.ModelCheckpoint(folder / "best.keras", monitor="val_loss", save_best_only=True),
            keras.callbacks.CSVLogger(str(folder / "log.csv")),
            keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9 if epoch == 1 else rate),
        ]

    histories, evaluations, saved = [], [], []
    for name, model in zip(("plain", "parallel"), pair(models.perceptron)):
        folder = tmp_path / name
        folder.mkdir()
        model.compile(keras.optimizers.Adam(0.01), LOSS, metrics=["accuracy"])
        arguments = {"epochs": 9, "batch_size": 16, "shuffle": False, "verbose": 0, "validation_data": data}
        histories.append(model.fit(*data, callbacks=callbacks(folder), **arguments).history)
        evaluations.append(model.evaluate(*data, verbose=0))
        assert (folder / "log.csv").read_text().count("\n") == 4
        saved.append(keras.models.load_model(folder / "best.keras"))
    assert len(histories[1]["loss"]) == 3, "patience ran out"
    for name, values in histories[0].items():
        assert histories[1][name] == pytest.approx(values, rel=1e-4), name
    assert evaluations[1] == pytest.approx(evaluations[0], rel=1e-4), "the best weights"
    assert type(saved[1]) is keras.Sequential
    for ours, theirs in zip(saved[1].get_weights(), saved[0].get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_what_is_saved_is_the_plain_model(pair: Any, data: Any, tmp_path: Path) -> None:
    plain, parallel = pair(models.perceptron)
    for model in (plain, parallel):
        model.compile("adam", LOSS)
        model.fit(*data, epochs=1, shuffle=False, verbose=0)
    parallel.save(tmp_path / "model.keras")
    saved = keras.models.load_model(tmp_path / "model.keras")
    assert type(saved) is keras.Sequential and isinstance(parallel, keras.Model)
    np.testing.assert_allclose(saved.predict(data[0], verbose=0), parallel.predict(data[0], verbose=0), atol=1e-6)
    # With the optimizer's state: it goes on as Keras does.
    for model in (plain, saved):
        model.fit(*data, epochs=1, shuffle=False, verbose=0)
    for ours, theirs in zip(saved.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("adapters", rigs())
def test_a_model_that_keras_has_trained_is_fine_tuned_with_frozen_layers(adapters: str, rng: np.random.Generator) -> None:
    """Another head on a trained body: frozen weights keep their bits, batch normalization its statistics."""
    x = rng.normal(size=(48, 10, 10, 3)).astype(np.float32)
    body, y = models.residual(), rng.integers(0, 4, 48)
    body.compile("adam", LOSS)
    body.fit(x, y, batch_size=16, verbose=0)
    tuned = []
    for _ in range(2):
        copy = keras.models.clone_model(body)
        copy.set_weights(body.get_weights())
        features = keras.Model(copy.input, copy.layers[-3].output)
        features.trainable = False
        inputs = keras.Input((10, 10, 3))
        hidden = keras.layers.Dense(6, "relu", kernel_initializer=keras.initializers.GlorotUniform(3))(features(inputs))
        head = keras.layers.Dense(3, "softmax", kernel_initializer=keras.initializers.GlorotUniform(4))(hidden)
        tuned.append((keras.Model(inputs, head), features))
    plain, parallel = tuned[0][0], make_parallel(tuned[1][0], adapters)
    frozen = tuned[1][1].get_weights()
    losses = []
    for model in (plain, parallel):
        model.compile(keras.optimizers.Adam(0.01), LOSS)
        losses.append(model.fit(x, y % 3, batch_size=16, epochs=3, shuffle=False, verbose=0).history["loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    for now, then in zip(tuned[1][1].get_weights(), frozen, strict=True):
        np.testing.assert_array_equal(now, then)
    for ours, theirs in zip(parallel.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_a_schedule_and_a_callback_within_an_epoch(pair: Any, data: Any) -> None:
    """Rates of a schedule, and weights that a callback changes between two batches."""

    class Halve(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 1:
                self.model.set_weights([0.5 * weight for weight in self.model.get_weights()])

    plain, parallel = pair(models.perceptron)
    for model in (plain, parallel):
        rate = keras.optimizers.schedules.CosineDecay(0.05, 6)
        model.compile(keras.optimizers.SGD(rate, momentum=0.9), LOSS)
        model.fit(*data, batch_size=16, epochs=2, shuffle=False, verbose=0, callbacks=[Halve()])
    for ours, theirs in zip(parallel.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_an_error_of_a_callback_passes_through(pair: Any, data: Any) -> None:
    class Fails(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 2:
                raise LookupError("of the user's own")

    plain, parallel = pair(models.perceptron)
    for model in (plain, parallel):
        model.compile("adam", LOSS)
        with pytest.raises(LookupError, match="of the user's own"):
            model.fit(*data, batch_size=8, shuffle=False, verbose=0, callbacks=[Fails()])
    # Three steps were trained, and Keras has their weights.
    for ours, theirs in zip(parallel.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_an_error_of_a_generator_passes_through(pair: Any, data: Any) -> None:
    def fails() -> Any:
        yield data
        yield data
        raise LookupError("no more data")

    _, parallel = pair(models.perceptron)
    parallel.compile("adam", LOSS)
    with pytest.raises(LookupError, match="no more data"):
        parallel.fit(fails(), steps_per_epoch=5, verbose=0)
    assert int(parallel.optimizer.iterations) == 2


@pytest.mark.skipif(os.name == "nt", reason="needs signals of Unix")
def test_an_interrupt_ends_an_epoch_within_half_a_second_with_the_weights(pair: Any, data: Any) -> None:
    _, parallel = pair(models.perceptron)
    parallel.compile("adam", LOSS)
    parallel.fit(*data, epochs=1, verbose=0)
    before, begun, sent = parallel.get_weights(), int(parallel.optimizer.iterations), 0.0
    many = tuple(np.resize(part, (100_000, *part.shape[1:])) for part in data)

    def interrupt() -> None:
        nonlocal sent
        sent = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.15, interrupt)
    start = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: epoch == 0 and timer.start())
    # A program that a script has started in the background ignores interrupts.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            parallel.fit(*many, batch_size=8, epochs=3, verbose=0, callbacks=[start])
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, handler)
    assert time.monotonic() - sent < 0.5
    steps = int(parallel.optimizer.iterations) - begun
    assert 12_500 < steps < 25_000, "in the middle of the second epoch"
    assert any(not np.array_equal(now, then) for now, then in zip(parallel.keras_model.get_weights(), before))
    assert len(parallel.history.history["loss"]) == 1, "the epoch that has ended is kept"
    assert len(parallel.fit(*data, epochs=1, verbose=0).history["loss"]) == 1


def test_it_is_used_like_the_model(pair: Any, data: Any, capsys: pytest.CaptureFixture[str]) -> None:
    plain, parallel = pair(models.perceptron)
    assert type(parallel) is ParallelModel
    parallel.summary()
    assert "dense" in capsys.readouterr().out
    parallel.compile("adam", LOSS)
    parallel.fit(*data, epochs=1)
    assert capsys.readouterr().out.rstrip().splitlines()[-1].startswith("rows by adapter: CPU")
    again = make_parallel(parallel.keras_model, "cpu,cpu", split=[3, 1])
    again.fit(*data, batch_size=8, epochs=1)
    assert " 75%" in capsys.readouterr().out.rstrip().splitlines()[-1]
    assert parallel.count_params() == plain.count_params()
    parallel.set_weights(plain.get_weights())
    np.testing.assert_allclose(parallel(data[0]), plain(data[0]), atol=1e-6)
    np.testing.assert_allclose(parallel.predict(data[0], verbose=0), plain.predict(data[0], verbose=0), atol=1e-5)


def test_mixed_precision_rounds_what_training_multiplies_and_nothing_else(data: tuple[Any, Any]) -> None:
    histories, outputs = [], []
    for precision in ("float32", "mixed_float16"):
        keras.utils.set_random_seed(1)
        model = make_parallel(models.perceptron(), "cpu", precision=precision)
        model.compile("adam", LOSS)
        outputs.append(model.predict(data[0], verbose=0))
        histories.append(model.fit(*data, epochs=2, verbose=0, shuffle=False).history["loss"])
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert histories[0] != histories[1]
    np.testing.assert_allclose(histories[0], histories[1], rtol=2e-3)


def test_a_model_of_mixed_dtype_is_told_of_the_argument() -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, dtype="mixed_float16")])
    parallel = make_parallel(model, "cpu")
    parallel.compile("sgd", "mse")
    with pytest.raises(ModelError, match='is "mixed_float16": `make_parallel.*precision="mixed_float16"'):
        parallel.fit(np.zeros((4, 3)), np.zeros((4, 2)), verbose=0)
