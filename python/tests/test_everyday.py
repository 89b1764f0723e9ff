"""What users of Keras do every day: the same lines give the same results, logs, printed names and weights on adapters.

A case is a function of a `Scene`. It runs once on a Keras model and once on its twin from `make_parallel`. What it gives, what is
printed and the weights at its end are compared; an error of Keras has to be one on adapters, too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import everyday_callbacks
import everyday_data
import everyday_fits
import everyday_weights
import pytest
from conftest import rigs
from everyday import play, same, twin

CASES: dict[str, Callable[..., Any]] = {
    f"{module.__name__.removeprefix('everyday_')}: {name}": case
    for module in (everyday_callbacks, everyday_weights, everyday_fits, everyday_data)
    for name, case in module.CASES.items()
}

#: Cases that are not yet as in Keras, by the reason.
_REASONS: dict[str, list[str]] = {
}
NOT_YET = {name: reason for reason, names in _REASONS.items() for name in names}


#: Cases that Keras refuses itself, in the environment of the tests, which has no TensorFlow.
RAISES = {
    "callbacks: tensorboard",
    "callbacks: remote monitor",
    "weights: export, tf_saved_model",
    "weights: export, nonsense",
    "fits: fit of no rows",
    "fits: evaluate of no rows",
    "fits: predict of no rows",
    "fits: class and sample weight",
    "fits: fit before compile",
    "fits: no loss for one output, missing",
    "data: another number of rows, x",
    "data: another number of rows, y",
    "data: lists of numbers",
    "data: predict of lists",
    "data: another shape",
    "data: a generator with class weight",
}


def _case(name: str) -> Any:
    marks = [pytest.mark.xfail(strict=True, reason=NOT_YET[name])] if name in NOT_YET else []
    return pytest.param(name, marks=marks, id=name)


def _check(name: str, adapters: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = play(CASES[name], lambda model: model, tmp_path / "keras", capsys)
    ours = play(CASES[name], twin(adapters), tmp_path / "ours", capsys)
    assert (theirs.error is not None) == (name in RAISES), f"Keras: {theirs.error!r}"
    if theirs.error is None and ours.error is not None:
        raise ours.error
    assert theirs.error is None or ours.error is not None, f"Keras raises {theirs.error!r}, and we do not"
    same(ours.result, theirs.result)
    same(ours.printed, theirs.printed, "what is printed")
    same(ours.weights, theirs.weights, "the weights")


@pytest.mark.parametrize("name", [_case(name) for name in CASES])
def test_every_day_is_as_in_keras(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every other case on one adapter, where steps are begun ahead; the rest on three."""
    adapters = "cpu" if list(CASES).index(name) % 2 else "cpu,cpu,cpu"
    _check(name, adapters, tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("adapters", list(dict.fromkeys([*rigs(), "cpu,cpu,cpu"])))
@pytest.mark.parametrize("name", [_case(name) for name in CASES])
def test_every_day_is_as_in_keras_on_all(name: str, adapters: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _check(name, adapters, tmp_path, capsys)


def test_the_table_is_whole() -> None:
    assert set(NOT_YET) | RAISES <= set(CASES)
    assert len(CASES) >= 130
