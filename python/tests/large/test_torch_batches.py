"""Batches of loaders and generators are those of a loop of PyTorch: each is trained on once, in the order that a seed gives."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from manyhands_ml import DataError, SettingError
from manyhands_ml.torch import Trainer

F = nn.functional
X, Y = torch.randn(32, 6, generator=torch.Generator().manual_seed(0)), torch.arange(32) % 3


def _of_ones_own(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A loss that PyTorch computes."""
    return F.cross_entropy(output, targets) + output.pow(2).mean()


def _generator(size: int = 8) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    return ((X[begin : begin + size], Y[begin : begin + size]) for begin in range(0, 32, size))


class _Rewound:
    """Gives its batches again where it is begun again."""

    def __iter__(self) -> Iterator[Any]:
        self._batches = _generator()
        return self

    def __next__(self) -> Any:
        return next(self._batches)


class _Once(_Rewound):
    """Gives its batches once."""

    def __init__(self) -> None:
        self._batches = _generator()

    def __iter__(self) -> Iterator[Any]:
        return self


SOURCES: dict[str, tuple[Callable[[], Iterable[Any]], int]] = {
    "a generator": (_generator, 1),
    "a generator of one batch": (lambda: _generator(32), 1),
    "a list": (lambda: list(_generator()), 3),
    "an object that begins again": (_Rewound, 3),
    "a loader that shuffles": (lambda: DataLoader(TensorDataset(X, Y), 8, shuffle=True), 3),
    "a loader with a seed": (
        lambda: DataLoader(TensorDataset(X, Y), 8, shuffle=True, generator=torch.Generator().manual_seed(3)),
        3,
    ),
    "a loader with a process": (lambda: DataLoader(TensorDataset(X, Y), 8, shuffle=True, num_workers=1), 2),
}


