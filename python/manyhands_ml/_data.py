"""Batches of Keras' data adapters, read ahead and turned into batches of the engine."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import keras
import numpy as np
from keras.src.trainers.data_adapters import data_adapter_utils
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.epoch_iterator import EpochIterator
from numpy.typing import NDArray

from . import _native
from .errors import DataError, explained

#: Batches that are read before they are asked for.
_AHEAD = 2
#: Types that the native half takes as they are.
_TAKEN = tuple(np.dtype(name) for name in ("float32", "uint8", "int64", "float64", "int32", "bool"))


@dataclass(frozen=True)
class Feeds:
    """What a model reads, to sort the parts of a batch."""

    inputs: list[tuple[str, list[int]]]
    #: Names of the inputs where Keras takes them as a dict.
    keys: list[str]
    outputs: list[str]


@dataclass
class Data:
    """A batch as Keras' adapter gave it, and as the engine takes it."""

    x: Any
    y: Any
    sample_weight: Any
    batch: _native.Batch


def one_batch(feeds: Feeds, values: Any, needs_targets: bool = True) -> Data:
    """A batch from what a data adapter gives: `x`, `(x, y)` or `(x, y, sample_weight)`."""
    x, y, sample_weight = data_adapter_utils.unpack_x_y_sample_weight(values)
    return Data(x, y, sample_weight, _native.Batch(_rows(feeds, x, y, sample_weight, needs_targets)))


def _rows(feeds: Feeds, x: Any, y: Any, sample_weight: Any, needs_targets: bool) -> _native.Rows:
    """The rows of arrays, sorted by what the model reads."""
    inputs = [_array(value) for value in _parts(x, feeds.keys)]
    if len(inputs) != len(feeds.inputs):
        raise _refused("the data", f"needs {len(feeds.inputs)} inputs, but has {len(inputs)}")
    for (name, shape), value in zip(feeds.inputs, inputs):
        _check_shape(name, shape, value)
    rows = inputs[0].shape[0]
    targets = [_array(value) for value in _parts(y, feeds.outputs)] if needs_targets and y is not None else []
    if needs_targets and len(targets) != len(feeds.outputs):
        raise _refused("the data", f"needs {len(feeds.outputs)} targets, but has {len(targets)}")
    for value in (*inputs, *targets):
        if value.shape[:1] != (rows,):
            raise _refused("the data", f"needs {rows} rows in each array, but one has shape {list(value.shape)}")
    weights = _weights(sample_weight, feeds.outputs, rows) if needs_targets else None
    return _native.Rows(rows, inputs, targets, weights)


class Arrays:
    """Whole arrays in memory, whose batches the native half gathers by itself."""

    def __init__(self, adapter: ArrayDataAdapter, feeds: Feeds, needs_targets: bool) -> None:
        self._parts = data_adapter_utils.unpack_x_y_sample_weight(adapter._inputs)
        self._feeds, self._shuffle = feeds, adapter._shuffle
        self.batch_size: int = adapter._batch_size
        x, y, sample_weight = self._parts
        self.rows = _rows(feeds, x, y, sample_weight, needs_targets)

    @staticmethod
    def of(source: EpochIterator, feeds: Feeds, needs_targets: bool = True) -> Arrays | None:
        """The arrays that a source reads; `None` if it reads something else, or not each row once in an epoch."""
        adapter = source.data_adapter
        if type(adapter) is not ArrayDataAdapter or source.steps_per_epoch:
            return None
        parts = [part for part in keras.tree.flatten(adapter._inputs) if part is not None]
        if not all(isinstance(part, np.ndarray) and part.dtype in _TAKEN for part in parts):
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
        return one_batch(self._feeds, keras.tree.map_structure(lambda part: None if part is None else part[order], self._parts))


def _parts(value: Any, names: list[str]) -> list[Any]:
    if isinstance(value, dict):
        missing = [name for name in names if name not in value]
        if missing:
            raise _refused(f"`{missing[0]}`", f"is needed, but the data have {sorted(value)}")
        return [value[name] for name in names]
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _array(value: Any) -> NDArray[Any]:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    array = np.asarray(value)
    if array.dtype not in _TAKEN:
        if array.dtype.kind not in "fiub":
            raise _refused("the data", f"need to be numbers, but are {array.dtype}")
        array = array.astype(np.float32)
    return array if array.flags.aligned else array.copy()


def _check_shape(name: str, shape: list[int], value: NDArray[Any]) -> None:
    """A last axis of 1 may be left out, as in Keras."""
    got = list(value.shape[1:])
    if value.ndim == 0 or (got != shape and got + [1] != shape and got != shape + [1]):
        raise _refused(f"input `{name}`", f"needs shape {[None, *shape]}, but the data have {list(value.shape)}")


def _weights(value: Any, outputs: list[str], rows: int) -> NDArray[Any] | None:
    parts = [_array(part) for part in _parts(value, outputs) if part is not None] if value is not None else []
    if not parts:
        return None
    first = parts[0]
    if first.size != rows:
        raise _refused("`sample_weight`", f"needs one number for each of {rows} rows, but has shape {list(first.shape)}")
    if any(not np.array_equal(first, part) for part in parts[1:]) or len(parts) not in (1, len(outputs)):
        raise _refused("`sample_weight`", "needs to be the same for all outputs")
    return first.reshape(rows)


def _refused(who: str, problem: str) -> DataError:
    return DataError(explained(who, problem, "give arrays whose first axis is the row, one for each input and output"))


class Epoch:
    """The batches of an epoch, read and converted in a thread of its own while the adapters compute."""

    def __init__(self, source: EpochIterator, feeds: Feeds, needs_targets: bool = True) -> None:
        self._source, self._feeds, self._needs_targets = source, feeds, needs_targets
        self._queue: queue.Queue[tuple[int, Data] | BaseException | None] = queue.Queue(_AHEAD)
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._read, name="manyhands reader", daemon=True)

    def __enter__(self) -> Iterator[tuple[int, Data]]:
        self._thread.start()
        return self._items()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_closed.set()
        # A generator that takes long for its batch is not waited for.
        self._thread.join(timeout=0.3)

    def _items(self) -> Iterator[tuple[int, Data]]:
        while True:
            try:
                # With a timeout an interrupt gets through on every system.
                item = self._queue.get(timeout=0.1)
            except queue.Empty:
                continue
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item

    def _put(self, item: tuple[int, Data] | BaseException | None) -> bool:
        while not self._is_closed.is_set():
            try:
                self._queue.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def _read(self) -> None:
        try:
            for step, _, buffer in self._source:
                for values in buffer:
                    if not self._put((step, one_batch(self._feeds, values, self._needs_targets))):
                        return
            self._put(None)
        except BaseException as error:  # noqa: BLE001, it is raised where the batch is asked for
            self._put(error)
