"""Are rows of a branch left out as `drop_path` of timm and torchvision do, is noise drawn, and are other random numbers refused?"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchvision
from nets import Exported
from torch import nn

from manyhands_ml import MismatchError, ModelError
from manyhands_ml.torch import Trainer

P, ROWS, STEPS = 0.4, 8, 200


def _of_timm(x: Any, training: bool) -> Any:
    if not training:
        return x
    keep = 1 - P
    shape = (x.shape[0],) + (1,) * (x.ndim - 1)
    drawn = x.new_empty(shape).bernoulli_(keep)
    drawn.div_(keep)
    return x * drawn


def _of_older_timm(x: Any, training: bool) -> Any:
    if not training:
        return x
    keep = 1 - P
    drawn = keep + torch.rand((x.shape[0],) + (1,) * (x.ndim - 1), dtype=x.dtype, device=x.device)
    drawn.floor_()
    return x.div(keep) * drawn


def _exported(x: Any, training: bool) -> Any:
    # `torch.fx` does not know how often it is.
    for _ in range(x.shape[1] // x.shape[1]):
        x = _of_timm(x, training)
    return x


WAYS: dict[str, Callable[..., Any]] = {
    "timm": _of_timm,
    "timm, exported": _exported,
    "older timm": _of_older_timm,
    "torchvision": torchvision.ops.StochasticDepth(P, "row"),
    "torchvision, traced": lambda x, training: torchvision.ops.stochastic_depth(x, P, "row", training),
}


class Branch(nn.Module):
    """A branch that is left out in some rows, behind a product by one number."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function, self.linear = function, nn.Linear(1, 1, bias=False)
        nn.init.ones_(self.linear.weight)

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        return self.function(y) if isinstance(self.function, nn.Module) else self.function(y, self.training)


@pytest.mark.parametrize("way", WAYS)
def test_rows_are_left_out_as_often_as_in_pytorch(way: str) -> None:
    """The loss of a step is the part of rows that are kept, by the square of their factor."""
    module = Branch(WAYS[way])
    trainer = Trainer(module, nn.MSELoss(), torch.optim.SGD(module.parameters(), lr=0.0), adapters="cpu,cpu")
    x, losses = torch.ones(ROWS, 5, 1), list[float]()
    for _ in range(STEPS):
        losses += trainer.fit([(x, torch.zeros(ROWS, 5, 1))])["loss"]
    kept = torch.tensor(losses) * (1 - P) ** 2
    torch.testing.assert_close(kept * ROWS, (kept * ROWS).round(), atol=1e-4, rtol=0)
    # Four times as far as the mean of so many draws scatters.
    assert abs(kept.mean() - (1 - P)) < 4 * (P * (1 - P) / ROWS / STEPS) ** 0.5
    module.eval()
    torch.testing.assert_close(trainer.predict(x), x)


def _twice(x: Any) -> Any:
    drawn = x.new_empty((x.shape[0], 1, 1)).bernoulli_(0.5)
    return x * drawn - (2.0 * x) * drawn


NORMAL: dict[str, Callable[[Any], Any]] = {
    "randn_like": torch.randn_like,
    "randn": lambda std: torch.randn(std.size()),
    "normal_": lambda std: std.new_empty(std.shape).normal_(),
    "normal_, empty_like": lambda std: torch.empty_like(std).normal_(0.0, 2.0) / 2,
}


class Variational(nn.Module):
    """An autoencoder that draws its code, as PyTorch's example has it."""

    def __init__(self, draw: Callable[[Any], Any], always: bool = False) -> None:
        super().__init__()
        self.draw, self.always = draw, always
        self.mean, self.spread, self.back = nn.Linear(6, 2), nn.Linear(6, 2), nn.Linear(2, 6)

    def forward(self, x: Any) -> Any:
        mean, spread = self.mean(x), self.spread(x)
        z = mean
        if self.training or self.always:
            std = torch.exp(0.5 * spread)
            z = self.draw(std).mul(std).add_(mean)
        return self.back(z), mean, spread


def _bound(given: Any, x: Any) -> Any:
    back, mean, spread = given
    return ((back - x) ** 2).sum(1).mean() - 0.5 * (1 + spread - mean**2 - spread.exp()).sum(1).mean()


