"""Does a parameter that several modules or calls of PyTorch have learn by all of them, as in PyTorch?"""

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
ROWS, TIME, SIZE, WORDS = 12, 8, 16, 30


def _ten_steps(module: nn.Module, x: torch.Tensor, targets: torch.Tensor) -> None:
    other, loss = copy.deepcopy(module), nn.CrossEntropyLoss()
    one, two = (torch.optim.Adam(it.parameters(), lr=1e-3, eps=1e-4) for it in (module, other))
    trainer = Trainer(other, loss, two, adapters="cpu,cpu,cpu")
    for _ in range(10):
        one.zero_grad()
        value = loss(module(x), targets)
        value.backward()
        one.step()
        assert trainer.fit([(x, targets)])["loss"][0] == pytest.approx(value.item(), rel=1e-5)
    torch.testing.assert_close(other.state_dict(), module.state_dict(), atol=1e-5, rtol=1e-4)


class Tied(nn.Module):
    """A matrix in several places."""

    def __init__(self, forward: Callable[..., Any], **settings: Any) -> None:
        super().__init__()
        self.function, self.words = forward, nn.Embedding(WORDS, SIZE, **settings)
        self.guess, self.first, self.second = nn.Linear(SIZE, WORDS), nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE)
        self.words.weight, self.second.weight = self.guess.weight, self.first.weight
        self.third = nn.Linear(SIZE, SIZE)
        self.third.weight, self.third.bias = self.first.weight, self.first.bias

    def forward(self, ids: Any) -> Any:
        return self.function(self, ids).transpose(1, 2)


TIES: dict[str, Callable[..., Any]] = {
    "a word and its logit with an offset": lambda m, ids: m.guess(m.words(ids)),
    "offsets of their own": lambda m, ids: m.guess(m.second(m.first(m.words(ids)).tanh())),
    "the same module": lambda m, ids: m.guess(m.first(m.first(m.words(ids)).tanh())),
    "another module of the same weights": lambda m, ids: m.guess(m.third(m.first(m.words(ids)).tanh())),
    "an offset of another module": lambda m, ids: m.guess(F.linear(m.first(m.words(ids)).relu(), m.first.weight, m.second.bias)),
    "a function": lambda m, ids: F.linear(m.first(F.embedding(ids, m.guess.weight)), m.words.weight),
    "a product with the turned table": lambda m, ids: m.first(m.words(ids)) @ m.words.weight.t(),
    "the same, by its attribute": lambda m, ids: m.first(m.words(ids)) @ m.words.weight.T,
    "turned twice": lambda m, ids: F.linear(m.words(ids).tanh(), m.guess.weight.transpose(0, 1).permute(1, 0)),
    "a function with a turned matrix": lambda m, ids: m.guess(F.linear(m.words(ids), m.first.weight.transpose(0, 1))),
    "words twice": lambda m, ids: m.guess(m.words(ids) + m.first(m.words(ids)).tanh()),
}


@pytest.mark.parametrize("is_exported", [False, True])
@pytest.mark.parametrize("name", TIES)
def test_tied_weights_learn_by_all_their_places(name: str, is_exported: bool) -> None:
    torch.manual_seed(4)

    def forward(module: Any, ids: Any) -> Any:
        # A shape that decides is nothing for `torch.fx`.
        return TIES[name](module, ids) if not is_exported or ids.shape[1] > 1 else ids

    _ten_steps(_learning(Tied(forward)), torch.randint(0, WORDS, (ROWS, TIME)), torch.randint(0, WORDS, (ROWS, TIME)))


def _learning(module: Tied) -> Tied:
    """Without modules that the forward does not call."""
    module(torch.randint(0, WORDS, (2, TIME))).sum().backward()
    for parameter in module.parameters():
        parameter.requires_grad_(parameter.grad is not None)
        parameter.grad = None
    return module


@pytest.mark.parametrize(
    ("function", "settings", "told"),
    [
        (lambda m, ids: m.guess(m.words(ids)), {"padding_idx": 0}, "`padding_idx` is not supported of a weight that another module"),
        (lambda m, ids: m.words(ids) + F.embedding(ids, m.words.weight), {"padding_idx": 0}, "with and without `padding_idx`"),
        (lambda m, ids: F.linear(m.first(m.words(ids)), m.first.weight.t()), {}, r"weight `first\S+`: is also that of"),
        (lambda m, ids: m.words(ids) + m.first.weight.t()[:TIME], {}, "computes with the parameter `first.weight` alone"),
        (lambda m, ids: m.words(ids)[:, :1] + m.first.weight.t(), {}, "with its axes in other places"),
        (lambda m, ids: m.first(m.words(ids)) @ m.first.weight, {}, r"weight `first\S+`: is also that of"),
    ],
)
def test_ties_that_the_engine_lacks_are_refused(function: Any, settings: dict[str, Any], told: str) -> None:
    module = Tied(function, **settings)
    with torch.no_grad():
        module.words.weight[0] = 0.0
    trainer = Trainer(module, nn.MSELoss(), torch.optim.SGD(module.parameters(), lr=0.1), adapters="cpu")
    with pytest.raises(ModelError, match=told):
        trainer.predict(torch.randint(0, WORDS, (ROWS, TIME)))
