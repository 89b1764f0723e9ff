"""Do modules that return several tensors train as in PyTorch? Losses and weights of twenty steps are those of PyTorch's own training."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torchvision
from torch import nn
from torch.utils import _pytree
from torch.utils.data import DataLoader

from manyhands_ml import DataError, ModelError, SettingError
from manyhands_ml.torch import Trainer

F = nn.functional
ROWS, BATCH, EPOCHS = 40, 8, 4

_GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(ROWS, 6, generator=_GENERATOR)
PICTURES = torch.randn(ROWS, 2, 6, 5, generator=_GENERATOR)
CLASSES, NUMBERS = torch.arange(ROWS) % 3, torch.randn(ROWS, generator=_GENERATOR)
WIDE = torch.randn(ROWS, 6, generator=_GENERATOR)


class Heads(nn.Module):
    """A body with a function of its numbers and the heads."""

    def __init__(self, end: Callable[..., Any], has_norm: bool = False) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), *([nn.BatchNorm1d(8)] if has_norm else []), nn.Tanh())
        self.classes, self.numbers, self.other = nn.Linear(8, 3), nn.Linear(8, 1), nn.Linear(8, 2)
        self.end = end

    def forward(self, x: Any) -> Any:
        return self.end(self, self.body(x))


class Exported(Heads):
    """One that `torch.fx` can't trace, by which it is read by `torch.export`."""

    def forward(self, x: Any) -> Any:
        for _ in range(x.size(-1) // 6):
            x = self.body(x)
        return self.end(self, x)


class Found(NamedTuple):
    """A mask of each pixel, and what is behind it."""

    mask: Any
    code: Any


class Pictures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 3, 1)
        self.norm, self.coder = nn.BatchNorm2d(4), nn.Linear(4 * 6 * 5, 3)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.norm(self.first(x)))
        return Found(self.last(x).log_softmax(1), self.coder(x.flatten(1)))


class Tied(nn.Module):
    """An encoder whose weight is that of the decoder, too: it returns pictures again and their codes, one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(6, 6) / 3), nn.Parameter(torch.zeros(6))

    def forward(self, x: Any) -> Any:
        code = torch.tanh(F.linear(x, self.weight, self.bias))
        return F.linear(code, self.weight), [code, code.unsqueeze(1), None]


class Inception(nn.Module):
    """One that returns more in training."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.classes, self.aux = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 3)
        self.norm, self.dropout = nn.BatchNorm1d(8), nn.Dropout(0.0)

    def forward(self, x: Any) -> Any:
        x = torch.tanh(self.norm(self.body(x)))
        return Found(self.classes(x), self.aux(x)) if self.training else self.classes(x)


def _heads(m: Any, h: Any) -> Any:
    return m.classes(h), m.numbers(h).squeeze(-1)


@dataclass(frozen=True)
class Case:
    """A module, its data and its loss."""

    build: Callable[[], nn.Module]
    loss: Callable[[Any, Any], Any]
    targets: Any
    x: torch.Tensor = X


def _both(outputs: Any, targets: Any) -> Any:
    """The terms of both heads."""
    return F.cross_entropy(outputs[0], targets[0]) + 0.3 * F.mse_loss(outputs[1], targets[1])


CASES: dict[str, Case] = {
    "tuple": Case(lambda: Heads(_heads, has_norm=True), _both, (CLASSES, NUMBERS)),
    "one array as targets": Case(lambda: Heads(_heads), lambda o, y: F.cross_entropy(o[0], y) + o[1].pow(2).mean(), CLASSES),
    "dict": Case(
        lambda: Heads(lambda m, h: {"classes": m.classes(h).log_softmax(1), "numbers": m.numbers(h)}),
        lambda o, y: F.nll_loss(o["classes"], y["classes"]) + F.l1_loss(o["numbers"][:, 0], y["numbers"]),
        {"numbers": NUMBERS, "classes": CLASSES},
    ),
    "torch.export": Case(
        lambda: Exported(lambda m, h: {"a": m.classes(h), "b": [m.numbers(h).squeeze(-1), None]}),
        lambda o, y: _both((o["a"], o["b"][0]), y),
        [CLASSES, NUMBERS],
    ),
    "one tensor in a list": Case(lambda: Heads(lambda m, h: [m.classes(h), None]), lambda o, y: F.cross_entropy(o[0], y), CLASSES),
    "named tuple with a picture": Case(
        Pictures,
        lambda o, y: F.nll_loss(o.mask, y.mask) + F.cross_entropy(o.code, y.code),
        Found(torch.randint(0, 3, (ROWS, 6, 5), generator=_GENERATOR), CLASSES),
        PICTURES,
    ),
    "an output without a use": Case(lambda: Heads(lambda m, h: (*_heads(m, h), m.other(h))), _both, (CLASSES, NUMBERS)),
    "an output that is read again": Case(
        Tied, lambda o, y: F.mse_loss(o[0], y) + 0.1 * o[1][0].abs().mean() + 0.1 * o[1][1].pow(2).mean(), WIDE
    ),
    "more in training": Case(Inception, lambda o, y: F.cross_entropy(o.mask, y) + 0.4 * F.cross_entropy(o.code, y), CLASSES),
    "frozen": Case(lambda: _frozen(Heads(_heads, has_norm=True)), _both, (CLASSES, NUMBERS)),
}


