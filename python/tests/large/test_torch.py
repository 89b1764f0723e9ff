"""Twenty steps here and in PyTorch, from the same weights on the same batches; layers one by one; what is refused."""

from __future__ import annotations

import copy
import doctest
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nets import SMALL, Called, Case
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from manyhands_ml import DataError, MismatchError, ModelError, SettingError
from manyhands_ml.torch import Trainer

F = nn.functional
STEPS, ROWS = 20, 24


def theirs(module: nn.Module, loss: Any, optimizer: Any, batches: list[Any]) -> list[float]:
    """Losses of PyTorch's own steps."""
    losses = []
    for *inputs, targets in batches:
        optimizer.zero_grad()
        value = loss(module(*inputs), targets)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


def check_weights(ours: nn.Module, needed: nn.Module, atol: float = 1e-4) -> None:
    for (name, a), b in zip(ours.state_dict().items(), needed.state_dict().values(), strict=True):
        np.testing.assert_allclose(a.double().numpy(), b.double().numpy(), atol=atol, rtol=1e-4, err_msg=name)


@pytest.mark.parametrize("case", SMALL)
def test_losses_and_weights_are_those_of_pytorch(case: str, rig: str) -> None:
    it: Case = SMALL[case]
    torch.manual_seed(1)
    module = it.build()
    other = copy.deepcopy(module)
    batches = [it.batch(torch.Generator().manual_seed(step), ROWS) for step in range(STEPS)]
    expected = theirs(module, it.loss(), it.optimizer(module.parameters()), batches)
    trainer = Trainer(other, it.loss(), it.optimizer(other.parameters()), adapters=rig, batch_statistics="batch")
    losses = [trainer.fit([batch])["loss"][0] for batch in batches]
    assert losses == pytest.approx(expected, rel=1e-5)
    check_weights(other, module)


def test_stages_train_as_pytorch() -> None:
    """A name of modules within means them all; what moves axes stays with its module."""
    it: Case = SMALL["convnet"]
    torch.manual_seed(1)
    module = nn.Sequential()
    module.add_module("body", nn.Sequential(*list(it.build())[:-2]))
    module.add_module("head", nn.Sequential(nn.Flatten(), nn.Linear(12 * 3 * 3, 10)))
    other = copy.deepcopy(module)
    batches = [it.batch(torch.Generator().manual_seed(step), ROWS) for step in range(STEPS)]
    expected = theirs(module, it.loss(), it.optimizer(module.parameters()), batches)
    placement: Any = [{"layers": ["body"], "adapters": [1]}, {"layers": ["head"], "adapters": [0]}]
    trainer = Trainer(other, it.loss(), it.optimizer(other.parameters()), adapters="cpu,cpu", placement=placement, micro_batches=4)
    losses = [trainer.fit([batch])["loss"][0] for batch in batches]
    assert losses == pytest.approx(expected, rel=1e-5)
    check_weights(other, module)
    wrong: Any = [{"layers": ["..body.1"], "adapters": [0]}, {"layers": ["haed"], "adapters": [1]}]
    trainer = Trainer(other, it.loss(), it.optimizer(other.parameters()), adapters="cpu,cpu", placement=wrong)
    with pytest.raises(SettingError, match="(?s)`haed` is none.*help: `head.* is there"):
        trainer.fit([batches[0]])


def _perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def _data(seed: int, rows: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 6, generator=generator), torch.randint(0, 3, (rows,), generator=generator)


