"""Code of PyTorch that adapters would run in another way, without a word: it is refused by name. PyTorch says what would be right."""

from __future__ import annotations

import copy
import random
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from manyhands_ml import DataError, MismatchError, ModelError
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


#: Terms that a loss adds to the cross-entropy, and how each is named.
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


# Forwards that do something which no trace shows.


class Parts(nn.Module):
    """A function of a tensor and of this module, whose layers it calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.encoder, self.middle, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.dropout = nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(()))
        self.n_calls = self.size = 0

    def forward(self, x: Any) -> Any:
        return self.function(self, x)


class Exported(Parts):
    """The same, which only `torch.export` can read."""

    def forward(self, *x: Any) -> Any:
        return self.function(self, *x)


def _with_no_grad(it: Any, x: Any) -> Any:
    with torch.no_grad():
        hidden = torch.relu(it.encoder(x))
    return it.head(torch.tanh(it.middle(hidden)))


@torch.no_grad()
def _encoded(it: Any, x: Any) -> Any:
    return it.middle(torch.relu(it.encoder(x)))


def _switched_off(it: Any, x: Any) -> Any:
    torch.set_grad_enabled(False)
    hidden = it.encoder(x)
    torch.set_grad_enabled(True)
    return it.head(torch.relu(it.middle(hidden)))


def _below(it: Any, x: Any) -> Any:
    """Nothing learns that comes before what has no gradient."""
    hidden = torch.relu(it.encoder(x))
    with torch.no_grad():
        hidden = it.middle(hidden)
    return it.head(hidden)


def _for_a_log(it: Any, x: Any) -> Any:
    """A tensor that the output does not read stops nothing."""
    hidden = torch.relu(it.encoder(x))
    it.seen, it.size = hidden.detach(), x.shape[0]
    with torch.no_grad():
        it.norm = it.middle(hidden).norm()
    return it.head(it.middle(hidden))


NO_GRAD = {
    "with": _with_no_grad,
    "decorator": lambda it, x: it.head(_encoded(it, x)),
    "switched off": _switched_off,
    "below": _below,
    "for a log": _for_a_log,
}


@pytest.mark.parametrize("name", NO_GRAD)
def test_layers_without_a_gradient_learn_nothing(name: str) -> None:
    """Neither by a decay: PyTorch's optimizers leave out what has no gradient."""
    torch.manual_seed(1)
    module = Parts(NO_GRAD[name])
    other = copy.deepcopy(module)
    x, y = _data()
    one, two = (torch.optim.AdamW(it.parameters(), lr=0.01, weight_decay=0.1) for it in (module, other))
    for _ in range(5):
        one.zero_grad()
        F.cross_entropy(module(x), y).backward()
        one.step()
    Trainer(other, F.cross_entropy, two, adapters="cpu").fit(x, y, batch_size=32, epochs=5)
    for (key, found), needed in zip(other.state_dict().items(), module.state_dict().values()):
        torch.testing.assert_close(found, needed, atol=1e-5, rtol=1e-4, msg=key)
    assert set(two.state_dict()["state"]) == set(one.state_dict()["state"])


def _halfway(it: Any, x: Any) -> Any:
    hidden = it.encoder(x)
    with torch.no_grad():
        gate = torch.sigmoid(hidden)
    return it.head(hidden * gate)


def _twice(it: Any, x: Any) -> Any:
    with torch.no_grad():
        before = it.encoder(x)
    return it.head(before + it.encoder(x))


def _counts(it: Any, x: Any) -> Any:
    it.calls += 1
    return it.head(it.encoder(x))


def _counts_in_python(it: Any, x: Any) -> Any:
    it.size, it.n_calls = x.shape[0], it.n_calls + 1
    return it.head(it.encoder(x * 2 if it.n_calls > 100 else x))


def _evaluates(it: Any, x: Any) -> Any:
    it.dropout.eval()
    return it.head(it.dropout(it.encoder(x)))


def _evaluates_for_a_while(it: Any, x: Any) -> Any:
    it.dropout.eval()
    x = it.dropout(it.encoder(x))
    it.dropout.train()
    return it.head(x)


def _casts(it: Any, x: Any) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return it.head(it.encoder(x)).to(torch.float32)


def _without_any(it: Any, x: Any) -> Any:
    with torch.no_grad():
        return it.head(it.encoder(x))


#: Forwards that are refused, and how each is named.
FORWARDS: dict[str, tuple[type[Parts], Callable[..., Any], str]] = {
    "halfway": (Parts, _halfway, "call of `sigmoid`: stops the gradient of `encoder.weight`"),
    "twice": (Parts, _twice, "call of `linear`: stops the gradient of `encoder.weight`"),
    "no gradient at all": (Parts, _without_any, "forward: gives no parameter a gradient"),
    "export": (Exported, _with_no_grad, r"`torch.no_grad\(\)` or the like in a module that `torch.fx` can't trace is not supported"),
    "mode": (Parts, _evaluates, "module `dropout`: forward puts it in evaluation mode"),
    "mode for a while": (Parts, _evaluates_for_a_while, "module `dropout`: forward puts it in evaluation mode"),
    "mode, export": (Exported, _evaluates, "module `dropout`: forward puts it in evaluation mode"),
    "autocast": (Parts, _casts, "forward: runs under `torch.autocast`"),
    "autocast, export": (Exported, _casts, "call of `wrap_with_autocast`: `torch.autocast` is not supported"),
    "noise": (Parts, lambda it, x: it.head(it.encoder(x + torch.randn(6))), "forward: draws random numbers by `randn`"),
    "noise of NumPy": (Parts, lambda it, x: it.head(it.encoder(x) * np.random.rand()), "forward: draws random numbers by NumPy"),
    "a layer that is left out": (
        Parts,
        lambda it, x: it.head(it.encoder(x) if random.random() < 0.5 else it.middle(it.encoder(x))),
        "forward: draws random numbers by random",
    ),
    "noise, export": (Exported, lambda it, x: it.head(it.encoder(x + torch.randn(6))), "needs a random number for each number"),
    "a buffer": (Parts, _counts, "`calls` of the module: forward changes it"),
    "a number": (Parts, _counts_in_python, "`n_calls` of the module: forward changes it"),
    "a buffer, export": (Exported, _counts, "`calls` of the module: forward changes it"),
}