@pytest.mark.parametrize("is_exported", [False, True])
@pytest.mark.parametrize("way", NORMAL)
def test_a_variational_autoencoder_has_loss_and_gradient_of_pytorch_in_the_mean(way: str, is_exported: bool) -> None:
    torch.manual_seed(1)
    inner = Variational(NORMAL[way])
    module = Exported(inner) if is_exported else inner
    x = torch.randn(ROWS, 6)
    count, losses, slopes = (30 if is_exported else 100), [list[float](), list[float]()], [list[torch.Tensor](), list[torch.Tensor]()]
    weight, before = inner.spread.weight, copy.deepcopy(module.state_dict())
    name = next(name for name, parameter in module.named_parameters() if parameter is weight)
    for _ in range(400):
        loss = _bound(module(x), x)
        losses[0].append(loss.item())
        slopes[0].append(torch.autograd.grad(loss, weight)[0])
    for seed in range(count):
        trainer = Trainer(module, _bound, torch.optim.SGD(module.parameters(), lr=1e-3), adapters="cpu,cpu", seed=seed)
        losses[1] += trainer.fit([(x, x)])["loss"]
        slopes[1].append((before[name] - weight.detach()) / 1e-3)
        module.load_state_dict(before)
    for theirs, ours in ((torch.tensor(losses[0]), torch.tensor(losses[1])), (torch.stack(slopes[0]), torch.stack(slopes[1]))):
        scatter = theirs.std(0)
        assert (abs(ours.mean(0) - theirs.mean(0)) < 5 * scatter * (1 / count + 1 / 400) ** 0.5 + 1e-3).all()
        assert ((ours.std(0) > 0.5 * scatter) & (ours.std(0) < 2 * scatter)).all()
    module.eval()
    with torch.no_grad():
        torch.testing.assert_close(trainer.predict(x), module(x))


def test_a_code_that_is_drawn_in_evaluation_too_is_refused() -> None:
    module = Variational(torch.randn_like, always=True)
    trainer = Trainer(module, _bound, torch.optim.SGD(module.parameters(), lr=0.1), adapters="cpu")
    with pytest.raises(MismatchError, match="`randn_like` in forward draws in evaluation, too"):
        trainer.fit([(torch.randn(ROWS, 6), torch.randn(ROWS, 6))])


def test_one_draw_is_one_draw() -> None:
    """What is added and taken away again leaves nothing, and a third of it a third."""

    def function(x: Any, training: bool) -> Any:
        if not training:
            return x
        noise = torch.randn_like(x)
        return (x + noise * 0.5) - x * noise * 0.5 + (x * (noise / -3.0)) * 1.5 + noise * 0.5

    module = Branch(function)
    trainer = Trainer(module, nn.MSELoss(), torch.optim.SGD(module.parameters(), lr=0.0), adapters="cpu,cpu")
    x = torch.ones(ROWS, 50, 1)
    assert trainer.fit([(x, x)])["loss"][0] < 1e-10


def test_noise_on_an_input_scatters_as_in_pytorch() -> None:
    module = Branch(lambda x, training: x + 0.3 * torch.randn_like(x) * 2.0 if training else x)
    trainer = Trainer(module, nn.MSELoss(), torch.optim.SGD(module.parameters(), lr=0.0), adapters="cpu,cpu")
    x = torch.ones(ROWS, 50, 1)
    squares = [loss for _ in range(50) for loss in trainer.fit([(x, x)])["loss"]]
    # The square of a normal number has twice the square of its variance as variance.
    assert abs(sum(squares) / len(squares) - 0.36) < 4 * 0.36 * (2 / (ROWS * 50 * len(squares))) ** 0.5


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda x, _: x + torch.rand(1), "forward: draws random numbers by `rand`"),
        (lambda x, _: x * torch.empty(1).bernoulli_(0.5), "forward: draws random numbers by `bernoulli_`"),
        (lambda x, _: _of_timm(x, True) + torch.empty(1).bernoulli_(0.5), "forward: draws random numbers by `bernoulli_`"),
        (lambda x, _: x * torch.rand(x.shape[0], 1, 1), "call of `mul`: reads random numbers that adapters would not draw again"),
        (lambda x, _: x * x.new_empty(x.shape).bernoulli_(0.5), "call of `mul`: needs one random number for each row"),
        (lambda x, _: _twice(x), "call of `mul`: reads a random number for each row a second time"),
        (lambda x, _: x + torch.randn(x.shape[0], 1, 1), "call of `add`: needs a random number for each number"),
        (lambda x, _: x * torch.randn_like(x).abs(), "call of `abs`: reads random numbers that adapters would not draw again"),
        (lambda x, _: x * x.new_empty(x.shape).normal_(1.0), "call of `normal_`: reads random numbers that adapters would not draw again"),
        (lambda x, _: x + torch.rand_like(x), "forward: draws random numbers by `rand_like`"),
        (torchvision.ops.StochasticDepth(P, "batch"), 'call of `stochastic_depth`: `mode` needs "row"'),
    ],
)
def test_other_random_numbers_are_refused(function: Any, told: str) -> None:
    module = Branch(function)
    trainer = Trainer(module, nn.MSELoss(), torch.optim.SGD(module.parameters(), lr=0.1), adapters="cpu")
    with pytest.raises(ModelError) as caught:
        trainer.fit([(torch.ones(ROWS, 5, 1), torch.zeros(ROWS, 5, 1))])
    assert told in str(caught.value)
