"""Batches that a program gives, read as a loop of PyTorch reads them: begun once in each epoch, and each of them trained on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import GeneratorType
from typing import Any

from ..errors import DataError, explained

#: Sources that give their batches once: at their end they stay.
_ONCE = (GeneratorType, enumerate, filter, map, zip)


class Batches:
    """Batches of a `DataLoader`, a list or a generator. The first one may be looked at before an epoch, which then begins with it.

    >>> batches = Batches(value for value in "ab")
    >>> batches.first(), list(batches)
    ('a', ['a', 'b'])
    """

    def __init__(self, source: Any, who: str = "the data", epochs: int = 1) -> None:
        if epochs > 1 and isinstance(source, _ONCE):
            problem = f"need to come again in each of {epochs} epochs, but are a {type(source).__name__}, which gives batches once"
            raise DataError(explained(who, problem, "give a `DataLoader`, a list or an object with `__iter__`; or train for one epoch"))
        self._source, self._who = source, who
        self._begun: Iterator[Any] | None = None

    def first(self) -> Any:
        """The batch that comes next: with it the next epoch begins."""
        batches = iter(self)
        found = next(batches)
        self._begun = itertools.chain([found], batches)
        return found

    def __iter__(self) -> Iterator[Any]:
        begun, self._begun = self._begun, None
        # Here and not at the first batch: a loader draws random numbers when it is begun.
        return self._whole(iter(self._source)) if begun is None else begun

    def _whole(self, batches: Iterator[Any]) -> Iterator[Any]:
        batch = None
        for batch in batches:
            yield batch
        if batch is None:
            help = "give a loader with rows, and one that begins anew in each epoch"
            raise DataError(explained(self._who, "need at least one batch, but have none", help))
