"""Does a language model that a person wrote for PyTorch train here as it does there? Tied weights, attention written out, a loop's usual things."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from manyhands_ml.torch import Trainer

F = nn.functional
README = Path(__file__).parents[2] / "README.md"
ROWS, TIME, SIZE, HEADS, WORDS = 12, 8, 16, 2, 30


class Attention(nn.Module):
    """As in nanoGPT: queries, keys and values of one product, and attention by hand or by PyTorch's function."""

    def __init__(self, flash: bool) -> None:
        super().__init__()
        self.flash = flash
        self.c_attn, self.c_proj = nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, SIZE)
        self.attn_dropout = nn.Dropout(0.0)
        self.register_buffer("bias", torch.tril(torch.ones(2 * TIME, 2 * TIME)).view(1, 1, 2 * TIME, 2 * TIME))

    def forward(self, x: Any) -> Any:
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(SIZE, dim=2)
        k = k.view(B, T, HEADS, C // HEADS).transpose(1, 2)
        q = q.view(B, T, HEADS, C // HEADS).transpose(1, 2)
        v = v.view(B, T, HEADS, C // HEADS).transpose(1, 2)
        if self.flash:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            att = self.attn_dropout(F.softmax(att, dim=-1))
            y = att @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Head(nn.Module):
    """As in "Let's build GPT": a head alone, without an axis of heads."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(SIZE, SIZE // HEADS, bias=False) for _ in range(3))
        self.register_buffer("tril", torch.tril(torch.ones(TIME, TIME)))

    def forward(self, x: Any) -> Any:
        B, T, C = x.shape
        k, q = self.key(x), self.query(x)
        wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        wei = F.softmax(wei, dim=-1)
        return wei @ self.value(x)


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads, self.proj = nn.ModuleList(Head() for _ in range(HEADS)), nn.Linear(SIZE, SIZE)

    def forward(self, x: Any) -> Any:
        return self.proj(torch.cat([head(x) for head in self.heads], dim=-1))


class NewGELU(nn.Module):
    """As in minGPT."""

    def forward(self, x: Any) -> Any:
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Block(nn.Module):
    def __init__(self, attention: nn.Module, activation: nn.Module) -> None:
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(SIZE), attention, nn.LayerNorm(SIZE)
        self.mlp = nn.Sequential(nn.Linear(SIZE, 4 * SIZE), activation, nn.Linear(4 * SIZE, SIZE))

    def forward(self, x: Any) -> Any:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """Logits and, where there are targets, a loss."""

    def __init__(self, attention: Callable[[], nn.Module], activation: Callable[[], nn.Module] = nn.GELU) -> None:
        super().__init__()
        blocks = nn.ModuleList(Block(attention(), activation()) for _ in range(2))
        self.transformer = nn.ModuleDict({"wte": nn.Embedding(WORDS, SIZE), "wpe": nn.Embedding(TIME, SIZE), "h": blocks})
        self.ln_f, self.lm_head = nn.LayerNorm(SIZE), nn.Linear(SIZE, WORDS, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        nn.init.normal_(self.lm_head.weight, std=0.1)

    def forward(self, idx: Any, targets: Any = None) -> Any:
        b, t = idx.size()
        assert t <= TIME
        x = self.transformer.wte(idx) + self.transformer.wpe(torch.arange(0, t, dtype=torch.long, device=idx.device))
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


    def configure_optimizers(self, weight_decay: float, learning_rate: float, betas: tuple[float, float], device_type: str) -> Any:
        """Matrices decay, and others do not."""
        held = [parameter for _, parameter in self.named_parameters() if parameter.requires_grad]
        groups = [
            {"params": [parameter for parameter in held if parameter.dim() >= 2], "weight_decay": weight_decay},
            {"params": [parameter for parameter in held if parameter.dim() < 2], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=learning_rate, betas=betas)


class Logits(nn.Module):
    """What `Trainer` is given: classes behind the rows, as `CrossEntropyLoss` has them."""

    def __init__(self, gpt: nn.Module, has_targets: bool) -> None:
        super().__init__()
        self.gpt, self.has_targets = gpt, has_targets

    def forward(self, idx: Any) -> Any:
        return self.gpt(idx, idx if self.has_targets else None)[0].transpose(1, 2)


_SETTINGS = (0.1, 1e-2, (0.9, 0.95), "cpu")


def _rate(step: int) -> float:
    """Warm-up, then half a cosine."""
    return (step + 1) / 6 if step < 5 else 0.1 + 0.45 * (1.0 + math.cos(math.pi * (step - 5) / 15))


MODELS: dict[str, Callable[[], GPT]] = {
    "nanoGPT": lambda: GPT(lambda: Attention(flash=False)),
    "nanoGPT, flash": lambda: GPT(lambda: Attention(flash=True)),
    "minGPT": lambda: GPT(lambda: Attention(flash=False), NewGELU),
    "Let's build GPT": lambda: GPT(Heads, nn.ReLU),
}


def _batches(steps: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Random places of a text: twice as many rows as go through PyTorch at a time."""
    text, batches = torch.randint(0, WORDS, (500,)), []
    for _ in range(steps):
        places = torch.randint(len(text) - TIME, (2 * ROWS,))
        x, y = (torch.stack([text[begin + shift : begin + shift + TIME] for begin in places]) for shift in (0, 1))
        batches.append((x, y))
    return batches


def _losses(model: GPT, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[list[float], torch.optim.Optimizer]:
    """As in nanoGPT's `train.py`: groups of weight decay, warm-up and a cosine, gradients of two batches, whose norm has a bound."""
    optimizer, losses = model.configure_optimizers(*_SETTINGS), []
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, _rate)
    for x, y in batches:
        parts = [model(x[rows], y[rows])[1] / 2 for rows in torch.arange(2 * ROWS).split(ROWS)]
        for part in parts:
            part.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        losses.append(sum(part.item() for part in parts))
    return losses, optimizer


@pytest.mark.parametrize("by_step", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_a_loop_of_nanogpt_trains_as_in_pytorch(name: str, by_step: bool) -> None:
    """Step by step, with the loss of each, or in one call, with a scheduler that steps in it."""
    torch.manual_seed(1)
    model, batches = MODELS[name](), _batches(20)
    other = copy.deepcopy(model)
    needed, one = _losses(model, batches)
    two = other.configure_optimizers(*_SETTINGS)
    schedule = torch.optim.lr_scheduler.LambdaLR(two, _rate)
    trainer = Trainer(Logits(other, by_step), nn.CrossEntropyLoss(ignore_index=-1), two, adapters="cpu,cpu", clip_norm=1.0, micro_batches=2)
    if by_step:
        found = []
        for batch in batches:
            found += trainer.fit([batch])["loss"]
            schedule.step()
        assert found == pytest.approx(needed, rel=1e-4)
    else:
        found = trainer.fit(batches, on_step=lambda step: schedule.step())["loss"]
        assert found == [pytest.approx(sum(needed) / 20, rel=1e-4)]
    assert other.transformer.wte.weight is other.lm_head.weight
    torch.testing.assert_close(other.state_dict(), model.state_dict(), atol=2e-3, rtol=1e-2)
    # One state for what is tied.
    assert len(two.state_dict()["state"]) == len(one.state_dict()["state"]) == len(list(model.parameters()))


def test_the_example_of_the_readme_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MANYHANDS_ADAPTERS", "cpu")
    torch.manual_seed(1)
    [block] = [it for it in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL) if "class Logits" in it]
    gpt = MODELS["nanoGPT"]()
    before = copy.deepcopy(gpt.state_dict())
    names = {"torch": torch, "Trainer": Trainer, "gpt": gpt, "get_batch": lambda split: _batches(1)[0], "rate_of_step": _rate}
    exec(compile(block.replace("range(1000)", "range(10)"), str(README), "exec"), names)
    saved = torch.load(tmp_path / "gpt.pt")
    assert list(saved) == list(before) and not torch.equal(saved["lm_head.weight"], before["lm_head.weight"])
