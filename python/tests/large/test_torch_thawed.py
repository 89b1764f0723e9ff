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


def _same(kind: Any, changes: list[Callable[[nn.Sequential], Any]]) -> None:
    """An epoch after each change, here and in PyTorch: weights and the state of the optimizer."""
    module = _module()
    other = copy.deepcopy(module)
    one, two = (kind(it.parameters(), lr=0.01) for it in (module, other))
    trainer = Trainer(other, nn.CrossEntropyLoss(), two, adapters="cpu")
    for change in changes:
        change(module), change(other)
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


@pytest.mark.parametrize("kind", [*COUNTING, *OTHERS])
def test_what_is_thawed_has_its_own_number_of_steps(kind: Any) -> None:
    _same(kind, [_frozen(True, False), _frozen(True, False), _frozen(False, False), _frozen(False, True), _frozen(False, False)])


@pytest.mark.parametrize("kind", [*COUNTING, *OTHERS])
def test_freezing_and_changing_places_are_as_in_pytorch(kind: Any) -> None:
    """The one goes on, or begins with its first step when the other is frozen."""
    _same(kind, [_frozen(False, False), _frozen(True, False)])
    _same(kind, [_frozen(True, False), _frozen(False, True)])


@pytest.mark.parametrize("kind", COUNTING)
def test_groups_of_parameters_have_their_own_numbers_of_steps(kind: Any) -> None:
    """Also where a layer is in two groups, and within one call of `fit`."""

    def grouped(parameters: Any, lr: float) -> Any:
        first, *others = parameters
        return kind([{"params": [first], "lr": lr / 2}, {"params": others}], lr=lr)

    _same(grouped, [_frozen(True, False), _frozen(False, False), _frozen(False, False)])
    module = _module()
    module[0].requires_grad_(False)
    other = copy.deepcopy(module)
    one, two = (kind(it.parameters(), lr=0.01) for it in (module, other))
    for epoch in range(3):
        _epoch(module, one)
        module[0].requires_grad_(epoch >= 0)
    trainer = Trainer(other, nn.CrossEntropyLoss(), two, adapters="cpu,cpu")
    trainer.fit(*_data(), batch_size=8, shuffle=False, epochs=3, on_epoch=lambda epoch, logs: other[0].requires_grad_(epoch >= 0) and None)
    torch.testing.assert_close(other.state_dict(), module.state_dict(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", COUNTING)
def test_different_numbers_of_steps_within_a_module_are_refused(kind: Any) -> None:
    torch.manual_seed(1)

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.read = nn.GRU(6, 4, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.read(x)[0][:, -1]

    module, x, y = Last(), torch.randn(40, 3, 6), torch.arange(40) % 4
    optimizer = kind(module.parameters(), lr=0.01)
    trainer = Trainer(module, nn.CrossEntropyLoss(), optimizer, adapters="cpu")
    trainer.fit(x, y, batch_size=8)
    optimizer.state[module.read.bias_hh_l0]["step"] = torch.tensor(2.0)
    with pytest.raises(SettingError, match="has done 2 with `read.bias_hh_l0` and 5 with `read.bias_ih_l0`"):
        trainer.fit(x, y, batch_size=8)


def test_nothing_to_learn_is_refused_as_in_pytorch() -> None:
    module = _module().requires_grad_(False)
    with pytest.raises(RuntimeError, match="does not require grad"):
        _epoch(module, torch.optim.SGD(module.parameters(), lr=0.01))
    trainer = Trainer(module, nn.CrossEntropyLoss(), torch.optim.SGD(module.parameters(), lr=0.01), adapters="cpu")
    told = "module `Sequential` needs a parameter that learns, but `requires_grad` is False for all"
    with pytest.raises(SettingError, match=told):
        trainer.fit(*_data())
    assert trainer.evaluate(*_data())["loss"] > 0
    module[2].requires_grad_(True)
    with pytest.raises(SettingError, match=told):
        trainer.fit(*_data(), epochs=2, on_epoch=lambda epoch, logs: module.requires_grad_(False) and None)


class Backbone(nn.Module):
    """Normalizations that stay in training mode below a head that learns; perhaps under `torch.no_grad()`."""

    def __init__(self, norm: nn.Module, is_stopped: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.Unflatten(1, (4, 2)), norm, nn.ReLU(), nn.Flatten(), nn.Linear(8, 5))
        self.head, self.is_stopped = nn.Linear(5, 3), is_stopped

    def forward(self, x: torch.Tensor) -> Any:
        with torch.set_grad_enabled(not self.is_stopped):
            x = self.body(x)
        return self.head(x.tanh())


@pytest.mark.parametrize("frozen", ["body", "norm", "nothing, but under `no_grad`"])
@pytest.mark.parametrize("settings", [{}, {"affine": False}, {"momentum": 0.3, "eps": 0.1}])
def test_frozen_normalizations_in_training_mode_take_the_statistics_of_batches(settings: dict[str, Any], frozen: str) -> None:
    """As in PyTorch, and their own follow; then they are thawed, where nothing stops the gradient."""
    torch.manual_seed(2)
    norm = nn.BatchNorm1d(4, **settings)
    if norm.affine:
        nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
    module = Backbone(norm, is_stopped=frozen.startswith("nothing"))
    for part in {"body": [module.body], "norm": [norm]}.get(frozen, []):
        part.requires_grad_(False)
    other = copy.deepcopy(module)
    one, two = (torch.optim.AdamW(it.parameters(), lr=0.01) for it in (module, other))
    trainer = Trainer(other, nn.CrossEntropyLoss(), two, adapters="cpu,cpu", batch_statistics="batch")
    before = copy.deepcopy(module.state_dict())
    for _ in range(2):
        _epoch(module, one)
        trainer.fit(*_data(), batch_size=8, shuffle=False)
        torch.testing.assert_close(other.state_dict(), module.state_dict(), atol=1e-5, rtol=1e-4)
        module.body.requires_grad_(True), other.body.requires_grad_(True)
    assert torch.equal(other.body[0].weight, before["body.0.weight"]) == module.is_stopped
    assert not torch.equal(norm.running_mean, before["body.2.running_mean"])
