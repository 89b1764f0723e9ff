"""`Trainer`: trains a `torch.nn.Module` on adapters."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from .. import _native
from .._ahead import Ahead
from .._objects import TELL_MS, Means
from .._rig import Placement, Rig, Split
from ..errors import SettingError, explained
from ._batches import Batches
from ._engine import Engine, listed
from ._observed import Observed
from ._returned import at, check_rows, first, is_alike, placed, tensor_of, tensors_of

#: Rows of the batch that goes through both.
_CHECKED_ROWS = 32


class Trainer:
    """Trains a `torch.nn.Module` on adapters, with the loss and the optimizer of PyTorch.

    >>> import torch
    >>> from manyhands_ml import digits
    >>> from manyhands_ml.torch import Trainer
    >>> (x, y), (x_test, y_test) = digits()
    >>> module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    >>> optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    >>> trainer = Trainer(module, loss=torch.nn.CrossEntropyLoss(), optimizer=optimizer, adapters="cpu")
    >>> history = trainer.fit(x, y, epochs=5, batch_size=64)
    >>> history["loss"][-1] < history["loss"][0]
    True
    >>> trainer.evaluate(x_test, y_test)["accuracy"] > 0.9
    True
    >>> trainer.predict(x_test).shape
    torch.Size([360, 10])

    Weights and buffers of the module and the state of the optimizer are those of PyTorch after each epoch, and are read again before
    each call: PyTorch can go on where this has ended, and the other way round. A learning rate that a scheduler has changed is
    that of the next epoch.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Any,
        optimizer: torch.optim.Optimizer,
        *,
        adapters: str = "",
        split: Split = "learned",
        batch_statistics: Literal["shard", "batch"] = "shard",
        clip_norm: float | None = None,
        memory: str | None = None,
        placement: Placement = "replicas",
        micro_batches: int = 1,
        seed: int = 0,
    ) -> None:
        """
        Args:
            module: The module to train. All modules in it train, but those that are in evaluation mode within a module in training mode.
            loss: A loss of `torch.nn`, such as `torch.nn.CrossEntropyLoss()`, or a function of outputs and targets that gives one number:
                of outputs in the tuple, list, dict or named tuple in which forward returns several, as in PyTorch.
                PyTorch computes one that the engine lacks on the outputs, which costs a second forward pass in each step. It reads outputs and
                targets alone: a penalty of weights is the optimizer's `weight_decay`.
            optimizer: One of `torch.optim`, with the module's parameters.
            adapters: What to compute on: `"all"` (every GPU, or the processor where there is none), `"0,1"` (by index),
                `"radeon,cpu"` (by a part of the name). Empty: what the environment variable `MANYHANDS_ADAPTERS` names, else all GPUs, else the CPU.
            split: Rows of a batch for each adapter: `"learned"` from measured speed, `"even"`, or a share for each, as `[3, 1]`.
            batch_statistics: Rows of which batch normalization takes mean and variance: those of each adapter (`"shard"`,
                as in PyTorch's own data parallelism), or the whole batch (`"batch"`: as on one device).
            clip_norm: Global norm above which gradients are scaled down, as by `torch.nn.utils.clip_grad_norm_`.
            memory: Most memory for the model on adapters, by position, name or kind: `"0=6GB, cpu=2GB"`. An adapter on which
                a batch takes more runs its rows in pieces.
            placement: Where layers are computed: `"replicas"` (each adapter computes all of them, for its rows of the batch),
                `"auto"` (one or the other, chosen by measurement for some seconds when adapters are opened), or stages: a list
                of layers and the adapters that compute them, for all rows, as
                `[{"layers": ["..layer2"], "adapters": [0]}, {"layers": ["layer3.."], "adapters": [1]}]`. An adapter then holds the weights
                of its stage alone. Layers have the names of modules, or of the nodes of `torch.fx`; ranges have both ends; a name
                means all modules in that one. Numbers of adapters count from 0 in the order of `adapters`.
            micro_batches: Parts into which each adapter cuts its rows, one after the other, before the one update of a step:
                less memory for the same batch. Stages compute at the same time only with several of them. Batch
                normalization then takes mean and variance of each part.
            seed: Seed of shuffling and dropout.

        Raises:
            AdapterError: If an adapter is not there.
            SettingError: If a setting makes no sense by itself.

        When it is first used, by `fit`, `evaluate` or `predict`, a module that can't train on adapters raises `ModelError`, and a
        placement that does not go with its modules or the adapters `SettingError`.
        """
        self._rig = Rig.of(adapters, split, memory, placement, micro_batches)
        self._module, self._loss, self._optimizer = module, loss, optimizer
        self._batch_statistics, self._clip_norm, self._seed = batch_statistics, clip_norm, seed
        self._rng = np.random.default_rng(seed)
        self._engine: Engine | None = None
        # Findings of a call of the module in training; none before the first training.
        self._seen: dict[Any, Observed] | None = None
        # The first rows that came.
        self._inputs: list[torch.Tensor] = []
        self._targets: Any = None

    def fit(
        self,
        x: Any,
        y: Any = None,
        *,
        epochs: int = 1,
        batch_size: int = 32,
        shuffle: bool = True,
        validation_data: Any = None,
        on_epoch: Callable[[int, dict[str, float]], bool | None] | None = None,
        on_step: Callable[[int], Any] | None = None,
    ) -> dict[str, list[float]]:
        """Trains, and gives loss and metrics of each epoch.

        Args:
            x: Inputs: a tensor or array whose first axis is the row, or a list of them. Or a `DataLoader`, or anything else that
                gives batches `(inputs, targets)`, again in each epoch: a generator gives them once, for one epoch.
            y: Targets: a tensor or array; for a function as loss also several, in a tuple, list or dict that it gets with the rows of a
                batch. With batches none.
            epochs: How often all rows are seen.
            batch_size: Rows of a batch, over all adapters; batches of a loader have their own.
            shuffle: Whether each epoch has an order of its own; a loader has its own.
            validation_data: A pair of inputs and targets, or batches of such pairs, to evaluate after each epoch: their numbers have
                the prefix `val_`.
            on_epoch: Called after each epoch with its number, from 0, and its numbers: where a learning-rate scheduler steps.
                Training ends where it gives True.
            on_step: Called once each step has begun, with its number in the epoch, from 0: where a scheduler of steps steps. It may change learning
                rates, those of all groups by one factor. The module has its new weights at the end of the epoch.

        Raises:
            ModelError: If something in the module, the loss or the optimizer is not supported.
            DataError: If the data do not fit the module.
            MismatchError: If PyTorch and the adapters compute different results for the first batch.
            NonFiniteError: If the loss or the gradient is not finite.
            SettingError: If no parameter learns; if parameters of a module have done different numbers of steps, and the
                optimizer's steps depend on their number; or if `on_step` changes more than rates.

        A program may freeze and unfreeze modules, change modes, rates and other settings between two calls, or in `on_epoch`.
        """
        self._seen = {} if self._seen is None else self._seen
        _check_batch_size(batch_size)
        x = Batches(x, epochs=epochs) if y is None else x
        pair = _is_pair(validation_data, (x, y))
        if validation_data is not None and not pair:
            Batches(validation_data, "`validation_data`", epochs)
        engine, history = self._opened(x, y), dict[str, list[float]]()
        engine.push()
        # Nobody looks at the module between epochs: neither a function nor a loader of the program's.
        is_alone = on_epoch is None and on_step is None and y is not None and (pair or validation_data is None)
        for epoch in range(epochs):
            means, is_whole = Means(), False
            engine.check_learns()
            engine.check_steps()
            try:
                engine.take_rate()
                if y is None or on_step is not None or engine.objective.by_torch:
                    batches = x if y is None else self._batches(x, y, batch_size, shuffle)
                    fit = self._fit_by_torch if engine.objective.by_torch else self._fit_batches
                    fit(engine, batches, means, on_step)
                else:
                    self._fit_arrays(engine, x, y, batch_size, shuffle, means)
                is_whole = True
            finally:
                if not (is_alone and is_whole) or epoch + 1 == epochs:
                    engine.pull()
            logs = means.logs
            if validation_data is not None:
                values = self.evaluate(*validation_data, batch_size=batch_size) if pair else self.evaluate(validation_data)
                logs.update({f"val_{name}": value for name, value in values.items()})
            for name, value in logs.items():
                history.setdefault(name, []).append(value)
            if on_epoch is not None and on_epoch(epoch, logs):
                break
            if not is_alone and epoch + 1 < epochs:
                engine = self._current()
                engine.push()
        return history

    def _fit_arrays(self, engine: Engine, x: Any, y: Any, batch_size: int, shuffle: bool, means: Means) -> None:
        rows = engine.rows(x, y)
        order = self._rng.permutation(rows.rows) if shuffle else np.arange(rows.rows)
        engine.is_ahead = True
        rate = engine.step_rate if engine.is_dampened else engine.rate
        engine.native.train(rows, order, batch_size, rate, means.tell, waits=False, every_ms=TELL_MS)

    def _batches(self, x: Any, y: Any, batch_size: int, shuffle: bool) -> Iterator[Any]:
        """Batches of arrays, as `_fit_arrays` takes them."""
        inputs = [tensor_of(part) for part in listed(x)]
        rows = len(inputs[0])
        targets = tensors_of(y, rows)
        check_rows(targets, rows)
        order = torch.from_numpy(self._rng.permutation(rows) if shuffle else np.arange(rows))
        for places in order.split(batch_size):
            yield [part[places] for part in inputs], at(targets, places)

    def _fit_by_torch(self, engine: Engine, batches: Iterable[Any], means: Means, on_step: Callable[[int], Any] | None) -> None:
        engine.is_ahead = True
        for step, batch in enumerate(batches):
            x, y = _parts(batch)
            rows = len(listed(x)[0])
            means.add([("loss", engine.step_by_torch(x, tensors_of(y, rows)))], rows)
            if on_step is not None:
                engine.after_step(on_step, step)

    def _fit_batches(self, engine: Engine, batches: Iterable[Any], means: Means, on_step: Callable[[int], Any] | None) -> None:
        begun: deque[int] = deque()
        engine.is_ahead = True
        check = engine.native.check()
        try:
            with Ahead(_native.Batch(engine.rows(*_parts(batch)), check) for batch in batches) as ready:
                for step, batch in enumerate(ready):
                    wants_batch = engine.native.begin(batch, engine.step_rate())
                    begun.append(batch.rows)
                    if on_step is not None:
                        while begun and engine.is_scaled:
                            means.add(engine.native.end()[0], begun.popleft())
                        engine.after_step(on_step, step)
                    if begun and not wants_batch:
                        means.add(engine.native.end()[0], begun.popleft())
                while begun:
                    means.add(engine.native.end()[0], begun.popleft())
        finally:
            while begun:
                # Interrupted: steps that have begun come to their end, so that the weights are whole.
                begun.popleft()
                engine.native.end()

    def evaluate(self, x: Any, y: Any = None, *, batch_size: int = 32) -> dict[str, float]:
        """Loss and metrics of data, given as for `fit`.

        Raises:
            ModelError, DataError, MismatchError: As `fit`.
        """
        _check_batch_size(batch_size)
        x = Batches(x) if y is None else x
        engine, means = self._opened(x, y), Means()
        engine.push()
        if engine.objective.by_torch:
            for batch in x if y is None else self._batches(x, y, batch_size, shuffle=False):
                inputs, targets = _parts(batch)
                rows = len(listed(inputs)[0])
                means.add([("loss", engine.loss_by_torch(inputs, tensors_of(targets, rows)))], rows)
            return means.logs
        if y is not None:
            engine.native.evaluate(engine.rows(x, y), batch_size, means.tell, TELL_MS)
            return means.logs
        with Ahead(_native.Batch(engine.rows(*_parts(batch))) for batch in x) as ready:
            for batch in ready:
                means.add(engine.native.test(batch), batch.rows)
        return means.logs

    def predict(self, x: Any, *, batch_size: int = 32) -> Any:
        """The output for each row, as the module gives it in evaluation mode: a tensor, or several in the structure that forward returns.

        Args:
            x: Inputs as for `fit`, or batches of inputs, of which targets behind them are left out.
            batch_size: Rows of a batch, over all adapters; batches of a loader have their own.

        Raises:
            ModelError, DataError, MismatchError: As `fit`.
        """
        _check_batch_size(batch_size)
        if _is_arrays(x):
            engine = self._opened(x, None, is_prediction=True)
            engine.push()
            engine.check_predicts()
            flats = engine.native.predict_rows(engine.rows(x, None), batch_size, lambda *_: None, TELL_MS)
            return placed(engine.predicted, engine.outputs(flats))
        outputs, opened = list[list[torch.Tensor]](), None
        for batch in Batches(x):
            inputs = _parts(batch)[0] if isinstance(batch, (tuple, list)) and len(batch) > 1 else batch
            if opened is None:
                opened = self._opened(inputs, None, is_prediction=True)
                opened.push()
                opened.check_predicts()
            outputs.append(opened.outputs(opened.native.predict(_native.Batch(opened.rows(inputs, None)))))
        assert opened is not None
        return placed(opened.predicted, [torch.cat(parts) for parts in zip(*outputs)])

    def _opened(self, x: Any, y: Any, is_prediction: bool = False) -> Engine:
        """The engine, made and checked with the first rows that come."""
        if self._engine is None or not (self._engine.is_checked or is_prediction):
            if y is None and not is_prediction:
                x, y = _parts(x.first())
            self._inputs = [tensor_of(part[:_CHECKED_ROWS]) for part in listed(x)]
            self._targets = None if y is None else first(y, len(listed(x)[0]), _CHECKED_ROWS)
        return self._current()

    def _current(self) -> Engine:
        """The engine, made anew where something has changed that it was made of: what is frozen, a mode, a setting, a weight."""
        settings = {"batch_statistics": self._batch_statistics, "seed": self._seed, "clip_norm": self._clip_norm}
        engine = Engine(self._module, self._loss, self._optimizer, self._inputs, self._targets, settings, self._seen)
        if self._engine is not None and self._engine.made_of() == engine.made_of():
            engine = self._engine
        else:
            steps = 0 if self._engine is None else self._engine.native.step
            # Adapters need its memory.
            self._engine = None
            engine.open(self._rig, steps)
            self._engine = engine
        if not engine.is_checked and (self._targets is not None or not engine.is_compared):
            engine.push()
            engine.check(self._inputs, self._targets)
        return engine