def _two_groups(parameters: Any) -> list[tuple[Any, float, float]]:
    """The first layer and the rest, each with a rate and a momentum."""
    held = list(parameters)
    return [(held[:2], 0.02, 0.5), (held[2:], 0.1, 0.9)]


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adadelta": lambda parameters: torch.optim.Adadelta(parameters, lr=0.5, eps=1e-4),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1, initial_accumulator_value=0.2),
    "adagrad, from 0": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
    "nadam": lambda parameters: torch.optim.NAdam(parameters, lr=0.01, eps=1e-3),
    "nadam, decay": lambda parameters: torch.optim.NAdam(
        parameters, lr=0.01, betas=(0.8, 0.99), momentum_decay=0.2, weight_decay=0.1, decoupled_weight_decay=True
    ),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.1),
    "dampening": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, dampening=0.4, weight_decay=0.1),
    "nesterov": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, eps=1e-3),
    "adam, decay": lambda parameters: torch.optim.Adam(parameters, lr=0.01, weight_decay=0.1, betas=(0.8, 0.99)),
    "amsgrad": lambda parameters: torch.optim.Adam(parameters, lr=0.01, betas=(0.8, 0.6), weight_decay=0.1, amsgrad=True),
    "head and trunk": lambda parameters: torch.optim.SGD(
        [{"params": list(it), "lr": rate, "momentum": momentum} for it, rate, momentum in _two_groups(parameters)], weight_decay=0.01
    ),
    "head and trunk, nadam": lambda parameters: torch.optim.NAdam(
        [{"params": list(it), "lr": rate / 10, "betas": (momentum, 0.9)} for it, rate, momentum in _two_groups(parameters)], eps=1e-3
    ),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, eps=1e-2, weight_decay=0.1),
    "rmsprop, all": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, momentum=0.5, centered=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_go_on_here_and_back_with_other_rates(name: str) -> None:
    """Weights, state and step go along, and a scheduler changes the rate on the way: five steps in PyTorch, five here, …"""
    torch.manual_seed(2)
    module = _perceptron()
    other = copy.deepcopy(module)
    make, loss = OPTIMIZERS[name], nn.CrossEntropyLoss()
    one, two = make(module.parameters()), make(other.parameters())
    schedulers = [torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.3) for optimizer in (one, two)]
    trainer = Trainer(other, loss, two, adapters="cpu")
    for step in range(20):
        batch = _data(step)
        expected = theirs(module, loss, one, [batch])
        got = trainer.fit([batch])["loss"] if step // 5 % 2 else theirs(other, loss, two, [batch])
        assert got == pytest.approx(expected, rel=1e-5), f"step {step}"
        for scheduler in schedulers:
            scheduler.step()
    check_weights(other, module)
    state, needed = two.state_dict()["state"], one.state_dict()["state"]
    for key, values in needed.items():
        for kind, value in values.items():
            if value is not None:
                torch.testing.assert_close(state[key][kind], value, atol=1e-4, rtol=1e-3, msg=f"{kind} of {key}")


