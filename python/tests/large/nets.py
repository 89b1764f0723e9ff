"""The networks of the parity tests, and functions as modules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

F = nn.functional


class Called(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any], *parts: nn.Module) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, x: Any) -> Any:
        return self.function(x, *self.parts)


class Exported(nn.Module):
    """A module that `torch.fx` can't read, and `torch.export` can: operations alone are left of it."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Any) -> Any:
        for _ in range(x.shape[1] // x.shape[1]):
            x = self.part(x)
        return x


@dataclass(frozen=True)
class Case:
    """A network, its data, and how it is trained."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    classes: int
    optimizer: Callable[[Any], torch.optim.Optimizer]
    loss: Callable[[], Any] = nn.CrossEntropyLoss

    def batch(self, generator: torch.Generator, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A batch of random numbers and classes."""
        x = torch.randn(rows, *self.shape, generator=generator)
        return x, torch.randint(0, self.classes, (rows,), generator=generator)


class Residual(nn.Module):
    """Two convolutions around a shortcut, with batch normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(2))
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(8 * 5 * 5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = short = F.relu(self.norms[0](self.stem(x)))
        x = F.relu(self.norms[1](self.convs[0](x)))
        x = F.relu(self.norms[2](self.convs[1](x)) + short)
        return self.head(torch.flatten(self.pool(x), 1))


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 5))


def convnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, stride=2, padding=1),
        nn.LeakyReLU(0.1),
        nn.Flatten(),
        nn.Linear(12 * 3 * 3, 10),
    )


class Transformer(nn.Module):
    """Layers of a transformer, one with its norm behind and one with its norm before, and the mean of the steps."""

    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Linear(6, 8)
        self.behind = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        before = nn.TransformerEncoderLayer(8, 4, 12, 0.0, nn.functional.gelu, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(before, 2, nn.LayerNorm(8), enable_nested_tensor=False)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.behind(self.place(x))).mean(1))


SMALL: dict[str, Case] = {
    "perceptron": Case(perceptron, (20,), 5, lambda parameters: torch.optim.Adam(parameters, lr=1e-3)),
    "convnet": Case(
        convnet, (1, 14, 14), 10, lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-3)
    ),
    # Biases of keys have no gradient but rounding, of which Adam would make steps.
    "transformer": Case(Transformer, (7, 6), 4, lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, eps=1e-3)),
    "residual": Case(Residual, (3, 10, 10), 4, lambda parameters: torch.optim.AdamW(parameters, lr=2e-3)),
}
