"""Everyday cases: callbacks of Keras and of users."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from everyday import UNSET, Cases, Scene, once

C = keras.callbacks
CASES = Cases()
case, each = CASES.one, CASES.each
MONITORS = ("loss", "val_loss", "accuracy", "val_accuracy")


@each(*MONITORS)
def early_stopping(s: Scene, monitor: str) -> Any:
    return s.validated(C.EarlyStopping(monitor, patience=1, min_delta=0.5), epochs=6)


@each("min", "max", "auto")
def early_stopping_in_mode(s: Scene, mode: str) -> Any:
    return s.validated(C.EarlyStopping("val_accuracy", patience=1, min_delta=0.01, mode=mode), epochs=6)


@each(*MONITORS)
def early_stopping_restores_the_best(s: Scene, monitor: str) -> Any:
    stop = C.EarlyStopping(monitor, patience=2, restore_best_weights=True, start_from_epoch=1, min_delta=0.3)
    return s.validated(stop, epochs=6), stop.stopped_epoch, stop.best_epoch, s.evaluate()


@case
def early_stopping_with_a_baseline(s: Scene) -> Any:
    return s.validated(C.EarlyStopping("val_accuracy", baseline=0.99, patience=1), epochs=6)


@case
def early_stopping_by_what_is_not_there(s: Scene) -> Any:
    return s.fit(C.EarlyStopping("val_loss", patience=0))


@case
def early_stopping_by_a_metric_with_a_name(s: Scene) -> Any:
    s.compile(metrics=[keras.metrics.SparseTopKCategoricalAccuracy(k=2, name="top2")])
    return s.validated(C.EarlyStopping("val_top2", patience=1, min_delta=0.2), epochs=6)


@case
def early_stopping_twice(s: Scene) -> Any:
    stop = C.EarlyStopping("loss", patience=1, min_delta=0.5)
    return s.fit(stop, epochs=5), s.fit(stop, epochs=5)


@each(*MONITORS)
def checkpoint_of_the_best(s: Scene, monitor: str) -> Any:
    path = s.folder / "best.keras"
    s.validated(C.ModelCheckpoint(path, monitor=monitor, save_best_only=True), epochs=4)
    return keras.models.load_model(path).predict(s.x, verbose=0)


@case
def checkpoint_of_weights(s: Scene) -> Any:
    path = s.folder / "last.weights.h5"
    s.fit(C.ModelCheckpoint(path, save_weights_only=True))
    other = s.plain()
    other.load_weights(path)
    return other.get_weights()


@case
def checkpoint_with_numbers_in_its_name(s: Scene) -> Any:
    s.validated(C.ModelCheckpoint(str(s.folder / "{epoch:02d}-{val_loss:.2f}.keras")))
    return sorted(path.name for path in s.folder.iterdir())


@case
def checkpoint_after_batches(s: Scene) -> Any:
    s.fit(C.ModelCheckpoint(str(s.folder / "{epoch}-{batch}.weights.h5"), save_freq=2, save_weights_only=True))
    names = sorted(path.name for path in s.folder.iterdir())
    other = s.plain()
    other.load_weights(s.folder / names[0])
    return names, other.get_weights()


@case
def checkpoint_from_a_threshold(s: Scene) -> Any:
    s.fit(C.ModelCheckpoint(s.folder / "best.keras", "accuracy", save_best_only=True, initial_value_threshold=0.99, mode="max"))
    return [path.name for path in s.folder.iterdir()]


@each(*MONITORS)
def rate_on_a_plateau(s: Scene, monitor: str) -> Any:
    reduce = C.ReduceLROnPlateau(monitor, factor=0.5, patience=1, min_delta=0.5)
    return s.validated(reduce, epochs=5), float(s.model.optimizer.learning_rate)


@case
def rate_on_a_plateau_with_a_pause(s: Scene) -> Any:
    reduce = C.ReduceLROnPlateau("loss", factor=0.1, patience=0, cooldown=1, min_lr=2e-4, min_delta=5.0, verbose=1)
    return s.fit(reduce, epochs=5)


@case
def rate_of_an_epoch(s: Scene) -> Any:
    return s.fit(C.LearningRateScheduler(lambda epoch: 0.01 / (epoch + 1)))


@case
def rate_of_an_epoch_and_the_last_rate(s: Scene) -> Any:
    return s.fit(C.LearningRateScheduler(lambda epoch, rate: rate * 0.5, verbose=1))


@each(",", ";")
def csv_log(s: Scene, separator: str) -> Any:
    s.validated(C.CSVLogger(s.folder / "log.csv", separator=separator))
    lines = (s.folder / "log.csv").read_text().splitlines()
    return lines[0], [float(value) for line in lines[1:] for value in line.split(separator)]


@case
def csv_log_that_goes_on(s: Scene) -> Any:
    for _ in range(2):
        s.fit(C.CSVLogger(s.folder / "log.csv", append=True), epochs=2)
    return [line.split(",")[0] for line in (s.folder / "log.csv").read_text().splitlines()]


@each("epoch", 2)
def backup_and_restore(s: Scene, often: Any) -> Any:
    def fails(epoch: int, logs: Any) -> None:
        if epoch == 1:
            raise LookupError

    backup = s.folder / "backup"
    try:
        s.fit(C.BackupAndRestore(backup, save_freq=often), C.LambdaCallback(on_epoch_begin=fails))
    except LookupError:
        pass
    again = s.fit(C.BackupAndRestore(backup, save_freq=often), epochs=4)
    return again, int(s.model.optimizer.iterations)


@case
def terminate_on_nan(s: Scene) -> Any:
    return s.fit(C.TerminateOnNaN())


@case
def tensorboard(s: Scene) -> Any:
    s.validated(C.TensorBoard(s.folder))
    return sorted(path.name for path in s.folder.iterdir())


@case
def remote_monitor(s: Scene) -> Any:
    return s.fit(C.RemoteMonitor(root="http://127.0.0.1:9"))


@case
def progress_bar_of_ones_own(s: Scene) -> Any:
    return s.fit(C.ProgbarLogger(), verbose=1)


@case
def swapped_averages(s: Scene) -> Any:
    s.compile(keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.9))
    history = s.validated(C.SwapEMAWeights())
    return history, s.evaluate(callbacks=[C.SwapEMAWeights()]), s.evaluate()


@case
def swapped_averages_for_epochs(s: Scene) -> Any:
    s.compile(keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.9))
    return s.validated(C.SwapEMAWeights(swap_on_epoch=True), C.ModelCheckpoint(s.folder / "averages.keras"))


class _Listens(C.Callback):
    """Writes down what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []

    def __getattribute__(self, name: str) -> Any:
        if re.fullmatch(r"on_(epoch|batch|train|test|predict)(_batch)?_(begin|end)", name):

            def tell(at: Any = None, logs: Any = None) -> None:
                at, logs = (None, at) if isinstance(at, dict) else (at, logs)
                self.told.append([name, at, sorted(logs or {})])

            return tell
        return super().__getattribute__(name)