LOSSES: dict[str, tuple[Any, Callable[[torch.Generator], torch.Tensor]]] = {
    "smoothing": (nn.CrossEntropyLoss(label_smoothing=0.1), lambda g: torch.randint(0, 3, (40,), generator=g)),
    "weights": (nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5])), lambda g: torch.randint(0, 3, (40,), generator=g)),
    "probabilities": (nn.CrossEntropyLoss(), lambda g: torch.rand(40, 3, generator=g).softmax(1)),
    "sum": (nn.CrossEntropyLoss(reduction="sum"), lambda g: torch.randint(0, 3, (40,), generator=g)),
    "binary": (nn.BCEWithLogitsLoss(), lambda g: torch.rand(40, 3, generator=g)),
    "squares": (nn.MSELoss(), lambda g: torch.randn(40, 3, generator=g)),
    "absolute": (nn.L1Loss(), lambda g: torch.randn(40, 3, generator=g)),
    "huber": (nn.HuberLoss(delta=0.5), lambda g: torch.randn(40, 3, generator=g)),
    "smooth": (nn.SmoothL1Loss(beta=0.5), lambda g: torch.randn(40, 3, generator=g)),
    "weights of yes": (nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 3.0, 0.5])), lambda g: torch.rand(40, 3, generator=g)),
    "of one's own": (lambda out, y: ((out - y) ** 2 * (1 + y.abs())).mean(), lambda g: torch.randn(40, 3, generator=g)),
    "margins": (nn.MultiMarginLoss(), lambda g: torch.randint(0, 3, (40,), generator=g)),
    "function": (F.cross_entropy, lambda g: torch.randint(0, 3, (40,), generator=g)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_have_their_settings(name: str) -> None:
    loss, make = LOSSES[name]
    torch.manual_seed(2)
    module = _perceptron()
    other = copy.deepcopy(module)
    batches = [(_data(step)[0], make(torch.Generator().manual_seed(step))) for step in range(3)]
    expected = theirs(module, loss, torch.optim.SGD(module.parameters(), lr=0.01), batches)
    trainer = Trainer(other, loss, torch.optim.SGD(other.parameters(), lr=0.01), adapters="cpu,cpu")
    assert [trainer.fit([batch])["loss"][0] for batch in batches] == pytest.approx(expected, rel=1e-5)
    check_weights(other, module, 1e-5)
    x, y = batches[0]
    with torch.no_grad():
        needed = float(loss(other(x), y))
    assert trainer.evaluate(x, y, batch_size=40)["loss"] == pytest.approx(needed, rel=1e-5)
    assert trainer.fit(x, y, batch_size=40, shuffle=False)["loss"][0] == pytest.approx(needed, rel=1e-5)


def _attend(x: Any, **more: Any) -> Any:
    """Attention of two heads, as models write it."""
    query, key, value = x.chunk(3, dim=-1)
    query, key, value = [part.view(x.size(0), 5, 2, 4).transpose(1, 2) for part in (query, key, value)]
    return F.scaled_dot_product_attention(query, key, value, **more).transpose(1, 2).reshape(x.size(0), 5, 8)


def _grouped(x: Any) -> Any:
    """Four heads of queries, two of keys and values."""
    query, key, value = x.split([12, 6, 6], dim=-1)
    query, key, value = [part.view(x.size(0), 5, -1, 3).transpose(1, 2) for part in (query, key, value)]
    return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(2)


def _halves(x: Any) -> Any:
    first, second = x.chunk(2, dim=-1)
    return first - second


PICTURE, ROW, STEPS_OF, SIGNAL = (4, 9, 8), (6,), (5, 6), (4, 12)
CONV = (nn.Conv2d(4, 4, 1),)

#: Modules and functions that compute the same as in PyTorch, with the shape of a row.
LAYERS: dict[str, tuple[tuple[int, ...], Callable[[], nn.Module]]] = {
    "Linear": (ROW, lambda: nn.Linear(6, 3, bias=False)),
    "Linear of steps": (STEPS_OF, lambda: nn.Linear(6, 3)),
    "Conv2d": (PICTURE, lambda: nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0))),
    "Conv2d same": (PICTURE, lambda: nn.Conv2d(4, 6, 3, padding="same", bias=False)),
    "Conv2d dilation": (PICTURE, lambda: nn.Conv2d(4, 6, 3, padding=2, dilation=2)),
    "Conv2d groups": (PICTURE, lambda: nn.Conv2d(4, 6, 3, groups=2)),
    "Conv2d depthwise": (PICTURE, lambda: nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=4)),
    "Upsample": (PICTURE, lambda: nn.Sequential(nn.Upsample(scale_factor=(2, 3)), nn.Conv2d(4, 2, 3))),
    "Upsample bilinear": (PICTURE, lambda: nn.Sequential(nn.Upsample((18, 16), mode="bilinear"), nn.Conv2d(4, 2, 3))),
    "Upsample of signals": (SIGNAL, lambda: nn.Sequential(nn.Upsample(24), nn.Conv1d(4, 2, 3))),
    "interpolate": (PICTURE, lambda: Called(lambda x, conv: F.interpolate(conv(x), scale_factor=2), *CONV)),
    "Conv1d": (SIGNAL, lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1)),
    "Conv1d same": (SIGNAL, lambda: nn.Conv1d(4, 6, 4, padding="same", dilation=2, bias=False)),
    "Conv1d padding, groups": (SIGNAL, lambda: nn.Conv1d(4, 8, 3, padding=1, groups=4)),
    "ConvTranspose2d": (PICTURE, lambda: nn.ConvTranspose2d(4, 3, 2, stride=3)),
    "ConvTranspose2d padding": (PICTURE, lambda: nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1, output_padding=1)),
    "BatchNorm1d": (ROW, lambda: nn.BatchNorm1d(6)),
    "BatchNorm1d of signals": (SIGNAL, lambda: nn.BatchNorm1d(4)),
    "BatchNorm2d": (PICTURE, lambda: nn.BatchNorm2d(4, affine=False, momentum=0.3, eps=0.1)),
    "LayerNorm": (ROW, lambda: nn.LayerNorm(6)),
    "LayerNorm of pictures": (PICTURE, lambda: nn.LayerNorm(PICTURE)),
    "LayerNorm of an axis": (PICTURE, lambda: nn.LayerNorm(8, bias=False)),
    "RMSNorm": (STEPS_OF, lambda: nn.RMSNorm(6)),
    "RMSNorm of two axes": (STEPS_OF, lambda: nn.RMSNorm((5, 6), eps=0.1, elementwise_affine=False)),
    "RMSNorm, function": (STEPS_OF, lambda: Called(lambda x, linear: F.rms_norm(x, (6,), linear.bias), nn.Linear(6, 6))),
    "RMSNorm by hand": (
        STEPS_OF,
        lambda: Called(lambda x, norm: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * norm.weight, nn.LayerNorm(6, bias=False)),
    ),
    "GroupNorm": (PICTURE, lambda: nn.GroupNorm(2, 4)),
    "ReLU": (ROW, nn.ReLU),
    "ReLU6": (ROW, nn.ReLU6),
    "Sigmoid": (ROW, nn.Sigmoid),
    "Tanh": (ROW, nn.Tanh),
    "SiLU": (ROW, nn.SiLU),
    "GELU": (ROW, nn.GELU),
    "ELU": (ROW, lambda: nn.ELU(0.5)),
    "SELU": (ROW, nn.SELU),
    "LeakyReLU": (ROW, lambda: nn.LeakyReLU(0.2)),
    "PReLU": (PICTURE, lambda: nn.PReLU(4)),
    "Hardswish": (ROW, nn.Hardswish),
    "Hardsigmoid": (ROW, nn.Hardsigmoid),
    "Hardtanh": (ROW, lambda: nn.Hardtanh(0, 0.5)),
    "Softplus": (ROW, nn.Softplus),
    "Softsign": (ROW, nn.Softsign),
    "Mish": (ROW, nn.Mish),
    "Softmax": (PICTURE, lambda: nn.Softmax(-1)),
    "Dropout": (ROW, lambda: nn.Sequential(nn.Dropout(0.4), nn.Identity(), nn.Linear(6, 2))),
    "Dropout1d": (SIGNAL, lambda: nn.Sequential(nn.Dropout1d(0.4), nn.Conv1d(4, 2, 1))),
    "Dropout2d": (PICTURE, lambda: nn.Sequential(nn.Dropout2d(0.4), nn.Conv2d(4, 2, 1))),
    "MaxPool2d": (PICTURE, lambda: nn.MaxPool2d(2)),
    "MaxPool2d padding": (PICTURE, lambda: nn.Sequential(nn.ReLU(), nn.MaxPool2d(3, 2, 1))),
    "MaxPool2d padding, odd": ((4, 9, 9), lambda: nn.MaxPool2d(3, 2, 1)),
    "MaxPool1d": (SIGNAL, lambda: nn.Sequential(nn.MaxPool1d(3, 2), nn.Conv1d(4, 3, 2))),
    "MaxPool1d padding": (SIGNAL, lambda: nn.Sequential(nn.ReLU(), nn.MaxPool1d(3, 2, 1))),
    "AvgPool1d": (SIGNAL, lambda: nn.AvgPool1d(3, 2, padding=1)),
    "AdaptiveAvgPool1d": (SIGNAL, lambda: nn.Sequential(nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 3))),
    "AdaptiveAvgPool1d parts": (SIGNAL, lambda: nn.AdaptiveAvgPool1d(4)),
    "Conv1d, Flatten, Linear": (SIGNAL, lambda: nn.Sequential(nn.Conv1d(4, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(30, 3))),
    "AvgPool2d": (PICTURE, lambda: nn.AvgPool2d(3, 2, padding=1)),
    "AdaptiveAvgPool2d": (PICTURE, lambda: nn.AdaptiveAvgPool2d(1)),
    "AdaptiveAvgPool2d parts": (PICTURE, lambda: nn.AdaptiveAvgPool2d((3, 2))),
    "AdaptiveAvgPool2d same": (PICTURE, lambda: nn.Sequential(nn.AdaptiveAvgPool2d((9, 8)), nn.Flatten(), nn.Linear(288, 2))),
    "Flatten": (PICTURE, lambda: nn.Sequential(nn.Conv2d(4, 3, 2), nn.Flatten())),
    "Flatten, Linear": (PICTURE, lambda: nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(288, 3))),
    "Embedding": ((5,), lambda: nn.Embedding(7, 3)),
    "flatten": (PICTURE, lambda: Called(lambda x: torch.flatten(x, 1))),
    "view": (PICTURE, lambda: Called(lambda x, linear: linear(x.view(x.size(0), -1)), nn.Linear(288, 3))),
    "reshape": (PICTURE, lambda: Called(lambda x: x.reshape(x.shape[0], 8, 36))),
    "squeeze": (ROW, lambda: Called(lambda x, linear: linear(x).squeeze(-1), nn.Linear(6, 1))),
    "add": (PICTURE, lambda: Called(lambda x, conv: (x + conv(x)).relu() * 2 - 1, *CONV)),
    "mul": (PICTURE, lambda: Called(lambda x, conv: 1 - x * torch.sigmoid(conv(x)) / 3, *CONV)),
    "inplace": (PICTURE, lambda: Called(lambda x, conv: F.relu_(conv(x).add_(x)), *CONV)),
    "scaled": (PICTURE, lambda: Called(lambda x, conv: x * F.adaptive_avg_pool2d(conv(x), 1), *CONV)),
    "cat": (PICTURE, lambda: Called(lambda x, conv: torch.cat([x, conv(x)], dim=1), *CONV)),
    "cat along height": (PICTURE, lambda: Called(lambda x, conv: torch.cat([x, conv(x)], -2), *CONV)),
    "mean": (PICTURE, lambda: Called(lambda x: x.mean([2, 3]))),
    "mean, kept": (PICTURE, lambda: Called(lambda x: torch.mean(x, dim=(-2, -1), keepdim=True))),
    "mean of steps": (STEPS_OF, lambda: Called(lambda x: x.mean(1))),
    "mean of signals": (SIGNAL, lambda: Called(lambda x, conv: conv(x).mean(-1), nn.Conv1d(4, 3, 2))),
    "mean of channels, kept": (SIGNAL, lambda: Called(lambda x: x.mean(1, keepdim=True))),
    "square": (ROW, lambda: Called(lambda x, linear: linear(x).square() - x**3, nn.Linear(6, 6))),
    "log": (ROW, lambda: Called(lambda x, linear: torch.log(linear(x).exp() + 1.0) / (x**2 + 1.0).sqrt(), nn.Linear(6, 6))),
    "reciprocal": (ROW, lambda: Called(lambda x, linear: 2.0 / (linear(x) ** 2 + 0.5), nn.Linear(6, 6))),
    "roots": (ROW, lambda: Called(lambda x, linear: (x**2 + 1.0) ** 0.5 * torch.pow(linear(x) ** 2 + 1.0, -0.5), nn.Linear(6, 6))),
    "permute": (PICTURE, lambda: Called(lambda x, norm: norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), nn.LayerNorm(4))),
    "transpose": (STEPS_OF, lambda: Called(lambda x, linear: linear(x.transpose(1, 2)), nn.Linear(5, 3))),
    "functions": (
        PICTURE,
        lambda: Called(lambda x: F.avg_pool2d(F.max_pool2d(F.leaky_relu(x, 0.1), 2, stride=1), kernel_size=2)),
    ),
    "softmax": (ROW, lambda: Called(lambda x: F.softmax(F.elu(x, 0.5), dim=1))),
    "dropout": (ROW, lambda: Called(lambda x, linear: linear(F.dropout(x, 0.5, training=False)), nn.Linear(6, 2))),
    "chunk": (STEPS_OF, lambda: Called(lambda x, linear: _halves(linear(x)), nn.Linear(6, 4))),
    "split": (PICTURE, lambda: Called(lambda x, conv: torch.cat(conv(x).split([1, 3], 1)[::-1], 1), *CONV)),
    "split of steps": (STEPS_OF, lambda: Called(lambda x, linear: torch.split(linear(x), 2, 1)[1], nn.Linear(6, 3))),
    "the first step": (STEPS_OF, lambda: Called(lambda x, linear: linear(x)[:, 0], nn.Linear(6, 3))),
    "parts": (PICTURE, lambda: Called(lambda x, conv: conv(x)[:, 1:3, ..., -1], *CONV)),
    "attention": (STEPS_OF, lambda: Called(lambda x, linear: _attend(linear(x)), nn.Linear(6, 24))),
    "causal attention": (STEPS_OF, lambda: Called(lambda x, linear: _attend(linear(x), is_causal=True, scale=0.7), nn.Linear(6, 24))),
    "grouped attention": (STEPS_OF, lambda: Called(lambda x, linear: _grouped(linear(x)), nn.Linear(6, 24))),
    "dropout of attention": (STEPS_OF, lambda: Called(lambda x, linear: _attend(linear(x), dropout_p=0.0), nn.Linear(6, 24))),
    "LSTM": (STEPS_OF, lambda: Called(lambda x, lstm: lstm(x)[0], nn.LSTM(6, 4, 2, batch_first=True))),
    "LSTM, last step": (STEPS_OF, lambda: Called(lambda x, lstm: lstm(x)[0][:, -1], nn.LSTM(6, 4, bias=False, batch_first=True))),
    "LSTM, state": (STEPS_OF, lambda: Called(lambda x, lstm: lstm(x)[1][0][-1], nn.LSTM(6, 4, batch_first=True))),
    "LSTM, both ways": (STEPS_OF, lambda: Called(lambda x, lstm: lstm(x)[0], nn.LSTM(6, 4, 2, batch_first=True, bidirectional=True))),
    "GRU, both ways": (STEPS_OF, lambda: Called(lambda x, gru: gru(x)[0].mean(1), nn.GRU(6, 4, batch_first=True, bidirectional=True))),
    "GRU": (STEPS_OF, lambda: Called(lambda x, gru: gru(x)[0], nn.GRU(6, 4, batch_first=True))),
    "GRU, state": (STEPS_OF, lambda: Called(lambda x, gru: gru(x)[1][-1], nn.GRU(6, 4, bias=False, batch_first=True))),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_compute_and_learn_as_in_pytorch(name: str) -> None:
    """The prediction, and where there is something to learn, weights and buffers after three steps."""
    shape, build = LAYERS[name]
    torch.manual_seed(4)
    module = build()
    for parameter in module.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)
    module.eval() if "ropout" in name else module.train()
    x = torch.randint(0, 7, (8, *shape)) if name == "Embedding" else torch.randn(8, *shape)
    other, loss = copy.deepcopy(module), nn.MSELoss()
    with torch.no_grad():
        expected = copy.deepcopy(module).eval()(x)
    y = torch.randn(expected.shape)
    parameters = list(other.parameters()) or [nn.Parameter(torch.zeros(1))]
    trainer = Trainer(other, loss, torch.optim.SGD(parameters, lr=0.1, momentum=0.5), adapters="cpu")
    got = trainer.predict(x)
    assert got.shape == expected.shape
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
    if not list(other.parameters()) or "ropout" in name:
        return
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.5)
    assert trainer.fit([(x, y)] * 3)["loss"][0] == pytest.approx(np.mean(theirs(module, loss, optimizer, [(x, y)] * 3)), rel=1e-5)
    check_weights(other, module, 1e-5)


