"""`ParallelModel`: a Keras model whose training runs on this package's adapters."""

from __future__ import annotations

from collections import deque
from functools import cached_property
from typing import Any, Literal

import keras
import numpy as np
from keras.src.backend import config as keras_config
from keras.src.trainers.data_adapters import array_slicing, data_adapter_utils
from keras.src.trainers.epoch_iterator import EpochIterator
from keras.src.utils.python_utils import pythonify_logs

from ._compiled import Compiled, are_by_position, compiled, tell
from ._shapes import Shapes, is_open, shapes_of
from ._data import Arrays, Data, Epoch, Reading, first_batch, one_batch
from ._engine import Engine
from ._graph import output_structure
from ._hooks import Hooks
from ._nodes import Unsupported
from ._rig import Rig
from ._traced import Shaped, Traced, is_graph
from .errors import ModelError, SettingError, explained

#: Versions of Keras whose configurations are known: from the first, before the second.
_KERAS = ((3, 15), (3, 16))
#: Attributes of the Keras model that tell nothing of its weights: to read them costs nothing within an epoch.
_CHEAP = frozenset({"history", "jax_state_sync", "name", "stop_training", "metrics_names", "jit_compile", "run_eagerly"})
#: Milliseconds from one update of the progress bar to the next, and at most until an interrupt is seen.
_TELL_MS = 100