def _frozen(module: Any) -> nn.Module:
    module.body.requires_grad_(False)
    return module


def _rows(values: Any, places: Any) -> Any:
    return _pytree.tree_map(lambda part: part[places], values)


def _optimizer(module: nn.Module) -> torch.optim.Optimizer:
    """Its decay would change layers that no gradient reaches. The bias before a norm has a gradient of rounding, which `eps` hides."""
    return torch.optim.AdamW(module.parameters(), lr=1e-2, eps=1e-3, weight_decay=0.1)


def _trained(case: Case) -> tuple[nn.Module, nn.Module, list[float]]:
    """A module that PyTorch has trained, a copy from before, and the losses."""
    torch.manual_seed(1)
    module = case.build()
    other, optimizer, losses = copy.deepcopy(module), _optimizer(module), list[float]()
    for _ in range(EPOCHS):
        for places in torch.arange(ROWS).split(BATCH):
            optimizer.zero_grad()
            loss = case.loss(module(case.x[places]), _rows(case.targets, places))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return module, other, losses


def _same(found: Any, needed: Any) -> None:
    """The same structure, and the same numbers up to rounding."""
    assert type(found) is type(needed)
    assert _pytree.tree_structure(found) == _pytree.tree_structure(needed)
    for a, b in zip(_pytree.tree_leaves(found), _pytree.tree_leaves(needed)):
        assert b is None and a is None or torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4) is None


@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_pytorch(name: str, rig: str) -> None:
    case = CASES[name]
    module, other, losses = _trained(case)
    optimizer = _optimizer(other)
    trainer = Trainer(other, case.loss, optimizer, adapters=rig, batch_statistics="batch")
    batches = [(case.x[places], _rows(case.targets, places)) for places in torch.arange(ROWS).split(BATCH)] * EPOCHS
    assert [trainer.fit([batch])["loss"][0] for batch in batches] == pytest.approx(losses, rel=1e-5)
    torch.testing.assert_close(other.state_dict(), module.state_dict(), atol=1e-5, rtol=1e-4)
    module.eval()
    with torch.no_grad():
        _same(trainer.predict(case.x, batch_size=16), module(case.x))
        _same(trainer.predict(iter(case.x.split(16))), module(case.x))
        module.train()
        for part in module.modules():
            part.training = not isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d))
        needed = float(case.loss(module(case.x), case.targets))
    assert trainer.evaluate(case.x, case.targets, batch_size=ROWS)["loss"] == pytest.approx(needed, rel=1e-5)


@pytest.mark.parametrize("targets", [(CLASSES, NUMBERS), [CLASSES.numpy(), NUMBERS.double().numpy()]])
def test_arrays_and_loaders_are_split_alike(targets: Any) -> None:
    """Of arrays the first axis is the row; a loader gives its structure of targets as it is."""
    case = CASES["tuple"]
    module, other, losses = _trained(case)
    trainer = Trainer(other, case.loss, _optimizer(other), adapters="cpu")
    validation = (X.numpy(), targets)
    logs = trainer.fit(X.numpy(), targets, epochs=EPOCHS, batch_size=BATCH, shuffle=False, validation_data=validation)
    assert logs["loss"] == pytest.approx(np.reshape(losses, (EPOCHS, -1)).mean(1).tolist(), rel=1e-5)
    torch.testing.assert_close(other.state_dict(), module.state_dict(), atol=1e-5, rtol=1e-4)
    rows = [(X[place], (CLASSES[place], NUMBERS[place])) for place in range(ROWS)]
    loader: Any = DataLoader(rows, BATCH)  # type: ignore[arg-type]
    assert trainer.evaluate(loader)["loss"] == pytest.approx(logs["val_loss"][-1], rel=1e-6)