@case
def all_calls_of_a_fit(s: Scene) -> Any:
    listens = _Listens()
    s.validated(listens, epochs=2)
    return listens.told, {key: listens.params[key] for key in ("verbose", "epochs", "steps")}


@case
def all_calls_of_a_fit_on_a_generator(s: Scene) -> Any:
    listens = _Listens()
    s.fit(listens, x=once(s.batches()), y=UNSET, batch_size=UNSET, epochs=1, steps_per_epoch=3)
    return listens.told


@each("evaluate", "predict")
def all_calls_of(s: Scene, method: str) -> Any:
    listens = _Listens()
    getattr(s, method)(callbacks=[listens])
    return listens.told


@each("on_train_begin", "on_epoch_begin", "on_epoch_end", "on_train_batch_begin", "on_train_batch_end", "on_test_begin", "on_train_end")
def weights_that_a_callback_sets(s: Scene, hook: str) -> Any:
    def halve(*_: Any, **__: Any) -> None:
        s.sync()
        s.model.set_weights([weight * 0.5 for weight in s.model.get_weights()])

    return s.validated(C.LambdaCallback(**{hook: halve}) if "test" not in hook else _on(hook, halve), epochs=2)


def _on(hook: str, action: Callable[..., None]) -> Any:
    return type("On", (C.Callback,), {hook: lambda self, *_, **__: action()})()