def test_a_loader_and_arrays_give_the_same() -> None:
    (x, y), (xv, yv) = _data(1, 50), _data(2, 20)
    weights = []
    for loader in (True, False):
        torch.manual_seed(3)
        module = _perceptron()
        trainer = Trainer(module, nn.CrossEntropyLoss(), torch.optim.Adam(module.parameters()), adapters="cpu,cpu")
        if loader:
            data, held_out = DataLoader(TensorDataset(x, y), 8), DataLoader(TensorDataset(xv, yv), 8)
            seen: list[int] = []
            history = trainer.fit(data, epochs=9, validation_data=held_out, on_epoch=lambda e, logs: seen.append(e) or e == 2)
            assert seen == [0, 1, 2] and sorted(history) == ["accuracy", "loss", "val_accuracy", "val_loss"]
            predicted = trainer.predict(held_out)
        else:
            history = trainer.fit(x.numpy(), y.numpy(), epochs=3, batch_size=8, shuffle=False, validation_data=(xv, yv))
            predicted = trainer.predict(xv, batch_size=7)
        torch.testing.assert_close(predicted, module.eval()(xv).detach(), atol=1e-5, rtol=1e-5)
        weights.append([history["val_loss"], *(parameter.detach().numpy() for parameter in module.parameters())])
    for a, b in zip(*weights):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_frozen_modules_keep_their_bits() -> None:
    torch.manual_seed(3)
    module = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    for part in module[:2]:
        part.requires_grad_(False)
    module[1].eval()
    before = copy.deepcopy(module.state_dict())
    trainer = Trainer(module, nn.CrossEntropyLoss(), torch.optim.SGD(module[3].parameters(), lr=0.1), adapters="cpu")
    trainer.fit(*_data(0), epochs=2)
    after = module.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before if not name.startswith("3."))
    assert not torch.equal(after["3.weight"], before["3.weight"])


