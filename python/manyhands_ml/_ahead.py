"""Items that a thread makes ahead of those who ask for them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

Item = TypeVar("Item")

#: Items that are made before they are asked for.
_AHEAD = 2


class _End:
    """Stands behind the last item."""


class Ahead(Generic[Item]):
    """Iterates over items in a thread of its own while the caller computes.

    >>> with Ahead(value * value for value in range(4)) as squares:
    ...     list(squares)
    [0, 1, 4, 9]
    """

    def __init__(self, items: Iterable[Item]) -> None:
        self._source = items
        self._queue: queue.Queue[Item | _End | BaseException] = queue.Queue(_AHEAD)
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._read, name="manyhands reader", daemon=True)

    def __enter__(self) -> Iterator[Item]:
        self._thread.start()
        return self._items()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_closed.set()
        # A generator that takes long for its item is not waited for.
        self._thread.join(timeout=0.3)

    def _items(self) -> Iterator[Item]:
        while True:
            try:
                # With a timeout an interrupt gets through on every system.
                item = self._queue.get(timeout=0.1)
            except queue.Empty:
                continue
            if isinstance(item, _End):
                return
            if isinstance(item, BaseException):
                raise item
            yield item

    def _put(self, item: Item | _End | BaseException) -> bool:
        while not self._is_closed.is_set():
            try:
                self._queue.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def _read(self) -> None:
        try:
            for item in self._source:
                if not self._put(item):
                    return
            self._put(_End())
        except BaseException as error:  # noqa: BLE001, it is raised where the item is asked for
            self._put(error)
