"""Attention and transformers of PyTorch, ten steps beside it; ends that PyTorch's losses read; what is refused of them."""

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
ROWS, TIME, SIZE = 12, 5, 8


class Parts(nn.Module):
    """A function of modules and of inputs, beside masks."""

    def __init__(self, function: Callable[..., Any], *parts: nn.Module) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(TIME))
        self.register_buffer("hidden", torch.ones(TIME, TIME, dtype=torch.bool).triu(1))
        self.register_buffer("window", torch.ones(TIME, TIME, dtype=torch.bool).triu(2))


class One(Parts):
    """Of one input."""

    def forward(self, x: Any) -> Any:
        return self.function(self, x, *self.parts)


class Two(Parts):
    """Of two inputs."""

    def forward(self, x: Any, other: Any) -> Any:
        return self.function(self, x, other, *self.parts)


def _attention(**settings: Any) -> nn.MultiheadAttention:
    return nn.MultiheadAttention(SIZE, 2, **{"batch_first": True, **settings})


def _layer(**settings: Any) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(SIZE, 2, 16, **{"dropout": 0.0, "batch_first": True, **settings})


def _encoder(nested: bool = False, **settings: Any) -> nn.TransformerEncoder:
    return nn.TransformerEncoder(_layer(**settings), 2, nn.LayerNorm(SIZE), enable_nested_tensor=nested)


def _unpacked(m: One, x: Any, attention: Any, linear: Any) -> Any:
    seen, _ = attention(linear(x), x, x)
    return seen


def _padded(m: One, x: Any, encoder: Any, embedding: Any) -> Any:
    return encoder(embedding(x), src_key_padding_mask=x == 0)


def _time_first(m: One, x: Any, encoder: Any, before: Any, behind: Any) -> Any:
    """As tutorials write it: the batch is the second axis."""
    return behind(encoder(before(x.permute(1, 0, 2)).relu() * 2).transpose(0, 1))


def _twice(m: One, x: Any, layer: Any) -> Any:
    return layer(layer(x))


CASES: dict[str, Callable[[], nn.Module]] = {
    "to itself": lambda: One(lambda m, x, attention: attention(x, x, x)[0], _attention()),
    "without weights": lambda: One(lambda m, x, attention: attention(x, x, x, need_weights=False)[0], _attention(bias=False)),
    "unpacked": lambda: One(_unpacked, _attention(), nn.Linear(SIZE, SIZE)),
    "to another": lambda: Two(lambda m, x, other, attention: attention(x, other, other)[0], _attention()),
    "of three": lambda: Two(
        lambda m, x, other, attention, linear: attention(x, other, linear(other))[0], _attention(), nn.Linear(SIZE, SIZE)
    ),
    "causal": lambda: One(lambda m, x, attention: attention(x, x, x, attn_mask=m.hidden)[0], _attention()),
    "batch second": lambda: One(
        lambda m, x, attention: attention(*[x.transpose(0, 1)] * 3)[0].transpose(0, 1), _attention(batch_first=False)
    ),
    "layer": _layer,
    "layer, norm first": lambda: _layer(norm_first=True, activation=F.gelu),
    "layer, module": lambda: _layer(activation=nn.GELU(), bias=False),
    "layer, twice": lambda: One(_twice, _layer()),
    "encoder": _encoder,
    "encoder, causal": lambda: One(lambda m, x, encoder: encoder(x, mask=m.mask, is_causal=True), _encoder()),
    "encoder, batch second": lambda: One(
        _time_first, _encoder(batch_first=False, norm_first=True), nn.Linear(SIZE, SIZE), nn.Linear(SIZE, 3)
    ),
    "encoder, padding": lambda: One(_padded, _encoder(), nn.Embedding(9, SIZE)),
    "encoder, mask": lambda: Two(lambda m, x, other, encoder: encoder(x, src_key_padding_mask=other), _encoder()),
}


def _inputs(name: str) -> list[torch.Tensor]:
    x = torch.randn(ROWS, TIME, SIZE)
    ids = torch.randint(1, 9, (ROWS, TIME))
    ids[3:, 3:] = 0
    others = {"encoder, mask": [x, ids == 0], "encoder, padding": [ids]}
    return others.get(name, [x, torch.randn(ROWS, 7, SIZE)] if name.startswith(("to another", "of three")) else [x])


