#!/usr/bin/env python3
"""Golden values of models that tell the class of a text: word pieces, and thirty steps of PEFT and PyTorch.

    python3 -m venv target/text-venv
    target/text-venv/bin/pip install -r scripts/text-requirements.txt
    target/text-venv/bin/python scripts/classes_golden.py

Writes `text/tests/golden/classes.json`. The small random BERT is that of `text_golden.py`.
"""

import json
from pathlib import Path

import numpy as np
import peft
import torch
import transformers

GOLDEN = Path(__file__).parent.parent / "text/tests/golden"
#: Texts that are easily divided otherwise.
TEXTS = [
    "", " ", "The cat sat on the mat.", "don't   stop\tnow\n", "ÀÉÎõü Straße ΟΔΟΣ İstanbul", "naïve café, e\u0301te\u0301", "日本語とEnglish混在、中文。",
    "a\u0000b\u200bc\ufeffd\ufffde\u00ad", "«quoted» “so” – it's (done)[1]{2}<3>", "[CLS] the [SEP] cat [MASK] [UNK] [PAD]x", "[cls] [sep",
    "x" * 100, "x" * 101, "the " * 40, "1,234.56€ 50% #tag @me a_b-c", "ﬁne ½ ² Ⅷ ｆｕｌｌ", "한국어 हिन्दी العربية ไทย", "🙂👍🏽 the", "\u0085next\u2028line\u3000wide",
]  # fmt: skip
#: Tokens of a row.
LENGTH = 16


def classified() -> dict:
    """Thirty steps of LoRA on all products of BERT, with a new layer for the classes behind the mean of the tokens.

    In float64, and at a rate of 3e-3: at 1e-2 the losses of PyTorch's own float32 are off by 2e-3 after 24 steps.
    """
    torch.manual_seed(0)
    rng = np.random.default_rng(29)
    tokenizer = transformers.AutoTokenizer.from_pretrained(GOLDEN / "bert")
    model = transformers.AutoModel.from_pretrained(GOLDEN / "bert", dtype=torch.float64, add_pooling_layer=False).eval()
    tuned = peft.get_peft_model(model, peft.LoraConfig(r=2, lora_alpha=4, target_modules="all-linear")).double()
    factors = {key: parameter for key, parameter in tuned.named_parameters() if parameter.requires_grad}
    head = torch.nn.Linear(model.config.hidden_size, 3).double()
    with torch.no_grad():
        for key, parameter in factors.items():
            parameter.copy_(torch.tensor(rng.normal(0, 0.3 if "lora_A" in key else 0.0, tuple(parameter.shape)).astype(np.float32)))
    with torch.no_grad():
        head.weight.copy_(head.weight.float())
        head.bias.copy_(head.bias.float())
    initial = {key: parameter.detach().tolist() for key, parameter in factors.items() if "lora_A" in key}
    first = {"kernel": head.weight.detach().float().tolist(), "bias": head.bias.detach().tolist()}
    texts = [TEXTS[2], TEXTS[3], TEXTS[13], "the cat", "on", "stop the mat now, cat"]
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    batch = tokenizer(texts, truncation=True, padding="max_length", max_length=LENGTH, return_tensors="pt")
    mask = batch.attention_mask.unsqueeze(-1)
    optimizer = torch.optim.AdamW([*factors.values(), *head.parameters()], lr=3e-3, weight_decay=0.0)
    losses, logits = [], []
    for _ in range(30):
        optimizer.zero_grad()
        hidden = tuned(**batch).last_hidden_state
        # As sentence-transformers: padding does not count.
        logits = head((hidden * mask).sum(1) / mask.sum(1))
        loss = torch.nn.functional.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {
        "texts": texts, "labels": labels.tolist(), "ids": batch.input_ids.tolist(), "initial": initial, "head": first, "losses": losses,
        "logits": logits.tolist(),
    }  # fmt: skip


def pieces(folder: Path, texts: list[str]) -> list[dict]:
    """Texts with their word pieces, without the tokens around them."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return [{"text": text, "ids": tokenizer(text, add_special_tokens=False).input_ids} for text in texts]


if __name__ == "__main__":
    golden = {"pieces": pieces(GOLDEN / "bert", TEXTS), "training": classified()}
    (GOLDEN / "classes.json").write_text(json.dumps(golden) + "\n")
