"""Does attention that a forward writes out train as in PyTorch? What of it is refused?"""

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
ROWS, TIME, SIZE, HEADS = 12, 8, 16, 2


class Written(nn.Module):
    """A function of queries, keys and values, which are one tensor's, and of masks."""

    def __init__(self, function: Callable[..., Any], heads: int = HEADS) -> None:
        super().__init__()
        self.function, self.heads, self.qkv, self.out = function, heads, nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, 3)
        self.register_buffer("seen", torch.ones(TIME, TIME, dtype=torch.bool).tril())
        self.register_buffer("added", torch.full((TIME, TIME), float("-inf")).triu(1))
        self.register_buffer("window", torch.ones(TIME, TIME, dtype=torch.bool).triu(2))
        self.register_buffer("root", torch.sqrt(torch.tensor(8.0)))

    def forward(self, x: Any) -> Any:
        parts = self.qkv(x).chunk(3, dim=-1)
        if self.heads:
            parts = [part.unflatten(-1, (self.heads, SIZE // self.heads)).transpose(1, 2) for part in parts]
        y = self.function(self, *parts)
        return self.out(y.transpose(1, 2).flatten(2) if self.heads else y)


WRITTEN: dict[str, Callable[[], Written]] = {
    "all keys": lambda: Written(lambda m, q, k, v: torch.softmax(torch.matmul(q, k.transpose(2, 3)) / 2.0, -1) @ v),
    "where": lambda: Written(lambda m, q, k, v: torch.where(m.seen, q @ k.transpose(2, 3), float("-inf")).softmax(-1) @ v),
    "added": lambda: Written(lambda m, q, k, v: ((q / m.root) @ k.transpose(-1, -2) + m.added).softmax(dim=3).matmul(v)),
    "a mask of its own": lambda: Written(
        lambda m, q, k, v: (q @ k.mT + torch.empty(q.size(2), q.size(2)).fill_(float("-inf")).triu_(1)).softmax(-1) @ v
    ),
    "in place": lambda: Written(lambda m, q, k, v: (q @ k.transpose(-1, -2)).div_(m.root).masked_fill_(~m.seen, -1e10).softmax(-1) @ v),
    "filled, then divided": lambda: Written(
        lambda m, q, k, v: F.softmax((q @ k.transpose(-1, -2)).masked_fill(m.seen == 0, -1e20) / m.root, dim=-1) @ v
    ),
    "no heads": lambda: Written(lambda m, q, k, v: torch.bmm(F.softmax(torch.bmm(q, k.transpose(1, 2)), dim=2), v), heads=0),
    "einsum": lambda: Written(
        lambda m, q, k, v: torch.einsum("bhqk,bhkd->bhqd", (torch.einsum("bhqd,bhkd->bhqk", q, k) / m.root).softmax(-1), v)
    ),
    "einsum of a list, steps before heads": lambda: Written(
        lambda m, q, k, v: torch.einsum(
            "nhql, nlhd -> nqhd",
            [
                torch.einsum("nqhd,nkhd->nhqk", [q.transpose(1, 2), k.transpose(1, 2)]).masked_fill(~m.seen, -1e20).softmax(3),
                v.transpose(1, 2),
            ],
        ).transpose(1, 2)
    ),
    "einsum, keys and values first": lambda: Written(
        lambda m, q, k, v: torch.einsum("bhjd,bhij->bhid", v, torch.einsum("bhjd,bhid->bhij", k, q).softmax(-1))
    ),
    "einsum, no heads": lambda: Written(
        lambda m, q, k, v: torch.einsum("bij,bjd->bid", torch.einsum("bid,bjd->bij", q, k).softmax(-1), v), heads=0
    ),
    "keys of another length": lambda: Written(lambda m, q, k, v: (q @ k[:, :, :5].transpose(-1, -2)).softmax(-1) @ v[:, :, :5]),
}


class Packed(nn.Module):
    """As in timm: an axis of queries, keys and values, which comes first."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function, self.qkv, self.out, self.attend = function, nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, 3), nn.Softmax(dim=-1)

    def forward(self, x: Any) -> Any:
        B, T, C = x.shape
        q, k, v = self.function(self.qkv(x).reshape(B, T, 3, HEADS, C // HEADS))
        seen = self.attend((q * 0.3) @ k.mT).type_as(v).float() @ v
        return self.out(seen.transpose(1, 2).reshape(B, T, C))


def _first(qkv: Any) -> Any:
    moved = qkv.permute(2, 0, 3, 1, 4)
    return moved[0], moved[1], moved[-1]


PACKED: dict[str, Callable[..., Any]] = {
    "places": _first,
    "unbind": lambda qkv: qkv.permute(2, 0, 3, 1, 4).unbind(0),
    "unbind of a later axis": lambda qkv: qkv.transpose(1, 3).unbind(2),
    "select": lambda qkv: [qkv.permute(0, 3, 1, 2, 4).select(3, place) for place in range(3)],
    "select before the batch": lambda qkv: [qkv.permute(3, 2, 0, 1, 4).select(1, place).transpose(0, 1) for place in range(3)],
}


class Padded(nn.Module):
    """Keys of padding that no query sees, and perhaps no later ones."""

    def __init__(self, heads: int, number: float, is_causal: bool) -> None:
        super().__init__()
        self.heads, self.number, self.is_causal = heads, number, is_causal
        self.words, self.out = nn.Embedding(9, SIZE), nn.Linear(SIZE, 3)
        self.register_buffer("tril", torch.ones(TIME, TIME).tril())

    def forward(self, ids: Any) -> Any:
        x, mask = self.words(ids), (ids != 0).unsqueeze(1)
        if self.heads:
            x, mask = x.unflatten(-1, (self.heads, SIZE // self.heads)).transpose(1, 2), mask.unsqueeze(2)
        scores = (x @ x.transpose(-2, -1)).masked_fill(mask == 0, self.number)
        if self.is_causal:
            scores = scores.masked_fill(self.tril == 0, self.number)
        y = scores.softmax(-1) @ x
        return self.out(y.transpose(1, 2).flatten(2) if self.heads else y)


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


@pytest.mark.parametrize("name", WRITTEN)
def test_attention_that_is_written_out_trains_as_in_pytorch(name: str) -> None:
    torch.manual_seed(2)
    module = WRITTEN[name]()
    _ten_steps(nn.Sequential(module, nn.Flatten(1, 2)), torch.randn(ROWS, TIME, SIZE), torch.randint(0, 3 * TIME, (ROWS,)))


@pytest.mark.parametrize("name", PACKED)
def test_queries_keys_and_values_of_one_tensor_are_taken_apart(name: str) -> None:
    torch.manual_seed(5)
    module = nn.Sequential(Packed(PACKED[name]), nn.Flatten(1, 2))
    _ten_steps(module, torch.randn(ROWS, TIME, SIZE), torch.randint(0, 3 * TIME, (ROWS,)))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("number", [float("-inf"), -1e9])
@pytest.mark.parametrize("heads", [0, HEADS])
def test_keys_of_padding_are_not_seen(heads: int, number: float, is_causal: bool) -> None:
    """A row that is nothing but padding sees all keys alike in PyTorch, unless its scores are minus infinity."""
    torch.manual_seed(6)
    ids = torch.randint(1, 9, (ROWS, TIME))
    ids[3:, 5:] = 0
    if number > float("-inf"):
        ids[7], ids[8, :3] = 0, 0
    _ten_steps(nn.Sequential(Padded(heads, number, is_causal), nn.Flatten(1, 2)), ids, torch.randint(0, 3 * TIME, (ROWS,)))


def test_dropped_probabilities_have_the_mean_of_all() -> None:
    """PyTorch draws others: the mean of many draws is that of none, as far as it scatters."""
    torch.manual_seed(3)
    dropped = Written(lambda m, q, k, v: F.dropout((q @ k.transpose(-1, -2)).softmax(-1), 0.3, m.training) @ v)
    x, y = torch.randn(ROWS, TIME, SIZE), torch.randn(ROWS, TIME, 3)
    loss = nn.MSELoss()
    with torch.no_grad():
        needed = torch.stack([loss(dropped(x), y) for _ in range(200)])
    found = torch.tensor(
        [
            Trainer(dropped, loss, torch.optim.SGD(dropped.parameters(), lr=0.0), adapters="cpu", seed=seed).fit([(x, y)])["loss"][0]
            for seed in range(30)
        ]
    )
    assert abs(float(found.mean() - needed.mean())) < 4 * float(needed.std()) * (1 / 30 + 1 / 200) ** 0.5
    assert float(found.std()) == pytest.approx(float(needed.std()), rel=0.5)


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda: Written(lambda m, q, k, v: (q @ k.transpose(-1, -2)).relu() @ v), "call of `relu`: reads the product of two tensors"),
        (lambda: Written(lambda m, q, k, v: (q @ k.transpose(-1, -2)) @ v), "no probabilities yet"),
        (
            lambda: Written(lambda m, q, k, v: torch.einsum("bhqd,bhkd->bhkq", q, k).softmax(2).transpose(2, 3) @ v),
            "call of `softmax`: `dim` needs to be the last axis",
        ),
        (lambda: Written(lambda m, q, k, v: torch.einsum("bhqd,bhqd->bhq", q, k).unsqueeze(-1) * v), "call of `einsum`: needs queries and keys"),
        (lambda: Written(lambda m, q, k, v: torch.einsum("bhqd,ghkd->bhqk", q, k).softmax(-1) @ v), "call of `einsum`: needs queries and keys"),
        (lambda: Written(lambda m, q, k, v: (q @ k.transpose(-1, -2)).softmax(2) @ v), "`dim` needs to be the last axis"),
        (
            lambda: Written(lambda m, q, k, v: (q @ k.transpose(-1, -2)).masked_fill(m.window, float("-inf")).softmax(-1) @ v),
            "the mask of positions needs",
        ),
        (lambda: Written(lambda m, q, k, v: (q @ k.transpose(-1, -2)).masked_fill(~m.seen, -5.0).softmax(-1) @ v), "needs `-inf` or at most"),
        (
            lambda: Written(lambda m, q, k, v: ((q @ k.transpose(-1, -2)).softmax(-1) * 2.0) @ v),
            "changes probabilities of attention",
        ),
        (
            lambda: Written(lambda m, q, k, v: (q @ k.transpose(-1, -2)).masked_fill(q[:, :, :, :1] > 0, 0.0).softmax(-1) @ v),
            "is not supported|needs a mask that is true or false",
        ),
        (
            lambda: Written(
                lambda m, q, k, v: (q @ k.mT).masked_fill(~m.seen, -1e10).masked_fill((v == 0)[:, :1, :1], -1e9).softmax(-1) @ v
            ),
            "needs one",
        ),
        (lambda: Written(_twice), "multiplies what dropout has left a second time, after `matmul_1`"),
        (lambda: nn.Sequential(nn.Linear(SIZE, TIME), Matrix()), "forward: needs to return tensors that depend on the inputs"),
    ],
)
def test_what_products_of_two_tensors_lack_is_refused(build: Any, told: str) -> None:
    module = build()
    trainer = Trainer(module, nn.MSELoss(), torch.optim.SGD(module.parameters(), lr=0.1), adapters="cpu")
    with pytest.raises(ModelError, match=told):
        trainer.predict(torch.randn(ROWS, TIME, SIZE))


def _twice(m: Any, q: Any, k: Any, v: Any) -> Any:
    weights = F.dropout((q @ k.transpose(-1, -2)).softmax(-1), 0.5, m.training)
    return weights @ v + weights @ q


class Matrix(nn.Module):
    def forward(self, x: Any) -> Any:
        return x @ x.transpose(1, 2)