@case
def weights_that_a_callback_sets_before_predict(s: Scene) -> Any:
    def zero() -> None:
        s.model.set_weights([weight * 0 for weight in s.model.get_weights()])

    return s.predict(callbacks=[_on("on_predict_begin", zero)])


@case
def weights_that_a_callback_sets_before_evaluate(s: Scene) -> Any:
    def zero() -> None:
        s.model.set_weights([weight * 0 for weight in s.model.get_weights()])

    return s.evaluate(callbacks=[_on("on_test_begin", zero)])


@case
def a_layers_kernel_within_batches(s: Scene) -> Any:
    layer, seen = s.model.layers[0], []
    s.fit(_on("on_train_batch_end", lambda: (s.sync(), seen.append(np.array(layer.kernel.numpy())))), epochs=2)
    return seen


@case
def a_layers_kernel_within_epochs(s: Scene) -> Any:
    layer, seen = s.model.layers[0], []
    s.fit(_on("on_epoch_end", lambda: seen.append(np.array(layer.kernel.numpy()))))
    return seen


@case
def weights_of_a_layer_that_a_callback_sets_within_batches(s: Scene) -> Any:
    layer = s.model.layers[0]

    def halve() -> None:
        s.sync()
        layer.set_weights([part * 0.5 for part in layer.get_weights()])

    return s.fit(_on("on_train_batch_end", halve), epochs=2)


@case
def rate_that_a_callback_sets_within_batches(s: Scene) -> Any:
    class Warm(C.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.model.optimizer.learning_rate = 0.01 * (batch + 1)

    return s.fit(Warm())


@each("on_train_batch_end", "on_epoch_end", "on_epoch_begin")
def a_callback_stops_training(s: Scene, hook: str) -> Any:
    def stop(at: int, logs: Any = None) -> None:
        s.model.stop_training = s.model.stop_training or at == 1

    return s.fit(C.LambdaCallback(**{hook: stop})), int(s.model.optimizer.iterations), s.model.stop_training


@each("evaluate", "predict", "get_weights", "save")
def a_callback_calls(s: Scene, method: str) -> Any:
    calls = {
        "evaluate": lambda: s.evaluate(),
        "predict": lambda: s.predict(),
        "get_weights": lambda: s.model.get_weights(),
        "save": lambda: s.model.save(s.folder / "model.keras"),
    }
    found: list[Any] = []
    s.fit(C.LambdaCallback(on_epoch_end=lambda epoch, logs: found.append(calls[method]())))
    return found


@case
def a_callback_reads_the_rate_and_the_step(s: Scene) -> Any:
    found: list[Any] = []

    def read(batch: int, logs: Any) -> None:
        s.sync()
        found.append((float(s.model.optimizer.learning_rate), int(s.model.optimizer.iterations)))

    s.fit(C.LambdaCallback(on_train_batch_end=read))
    return found


@case
def a_callback_adds_to_the_logs(s: Scene) -> Any:
    return s.fit(C.LambdaCallback(on_epoch_end=lambda epoch, logs: logs.update(extra=epoch * 2.0)))


@case
def a_list_of_callbacks_of_keras(s: Scene) -> Any:
    history = C.History()
    s.model.fit(s.x, s.y, verbose=0, epochs=2, callbacks=C.CallbackList([history], model=s.model, epochs=2))
    return history.history


@each(KeyboardInterrupt, LookupError)
def a_callback_raises(s: Scene, kind: Any) -> Any:
    def fail(batch: int, logs: Any) -> None:
        if batch == 1:
            raise kind

    try:
        s.fit(C.LambdaCallback(on_train_batch_end=fail))
    except kind:
        return int(s.model.optimizer.iterations), s.evaluate(), s.fit(epochs=1)
    return "was not raised"
