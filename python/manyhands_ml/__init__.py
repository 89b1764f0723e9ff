"""Train Keras and PyTorch models on every GPU in the machine, whatever its vendor, without CUDA.

    import keras
    from manyhands_ml import make_parallel

    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(10, activation="softmax")])
    model = make_parallel(model, adapters="all")
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(x, y, batch_size=256, epochs=5)

An adapter is a GPU, the processor, or a driver that computes on the processor; `adapters()` lists those of this machine. Each
gets a part of every batch, so they train one model together.

- With Keras, `make_parallel` is all that a model needs. It returns a `ParallelModel`, which is used like the model.
- With PyTorch, `manyhands_ml.torch.Trainer` trains a module.
- Without either, `Model` holds layers and weights, `Trainer` trains them on NumPy arrays, and `Predictor` predicts.
- `manyhands_ml.text.LanguageModel` teaches language models of others your texts.
- `simulate` predicts the speed of adapters that you don't have.

The repository's page `docs/guide/what-runs.md` lists the layers, operations, losses, optimizers and arguments of Keras and PyTorch that
run, and the ways out of those that don't.

The command `manyhands-ml` trains, evaluates and predicts from a settings file: `manyhands-ml --help`. All errors are
`ManyhandsError`s; their messages say what was needed, what was found and what helps.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from . import _native
from ._objects import Model, Prediction, Predictor, Simulation, Span, Timeline, Trainer, digits, simulate
from ._rig import Placement, Rig, Split, Stage
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
    "Stage",
    "Timeline",
    "Trainer",
    "adapters",
    "digits",
    "make_parallel",
    "simulate",
]


@dataclass(frozen=True)
class Adapter:
    """A GPU, the processor, or a driver that computes on the processor.

    Attributes:
        index: Its number, as in `make_parallel(model, adapters="0")`.
        name: The name that its driver gives it.
        kind: `"discrete_gpu"`, `"integrated_gpu"`, `"virtual_gpu"`, `"cpu"` or `"software"`.
        backend: `"vulkan"`, `"metal"`, `"dx12"`, `"gl"`, or `"host"` for the processor.
    """

    index: int
    name: str
    kind: str
    backend: str


def __getattr__(name: str) -> object:
    # Keras is imported by those who use it.
    if name == "ParallelModel":
        from ._parallel import ParallelModel

        return ParallelModel
    raise AttributeError(f"module `manyhands_ml` has no `{name}`")


def adapters(choice: str | None = None) -> list[Adapter]:
    """The adapters of this machine, or those that a choice names: see `make_parallel`. No device is opened.

    >>> [adapter.kind for adapter in adapters("cpu")]
    ['cpu']
    """
    return [Adapter(*found) for found in _native.adapters(choice)]


def make_parallel(
    model: keras.Model,
    adapters: str = "",
    *,
    split: Split = "learned",
    batch_statistics: Literal["shard", "batch"] = "shard",
    precision: Literal["float32", "mixed_float16"] = "float32",
    memory: str | None = None,
    placement: Placement = "replicas",
    micro_batches: int = 1,
    seed: int = 0,
) -> ParallelModel:
    """Makes a Keras model train, evaluate and predict on several adapters at once.

    The result is used like the model itself, whose layers and weights it shares: `compile`, `fit`, `evaluate`, `predict` and
    `save` take Keras' arguments. It saves a plain Keras model. `docs/guide/what-runs.md` lists what runs and what does not.

    >>> import keras, numpy
    >>> model = make_parallel(keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]), adapters="cpu")
    >>> model.compile("adam", "mse")
    >>> history = model.fit(numpy.zeros((8, 3)), numpy.zeros((8, 2)), epochs=4, verbose=0)
    >>> len(history.history["loss"])
    4

    Args:
        model: A `keras.Sequential` or functional model, compiled or not.
        adapters: What to compute on: `"all"` (every GPU, or the processor where there is none), `"0,1"` (by index), `"radeon,cpu"`
            (by a part of the name), `"all,cpu"`. Empty: what the environment variable `MANYHANDS_ADAPTERS` names, else all GPUs, else the CPU.
        split: Rows of a batch for each adapter: `"learned"` from measured speed, `"even"`, or a share for each, as `[3, 1]`.
        batch_statistics: Rows of which batch normalization takes mean and variance: those of each adapter (`"shard"`,
            as in Keras' own data parallelism), or the whole batch (`"batch"`: as on one device; not with stages or
            micro-batches).
        precision: Numbers with which training computes. With `"mixed_float16"`, matrix products and convolutions round both factors
            to 16-bit floats and add in 32 bits, and the loss is scaled by the rules of `keras.optimizers.LossScaleOptimizer`; all
            else, weights, activations, evaluation and prediction, is of 32 bits. The model's own `dtype` stays `"float32"`, and its
            optimizer is given without that wrapper.
        memory: Most memory for the model on adapters, by position in `adapters`, name or kind: `"0=6GB, cpu=2GB"`. An adapter on
            which a batch takes more runs its rows in pieces.
        placement: Where layers are computed: `"replicas"` (each adapter computes all of them, for its rows of the batch),
            `"auto"` (one or the other, chosen by measurement for some seconds when adapters are opened), or
            stages: a list of layers and the adapters that compute them, for all rows, as
            `[{"layers": ["..block3_pool"], "adapters": [0]}, {"layers": ["block4_conv1.."], "adapters": [1]}]`. An adapter then holds
            the weights of its stage alone, so a model may be larger than the memory of each. Layers have Keras' names; a range
            includes both ends. The name of a model within means all its layers, `tower.dense` is one of them. A second use of a
            shared layer is `shared:1`, a third `shared:2`. Numbers of adapters count from 0 in the order of `adapters`.
        micro_batches: Parts into which each adapter cuts its rows, one after the other, before the one update of a step: less
            memory for the same batch. Stages compute at the same time only with several of them: 4 for each stage
            is a good first choice. Batch normalization then takes mean and variance of each part.
        seed: Seed of dropout.

    Raises:
        AdapterError: If an adapter is not there.
        SettingError: If a setting makes no sense by itself.

    When it is first used, by `fit`, `evaluate` or `predict`, a model that can't train on adapters raises `ModelError`, and a
    placement that does not go with its layers or the adapters `SettingError`.
    """
    from ._parallel import ParallelModel

    rig = Rig.of(adapters, split, memory, placement, micro_batches)
    return ParallelModel(model, rig, batch_statistics, seed, precision)
