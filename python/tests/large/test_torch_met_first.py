"""Does what people of PyTorch meet first train as in PyTorch, on three CPUs and on the drivers of the environment?"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import three_or_slow
from torch import nn
from torch.nn import functional as F

from manyhands_ml.torch import Trainer

ROWS, TIME, SIZE = 12, 6, 8


class Gated(nn.Module):
    """Halves of what a layer gives: one opens the other."""

    def __init__(self) -> None:
        super().__init__()
        self.both, self.head = nn.Linear(SIZE, 2 * SIZE), nn.Linear(SIZE, 3)

    def forward(self, x: Any) -> Any:
        value, gate = self.both(x).chunk(2, dim=-1)
        return self.head(value * torch.sigmoid(gate))


class Attending(nn.Module):
    """A block as people write it, with a module or a function of attention."""

    def __init__(self, with_module: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(SIZE, 2, batch_first=True) if with_module else None
        self.qkv, self.norm, self.head = nn.Linear(SIZE, 3 * SIZE), nn.LayerNorm(SIZE), nn.Linear(SIZE, 3)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        if self.attention is not None:
            return self.head((x + self.attention(q, k, v, need_weights=False)[0]).mean(1))
        heads = [part.view(part.size(0), TIME, 2, SIZE // 2).transpose(1, 2) for part in (q, k, v)]
        found = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).reshape(x.size(0), TIME, SIZE)
        return self.head((x + found)[:, -1])


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(SIZE, 2, 16, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(TIME * SIZE, 3))


class Placed(nn.Module):
    """Vectors of positions by an `Embedding` of its own, longer than the rows, as in nanoGPT."""

    def __init__(self) -> None:
        super().__init__()
        self.places, self.head = nn.Embedding(TIME + 3, SIZE), nn.Linear(SIZE, 3)

    def forward(self, x: Any) -> Any:
        places = torch.arange(0, x.size(1), device=x.device)
        return self.head((x * torch.tanh(x + self.places(places))).mean(1))


def _upsampled() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(4, 2, 3))


def _classes() -> Any:
    return torch.randint(0, 3, (ROWS,))


def _numbers(*shape: int) -> Callable[[], Any]:
    return lambda: torch.randn(ROWS, *shape)


class _Doubled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.loss = nn.MSELoss()

    def forward(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return 2 * self.loss(output, target)


def _plain_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output - target).abs().mean() + (output - target).pow(2).mean()


def _scripted(loss: Any) -> Any:
    with warnings.catch_warnings():
        # PyTorch calls it deprecated.
        warnings.simplefilter("ignore")
        return torch.jit.script(loss)


#: Modules, losses, the shape of a row and targets.
CASES: dict[str, tuple[Callable[[], nn.Module], Any, tuple[int, ...], Callable[[], Any]]] = {
    "MultiheadAttention": (lambda: Attending(True), nn.CrossEntropyLoss(), (TIME, SIZE), _classes),
    "NLLLoss": (lambda: nn.Sequential(nn.Linear(SIZE, 3), nn.LogSoftmax(1)), nn.NLLLoss(), (SIZE,), _classes),
    "Embedding of places": (Placed, nn.CrossEntropyLoss(), (TIME, SIZE), _classes),
    "TransformerEncoder": (_encoder, nn.CrossEntropyLoss(), (TIME, SIZE), _classes),
    "Upsample": (_upsampled, nn.MSELoss(), (3, 6, 5), _numbers(2, 6, 4)),
    "chunk": (Gated, nn.MSELoss(), (SIZE,), _numbers(3)),
    "a loss of torch.jit": (lambda: nn.Linear(SIZE, 3), _scripted(_Doubled()), (SIZE,), _numbers(3)),
    "a scripted function": (lambda: nn.Linear(SIZE, 3), _scripted(_plain_loss), (SIZE,), _numbers(3)),
    "pos_weight": (
        lambda: nn.Linear(SIZE, 3),
        nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 3.0, 0.5])),
        (SIZE,),
        lambda: torch.rand(ROWS, 3).round(),
    ),
    "scaled_dot_product_attention": (lambda: Attending(False), nn.CrossEntropyLoss(), (TIME, SIZE), _classes),
}


@pytest.mark.filterwarnings("ignore:PyTorch computes")
@pytest.mark.parametrize("adapters", three_or_slow())
@pytest.mark.parametrize("case", CASES)
def test_ten_steps_are_those_of_pytorch(case: str, adapters: str) -> None:
    build, loss, shape, make = CASES[case]
    torch.manual_seed(1)
    module = build()
    other, batches = copy.deepcopy(module), [(torch.randn(ROWS, *shape), make()) for _ in range(10)]
    one, two = (torch.optim.Adam(it.parameters(), lr=1e-3, eps=1e-4) for it in (module, other))
    trainer = Trainer(other, loss, two, adapters=adapters)
    for x, y in batches:
        one.zero_grad()
        value = loss(module(x), y)
        value.backward()
        one.step()
        assert trainer.fit([(x, y)])["loss"][0] == pytest.approx(value.item(), rel=1e-5)
