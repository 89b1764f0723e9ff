"""Arrays sorted by what a model reads, as the native half takes them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _native
from .errors import DataError, explained

#: Types that the native half takes as they are.
TAKEN = tuple(np.dtype(name) for name in ("float32", "uint8", "int64", "float64", "int32", "bool"))


@dataclass(frozen=True)
class Feeds:
    """What a model reads, to sort the parts of a batch."""

    inputs: list[tuple[str, list[int]]]
    #: Names of the inputs where Keras takes them as a dict.
    keys: list[str]
    outputs: list[str]
    #: Shape of the target of each output that no loss and no metric reads, `None` where one does.
    unread: list[list[int] | None] = field(default_factory=list)
    #: Makes what the model reads of a batch, in training or not; `None` where that is the batch itself.
    front: Callable[[Any, bool], list[Any]] | None = None


def rows_of(feeds: Feeds, x: Any, y: Any, sample_weight: Any, needs_targets: bool) -> _native.Rows:
    """The rows of arrays, sorted by what the model reads."""
    inputs = [_array(value) for value in _all_parts(x, feeds.keys)]
    if len(inputs) != len(feeds.inputs):
        raise _refused("the data", f"needs {len(feeds.inputs)} inputs, but has {len(inputs)}")
    for (name, shape), value in zip(feeds.inputs, inputs):
        _check_shape(name, shape, value)
    rows = inputs[0].shape[0]
    if not rows:
        raise DataError(explained("the data", "need at least one row, but have none", "leave this call out"))
    targets = _targets(feeds, y, rows) if needs_targets else []
    for value in (*inputs, *targets):
        if value.shape[:1] != (rows,):
            raise _refused("the data", f"needs {rows} rows in each array, but one has shape {list(value.shape)}")
    weights = _weights(sample_weight, feeds.outputs, rows) if needs_targets else None
    return _native.Rows(rows, inputs, targets, weights)


def _targets(feeds: Feeds, y: Any, rows: int) -> list[NDArray[Any]]:
    """A target for each output, in order: zeros where nothing reads one. Such targets may be `None` or left out, as in Keras."""
    unread = feeds.unread or [None] * len(feeds.outputs)
    given = parts(y, feeds.outputs) if y is not None else []
    if len(given) == unread.count(None) < len(unread):
        left = iter(given)
        given = [next(left) if shape is None else None for shape in unread]
    missing = [name for name, value, shape in zip(feeds.outputs, given, unread) if value is None and shape is None]
    if isinstance(y, dict) and missing:
        raise _refused(f"`{missing[0]}`", f"is needed, but the data have {sorted(y)}")
    if len(given) != len(unread) or any(value is None and shape is None for value, shape in zip(given, unread)):
        n_given = sum(value is not None for value in given)
        raise _refused("the data", f"needs {unread.count(None)} targets, but has {n_given}")
    return [
        _array(value) if shape is None else np.broadcast_to(np.float32(0), (rows, *shape)) for value, shape in zip(given, unread)
    ]


def parts(value: Any, names: list[str]) -> list[Any]:
    """The values of a dict by these names, or of a list; `None` for what a dict lacks. Those of structures within are in Keras' order."""
    if isinstance(value, dict) and not _is_deep(value):
        if not set(value) & set(names):
            raise _refused(f"`{names[0]}`", f"is needed, but the data have {sorted(value)}")
        return [value.get(name) for name in names]
    if isinstance(value, (list, tuple)):
        return [found for part in value for found in _flat(part)]
    return list(_flat(value))


def _is_deep(value: Any) -> bool:
    """Are there structures within a dict?"""
    return any(isinstance(part, (dict, list, tuple)) for part in value.values())


def _flat(value: Any) -> Iterator[Any]:
    """The leaves of a structure: dicts by their sorted keys. A list of numbers is one."""
    if isinstance(value, dict):
        keys = value if isinstance(value, OrderedDict) else sorted(value)
        value = [value[key] for key in keys]
    if isinstance(value, (list, tuple)) and not any(isinstance(part, Number) for part in value):
        for part in value:
            yield from _flat(part)
    else:
        yield value


def _all_parts(value: Any, names: list[str]) -> list[Any]:
    missing = [name for name in names if isinstance(value, dict) and not _is_deep(value) and name not in value]
    if missing:
        raise _refused(f"`{missing[0]}`", f"is needed, but the data have {sorted(value)}")
    return parts(value, names)


def _array(value: Any) -> NDArray[Any]:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    array = np.asarray(value)
    if array.dtype not in TAKEN:
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
    given = _all_parts(value, outputs)
    parts = [_array(part) for part in given if part is not None]
    if not parts:
        return None
    first = parts[0]
    if first.size != rows:
        raise _refused("`sample_weight`", f"needs one number for each of {rows} rows, but has shape {list(first.shape)}")
    is_of_all = not isinstance(value, (dict, list, tuple)) or len(parts) == len(outputs)
    if not is_of_all or any(not np.array_equal(first, part) for part in parts[1:]):
        problem = "needs to be the same for all outputs, because those of the first batch were"
        raise DataError(explained("`sample_weight`", problem, "call `model.compile(...)` again: weights of each output may come with the first batch"))
    return first.reshape(rows)


def _refused(who: str, problem: str) -> DataError:
    return DataError(explained(who, problem, "give arrays whose first axis is the row, one for each input and output"))