class _Means:
    """Numbers of the batches so far: what Keras' logs hold."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._rows = engine, 0
        self._sums = dict[str, float]()

    def add(self, numbers: list[tuple[str, float]], rows: int) -> None:
        """Rows of a batch, and the numbers of all batches so far."""
        self._rows += rows
        self._sums = {name: value * self._rows for name, value in numbers}

    def take(self, sums: list[tuple[str, float]], rows: int) -> None:
        """Sums over rows from the beginning, in place of those that are known."""
        self._rows, self._sums = rows, dict(sums)

    def logs(self) -> dict[str, float]:
        if not self._rows:
            return {}
        return self._engine.values([(name, value / self._rows) for name, value in self._sums.items()])


class ParallelModel:
    """A Keras model whose `fit`, `evaluate`, `predict` and methods on batches run on adapters. `make_parallel` makes one.

    All other attributes and methods are those of the Keras model behind it, `keras_model`, with the newest weights: `summary`, `save`,
    `layers`, `get_weights`, … `isinstance(model, keras.Model)` holds. `docs/guide/what-runs.md` lists what runs and what does not.
    """

    _OWN = frozenset(
        "_keras _graph _rig _batch_statistics _precision _seed _engine _shapes _open_inputs _compiled _logs _is_touched".split()
    )

    def __init__(
        self,
        model: keras.Model,
        rig: Rig,
        batch_statistics: Literal["shard", "batch"] = "shard",
        seed: int = 0,
        precision: Literal["float32", "mixed_float16"] = "float32",
    ) -> None:
        _check_keras()
        self._keras = model
        self._rig = rig
        self._batch_statistics = batch_statistics
        self._precision = precision
        self._seed = seed
        #: The model as a graph: itself, or what its `call` was traced to.
        self._graph: Any = model
        self._engine: Engine | None = None
        #: Engines of other shapes, where inputs have `None` in theirs.
        self._shapes = Shapes()
        #: Are there such? `None` until the model is built.
        self._open_inputs: bool | None = None
        self._compiled: Compiled | None = None
        #: Loss and metrics of the last batches, as Keras' logs have them.
        self._logs = dict[str, float]()
        self._is_touched = False

    # What it is.

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._keras)

    @property
    def keras_model(self) -> Any:
        """The Keras model behind it, with the newest weights."""
        if self._engine is not None:
            self._engine.pull()
        return self._keras

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._keras!r}>"

    def __getattr__(self, name: str) -> Any:
        if name in ParallelModel._OWN:
            raise AttributeError(name)
        if name not in _CHEAP:
            self._is_touched = True
            if self._engine is not None and name == "optimizer":
                self._engine.tell_step()
            elif self._engine is not None:
                self._engine.pull()
            if name == "metrics":
                self._tell_metrics()
        return getattr(self._keras, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ParallelModel._OWN:
            object.__setattr__(self, name, value)
        else:
            self._is_touched = True
            setattr(self._keras, name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._engine is not None:
            self._engine.pull()
        return self._keras(*args, **kwargs)

    def __reduce__(self) -> Any:
        raise TypeError("a parallel model can't be pickled: save it with `model.save(path)`, or pickle `model.keras_model`")

    # Training.

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Configures training: the arguments of `keras.Model.compile`."""
        if self._engine is not None:
            self._engine.pull()
        self._engine = self._compiled = None
        self._shapes = Shapes()
        self._logs = {}
        self._keras.compile(*args, **kwargs)

    def get_metrics_result(self) -> dict[str, float]:
        """Loss and metrics of the last batches: those of `keras.Model.get_metrics_result`."""
        return dict(self._logs) or dict(self._keras.get_metrics_result())

    def reset_metrics(self) -> None:
        """Sets Keras' metrics back, as `keras.Model.reset_metrics` does."""
        self._logs = {}
        self._keras.reset_metrics()

    def _tell_metrics(self) -> None:
        if self._compiled is not None and self._logs:
            tell(self._keras, self._compiled, self._logs)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Any = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: Any = 1,
    ) -> keras.callbacks.History:
        """Trains on the adapters. Arguments and result are those of `keras.Model.fit`.

        Keras' variables have the new weights at the end, and wherever a callback or a data set of the user's reads them. Ctrl-C ends the step at hand, writes the weights back, and raises
        `KeyboardInterrupt`.

        Raises:
            ModelError: If something in the model is not supported. The message names all such layers and settings.
            DataError: If the data does not fit the model.
            MismatchError: If Keras and the adapters compute different results for the first batch.
            NonFiniteError: If the loss or the gradient is not finite.
        """
        self._needs_compiled("fit")
        epochs = min(epochs, keras_config.max_epochs() or epochs)
        if validation_split and validation_data is None:
            (x, y, sample_weight), validation_data = array_slicing.train_validation_split(
                (x, y, sample_weight), validation_split=validation_split
            )
        source = EpochIterator(
            x=x,
            y=y,
            sample_weight=sample_weight,
            batch_size=batch_size,
            steps_per_epoch=steps_per_epoch,
            shuffle=shuffle,
            class_weight=class_weight,
        )
        engine = self._trained(source, data_adapter_utils.unpack_x_y_sample_weight(validation_data)[2])
        # As in Keras: a `PyDataset` hears of an end before the first epoch.
        source.reset()
        arrays = Arrays.of(source, engine.feeds) if engine.by_keras is None else None
        if not isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks = keras.callbacks.CallbackList(
                callbacks,
                add_history=True,
                add_progbar=verbose != 0,
                verbose=verbose,
                epochs=epochs,
                steps=source.num_batches,
                model=self,
            )
        validation = _Validation(validation_data, validation_batch_size or batch_size, validation_steps, validation_freq)
        self._keras.stop_training = False
        shares = _Shares(engine)
        logs: dict[str, float] = {}
        hooks = Hooks(callbacks, engine, self)
        engine.push()
        hooks("on_train_begin")
        # `BackupAndRestore` says there where training goes on.
        initial_epoch = self._keras._initial_epoch or initial_epoch
        try:
            for epoch in range(initial_epoch, epochs):
                means = _Means(engine)
                shares.end_epoch()
                self.reset_metrics()
                hooks("on_epoch_begin", epoch)
                if engine.by_keras is not None:
                    self._epoch_by_keras(engine, source, hooks, shares)
                elif arrays is not None:
                    self._arrays_epoch(engine, arrays, hooks, shares, means)
                else:
                    self._epoch(engine, source, hooks, shares, means)
                if arrays is None:
                    # A data set of the user's may read weights; callbacks get them in their hooks.
                    engine.pull()
                logs = dict(self._logs) if engine.by_keras is not None else self._told(means.logs())
                if validation.is_due(epoch):
                    logs.update(self._validate(engine, validation, callbacks))
                hooks("on_epoch_end", epoch, logs)
                if self._keras.stop_training:
                    break
        finally:
            engine.pull()
            if self._keras.optimizer.built and epochs > 0:
                # Weights become their averages, if the optimizer keeps them.
                self._keras.optimizer.finalize_variable_values(self._keras.trainable_weights)
            engine.push()
        hooks("on_train_end", logs)
        if verbose:
            print(shares.line())
        return self._keras.history

    def _arrays_epoch(self, engine: Engine, arrays: Arrays, hooks: Hooks, shares: _Shares, means: _Means) -> None:
        """The steps of an epoch on arrays. Nothing of Python runs between two of them, unless a callback waits for it."""
        order = arrays.order()
        if self._keras.stop_training:
            # Keras asks behind a batch.
            order = order[: arrays.batch_size]
        if not engine.is_checked:
            first = order[: arrays.batch_size]
            # By the rows of the data: the check knows those of the batch alone.
            engine.trainer.check().rows(arrays.rows, first)
            engine.check(arrays.some(first))
        waits, sees = hooks.wait_for_batches, hooks.see_batches
        n_steps = -(-len(order) // arrays.batch_size)

        def tell(steps: int, rows: int, sums: list[tuple[str, float]], shards: list[tuple[int, int]]) -> bool:
            means.take(sums, rows)
            shares.take(shards, rows)
            if sees and not waits:
                hooks("on_train_batch_begin", steps - 1)
            self._logs = means.logs()
            hooks("on_train_batch_end", steps - 1, self._logs)
            if waits and steps < n_steps and not self._keras.stop_training:
                hooks("on_train_batch_begin", steps)
            return bool(self._keras.stop_training)

        if waits:
            hooks("on_train_batch_begin", 0)
        engine.train(arrays, order, tell, waits, every_ms=None if sees else _TELL_MS)

    def _epoch_by_keras(self, engine: Engine, source: EpochIterator, hooks: Hooks, shares: _Shares) -> None:
        """The steps of an epoch, whose loss Keras computes: one begins where the one before it was reported."""
        with Epoch(source, engine.feeds, Reading.TRAINED_INPUTS) as batches:
            for step, data in batches:
                engine.check(data)
                hooks("on_train_batch_begin", step)
                self._logs, shards = engine.step_by_keras(data)
                shares.add(shards, data.batch.rows)
                hooks("on_train_batch_end", step, self._logs)
                if self._keras.stop_training:
                    break

    def _epoch(self, engine: Engine, source: EpochIterator, hooks: Hooks, shares: _Shares, means: _Means) -> None:
        """The steps of an epoch. A step begins before the one before it is reported, unless a callback waits for that."""
        waits = hooks.wait_for_batches or self._keras.stop_training
        begun: deque[tuple[int, int]] = deque()
        engine.trainer.reset_metrics()
        try:
            with Epoch(source, engine.feeds, Reading.TRAINING, engine.trainer.check()) as batches:
                for step, data in batches:
                    engine.check(data)
                    if waits:
                        hooks("on_train_batch_begin", step)
                    wants_batch = engine.begin(data.batch)
                    begun.append((step, data.batch.rows))
                    if waits or not wants_batch:
                        self._end(engine, begun, hooks, waits, shares, means)
                        if self._keras.stop_training:
                            break
                while begun:
                    self._end(engine, begun, hooks, waits, shares, means)
        finally:
            while begun:
                # Interrupted: steps that have begun come to their end, so that the weights are whole.
                begun.popleft()
                engine.end()

    def _end(
        self,
        engine: Engine,
        begun: deque[tuple[int, int]],
        hooks: Hooks,
        waits: bool,
        shares: _Shares,
        means: _Means,
    ) -> None:
        step, rows = begun.popleft()
        if not waits:
            hooks("on_train_batch_begin", step)
        _, shards = engine.end()
        shares.add(shards, rows)
        means.add(engine.trainer.metrics(), rows)
        self._logs = means.logs()
        hooks("on_train_batch_end", step, self._logs)

    def _told(self, logs: dict[str, float]) -> dict[str, float]:
        """Logs, which Keras' metrics say from now on, too."""
        self._logs = dict(logs)
        self._tell_metrics()
        return logs

    def _validate(self, engine: Engine, validation: _Validation, callbacks: Any) -> dict[str, float]:
        try:
            shaped = self._shaped(engine, validation.source)
            if shaped is not engine:
                shaped.push()
            logs = pythonify_logs(self._evaluate(shaped, validation.source, callbacks))
        finally:
            self._engine = engine
        return {f"val_{name}": value for name, value in logs.items()}

    def train_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, class_weight: Any = None, return_dict: bool = False
    ) -> Any:
        """One training step on a batch. Gives its loss and metrics."""
        self._needs_compiled("train_on_batch")
        engine = self._trained((x, y, sample_weight))
        engine.push()
        data = _given(engine, (x, y, sample_weight), class_weight, Reading.TRAINING)
        engine.check(data)
        if engine.by_keras is not None:
            self.reset_metrics()
            self._logs, _ = engine.step_by_keras(data)
            engine.pull()
            return self._listed(dict(self._logs), return_dict)
        engine.begin(data.batch)
        values, _ = engine.end()
        # As in Keras: whoever holds a layer or the optimizer sees this step.
        engine.pull()
        return self._listed(self._told(engine.values(values)), return_dict)

    # Inference.

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: Any = "auto",
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """Computes loss and metrics on the adapters. Arguments and result are those of `keras.Model.evaluate`."""
        self._needs_compiled("evaluate")
        source = EpochIterator(x=x, y=y, sample_weight=sample_weight, batch_size=batch_size, steps_per_epoch=steps)
        engine = self._trained(source)
        engine.push()
        return self._listed(self._evaluate(engine, source, callbacks, verbose), return_dict)

    def _evaluate(self, engine: Engine, source: EpochIterator, callbacks: Any, verbose: Any = 0) -> dict[str, float]:
        source.reset()
        if not isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks = keras.callbacks.CallbackList(
                callbacks, add_progbar=verbose != 0, verbose=verbose, epochs=1, steps=source.num_batches, model=self
            )
        means, hooks = _Means(engine), Hooks(callbacks, engine, self)
        self._keras.stop_evaluating = False
        hooks("on_test_begin")
        self.reset_metrics()
        arrays = Arrays.of(source, engine.feeds) if engine.by_keras is None else None
        # A callback may change weights between two batches.
        if arrays is not None and not hooks.write_between_batches:

            def tell(steps: int, rows: int, sums: list[tuple[str, float]], _: Any) -> bool:
                means.take(sums, rows)
                hooks("on_test_batch_begin", steps - 1)
                self._logs = means.logs()
                hooks("on_test_batch_end", steps - 1, self._logs)
                return bool(self._keras.stop_evaluating)

            engine.trainer.evaluate(arrays.rows, arrays.batch_size, tell, None if hooks.see_batches else _TELL_MS)
        else:
            self._evaluate_batches(engine, source, hooks, means)
        logs = dict(self._logs) if engine.by_keras is not None else self._told(means.logs())
        hooks("on_test_end", logs)
        return logs

    def _evaluate_batches(self, engine: Engine, source: EpochIterator, hooks: Hooks, means: _Means) -> None:
        with Epoch(source, engine.feeds, engine.reading(Reading.INFERENCE)) as batches:
            for step, data in batches:
                hooks("on_test_batch_begin", step)
                if engine.by_keras is not None:
                    self._logs = engine.test_by_keras(data)
                else:
                    means.add(engine.trainer.count(data.batch, not means.logs()), data.batch.rows)
                    self._logs = means.logs()
                hooks("on_test_batch_end", step, self._logs)
                if self._keras.stop_evaluating:
                    break

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False) -> Any:
        """Loss and metrics of a batch."""
        self._needs_compiled("test_on_batch")
        engine = self._trained((x, y, sample_weight))
        engine.push()
        data = _given(engine, (x, y, sample_weight), None, Reading.INFERENCE)
        if engine.by_keras is not None:
            self.reset_metrics()
            self._logs = engine.test_by_keras(data)
            return self._listed(dict(self._logs), return_dict)
        return self._listed(self._told(engine.values(engine.trainer.test(data.batch))), return_dict)

    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: Any = "auto",
        steps: int | None = None,
        callbacks: Any = None,
    ) -> Any:
        """Computes the outputs on the adapters. Arguments and result are those of `keras.Model.predict`."""
        source = EpochIterator(x=x, batch_size=batch_size, steps_per_epoch=steps)
        engine = self._opened(source)
        engine.push()
        if not isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks = keras.callbacks.CallbackList(
                callbacks, add_progbar=verbose != 0, verbose=verbose, epochs=1, steps=source.num_batches, model=self
            )
        hooks = Hooks(callbacks, engine, self)
        self._keras.stop_predicting = False
        hooks("on_predict_begin")
        arrays = None if hooks.see_batches else Arrays.of(source, engine.feeds, needs_targets=False)
        if arrays is not None:

            def tell(steps: int, *_: Any) -> None:
                hooks("on_predict_batch_end", steps - 1, None)

            outputs = engine.outputs(engine.trainer.predict_rows(arrays.rows, arrays.batch_size, tell, _TELL_MS))
        else:
            outputs = self._predict_batches(engine, source, hooks)
        hooks("on_predict_end")
        return self._structured(outputs)

    def _predict_batches(self, engine: Engine, source: EpochIterator, hooks: Hooks) -> list[Any]:
        parts: list[list[Any]] = []
        with Epoch(source, engine.feeds, Reading.INPUTS) as batches:
            for step, data in batches:
                hooks("on_predict_batch_begin", step)
                parts.append(engine.predict(data.batch))
                hooks("on_predict_batch_end", step, {"outputs": self._structured(parts[-1])})
                if self._keras.stop_predicting:
                    break
        return [np.concatenate(output) for output in zip(*parts)]

    def predict_on_batch(self, x: Any) -> Any:
        """The outputs for a batch."""
        engine = self._opened((x, None, None))
        engine.push()
        return self._structured(engine.predict(one_batch(engine.feeds, (x,), Reading.INPUTS).batch))

    def _structured(self, outputs: list[Any]) -> Any:
        """Outputs in the structure that the model has."""
        structure = output_structure(self._graph)
        return keras.tree.pack_sequence_as(structure, outputs) if keras.tree.is_nested(structure) else outputs[0]

    def _listed(self, logs: dict[str, float], return_dict: bool) -> Any:
        """Logs as Keras' methods give them: a dict, a list, or the loss alone."""
        logs = pythonify_logs(logs)
        return logs if return_dict else self._keras._flatten_metrics_in_order(logs)

    # The engine.

    def _needs_compiled(self, method: str) -> None:
        if not self._keras.compiled:
            text = explained(f"`{method}`", "needs a compiled model, but this one is not", "call `model.compile(...)` first")
            raise SettingError(text)

    def _trained(self, targets: Any, *weights: Any) -> Engine:
        """The engine of the model as it is compiled now. It is opened for these targets with their weights, or for those of a source."""
        engine, model = self._engine, self._keras
        if engine is not None and engine.compilation is model._compile_config and engine.optimizer is model.optimizer:
            weights = (*weights, _weights_of(targets))
            if engine.by_keras is not None or not any(map(are_by_position, weights)):
                engine = self._shaped(engine, targets)
                engine.check_frozen()
                return engine
        # Its memory is given back before the next one opens.
        del engine
        self._shapes = Shapes()
        x, y, own = first_batch(targets, model) if isinstance(targets, EpochIterator) else targets
        self._graph = _as_graph(model, x, self._is_open())
        self._compiled = compiled(self._graph, y, own, *weights)
        self._engine = self._open(self._compiled)
        if self._is_open():
            self._shapes.add(x, self._engine)
        return self._engine

    def _is_open(self) -> bool:
        """Do inputs leave a length or a size open?"""
        if self._open_inputs is None and self._keras.built:
            self._open_inputs = is_open(self._keras)
        return bool(self._open_inputs)

    def _shaped(self, engine: Engine, data: Any) -> Engine:
        """The engine for the shapes of a batch or of arrays, where the model leaves them open."""
        x = shapes_of(data)
        if x is None or not self._is_open():
            return engine
        engine.pull()
        self._engine = self._shapes.get(x)
        if self._engine is None:
            self._graph = _as_graph(self._keras, x, is_open=True)
            self._engine = self._open(self._compiled if engine.optimizer is not None else None)
            self._shapes.add(x, self._engine)
        return self._engine

    def _opened(self, data: Any) -> Engine:
        """An engine that predicts for a batch, or for a source."""
        if self._engine is not None:
            return self._shaped(self._engine, data)
        model = self._keras
        if self._is_open() or not (is_graph(model) and model.built):
            # Only then the data are read before their turn.
            x, _, _ = first_batch(data, model) if isinstance(data, EpochIterator) else data
            self._graph = _as_graph(model, x, self._is_open())
            if isinstance(data, EpochIterator):
                data.reset()
        self._engine = self._open(None)
        if self._is_open():
            self._shapes.add(x, self._engine)
        return self._engine

    def _open(self, compiled: Compiled | None) -> Engine:
        if self._engine is not None:
            self._engine.pull()
            # The one before gives its memory back first.
            self._engine = None
        return Engine(self._graph, self._rig, self._batch_statistics, self._precision, self._seed, compiled)