@pytest.mark.parametrize("affine", [True, False])
def test_a_norm_in_evaluation_mode_learns_by_its_running_statistics(affine: bool) -> None:
    torch.manual_seed(3)
    module = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, affine=affine), nn.ReLU(), nn.Linear(8, 3))
    for _ in range(20):
        module(_data(1)[0] * 2 + 1)
    module[1].eval()
    other = copy.deepcopy(module)
    batches = [_data(step) for step in range(5)]
    expected = theirs(module, nn.CrossEntropyLoss(), torch.optim.Adam(module.parameters(), lr=0.01), batches)
    trainer = Trainer(other, nn.CrossEntropyLoss(), torch.optim.Adam(other.parameters(), lr=0.01), adapters="cpu,cpu")
    assert np.mean(expected) == pytest.approx(trainer.fit(batches)["loss"][0], rel=1e-5)
    check_weights(other, module, 1e-5)


def test_several_inputs_and_a_shared_module() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shared, self.head = nn.Linear(6, 5), nn.Linear(10, 1)

        def forward(self, left: Any, right: Any) -> Any:
            return self.head(torch.cat([F.relu(self.shared(left)), F.relu(self.shared(right))], 1))

    torch.manual_seed(5)
    module = Pair()
    other = copy.deepcopy(module)
    batches = [(_data(step)[0], _data(step + 50)[0], torch.rand(40, 1)) for step in range(5)]
    expected = theirs(module, nn.BCEWithLogitsLoss(), torch.optim.SGD(module.parameters(), lr=0.1), batches)
    trainer = Trainer(other, nn.BCEWithLogitsLoss(), torch.optim.SGD(other.parameters(), lr=0.1), adapters="cpu")
    assert np.mean(expected) == pytest.approx(trainer.fit(batches)["loss"][0], rel=1e-5)
    check_weights(other, module, 1e-5)


