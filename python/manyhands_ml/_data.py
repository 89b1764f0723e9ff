"""Batches of Keras' data adapters, read ahead and turned into batches of the engine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import keras
import numpy as np
from keras.src.trainers.data_adapters import data_adapter_utils
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.epoch_iterator import EpochIterator
from numpy.typing import NDArray

from . import _native
from ._ahead import Ahead
from ._rows import TAKEN, Feeds, rows_of


@dataclass
class Data:
    """A batch as Keras' adapter gave it, and as the engine takes it."""

    x: Any
    y: Any
    sample_weight: Any
    #: What the adapters read: `x`, or what the layers in front make of it.
    inputs: Any
    batch: _native.Batch


class Reading(Enum):
    """The parts of a batch that are read, and whether layers in front draw random numbers."""

    #: Inputs and targets, in training.
    TRAINING = auto()
    #: Inputs alone, in training.
    TRAINED_INPUTS = auto()
    #: Inputs and targets, in inference.
    INFERENCE = auto()
    #: Inputs alone, in inference.
    INPUTS = auto()

    @property
    def has_targets(self) -> bool:
        """Are targets read?"""
        return self in (Reading.TRAINING, Reading.INFERENCE)

    @property
    def without_targets(self) -> Reading:
        """The same with inputs alone."""
        return Reading.TRAINED_INPUTS if self in (Reading.TRAINING, Reading.TRAINED_INPUTS) else Reading.INPUTS


def one_batch(feeds: Feeds, values: Any, reading: Reading, check: _native.Check | None = None) -> Data:
    """A batch from what a data adapter gives: `x`, `(x, y)` or `(x, y, sample_weight)`. A trainer's check is made at once."""
    x, y, sample_weight = data_adapter_utils.unpack_x_y_sample_weight(values)
    is_training = reading in (Reading.TRAINING, Reading.TRAINED_INPUTS)
    inputs = x if feeds.front is None else feeds.front(x, is_training)
    return Data(x, y, sample_weight, inputs, _native.Batch(rows_of(feeds, inputs, y, sample_weight, reading.has_targets), check))


def first_batch(source: EpochIterator, model: Any) -> tuple[Any, Any, Any]:
    """Inputs, targets and weights of the first batch, or of all: for their structure and shapes. The source has to be reset then.

    Keras reads a batch where loss or metrics are not built yet, and so draws an order of the rows that it doesn't use.
    """
    adapter = source.data_adapter
    loss, metrics = model._compile_loss, model._compile_metrics
    is_built = all(part is None or part.built for part in (loss, metrics))
    if type(adapter) is ArrayDataAdapter and is_built:
        values = adapter._inputs
    else:
        first = next(iter(source), None)
        values = first[2][0] if first is not None else getattr(adapter, "_inputs", None)
    x, y, weights = data_adapter_utils.unpack_x_y_sample_weight(values)
    return x, y, weights


class Arrays:
    """Whole arrays in memory, whose batches the native half gathers by itself."""

    def __init__(self, adapter: ArrayDataAdapter, feeds: Feeds, needs_targets: bool) -> None:
        self._parts = data_adapter_utils.unpack_x_y_sample_weight(adapter._inputs)
        self._feeds, self._shuffle = feeds, adapter._shuffle
        self.batch_size: int = adapter._batch_size
        x, y, sample_weight = self._parts
        self.rows = rows_of(feeds, x, y, sample_weight, needs_targets)

    @staticmethod
    def of(source: EpochIterator, feeds: Feeds, needs_targets: bool = True) -> Arrays | None:
        """The arrays that a source reads; `None` if it reads something else, or not each row once in an epoch."""
        adapter = source.data_adapter
        if type(adapter) is not ArrayDataAdapter or source.steps_per_epoch or feeds.front is not None:
            return None
        parts = [part for part in keras.tree.flatten(adapter._inputs) if part is not None]
        if not all(isinstance(part, np.ndarray) and part.dtype in TAKEN for part in parts):
            return None
        return Arrays(adapter, feeds, needs_targets)

    def order(self) -> NDArray[np.int64]:
        """The rows of an epoch, drawn as Keras draws them."""
        n_rows = self.rows.rows
        if not self._shuffle:
            return np.arange(n_rows)
        if self._shuffle != "batch":
            return np.random.permutation(n_rows)
        begins = range(0, n_rows, self.batch_size)
        return np.concatenate([begin + np.random.permutation(min(self.batch_size, n_rows - begin)) for begin in begins])

    def some(self, order: NDArray[np.int64]) -> Data:
        """A batch of these rows."""
        parts = keras.tree.map_structure(lambda part: None if part is None else part[order], self._parts)
        return one_batch(self._feeds, parts, Reading.INFERENCE)


class Epoch(Ahead[tuple[int, Data]]):
    """The batches of an epoch, read, converted and checked in a thread of its own while the adapters compute."""

    def __init__(self, source: EpochIterator, feeds: Feeds, reading: Reading, check: _native.Check | None = None) -> None:
        super().__init__((step, one_batch(feeds, values, reading, check)) for step, _, buffer in source for values in buffer)
