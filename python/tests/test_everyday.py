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

_OF_MONITORS = ("early stopping", "early stopping restores the best", "checkpoint of the best", "rate on a plateau")
#: Cases that are not yet as in Keras, by the reason.
_REASONS: dict[str, list[str]] = {
    "Keras asks its metrics for the direction of a monitor, and they are not built": [
        *(f"callbacks: {what}, {monitor}" for what in _OF_MONITORS for monitor in ("accuracy", "val_accuracy")),
        "callbacks: early stopping in mode, auto",
        "callbacks: early stopping with a baseline",
        "callbacks: early stopping by a metric with a name",
        "weights: results of metrics",
    ],
    "`fit` does not begin where `BackupAndRestore` says": ["callbacks: backup and restore, epoch"],
    "a stop before an epoch ends training after that epoch": ["callbacks: a callback stops training, on_epoch_begin"],
    "weights are copied before the callback that changes them": [
        "callbacks: swapped averages",
        "callbacks: swapped averages for epochs",
        "callbacks: weights that a callback sets, on_train_batch_begin",
        "callbacks: weights that a callback sets, on_test_begin",
        "callbacks: weights that a callback sets before predict",
        "callbacks: weights that a callback sets before evaluate",
    ],
    "within an epoch only the parallel model has the newest weights, not its layers or the Keras model": [
        "callbacks: a layers kernel within batches",
        "callbacks: weights of a layer that a callback sets within batches",
        "weights: weights of the held model within batches",
    ],
    "what is excluded from weight decay is ignored or refused": [
        "weights: biases that do not decay",
        "weights: a layer that does not decay",
    ],
    "no rows are no error of a name": ["fits: evaluate of no rows", "fits: predict of no rows"],
    "each epoch begins a new iterator of the validation data": ["fits: validation data of a generator"],
    "numbers of several outputs, and keys of dicts, come in another order": [
        *(f"fits: {what}, True" for what in ("evaluate as a dict", "train on batch", "test on batch")),
        *(f"fits: outputs in a {form}" for form in ("list", "list by name", "dict", "dict with keys of its own")),
        *(f"fits: weights of losses, {form}" for form in ("list", "dict")),
    ],
    "accuracy beside a binary cross-entropy is another": [
        "fits: several yes or no with, accuracy",
        "fits: yes or no from logits with, accuracy",
        "fits: yes or no from logits with, threshold",
    ],
    "metrics that this loss does not have are refused": [
        "fits: several yes or no with, categorical_accuracy",
        "fits: classes with, mae",
        "fits: classes with, sparse_categorical_crossentropy",
        "fits: weighted metrics",
    ],
    "each output needs a loss of its own": ["fits: one loss for two outputs", "fits: no loss for one output, none"],
    "Keras ends an epoch of the dataset once before the first": ["data: a dataset"],
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