def test_all_problems_come_in_one_message() -> None:
    module = nn.Sequential(
        nn.AdaptiveMaxPool2d(16), nn.Tanhshrink(), nn.MaxPool2d(3, 4, 1, dilation=2), nn.Flatten(), nn.Linear(16, 2)
    )
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, maximize=True)
    trainer = Trainer(module, nn.CTCLoss(), optimizer, adapters="cpu")
    with pytest.raises(ModelError) as caught:
        trainer.fit(torch.zeros(3, 1, 8, 8), torch.zeros(3))
    text = str(caught.value)
    assert "5 places to change" in text and text.count("\n") == 6
    for part in [
        "module `0` (AdaptiveMaxPool2d): `output_size` needs",
        "module `1` (Tanhshrink): is not supported",
        "module `2` (MaxPool2d): `dilation` needs 1, but is 2",
        "loss: `CTCLoss` is not supported; known are",
        "optimizer `SGD`: `maximize` needs False, but is True",
    ]:
        assert part in text, text


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda: Called(lambda x: x if x.sum() > 0 else -x), "needs a forward that `torch.fx` can trace"),
        (lambda: nn.LSTM(6, 4), "module `` (LSTM)"),
        (lambda: Called(lambda x, norm: norm(x), nn.BatchNorm1d(6, momentum=None)), "`momentum=None`"),
        (lambda: Called(lambda x: x[:, 4:4]), "needs slices that hold something"),
        (lambda: Called(lambda x: x[:2]), "begin with `:`"),
        (lambda: Called(lambda x, linear: linear(x), nn.Linear(6, 2).double().float().bfloat16()), "needs float32"),
    ],
)
def test_what_can_not_be_trained_is_refused(build: Any, told: str) -> None:
    module = build()
    parameters = list(module.parameters()) or [nn.Parameter(torch.zeros(1))]
    dtype = parameters[0].dtype
    trainer = Trainer(module, nn.MSELoss(), torch.optim.SGD(parameters, lr=0.1), adapters="cpu")
    with pytest.raises((ModelError, RuntimeError)) as caught:
        trainer.fit(torch.zeros(3, 6).to(dtype), torch.zeros(3, 2))
    assert told in str(caught.value) or dtype is torch.bfloat16 or "LSTM" in told


