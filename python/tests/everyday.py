"""The scene of the everyday cases: a model, data and a folder, once for Keras and once for adapters."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from manyhands_ml import make_parallel

LOSS = "sparse_categorical_crossentropy"
ROWS = 22


@dataclass
class Scene:
    """Where a case plays. It calls `made` for each model that it trains: Keras' own, or its twin on adapters."""

    made: Callable[..., Any]
    folder: Path

    def __post_init__(self) -> None:
        rng = np.random.default_rng(5)
        self.x = rng.normal(size=(ROWS, 6)).astype(np.float32)
        self.y = rng.integers(0, 3, ROWS)
        self.held_out = (rng.normal(size=(9, 6)).astype(np.float32), rng.integers(0, 3, 9))
        self.model = self.made(self.plain())
        self.compile()
        self.models = [self.model]

    def plain(self) -> Any:
        """The model of most cases."""
        return keras.Sequential(
            [
                keras.Input((6,)),
                layers.Dense(8, activation="tanh", name="hidden"),
                layers.Dense(3, activation="softmax", name="classes"),
            ]
        )

    def use(self, model: Any, **compiled: Any) -> Any:
        """Trains this model in place of that of most cases."""
        self.model = self.made(model)
        self.models = [self.model]
        if compiled:
            self.compile(**compiled)
        return self.model

    def compile(self, optimizer: Any = "adam", loss: Any = LOSS, metrics: Any = ("accuracy",), **more: Any) -> None:
        """Compiles the model. JAX compiles single operations sooner than whole steps."""
        metrics = list(metrics) if isinstance(metrics, tuple) else metrics
        self.model.compile(optimizer, loss, metrics=metrics, jit_compile=False, **more)

    def fit(self, *callbacks: Any, **arguments: Any) -> Any:
        """A run of `fit`; gives its history."""
        defaults = {"x": self.x, "y": self.y, "batch_size": 8, "epochs": 3, "shuffle": False, "verbose": 0}
        chosen = {**defaults, **arguments, "callbacks": list(callbacks)}
        return self.model.fit(**{key: value for key, value in chosen.items() if value is not UNSET}).history

    def validated(self, *callbacks: Any, **arguments: Any) -> Any:
        """`fit` with validation."""
        return self.fit(*callbacks, validation_data=self.held_out, **arguments)

    def evaluate(self, **arguments: Any) -> Any:
        """An evaluation of the training data."""
        return self.model.evaluate(self.x, self.y, batch_size=8, **{"verbose": 0, **arguments})

    def predict(self, **arguments: Any) -> Any:
        """Predictions for the training data."""
        return self.model.predict(self.x, batch_size=8, **{"verbose": 0, **arguments})

    def sync(self) -> None:
        """Within an epoch Keras on JAX has the newest weights only after this call."""
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()

    def batches(self, count: int = 3) -> list[Any]:
        """Batches of 7 rows."""
        return [(self.x[idx * 7 : idx * 7 + 7], self.y[idx * 7 : idx * 7 + 7]) for idx in range(count)]


class Cases(dict[str, Callable[[Scene], Any]]):
    """Cases by name."""

    def one(self, case: Callable[[Scene], Any]) -> Callable[[Scene], Any]:
        """Adds a case under the name of its function."""
        self[case.__name__.replace("_", " ")] = case
        return case

    def each(self, *values: Any) -> Callable[[Callable[[Scene, Any], Any]], Callable[[Scene, Any], Any]]:
        """Adds a case for each of these values."""

        def add(case: Callable[[Scene, Any], Any]) -> Callable[[Scene, Any], Any]:
            for value in values:
                name = getattr(value, "__name__", str(value))
                self[f"{case.__name__.replace('_', ' ')}, {name}"] = functools.partial(_with, case, value)
            return case

        return add


def _with(case: Callable[[Scene, Any], Any], value: Any, scene: Scene) -> Any:
    return case(scene, value)


def once(batches: list[Any]) -> Iterator[Any]:
    """A generator of these batches."""
    yield from batches


#: In place of an argument that is not given.
UNSET = object()


@dataclass(frozen=True)
class Came:
    """What came of a case."""

    result: Any
    weights: list[Any]
    printed: list[str]
    error: BaseException | None


def play(case: Callable[[Scene], Any], made: Callable[..., Any], folder: Path, capsys: pytest.CaptureFixture[str]) -> Came:
    """Runs a case from the same random numbers."""
    folder.mkdir()
    keras.utils.set_random_seed(7)
    scene = Scene(made, folder)
    capsys.readouterr()
    result, error = None, None
    try:
        result = case(scene)
    except (Exception, KeyboardInterrupt) as raised:  # noqa: BLE001, compared with what the other raises
        error = raised
    printed = capsys.readouterr().out
    # Behind an error in an epoch Keras on JAX may have no weights.
    weights = [] if error else [weight for model in scene.models for weight in model.get_weights()]
    return Came(result, weights, _names(printed), error)


def _names(printed: str) -> list[str]:
    """Names of numbers in what was printed, in their order. The last line of `fit` tells of adapters alone."""
    lines = [line for line in printed.splitlines() if not line.startswith("rows by adapter")]
    return list(dict.fromkeys(re.findall(r"([a-z]\w*): -?\d", "\n".join(lines))))


def twin(adapters: str) -> Callable[..., Any]:
    """Makes models that train on adapters, with statistics of whole batches, as Keras has them."""
    return lambda model: make_parallel(model, adapters, batch_statistics="batch")


def same(ours: Any, theirs: Any, where: str = "the result") -> None:
    """Raises if something is not as in Keras."""
    if isinstance(theirs, dict):
        assert isinstance(ours, dict) and list(ours) == list(theirs), f"{where}: {_keys(ours)}, Keras: {_keys(theirs)}"
        for key, value in theirs.items():
            same(ours[key], value, f"{where}[{key!r}]")
    elif isinstance(theirs, (list, tuple)):
        assert isinstance(ours, type(theirs)) and len(ours) == len(theirs), f"{where}: {ours}, Keras: {theirs}"
        for idx, (our, their) in enumerate(zip(ours, theirs)):
            same(our, their, f"{where}[{idx}]")
    elif isinstance(theirs, (str, bool, type(None), Path)):
        assert ours == theirs, f"{where}: {ours!r}, Keras: {theirs!r}"
    else:
        got, expected = np.asarray(ours), np.asarray(theirs)
        assert got.shape == expected.shape, f"{where}: shape {got.shape}, Keras: {expected.shape}"
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5, err_msg=where)


def _keys(value: Any) -> Any:
    return list(value) if isinstance(value, dict) else value
