"""Models whose inputs have `None` in their shapes, such as `keras.Input((None,))`: a plan for each length or size that comes."""

from __future__ import annotations

import warnings
from typing import Any

from keras.src.trainers.data_adapters import data_adapter_utils
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.epoch_iterator import EpochIterator

from ._compiled import outside
from ._engine import Engine
from ._front import front
from ._traced import is_graph, sizes

#: Engines that are kept: each holds a copy of the weights on each adapter.
_MOST = 4


def is_open(model: Any) -> bool:
    """Does a graph of layers leave a length or a size open of what the adapters read?"""
    if not (is_graph(model) and model.built and any(None in tensor.shape[1:] for tensor in model.inputs or ())):
        return False
    in_front = front(model)
    return in_front is None or any(None in tensor.shape[1:] for tensor in in_front.outputs)


def shapes_of(data: Any) -> Any:
    """Inputs of a batch, or of a source of arrays; `None` of any other source, which has those that it had before."""
    if not isinstance(data, EpochIterator):
        return data[0]
    if type(data.data_adapter) is not ArrayDataAdapter:
        return None
    x, _, _ = data_adapter_utils.unpack_x_y_sample_weight(data.data_adapter._inputs)
    return x


class Shapes:
    """The engines of a model by the shapes of its inputs, the last used behind the others."""

    def __init__(self) -> None:
        self._engines: dict[Any, Engine] = {}

    def get(self, x: Any) -> Engine | None:
        """The engine for inputs like these, if there is one."""
        key = sizes(x)
        engine = self._engines.pop(key, None)
        if engine is not None:
            self._engines[key] = engine
        return engine

    def add(self, x: Any, engine: Engine) -> None:
        """Keeps an engine, in place of the one that was not used for longest."""
        self._engines[sizes(x)] = engine
        if len(self._engines) == 2:
            text = f"`{engine.model.name}` leaves lengths of its inputs open: each new one costs a plan; pad rows to a few lengths"
            warnings.warn(text, UserWarning, stacklevel=outside(__package__))
        if len(self._engines) > _MOST:
            del self._engines[next(iter(self._engines))]
