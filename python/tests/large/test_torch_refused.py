"""Code of PyTorch that adapters would run in another way, without a word: it is refused by name. PyTorch says what would be right."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from manyhands_ml import ModelError
from manyhands_ml.torch import Trainer

F = nn.functional


def _data(seed: int = 0, rows: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 6, generator=generator), torch.randint(0, 3, (rows,), generator=generator)


def _trainer(module: nn.Module, loss: Any = None, **settings: Any) -> Trainer:
    return Trainer(module, loss or nn.CrossEntropyLoss(), torch.optim.SGD(module.parameters(), lr=0.1, **settings), adapters="cpu")


def _told(module: nn.Module, loss: Any = None) -> str:
    """The refusal of a module or a loss, which changes nothing."""
    before = copy.deepcopy(module.state_dict())
    with pytest.raises(ModelError) as caught:
        _trainer(module, loss).fit(*_data())
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    return str(caught.value)


# Losses that read more than outputs and targets.


class Hidden(nn.Module):
    """A forward that leaves something on the module."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.norm = nn.BatchNorm1d(8)
        self.scale = torch.ones(3)
        self.sigma = nn.Parameter(torch.zeros(()))
        self.found: list[Any] = []

    def forward(self, x: Any) -> Any:
        hidden = torch.tanh(self.norm(self.first(x)))
        self.aux, self.found = hidden, [None, x]
        return self.last(hidden)


#: What a loss adds to the cross-entropy, and how that is named.
READS: dict[str, tuple[Callable[[Any, torch.Tensor], Any], str]] = {
    "squares": (lambda m, x: sum(p.pow(2).sum() for p in m.parameters()), "reads the parameter `sigma`"),
    "absolute": (lambda m, x: m.first.weight.abs().sum(), "reads the parameter `first.weight`"),
    "operator": (lambda m, x: (m.last.bias**2).sum(), "reads the parameter `last.bias`"),
    "without gradient": (lambda m, x: m.last.bias.detach().sum(), "reads the parameter `last.bias`"),
    "data": (lambda m, x: m.last.bias.data.sum(), "reads the parameter `last.bias`"),
    "list": (lambda m, x: torch.stack([m.last.bias, m.last.bias]).sum(), "reads the parameter `last.bias`"),
    "a parameter that forward does not read": (lambda m, x: m.sigma.exp(), "reads the parameter `sigma`"),
    "the model again": (lambda m, x: m(x).pow(2).mean(), "reads the parameter `first.weight`"),
    "statistics": (lambda m, x: m.norm.running_mean.sum(), "reads the buffer `norm.running_mean`"),
    "left": (lambda m, x: m.aux.pow(2).mean(), "reads `aux`, which forward leaves on the module"),
    "left in a list": (lambda m, x: m.found[1].sum(), "reads `found`, which forward leaves on the module"),
}


@pytest.mark.parametrize("name", READS)
def test_a_loss_that_reads_what_adapters_change_is_refused(name: str) -> None:
    added, told = READS[name]
    module, cross_entropy = Hidden(), nn.CrossEntropyLoss()
    module.forward(_data()[0])
    assert told in _told(module, lambda out, y: cross_entropy(out, y) + added(module, _data()[0]))


def test_a_parameter_of_the_optimizer_alone_is_not_read() -> None:
    module, sigma = nn.Linear(6, 3), nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([*module.parameters(), sigma], lr=0.1)
    trainer = Trainer(module, lambda out, y: F.cross_entropy(out, y) * sigma.exp(), optimizer, adapters="cpu")
    with pytest.raises(ModelError, match="reads a parameter of the optimizer"):
        trainer.fit(*_data())


def test_a_loss_reads_what_stays_as_it_is() -> None:
    """Frozen parameters, and tensors that were on the module before."""
    torch.manual_seed(1)
    module = Hidden()
    module.first.requires_grad_(False)
    module.norm.requires_grad_(False).eval()
    module.sigma.requires_grad_(False)
    other = copy.deepcopy(module)
    x, y = _data()

    def loss_of(it: Any) -> Callable[[Any, Any], Any]:
        return lambda out, y: F.cross_entropy(out * it.scale, y) * it.sigma.exp() + it.first.weight.pow(2).sum()

    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    loss_of(module)(module(x), y).backward()
    optimizer.step()
    _trainer(other, loss_of(other)).fit(x, y, batch_size=32)
    for (name, found), needed in zip(other.state_dict().items(), module.state_dict().values()):
        torch.testing.assert_close(found, needed, atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_weight_decay_is_the_penalty_that_the_help_says(kind: Any) -> None:
    torch.manual_seed(1)
    module, penalty = nn.Linear(6, 3), 0.05
    other = copy.deepcopy(module)
    x, y = _data()
    optimizer = kind(module.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        (F.cross_entropy(module(x), y) + penalty * sum(p.pow(2).sum() for p in module.parameters())).backward()
        optimizer.step()
    decayed = kind(other.parameters(), lr=0.1, weight_decay=2 * penalty)
    Trainer(other, F.cross_entropy, decayed, adapters="cpu").fit(x, y, batch_size=32, epochs=5)
    torch.testing.assert_close(other.weight, module.weight, atol=1e-5, rtol=1e-4)
