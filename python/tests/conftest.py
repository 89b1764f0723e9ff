"""What the tests share: the backend, the adapters of this machine, models and data."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("KERAS_BACKEND", "jax")
# JAX compiles each small model and its random numbers: without optimizations in a tenth of the time, of which the emitters of fused
# operations would take a third, and what was compiled before not at all.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", os.path.join(sys.prefix, "compiled"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

import manyhands_ml


def rigs() -> list[str]:
    """Choices of adapters: the CPU; where the environment promises drivers that compute on the CPU, these, too."""
    expected = os.environ.get("MANYHANDS_EXPECT_ADAPTERS", "").split(",")
    names = [name for name in expected if name]
    if not names:
        return ["cpu", "cpu,cpu,cpu"]
    return ["cpu", names[0], ",".join([*names, "cpu"])]


def three_or_slow() -> list[Any]:
    """The CPU three times; in the slow tests the drivers, too."""
    return ["cpu,cpu,cpu", *(pytest.param(name, marks=pytest.mark.slow) for name in rigs()[1:] if name != "cpu,cpu,cpu")]


@pytest.fixture(params=rigs())
def rig(request: pytest.FixtureRequest) -> str:
    """One choice of adapters after the other."""
    return str(request.param)


@pytest.fixture
def pair() -> Callable[..., tuple[Any, Any]]:
    """Makes a model twice with the same weights: for Keras, and for adapters."""

    def make(build: Callable[[], Any], adapters: str = "cpu", **settings: Any) -> tuple[Any, Any]:
        keras.utils.set_random_seed(7)
        plain = build()
        other = keras.models.clone_model(plain)
        other.set_weights(plain.get_weights())
        return plain, manyhands_ml.make_parallel(other, adapters, **settings)

    return make


@pytest.fixture
def rng() -> np.random.Generator:
    """Numbers that are the same in each run."""
    return np.random.default_rng(3)
