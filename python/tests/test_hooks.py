"""Callbacks see and change in each hook what they see and change in Keras: through the model, a layer or the optimizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import models
import numpy as np
import pytest

from manyhands_ml import make_parallel

LOSS = "sparse_categorical_crossentropy"
HOOKS = [f"on_{what}_{when}" for what in ("train", "epoch", "test", "predict") for when in ("begin", "end")]
HOOKS += [f"on_{what}_batch_{when}" for what in ("train", "test", "predict") for when in ("begin", "end")]


@pytest.fixture
def data(rng: np.random.Generator) -> tuple[Any, Any]:
    return rng.normal(size=(40, 20)).astype(np.float32), rng.integers(0, 5, 40)


class Meddles(keras.callbacks.Callback):
    """In each hook: notes the weights of a layer, the step and a momentum, and changes weights, momentum and rate."""

    def __init__(self, layer: Any, optimizer: Any, ours: bool) -> None:
        super().__init__()
        self.seen: list[tuple[str, float, int, float]] = []
        for hook in HOOKS:
            setattr(self, hook, lambda *arguments, hook=hook, **named: self.meddle(hook))
        self.layer, self.optimizer, self.ours = layer, optimizer, ours

    def meddle(self, hook: str) -> None:
        if not self.ours:
            # Keras on JAX has no weights in its layers within an epoch, until the model is asked for.
            assert self.model is not None
        kernel = np.array(self.layer.kernel)
        momentum = np.array(self.optimizer._momentums[0])
        self.seen.append((hook, float(kernel.sum()), int(self.optimizer.iterations), float(momentum.sum())))
        if "predict" not in hook and "test" not in hook:
            self.optimizer._momentums[0].assign(0.5 * momentum)
            self.optimizer.learning_rate = 0.9 * float(self.optimizer.learning_rate)
        self.layer.set_weights([0.95 * part for part in self.layer.get_weights()])


@pytest.mark.parametrize("is_generator", [False, True], ids=["arrays", "generator"])
def test_each_hook_sees_and_changes_what_it_does_in_keras(is_generator: bool, pair: Any, data: Any) -> None:
    """A layer and the optimizer are held in variables: nothing goes through `callback.model`."""
    seen, results = [], []
    plain, parallel = pair(models.perceptron)
    for model in (plain, parallel):
        model.compile(keras.optimizers.Adam(0.01), LOSS)
        # Keras builds it at the begin of `fit`, before the first hook.
        model.optimizer.build(model.trainable_variables)
        meddles = Meddles(model.layers[1], model.optimizer, model is parallel)

        def batches() -> Any:
            while True:
                for first in range(0, 40, 16):
                    yield tuple(part[first : first + 16] for part in data)

        source: Any = (batches(),) if is_generator else data
        steps: Any = {"steps_per_epoch": 3} if is_generator else {"batch_size": 16}
        fitted = model.fit(
            *source, epochs=2, shuffle=False, verbose=0, callbacks=[meddles], validation_data=data, validation_batch_size=16, **steps
        )
        evaluated = model.evaluate(*data, batch_size=16, verbose=0, callbacks=[meddles])
        predicted = model.predict(data[0], batch_size=16, verbose=0, callbacks=[meddles])
        seen.append(meddles.seen)
        results.append((fitted.history, evaluated, predicted, model.get_weights()))
    assert [part[0] for part in seen[1]] == [part[0] for part in seen[0]]
    assert [part[2] for part in seen[1]] == [part[2] for part in seen[0]]
    np.testing.assert_allclose([part[1::2] for part in seen[1]], [part[1::2] for part in seen[0]], rtol=1e-3, atol=1e-4)
    for name, values in results[0][0].items():
        np.testing.assert_allclose(results[1][0][name], values, rtol=1e-4, err_msg=name)
    np.testing.assert_allclose(results[1][1], results[0][1], rtol=1e-4)
    np.testing.assert_allclose(results[1][2], results[0][2], atol=1e-4)
    for ours, theirs in zip(results[1][3], results[0][3], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_the_model_behind_has_the_weights_of_each_batch(data: Any) -> None:
    """`base.get_weights()`, where `model = make_parallel(base)`, and after `train_on_batch`."""
    base = models.perceptron()
    model = make_parallel(base, "cpu")
    model.compile("sgd", LOSS)
    seen = []
    watches = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(base.get_weights()[0]))
    model.fit(*data, batch_size=8, verbose=0, callbacks=[watches])
    assert len(seen) == 5 and all(np.any(now != then) for now, then in zip(seen[1:], seen))
    before = base.get_weights()[0]
    model.train_on_batch(*data)
    assert np.any(base.get_weights()[0] != before) and int(base.optimizer.iterations) == 6


def test_averaged_weights_are_swapped_in_for_evaluation(pair: Any, data: Any) -> None:
    """`SwapEMAWeights` writes in `on_test_begin`, `on_test_end` and the hooks of epochs."""
    histories = []
    for model in pair(models.perceptron):
        model.compile(keras.optimizers.Adam(0.02, use_ema=True, ema_momentum=0.8), LOSS, metrics=["accuracy"])
        swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
        fitted = model.fit(*data, batch_size=8, epochs=3, shuffle=False, verbose=0, validation_data=data, callbacks=[swap])
        evaluated = model.evaluate(*data, verbose=0, callbacks=[keras.callbacks.SwapEMAWeights()])
        histories.append((fitted.history, evaluated, model.get_weights()))
    for name, values in histories[0][0].items():
        np.testing.assert_allclose(histories[1][0][name], values, rtol=1e-4, err_msg=name)
    np.testing.assert_allclose(histories[1][1], histories[0][1], rtol=1e-4)
    for ours, theirs in zip(histories[1][2], histories[0][2], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_training_goes_on_from_a_backup(pair: Any, data: Any, tmp_path: Path) -> None:
    """`BackupAndRestore` loads weights in `on_train_begin` and says where training goes on."""

    class Stops(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                raise KeyboardInterrupt

    weights = []
    for name, model in zip(("plain", "parallel"), pair(models.perceptron)):
        model.compile(keras.optimizers.Adam(0.01), LOSS)
        arguments: Any = {"batch_size": 8, "epochs": 4, "shuffle": False, "verbose": 0}
        backup = keras.callbacks.BackupAndRestore(tmp_path / name)
        with pytest.raises(KeyboardInterrupt):
            model.fit(*data, callbacks=[backup, Stops()], **arguments)
        fitted = model.fit(*data, callbacks=[backup], **arguments)
        assert len(fitted.history["loss"]) == 2
        weights.append(model.get_weights())
    for ours, theirs in zip(weights[1], weights[0], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_an_evaluation_that_was_stopped_does_not_stop_the_next(pair: Any, data: Any) -> None:
    class Stops(keras.callbacks.Callback):
        def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.stop_evaluating = True

    plain, parallel = pair(models.perceptron)
    for model in (plain, parallel):
        model.compile("sgd", LOSS)
        model.evaluate(*data, batch_size=8, verbose=0, callbacks=[Stops()])
    expected = plain.evaluate(*data, batch_size=8, verbose=0)
    assert parallel.evaluate(*data, batch_size=8, verbose=0) == pytest.approx(expected, rel=1e-5)