def _check_batch_size(batch_size: Any) -> None:
    if not isinstance(batch_size, (int, np.integer)) or batch_size < 1:
        problem = f"needs a whole number from 1, but is {batch_size!r}"
        raise SettingError(explained("`batch_size`", problem, "give the rows of a batch, over all adapters"))


def _is_arrays(x: Any) -> bool:
    """Are these arrays of rows, and not batches?"""
    if isinstance(x, (torch.Tensor, np.ndarray)):
        return True
    return isinstance(x, (list, tuple)) and all(isinstance(part, (torch.Tensor, np.ndarray)) for part in x)


def _is_pair(data: Any, known: tuple[Any, Any]) -> bool:
    """Is this one pair of inputs and targets, such as a known one, and not two batches of such pairs?"""
    if not isinstance(data, (list, tuple)) or len(data) != 2:
        return False
    if isinstance(known[1], (list, tuple)) and all(is_alike(part, other) for part, other in zip(data, known)):
        return True
    return not all(isinstance(part, (list, tuple)) and part and isinstance(part[-1], (torch.Tensor, np.ndarray)) for part in data)


def _parts(batch: Any) -> tuple[Any, Any]:
    """Inputs and targets of a batch: the last part are the targets."""
    if not isinstance(batch, (list, tuple)) or len(batch) < 2:
        raise SettingError(
            explained("a batch", "needs to be inputs and targets, but is no pair", "give `(inputs, targets)`, or `fit(x, y)`")
        )
    return (batch[0] if len(batch) == 2 else list(batch[:-1])), batch[-1]
