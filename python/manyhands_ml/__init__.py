"""Train Keras and PyTorch models on every GPU in the machine, whatever its vendor, without CUDA.

    import keras
    from manyhands_ml import make_parallel

    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(10, activation="softmax")])
    model = make_parallel(model, adapters="all")
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(x, y, batch_size=256, epochs=5)

`make_parallel` is all that a model of Keras needs. `adapters` lists what there is to train on.

For a model of PyTorch there is `manyhands_ml.torch.Trainer`.

Without Keras, `Model` holds layers and weights, `Trainer` trains them on NumPy arrays, `Predictor` predicts, and `simulate` tells
what adapters would do together that are not there. The command `manyhands-ml` does the same from files.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from . import _native
from ._objects import Model, Prediction, Predictor, Simulation, Span, Timeline, Trainer, digits, simulate
from .errors import AdapterError, DataError, ManyhandsError, MismatchError, ModelError, NonFiniteError, SettingError

if TYPE_CHECKING:
    import keras

    from ._parallel import ParallelModel

if sys.platform == "linux" and not os.path.isabs(os.environ.get("XDG_RUNTIME_DIR", "")):
    # Mesa prints an error for each search where there is no desktop; its layer that chooses among devices is not needed.
    os.environ.setdefault("NODEVICE_SELECT", "1")

__version__: str = _native.__version__
__all__ = [
    "Adapter",
    "AdapterError",
    "DataError",
    "ManyhandsError",
    "MismatchError",
    "Model",
    "ModelError",
    "NonFiniteError",
    "ParallelModel",
    "Prediction",
    "Predictor",
    "SettingError",
    "Simulation",
    "Span",
    "Timeline",
    "Trainer",
    "adapters",
    "digits",
    "make_parallel",
    "simulate",
]


@dataclass(frozen=True)
class Adapter:
    """A GPU, the processor, or a driver that computes on the processor."""

    index: int
    """Its number: what `make_parallel(model, adapters="0")` names."""
    name: str
    """As its driver calls it."""
    kind: str
    """`discrete_gpu`, `integrated_gpu`, `virtual_gpu`, `cpu` or `software`."""
    backend: str
    """`vulkan`, `metal`, `dx12`, `gl`, or `host` for the processor."""


def __getattr__(name: str) -> object:
    # Keras is imported by those who use it.
    if name == "ParallelModel":
        from ._parallel import ParallelModel

        return ParallelModel
    raise AttributeError(f"module `manyhands_ml` has no `{name}`")


def adapters(choice: str | None = None) -> list[Adapter]:
    """The adapters of this machine, or those that a choice names. None is opened.

    >>> [adapter.kind for adapter in adapters("cpu")]
    ['cpu']
    """
    return [Adapter(*found) for found in _native.adapters(choice)]


def make_parallel(
    model: keras.Model,
    adapters: str = "",
    *,
    split: Literal["learned", "even"] | Sequence[float] = "learned",
    batch_statistics: Literal["shard", "batch"] = "shard",
    memory: str | None = None,
    seed: int = 0,
) -> ParallelModel:
    """A Keras model that trains, evaluates and predicts on several adapters at once.

    The result is used like the model itself, whose layers and weights it shares. What it saves is the plain model.

    Args:
        model: A `keras.Sequential` or functional model, compiled or not.
        adapters: What to compute on: `"all"` (every GPU), `"0,1"` (by index), `"radeon,cpu"` (by a part of the name),
            `"all,cpu"`. Empty: what the environment variable `MANYHANDS_ADAPTERS` names, else all GPUs, else the CPU.
        split: Who gets how many rows of a batch: `"learned"` from measured speed, `"even"`, or a share for each adapter.
        batch_statistics: Whose mean and variance batch normalization takes: those of each adapter's rows (`"shard"`,
            as in Keras' own data parallelism), or of the whole batch (`"batch"`: as on one device).
        memory: Most memory for the model on adapters, named as in `adapters`: `"0=6GB, cpu=2GB"`. An adapter on which a
            batch takes more runs its rows in pieces.
        seed: Seed of dropout.

    Raises:
        AdapterError: If an adapter is not there. Whether the model can train here is said when it is first used.
    """
    from ._parallel import ParallelModel

    return ParallelModel(model, adapters, split, batch_statistics, seed, memory)