def _as_graph(model: Any, x: Any, is_open: bool) -> Any:
    """A model as a graph of layers: a sequential or functional one, or what its `call` does with symbolic inputs.

    Raises:
        ModelError: If that can't be told.
    """
    if is_graph(model):
        if not model.built and isinstance(model, keras.Sequential) and hasattr(x, "shape"):
            # As Keras does with the first batch.
            model.build((None, *x.shape[1:]))
        return Shaped(model, x) if is_open else model
    try:
        return Traced(model, x)
    except Unsupported as error:
        help = "mend this line, build it as `keras.Model(inputs, outputs)`, or train it with Keras itself"
        raise ModelError(explained(f"model `{model.name}` ({type(model).__name__})", str(error), help)) from error


class _Validation:
    """Data for validation, and when it is due."""

    def __init__(self, data: Any, batch_size: int | None, steps: int | None, freq: Any) -> None:
        self._data, self._batch_size, self._steps, self._freq = data, batch_size, steps, freq

    @cached_property
    def source(self) -> EpochIterator:
        """One for all epochs, as in Keras: batches of a generator go on where the epoch before has ended."""
        x, y, weights = data_adapter_utils.unpack_x_y_sample_weight(self._data)
        return EpochIterator(x=x, y=y, sample_weight=weights, batch_size=self._batch_size, steps_per_epoch=self._steps)

    def is_due(self, epoch: int) -> bool:
        """Epochs count from 0 here, and from 1 in `validation_freq`."""
        if self._data is None:
            return False
        return (epoch + 1) % self._freq == 0 if isinstance(self._freq, int) else epoch + 1 in self._freq


