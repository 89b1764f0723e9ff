"""Training beside PyTorch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from manyhands_ml.torch import Trainer


def steps_as_in_pytorch(module: nn.Module, inputs: Any, targets: torch.Tensor, loss: Any = None) -> None:
    """Four steps of PyTorch and of three adapters, and a prediction."""
    loss, inputs = loss or nn.CrossEntropyLoss(), inputs if isinstance(inputs, tuple) else (inputs,)
    other = copy.deepcopy(module)
    one, two = (torch.optim.AdamW(it.parameters(), lr=2e-3, eps=1e-3) for it in (module, other))
    trainer = Trainer(other, loss, two, adapters="cpu,cpu,cpu", batch_statistics="batch")
    for _ in range(4):
        one.zero_grad()
        value = loss(module(*inputs), targets)
        value.backward()
        one.step()
        assert trainer.fit([(inputs if len(inputs) > 1 else inputs[0], targets)])["loss"][0] == pytest.approx(value.item(), rel=1e-5)
    torch.testing.assert_close(other.state_dict(), module.state_dict(), atol=1e-5, rtol=1e-4)
    module.eval()
    with torch.no_grad():
        torch.testing.assert_close(torch.as_tensor(trainer.predict(list(inputs))), module(*inputs), atol=1e-5, rtol=1e-4)