def test_a_layer_that_the_loss_begins_to_read_begins_to_learn() -> None:
    """PyTorch does not update what has no gradient. A loss may change between epochs, but not within one."""
    weight = [0.0]

    def loss(outputs: Any, y: Any) -> Any:
        value = F.cross_entropy(outputs[0], y)
        return value + weight[0] * outputs[1].pow(2).mean() if weight[0] else value

    torch.manual_seed(3)
    module = Heads(_heads)
    other = copy.deepcopy(module)
    one, two = (torch.optim.SGD(it.parameters(), lr=0.1, weight_decay=0.1) for it in (module, other))
    for weight[0] in (0.0, 0.5):
        one.zero_grad()
        loss(module(X), CLASSES).backward()
        one.step()
    weight[0] = 0.0
    trainer = Trainer(other, loss, two, adapters="cpu")

    def begin(epoch: int, logs: dict[str, float]) -> None:
        weight[0] = 0.5

    trainer.fit(X, CLASSES, epochs=2, batch_size=ROWS, shuffle=False, on_epoch=begin)
    torch.testing.assert_close(other.state_dict(), module.state_dict(), atol=1e-5, rtol=1e-4)
    with pytest.raises(SettingError, match="the loss reads the output of `.*` in some batches alone"):
        trainer.fit(X, CLASSES, batch_size=BATCH, on_step=lambda step: weight.__setitem__(0, 0.0))


def test_a_network_of_torchvision_with_an_auxiliary_output() -> None:
    torch.manual_seed(5)
    module = torchvision.models.inception_v3(num_classes=4, init_weights=False)
    module.dropout.p = 0.0
    x, y = torch.randn(4, 3, 299, 299), torch.arange(4)

    def loss(outputs: Any, targets: Any) -> Any:
        return F.cross_entropy(outputs.logits, targets) + 0.4 * F.cross_entropy(outputs.aux_logits, targets)

    other = copy.deepcopy(module)
    trainer = Trainer(other, loss, torch.optim.SGD(other.parameters(), lr=1e-3), adapters="cpu", batch_statistics="batch")
    assert trainer.fit(x, y, batch_size=4)["loss"] == pytest.approx([float(loss(module(x), y).detach())], rel=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(trainer.predict(x), other.eval()(x), atol=1e-4, rtol=1e-4)


def _loss(outputs: Any, targets: Any) -> Any:
    return _pytree.tree_leaves(outputs)[0].pow(2).mean()


@pytest.mark.parametrize(
    ("end", "loss", "told"),
    [
        (_heads, nn.CrossEntropyLoss(), "loss `CrossEntropyLoss`: is one of one tensor, but forward returns 2: give a function"),
        (_heads, F.mse_loss, "loss `mse_loss`: is one of one tensor, but forward returns 2"),
        (lambda m, h: (m.classes(h), m.classes.bias), _loss, r"needs to return tensors that depend on the inputs, .*, at `\[1\]`"),
        (lambda m, h: {"a": m.classes(h), "b": 3}, _loss, r"but gives `int`, at `\['b'\]`"),
        (lambda m, h: Found(m.classes(h), m.numbers(h) == 0.0), _loss, r"of torch.float32, but gives torch.bool, at `.code`"),
        (lambda m, h: (m.classes(h), h.transpose(0, 1)), _loss, r"the batch as its first axis.*, at `\[1\]`"),
        (lambda m, h: (None, [None]), _loss, "forward: needs to return tensors"),
    ],
)
def test_what_is_no_output_is_refused_by_name(end: Any, loss: Any, told: str) -> None:
    module = Heads(end)
    trainer = Trainer(module, loss, _optimizer(module), adapters="cpu")
    with pytest.raises(ModelError, match=told):
        trainer.fit(X, CLASSES)


def test_targets_have_the_rows_of_the_inputs() -> None:
    module = Heads(_heads)
    trainer = Trainer(module, _both, _optimizer(module), adapters="cpu")
    with pytest.raises(DataError, match=r"targets at `\[1\]` need to be 40 rows, as the inputs have, but have shape \[39\]"):
        trainer.fit(X, (CLASSES, NUMBERS[1:]))
    with pytest.raises(DataError, match=r"targets at `\['b'\]` need to be 40 rows, as the inputs have, but are `NoneType`"):
        trainer.fit(X, {"a": CLASSES, "b": None})
    one = nn.Linear(6, 3)
    for x, y in ((X, (CLASSES, NUMBERS)), (X, {"a": CLASSES})):
        with pytest.raises(DataError, match="targets need to be one array for a loss of `torch.nn`"):
            Trainer(one, nn.CrossEntropyLoss(), _optimizer(one), adapters="cpu").fit(x, y)
    # A list of rows is one array, as before.
    rows: Any = list(WIDE[:, :3])
    Trainer(one, nn.MSELoss(), _optimizer(one), adapters="cpu").fit(X, rows)


def test_outputs_that_evaluation_alone_has_are_not_guessed() -> None:
    module: Any = Inception()
    module.aux.load_state_dict(module.classes.state_dict())
    trainer = Trainer(module, lambda o, y: F.cross_entropy(o.mask, y), _optimizer(module), adapters="cpu")
    with pytest.raises(ModelError, match="forward returns something else in evaluation mode than in training"):
        trainer.predict(X)