@pytest.mark.parametrize("loss", [F.cross_entropy, _of_ones_own])
@pytest.mark.parametrize("name", SOURCES)
def test_batches_are_those_of_a_loop_of_pytorch(name: str, loss: Any) -> None:
    make, epochs = SOURCES[name]
    torch.manual_seed(1)
    module = nn.Linear(6, 3)
    other = copy.deepcopy(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    torch.manual_seed(7)
    source = make()
    for _ in range(epochs):
        for x, y in source:
            optimizer.zero_grad()
            loss(module(x), y).backward()
            optimizer.step()
    torch.manual_seed(7)
    trainer = Trainer(other, loss, torch.optim.SGD(other.parameters(), lr=0.1), adapters="cpu")
    history = trainer.fit(make(), epochs=epochs)
    assert len(history["loss"]) == epochs
    torch.testing.assert_close(other.weight, module.weight, atol=1e-6, rtol=1e-5)
    with torch.no_grad():
        needed = loss(module(X), Y)
    fresh = Trainer(other, loss, torch.optim.SGD(other.parameters(), lr=0.1), adapters="cpu")
    if loss is F.cross_entropy:
        assert fresh.evaluate(_generator())["loss"] == pytest.approx(float(needed), rel=1e-5)
    torch.testing.assert_close(fresh.predict(_generator()), module(X).detach(), atol=1e-5, rtol=1e-5)


class _Counting(IterableDataset[Any]):
    def __init__(self) -> None:
        self.n_read = 0

    def __iter__(self) -> Iterator[Any]:
        for place in range(30):
            self.n_read += 1
            yield X[place], Y[place]


def test_each_row_of_a_stream_is_read_once() -> None:
    module, rows = nn.Linear(6, 3), _Counting()
    trainer = Trainer(module, F.cross_entropy, torch.optim.SGD(module.parameters(), lr=0.1), adapters="cpu")
    trainer.fit(DataLoader(rows, 8))
    assert rows.n_read == 30
    trainer.fit(DataLoader(rows, 8), validation_data=DataLoader(rows, 8))
    assert rows.n_read == 90


def _trainer() -> Trainer:
    module = nn.Linear(6, 3)
    return Trainer(module, F.cross_entropy, torch.optim.SGD(module.parameters(), lr=0.1), adapters="cpu")


def test_batches_that_come_once_are_for_one_epoch() -> None:
    trainer = _trainer()
    with pytest.raises(DataError, match="the data need to come again in each of 3 epochs, but are a generator"):
        trainer.fit(_generator(), epochs=3)
    with pytest.raises(DataError, match="`validation_data` need to come again in each of 2 epochs, but are a zip"):
        trainer.fit(X, Y, epochs=2, validation_data=zip([X], [Y]))
    with pytest.raises(DataError, match="the data need at least one batch, but have none"):
        trainer.fit(_Once(), epochs=2)
    for call in (trainer.fit, trainer.evaluate, trainer.predict):
        with pytest.raises(DataError, match="the data need at least one batch, but have none"):
            call(iter([]))
    assert "val_loss" in trainer.fit(_generator(), validation_data=_generator())


def test_two_batches_are_no_pair() -> None:
    """Two batches of validation data are not taken for inputs and targets."""
    batches = [(X[:20], Y[:20]), (X[20:], Y[20:])]
    for data in (batches, tuple(batches), [[*batch] for batch in batches], (X, Y), [X.numpy(), Y.numpy()]):
        trainer = _trainer()
        value = trainer.fit(X, Y, validation_data=data)["val_loss"][0]
        with torch.no_grad():
            needed = float(F.cross_entropy(trainer._module(X), Y))
        assert value == pytest.approx(needed, rel=1e-5)


@pytest.mark.parametrize("size", [0, -1, 2.5, None])
def test_a_batch_has_rows(size: Any) -> None:
    trainer = _trainer()
    for call in (trainer.fit, trainer.evaluate):
        with pytest.raises(SettingError, match="`batch_size` needs a whole number from 1, but is"):
            call(X, Y, batch_size=size)
    with pytest.raises(SettingError, match="`batch_size` needs a whole number from 1, but is"):
        trainer.predict(X, batch_size=size)


@pytest.mark.filterwarnings("error:Detected call of `lr_scheduler")
@pytest.mark.parametrize(("name", "momentum"), [("SGD", 0.9), ("AdamW", 0.0)])
@pytest.mark.parametrize("by_torch", [False, True])
def test_a_scheduler_steps_with_each_step(name: str, momentum: float, by_torch: bool) -> None:
    """Of arrays and of losses of one's own, too; from a rate of 0, by which momentum is scaled."""
    torch.manual_seed(5)
    module, x, y = nn.Linear(6, 3), torch.randn(40, 6), torch.arange(40) % 3
    other = copy.deepcopy(module)
    settings: dict[str, Any] = {"lr": 0.1, **({"momentum": momentum} if momentum else {})}
    one, two = (getattr(torch.optim, name)(it.parameters(), **settings) for it in (module, other))
    first, second = (torch.optim.lr_scheduler.LambdaLR(it, lambda step: min(step / 4, 1.0) * 0.9**step) for it in (one, two))
    for rows in [*torch.arange(40).split(8)] * 2:
        one.zero_grad()
        F.cross_entropy(module(x[rows]), y[rows]).backward()
        one.step()
        first.step()
    steps: list[int] = []

    def on_step(step: int) -> None:
        steps.append(step)
        second.step()

    loss = (lambda output, targets: F.cross_entropy(output, targets) * 1.0) if by_torch else nn.CrossEntropyLoss()
    Trainer(other, loss, two, adapters="cpu").fit(x, y, batch_size=8, epochs=2, shuffle=False, on_step=on_step)
    assert steps == [*range(5)] * 2
    torch.testing.assert_close(other.state_dict(), module.state_dict(), atol=1e-5, rtol=1e-4)


def test_a_scheduler_that_changes_more_than_rates_is_refused() -> None:
    module = nn.Linear(6, 3)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 10)
    with pytest.raises(SettingError, match="`on_step` may change learning rates.*\n.*`cycle_momentum=False`"):
        Trainer(module, nn.MSELoss(), optimizer, adapters="cpu").fit(
            torch.randn(40, 6), torch.randn(40, 3), on_step=lambda step: schedule.step()
        )
