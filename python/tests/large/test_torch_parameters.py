"""Parameters that a forward reads itself, and modules that only `torch.export` can read: ten steps beside PyTorch."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from manyhands_ml import ModelError
from manyhands_ml.torch import Trainer

F = nn.functional
ROWS, TIME, SIZE, WORDS = 12, 7, 16, 30


def _ten_steps(build: Callable[[], nn.Module], inputs: list[torch.Tensor], targets: torch.Tensor) -> None:
    """The prediction, the losses of ten steps, and what they have learned."""
    module, loss = build(), nn.CrossEntropyLoss()
    other = copy.deepcopy(module)
    one, two = (torch.optim.Adam(it.parameters(), lr=1e-3, eps=1e-3) for it in (module, other))
    trainer = Trainer(other, loss, two, adapters="cpu,cpu,cpu")
    with torch.no_grad():
        expected = _tensor(copy.deepcopy(module).eval()(*inputs))
    torch.testing.assert_close(_tensor(trainer.predict(inputs)), expected, atol=1e-5, rtol=1e-5)
    for _ in range(10):
        one.zero_grad()
        value = loss(_tensor(module(*inputs)), targets)
        value.backward()
        one.step()
        assert trainer.fit([(*inputs, targets)])["loss"][0] == pytest.approx(value.item(), rel=1e-5)
    for (name, found), needed in zip(other.state_dict().items(), module.state_dict().values(), strict=True):
        torch.testing.assert_close(found, needed, atol=1e-5, rtol=1e-4, msg=name)


def _tensor(output: Any) -> torch.Tensor:
    tensor = output if isinstance(output, torch.Tensor) else output.logits
    assert isinstance(tensor, torch.Tensor)
    return tensor


class Vit(nn.Module):
    """A vision transformer as most write it: patches, a token of the class and positions."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, SIZE, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, SIZE))
        self.positions = nn.Parameter(torch.randn(1, 5, SIZE))
        layer = nn.TransformerEncoderLayer(SIZE, 4, 32, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(SIZE, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        return self.head(self.encoder(x)[:, 0])


class Functions(nn.Module):
    """Functions with weights, one of them used twice, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Parameter(torch.randn(WORDS, SIZE))
        self.weight, self.bias = nn.Parameter(torch.randn(SIZE, SIZE) / 4), nn.Parameter(torch.zeros(SIZE))
        self.scale, self.out = nn.Parameter(torch.ones(SIZE)), nn.Parameter(torch.randn(3, SIZE))
        self.register_buffer("waves", torch.sin(torch.arange(TIME * SIZE).reshape(TIME, SIZE) / 10))
        self.mix = nn.Parameter(torch.eye(3) + 0.1)
        self.register_buffer("factor", torch.tensor(0.5))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = F.embedding(ids, self.words) + self.waves * self.factor
        x = F.linear(F.linear(x, self.weight, self.bias).relu(), self.weight, self.bias)
        return F.linear(F.layer_norm(x, (SIZE,), self.scale).mean(1), self.out) @ self.mix


class Cut(nn.Module):
    """Parts of parameters, as of positions for more places than a row has."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, SIZE), nn.Linear(SIZE, 3)
        self.positions = nn.Parameter(torch.randn(1, 10, SIZE))
        self.plain, self.wide = nn.Parameter(torch.randn(9, SIZE)), nn.Parameter(torch.randn(9, SIZE + 4))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = (self.words(ids) + self.positions[:, : ids.shape[1], :]) * self.plain[: ids.shape[1]]
        x = (x + self.positions[:, 2:9]) * self.wide[1:8, 4:].unsqueeze(0) + self.plain[..., :7, :]
        return self.head(x.tanh().mean(1))


class Branching(nn.Module):
    """Code that `torch.fx` can't trace: a loop over parts, and a shape that decides."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(SIZE, SIZE) for _ in range(steps))
        self.words, self.places = nn.Embedding(WORDS, SIZE, padding_idx=0), nn.Embedding(TIME, SIZE)
        self.head = nn.Linear(SIZE, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for part, scale in zip(self.parts, torch.ones(len(self.parts)).tolist()):
            x = x + F.gelu(part(x)) * scale if x.shape[1] > 1 else x
        query, key, value = [half for half in (x, x, x)]
        seen = F.scaled_dot_product_attention(*[part.unflatten(-1, (2, -1)).transpose(1, 2) for part in (query, key, value)])
        return self.head(seen.transpose(1, 2).flatten(2).mean(1))


def _ids() -> torch.Tensor:
    ids = torch.randint(1, WORDS, (ROWS, TIME))
    ids[4:, 5:] = 0
    return ids


@dataclass
class Case:
    """A module and its input."""

    build: Callable[[], nn.Module]
    x: Callable[[], torch.Tensor]


CASES = {
    "a vision transformer": Case(Vit, lambda: torch.randn(ROWS, 3, 8, 8)),
    "parts": Case(Cut, _ids),
    "functions": Case(Functions, _ids),
    "by export": Case(lambda: Branching(2), _ids),
}


@pytest.mark.parametrize("name", CASES)
def test_parameters_in_a_forward_learn(name: str) -> None:
    torch.manual_seed(4)
    _ten_steps(CASES[name].build, [CASES[name].x()], torch.randint(0, 3, (ROWS,)))


def _transformers(name: str) -> Callable[[], nn.Module]:
    library = pytest.importorskip("transformers")
    small = {"hidden_size": SIZE, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "num_labels": 3}
    calm = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    settings: dict[str, dict[str, Any]] = {
        "DistilBert": {
            **{"vocab_size": WORDS, "max_position_embeddings": 10, "dim": SIZE, "n_layers": 2, "n_heads": 2, "hidden_dim": 32},
            **{"num_labels": 3, "dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0},
        },
        "Bert": {**small, **calm, "vocab_size": WORDS, "max_position_embeddings": 10},
        "ViT": {**small, **calm, "image_size": 8, "patch_size": 4},
    }
    task = "ForImageClassification" if name == "ViT" else "ForSequenceClassification"
    config = getattr(library, f"{name}Config")(**settings[name])
    return lambda: getattr(library, name + task)(config)


@pytest.mark.parametrize("name", ["DistilBert", "Bert", "ViT"])
def test_encoders_of_transformers_train_as_in_pytorch(name: str) -> None:
    """Networks of the library `transformers`, whose code `torch.export` reads."""
    build = _transformers(name)
    torch.manual_seed(5)
    x = torch.randn(ROWS, 3, 8, 8) if name == "ViT" else _ids()
    _ten_steps(build, [x], torch.randint(0, 3, (ROWS,)))


class Alone(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.randn(SIZE, SIZE))

    def forward(self, x: Any) -> Any:
        return self.function(x, self.weight)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda x, weight: F.linear(x, weight * math.sqrt(2.0)), "computes with the parameter `weight` alone"),
        (lambda x, weight: x + weight[0], "computes with the parameter `weight` alone"),
        (lambda x, weight: F.linear(x, torch.relu(x)), "needs a parameter of the module as its weight"),
        (lambda x, weight: torch.cumsum(x, 1) @ weight, "call of `cumsum`: is not supported"),
        (lambda x, weight: x @ x.transpose(0, 1), "needs"),
    ],
)
def test_what_parameters_lack_is_refused(function: Any, told: str) -> None:
    module = Alone(function)
    trainer = Trainer(module, nn.MSELoss(), torch.optim.SGD(module.parameters(), lr=0.1), adapters="cpu")
    with pytest.raises(ModelError, match=told):
        trainer.predict(torch.randn(SIZE, SIZE))


def test_a_padding_vector_that_is_not_zero_is_refused() -> None:
    module = nn.Embedding(WORDS, SIZE, padding_idx=0)
    nn.init.ones_(module.weight)
    trainer = Trainer(module, nn.MSELoss(), torch.optim.SGD(module.parameters(), lr=0.1), adapters="cpu")
    with pytest.raises(ModelError, match="`padding_idx` needs a vector of zeros"):
        trainer.predict(_ids())
