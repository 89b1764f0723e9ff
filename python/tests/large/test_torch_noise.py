"""Are rows of a branch left out as `drop_path` of timm and torchvision do, and other random numbers refused?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchvision
from torch import nn

from manyhands_ml import ModelError
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


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda x, _: x + torch.rand(1), "forward: draws random numbers by `rand`"),
        (lambda x, _: x * torch.empty(1).bernoulli_(0.5), "forward: draws random numbers by `bernoulli_`"),
        (lambda x, _: _of_timm(x, True) + torch.empty(1).bernoulli_(0.5), "forward: draws random numbers by `bernoulli_`"),
        (lambda x, _: x * torch.rand(x.shape[0], 1, 1), "call of `mul`: reads random numbers that adapters would not draw again"),
        (lambda x, _: x * x.new_empty(x.shape).bernoulli_(0.5), "call of `mul`: needs one random number for each row"),
        (torchvision.ops.StochasticDepth(P, "batch"), 'call of `stochastic_depth`: `mode` needs "row"'),
    ],
)
def test_other_random_numbers_are_refused(function: Any, told: str) -> None:
    module = Branch(function)
    trainer = Trainer(module, nn.MSELoss(), torch.optim.SGD(module.parameters(), lr=0.1), adapters="cpu")
    with pytest.raises(ModelError) as caught:
        trainer.fit([(torch.ones(ROWS, 5, 1), torch.zeros(ROWS, 5, 1))])
    assert told in str(caught.value)