@pytest.mark.parametrize("name", FORWARDS)
def test_what_a_forward_does_beside_its_trace_is_refused(name: str) -> None:
    kind, function, told = FORWARDS[name]
    assert re.search(told, _told(kind(function)))


def test_what_is_seen_of_a_forward_leaves_no_trace() -> None:
    """Buffers, attributes, modes and random numbers are those of before: PyTorch had no such calls."""
    module = Hidden()
    before, state = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    trainer = _trainer(module, lambda out, y: 0 * F.cross_entropy(out, y))
    x, y = _data()
    trainer.evaluate(x, y)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    trainer.fit(x, y, batch_size=32)
    assert torch.equal(torch.get_rng_state(), state) and module.training and isinstance(module.aux, torch.Tensor)
    assert module.norm.num_batches_tracked == 1


# Mistakes of a program, which are no errors of this package.


def _mismatch(module: nn.Module) -> str:
    before = copy.deepcopy(module.state_dict())
    with pytest.raises(MismatchError) as caught:
        _trainer(module).fit(*_data())
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    return str(caught.value)


def _doubles(it: Any, x: Any) -> Any:
    x = it.middle(it.encoder(x))
    return it.head(x * 2 if it.training else x)


@pytest.mark.parametrize("kind", [Parts, Exported])
@pytest.mark.parametrize(
    ("function", "told"),
    [
        (_doubles, "something else in training than in evaluation, from `mul` on"),
        (lambda it, x: it.head(it.encoder(x) * (2.0 if it.training else 1.0)), "from `mul` on"),
        (lambda it, x: it.head(F.dropout(it.encoder(x), 0.5)), "`dropout` in forward drops in evaluation, too"),
    ],
)
def test_a_forward_that_has_modes_of_its_own_is_named(kind: type[Parts], function: Any, told: str) -> None:
    text = _mismatch(kind(function))
    assert told in text and "error of manyhands_ml" not in text


def test_modules_with_modes_are_not_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    from manyhands_ml.torch import _layers

    monkeypatch.setitem(_layers.MODULES, nn.Tanh, _layers.activations._function("relu"))
    module = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 3))
    assert "this is an error of manyhands_ml" in _mismatch(module)


@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.L1Loss(), nn.HuberLoss(), nn.BCEWithLogitsLoss()])
@pytest.mark.parametrize(("size", "shape"), [(1, (32,)), (3, (32, 1)), (3, (32,))])
def test_targets_have_the_shape_of_the_output(loss: Any, size: int, shape: tuple[int, ...]) -> None:
    """PyTorch warns that it will broadcast, or refuses."""
    module = nn.Linear(6, size)
    x, y = _data()[0], torch.rand(shape)
    with warnings.catch_warnings(), pytest.raises((ValueError, RuntimeError, UserWarning)):
        warnings.simplefilter("error")
        loss(module(x), y)
    trainer = _trainer(module, loss)
    told = re.escape(f"targets need the shape of the output, {[32, size]}, but have {list(shape)}")
    with pytest.raises(DataError, match=told):
        trainer.fit(x, y)
    with pytest.raises(DataError, match=told):
        trainer.fit([(x, y)])
    trainer.fit(x, torch.rand(32, size))
    with pytest.raises(DataError, match=told):
        trainer.evaluate(x, y)


def _tied_and_turned(it: Any, x: Any) -> Any:
    return it.head(torch.relu(it.middle(it.encoder(x))) @ it.middle.weight)


@pytest.mark.parametrize("kind", [Parts, Exported])
def test_a_matrix_that_is_turned_elsewhere_is_refused(kind: type[Parts]) -> None:
    assert re.search("weight `middle\\S+`:? is also that of", _told(kind(_tied_and_turned)))


def test_compiled_modules_are_observed_too() -> None:
    _trainer(torch.compile(Parts(_for_a_log), backend="eager")).fit(*_data())
    _trainer(nn.Sequential(torch.compile(Parts(_for_a_log), backend="eager"))).fit(*_data())
    assert re.search(r"stops the gradient of `\S*encoder.weight`", _told(torch.compile(Parts(_twice), backend="eager")))


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_a_module_of_torch_jit_is_refused() -> None:
    module = torch.jit.script(nn.Sequential(nn.Linear(6, 3)))
    with pytest.raises(ModelError, match=r"modules of `torch.jit`: can't be read; give those that they were made of"):
        _trainer(module, nn.MSELoss()).fit(torch.rand(32, 6), torch.rand(32, 3))


@pytest.mark.parametrize("name", ["code", "graph"])
def test_names_that_torch_fx_needs_itself_are_refused(name: str) -> None:
    module = nn.Module()
    setattr(module, name, nn.Linear(6, 3))
    trainer = Trainer(module, nn.MSELoss(), torch.optim.SGD(module.parameters(), lr=0.1), adapters="cpu")
    with pytest.raises(ModelError, match=f"`{name}`: `torch.fx` has an attribute of this name"):
        trainer.predict(torch.zeros(3, 6))
