"""Modules that are frozen and thawed between epochs, with PyTorch beside it: optimizers count the steps of each parameter."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from manyhands_ml import SettingError
from manyhands_ml.torch import Trainer

COUNTING = [torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam]
OTHERS = [torch.optim.Adadelta, torch.optim.Adagrad, torch.optim.RMSprop]


def _data() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(40, 6, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 3


def _module() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def _epoch(module: nn.Module, optimizer: Any) -> None:
    """Five steps of PyTorch."""
    x, y = _data()
    for rows in torch.arange(40).split(8):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x[rows]), y[rows]).backward()
        optimizer.step()


def _same(kind: Any, changes: list[Callable[[nn.Sequential], Any]], anew: int | None = None) -> None:
    """An epoch after each change, here and in PyTorch: weights and the state of the optimizer. Before one, the optimizer may be made anew."""
    module = _module()
    other = copy.deepcopy(module)
    one, two = (kind(it.parameters(), lr=0.01) for it in (module, other))
    trainer = Trainer(other, nn.CrossEntropyLoss(), two, adapters="cpu")
    for place, change in enumerate(changes):
        change(module), change(other)
        if place == anew:
            one, two = (kind(it.parameters(), lr=0.01) for it in (module, other))
            trainer = Trainer(other, nn.CrossEntropyLoss(), two, adapters="cpu")
        _epoch(module, one)
        trainer.fit(*_data(), batch_size=8, shuffle=False)
    torch.testing.assert_close(other.state_dict(), module.state_dict(), atol=1e-5, rtol=1e-4)
    needed = one.state_dict()["state"]
    found = {key: values for key, values in two.state_dict()["state"].items() if values}
    torch.testing.assert_close(found, needed, atol=1e-5, rtol=1e-3)


def _frozen(first: bool, last: bool) -> Callable[[nn.Sequential], Any]:
    def change(module: nn.Sequential) -> None:
        module[0].requires_grad_(not first)
        module[2].requires_grad_(not last)

    return change


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_thawed_has_its_own_number_of_steps(kind: Any) -> None:
    _same(kind, [_frozen(True, False), _frozen(True, False), _frozen(False, False), _frozen(False, True), _frozen(False, False)])


@pytest.mark.parametrize("kind", [*COUNTING, *OTHERS])
def test_freezing_and_changing_places_are_as_in_pytorch(kind: Any) -> None:
    """The one goes on, or begins with its first step when the other is frozen."""
    _same(kind, [_frozen(False, False), _frozen(True, False)])
    _same(kind, [_frozen(True, False), _frozen(False, True)])


@pytest.mark.parametrize("kind", COUNTING)
def test_different_numbers_of_steps_are_refused_where_they_count(kind: Any) -> None:
    module = _module()
    module[0].requires_grad_(False)
    optimizer = kind(module.parameters(), lr=0.01)
    trainer = Trainer(module, nn.CrossEntropyLoss(), optimizer, adapters="cpu")
    trainer.fit(*_data(), batch_size=8)
    module[0].requires_grad_(True)
    before = copy.deepcopy(module.state_dict())
    trainer.evaluate(*_data())
    told = f"optimizer `{kind.__name__}` needs as many steps for each parameter, but has done 0 with `0.weight` and 5 with `2.weight`"
    with pytest.raises(SettingError, match=told):
        trainer.fit(*_data(), batch_size=8)
    torch.testing.assert_close(module.state_dict(), before, atol=0, rtol=0)
    assert optimizer.state[module[2].weight]["step"] == 5

    def thaw(epoch: int, logs: Any) -> None:
        module[0].requires_grad_(epoch == 1)

    module[0].requires_grad_(False)
    with pytest.raises(SettingError, match=r"has done 0 with `0.weight` and 15 with `2.weight`"):
        trainer.fit(*_data(), batch_size=8, epochs=3, on_epoch=thaw)


@pytest.mark.parametrize("kind", COUNTING)
def test_what_the_help_says_is_what_pytorch_does(kind: Any) -> None:
    _same(kind, [_frozen(True, False), _frozen(False, False)], anew=1)