def test_the_readme_from_pytorch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    readme = Path(__file__).parents[2] / "README.md"
    block = re.findall(r"```python\n(.*?)```", readme.read_text().split("## From PyTorch")[1], re.DOTALL)[0]
    loader = DataLoader(TensorDataset(torch.randn(40, 64), torch.randint(0, 10, (40,))), 16)
    exec(compile(block.replace('adapters="all"', 'adapters="cpu"'), str(readme), "exec"), {"loader": loader})
    assert set(torch.load(tmp_path / "trained.pt")) == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_mistakes_in_data_say_what_is_needed() -> None:
    module = _perceptron()
    trainer = Trainer(module, nn.CrossEntropyLoss(), torch.optim.SGD(module.parameters(), lr=0.1), adapters="cpu")
    trainer.fit(*_data(0))
    with pytest.raises(DataError, match="needs shape"):
        trainer.predict(torch.zeros(3, 5))
    with pytest.raises(DataError, match="needs labels from 0 to 2, but row . has label 3"):
        trainer.fit(torch.zeros(2, 6), torch.tensor([0, 3]))


def test_a_difference_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from manyhands_ml.torch import _layers

    monkeypatch.setitem(_layers.MODULES, nn.Tanh, _layers.activations._function("relu"))
    module = _perceptron()
    trainer = Trainer(module, nn.CrossEntropyLoss(), torch.optim.SGD(module.parameters(), lr=0.1), adapters="cpu")
    before = copy.deepcopy(module.state_dict())
    with pytest.raises(MismatchError, match="the output needs to be as PyTorch computes it"):
        trainer.fit(*_data(0))
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


@pytest.mark.parametrize("name", ["manyhands_ml.torch._trainer", "manyhands_ml.torch._batches", "manyhands_ml._ahead"])
def test_examples_of_the_documentation_run(name: str) -> None:
    result = doctest.testmod(sys.modules[name], optionflags=doctest.ELLIPSIS)
    assert result.failed == 0 and result.attempted > 0