def _ten_steps(build: Callable[[], nn.Module], inputs: list[torch.Tensor], loss: Any = None, targets: Any = None) -> None:
    """The prediction, and the losses of ten steps."""
    module, loss = build(), loss or nn.MSELoss()
    other = copy.deepcopy(module)
    with torch.no_grad():
        expected = copy.deepcopy(module).eval()(*inputs)
    targets = torch.randn(expected.shape) if targets is None else targets
    one, two = (torch.optim.Adam(it.parameters(), lr=1e-3, eps=1e-4) for it in (module, other))
    trainer = Trainer(other, loss, two, adapters="cpu,cpu,cpu")
    torch.testing.assert_close(trainer.predict(inputs), expected, atol=1e-5, rtol=1e-5)
    for _ in range(10):
        one.zero_grad()
        value = loss(module(*inputs), targets)
        value.backward()
        one.step()
        assert trainer.fit([(*inputs, targets)])["loss"][0] == pytest.approx(value.item(), rel=1e-5)
    with torch.no_grad():
        needed = float(loss(module.eval()(*inputs), targets))
    assert trainer.evaluate([(*inputs, targets)])["loss"] == pytest.approx(needed, rel=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_attention_and_transformers_train_as_in_pytorch(case: str) -> None:
    torch.manual_seed(1)
    _ten_steps(CASES[case], _inputs(case))


@pytest.mark.parametrize("part", ["attention", "layer", "encoder"])
def test_dropout_counts_in_training_alone(part: str) -> None:
    """PyTorch draws other numbers: the mean of many draws is that of none, roughly, and each differs from it."""
    torch.manual_seed(2)
    made: dict[str, Callable[[], nn.Module]] = {
        "attention": lambda: One(lambda m, x, attention: attention(x, x, x)[0], _attention(dropout=0.3)),
        "layer": lambda: _layer(dropout=0.3),
        "encoder": lambda: _encoder(dropout=0.3),
    }
    module, [x] = made[part](), _inputs("")
    y = torch.randn(ROWS, TIME, SIZE)
    with torch.no_grad():
        needed = [float(nn.MSELoss()(module(x), y)) for _ in range(200)]
    found = []
    for seed in range(30):
        trainer = Trainer(module, nn.MSELoss(), torch.optim.SGD(module.parameters(), lr=0.0), adapters="cpu", seed=seed)
        found.append(trainer.fit([(x, y)])["loss"][0])
    with torch.no_grad():
        calm = float(nn.MSELoss()(module.eval()(x), y))
    assert trainer.evaluate(x, y)["loss"] == pytest.approx(calm, rel=1e-5)
    ours, theirs = torch.tensor(found), torch.tensor(needed)
    error = float(theirs.std()) * (1 / len(found) + 1 / len(needed)) ** 0.5
    assert abs(float(ours.mean() - theirs.mean())) < 4 * error
    assert float(ours.std()) == pytest.approx(float(theirs.std()), rel=0.5)


ENDS: dict[str, tuple[nn.Module, Any, tuple[int, ...]]] = {
    "mean": (nn.LogSoftmax(1), nn.NLLLoss(), (ROWS,)),
    "weights": (nn.LogSoftmax(-1), nn.NLLLoss(torch.tensor([1.0, 2.0, 3.0]), ignore_index=1), (ROWS,)),
    "function": (One(lambda m, x: F.log_softmax(x, dim=1)), F.nll_loss, (ROWS,)),
    "sum of positions": (nn.Sequential(nn.Unflatten(1, (3, 4)), nn.LogSoftmax(1)), nn.NLLLoss(reduction="sum"), (ROWS, 4)),
    "divergence": (nn.LogSoftmax(1), nn.KLDivLoss(reduction="batchmean"), (ROWS, 3)),
    "no logarithm": (nn.Identity(), nn.NLLLoss(), (ROWS,)),
}


@pytest.mark.parametrize("name", ENDS)
def test_log_softmax_is_the_end_of_a_module(name: str) -> None:
    torch.manual_seed(3)
    end, loss, shape = ENDS[name]
    units = 12 if len(shape) == 2 and name.startswith("sum") else 3
    targets = torch.rand(shape).softmax(1) if name == "divergence" else torch.randint(0, 3, shape)
    _ten_steps(lambda: nn.Sequential(nn.Flatten(), nn.Linear(TIME * SIZE, units), copy.deepcopy(end)), _inputs(""), loss, targets)


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda: One(lambda m, x, attention: attention(x, x, x)[1], _attention()), "weights of attention, which the engine does not give"),
        (lambda: One(lambda m, x, attention: attention(x, x, x)[0], _attention(batch_first=False)), "`batch_first=False` needs the batch"),
        (lambda: One(lambda m, x, attention: attention(x, x, x, attn_mask=m.window)[0], _attention()), "the mask of positions needs"),
        (lambda: One(lambda m, x, attention: attention(x, x, x)[0], _attention(add_bias_kv=True)), "bias_kv"),
        (
            lambda: One(lambda m, x, encoder: encoder(x, src_key_padding_mask=x[:, :, 0] == 0), _encoder(True)),
            "`enable_nested_tensor` needs",
        ),
        (lambda: One(lambda m, x, linear: linear(x.transpose(0, 1)).mean(0), nn.Linear(SIZE, SIZE)), "call of `mean`: needs the batch"),
        (lambda: One(lambda m, x, linear: linear(x).transpose(0, 1), nn.Linear(SIZE, SIZE)), "forward: needs to return the batch"),
        (lambda: nn.Sequential(nn.LogSoftmax(-1), nn.Linear(SIZE, 3)), "reads what `LogSoftmax` gives"),
        (lambda: _layer(activation=nn.Tanhshrink()), "its `activation`, a `Tanhshrink`, is not supported"),
    ],
)
def test_what_attention_lacks_is_refused(build: Any, told: str) -> None:
    module = build()
    trainer = Trainer(module, nn.MSELoss(), torch.optim.SGD([nn.Parameter(torch.zeros(1)), *module.parameters()], lr=0.1), adapters="cpu")
    with pytest.raises(ModelError, match=told):
        trainer.predict(torch.randn(ROWS, TIME, SIZE))