class _Shares:
    """How many rows each adapter had."""

    def __init__(self, engine: Engine) -> None:
        self._names = [name for _, name, _, _ in engine.trainer.adapters]
        self._before = self._after = [0] * len(self._names)
        self._rows_before = self._rows = 0

    def end_epoch(self) -> None:
        """What was taken or added so far stays."""
        self._before, self._rows_before = self._after, self._rows

    def add(self, shards: list[tuple[int, int]], rows: int) -> None:
        """Rows of a step by adapter, and all."""
        self._after, self._rows = self._sum(self._after, shards), self._rows + rows

    def take(self, shards: list[tuple[int, int]], rows: int) -> None:
        """Rows of an epoch so far by adapter, and all."""
        self._after, self._rows = self._sum(self._before, shards), self._rows_before + rows

    def _sum(self, rows: list[int], more: list[tuple[int, int]]) -> list[int]:
        summed = list(rows)
        for position, count in more:
            while position >= len(summed):
                summed.append(0)
            while position >= len(self._names):
                self._names.append("CPU in place of a lost adapter")
            summed[position] += count
        return summed

    def line(self) -> str:
        # In stages, each computes all rows of its layers.
        parts = [f"{name} {rows / max(self._rows, 1):.0%}" for name, rows in zip(self._names, self._after)]
        return f"rows by adapter: {', '.join(parts)}"


def _given(engine: Engine, values: tuple[Any, Any, Any], class_weight: Any, reading: Reading) -> Data:
    x, y, sample_weight = values
    if class_weight is not None:
        if sample_weight is not None:
            text = explained("`class_weight` and `sample_weight`", "exclude each other, but both are given", "give one")
            raise SettingError(text)
        sample_weight = data_adapter_utils.class_weight_to_sample_weights(y, class_weight)
    return one_batch(engine.feeds, (x, y, sample_weight), engine.reading(reading))


def _weights_of(targets: Any) -> Any:
    """Sample weights that come with targets, or from arrays."""
    if isinstance(targets, EpochIterator):
        return data_adapter_utils.unpack_x_y_sample_weight(getattr(targets.data_adapter, "_inputs", (None,)))[2]
    return targets[2]


def _check_keras() -> None:
    version = tuple(int(part) for part in keras.__version__.split(".")[:2])
    if not _KERAS[0] <= version < _KERAS[1]:
        raise ModelError(
            explained(
                f"Keras {keras.__version__}",
                "needs to be 3.15, whose configurations this version of manyhands_ml reads",
                'install it: pip install "keras>=3.15,<3.16"',
            )
        )
