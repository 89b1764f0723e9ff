"""Do programs as keras.io's examples have them train as in plain Keras, unchanged but for one line?"""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any

import keras
import numpy as np
import pytest
from conftest import rigs

from manyhands_ml import make_parallel

#: Programs of the folder `examples`, and whether they are quick enough for each run of the tests.
PROGRAMS = {
    "autoencoder": True,
    "image_classification_from_scratch": False,
    "lstm_character_level_text_generation": False,
    "mnist_convnet": True,
    "siamese_contrastive": False,
    "structured_data": True,
    "super_resolution_sub_pixel": True,
    "text_classification_with_transformer": True,
    "timeseries_classification_transformer": False,
    "transfer_learning": False,
}

pytestmark = pytest.mark.filterwarnings("ignore:Keras computes loss and metrics", "ignore:.*leaves lengths of its inputs open")


class Seen(keras.callbacks.Callback):
    """Losses after each step, and of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[float] = []
        self.epochs: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps.append(float(logs["loss"]))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epochs.append(float(logs["loss"]))


def _run(name: str, parallel: Any, **more: Any) -> tuple[Seen, Any]:
    """What is seen of a program's training, and what it gives."""
    program, seen = importlib.import_module(f"examples.{name}"), Seen()
    keras.utils.set_random_seed(1)
    return seen, program.main(parallel, callbacks=[seen], **more)


@functools.cache
def _by_keras(name: str) -> tuple[Seen, Any]:
    """A program without its one line and without dropout."""
    return _run(name, lambda model: model, rate=0.0)


def _check(name: str, adapters: str) -> None:
    theirs, needed = _by_keras(name)
    # Statistics of whole batches, as on one device.
    ours, found = _run(name, functools.partial(make_parallel, adapters=adapters, batch_statistics="batch"), rate=0.0)
    assert len(theirs.steps) >= 10
    np.testing.assert_allclose(ours.steps[:10], theirs.steps[:10], rtol=1e-5)
    keras.tree.assert_same_structure(found, needed)
    for one, other in zip(keras.tree.flatten(found), keras.tree.flatten(needed), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", [name for name, is_quick in PROGRAMS.items() if is_quick])
def test_a_program_trains_as_in_keras(name: str) -> None:
    _check(name, "cpu,cpu,cpu")


@pytest.mark.slow
@pytest.mark.parametrize("adapters", ["cpu,cpu,cpu", *rigs()[1:]])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_trains_as_in_keras_on_all_adapters(name: str, adapters: str) -> None:
    _check(name, adapters)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_learns_as_it_stands(name: str, rig: str) -> None:
    seen, _ = _run(name, functools.partial(make_parallel, adapters=rig), epochs=8)
    assert seen.epochs[-1] < 0.97 * seen.epochs[0]


def test_every_program_is_run() -> None:
    folder = os.path.join(os.path.dirname(__file__), "examples")
    assert {name[:-3] for name in os.listdir(folder) if name.endswith(".py")} - {"__init__"} == set(PROGRAMS)
