"""How long a LoRA step of SmolLM2-135M takes beside PEFT with PyTorch, on the CPU, from the same rows.

    python python/benches/finetune.py --turns 3 --tokens 64 --rows 4

Both train factors of rank 8 beside all products of the blocks, in 32-bit floats, with all cores. Each turn is a process of its own, PEFT and
adapters in turns; the first step, with all that is read and checked, does not count. The ratio is PEFT's time over ours, of the
medians: above 1 ours is faster. Needs `python/requirements-large.txt`; `scripts/fetch-text-models` fetches the model.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

STEPS = 4
PRODUCTS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def _of_peft(file: Path, ids: list[list[int]], recompute: bool) -> list[float]:
    """Seconds of each step."""
    import peft
    import torch
    import transformers

    torch.set_num_threads(os.cpu_count() or 1)
    model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    if recompute:
        model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
    config = peft.LoraConfig(r=8, lora_alpha=16, target_modules=PRODUCTS, task_type="CAUSAL_LM")
    tuned: Any = peft.get_peft_model(model, config)
    tuned.train()
    weights = [weight for weight in tuned.parameters() if weight.requires_grad]
    optimizer, rows = torch.optim.AdamW(weights, 2e-4, weight_decay=0.0), torch.tensor(ids)
    seconds = []
    for _ in range(STEPS + 1):
        start = time.perf_counter()
        optimizer.zero_grad()
        tuned(input_ids=rows, labels=rows).loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def _of_adapters(file: Path, texts: list[str], tokens: int, adapters: str, recompute: bool) -> list[float]:
    """Seconds of each step."""
    from manyhands_ml.text import LanguageModel

    model, times = LanguageModel.load(file, lora=dict(r=8, alpha=16)), [0.0]

    def tell(epoch: int, numbers: dict[str, float]) -> None:
        times.append(time.perf_counter())

    rows = [{"text": text} for text in texts]
    options: Any = {"recompute": True} if recompute else {}
    model.fit(rows, epochs=STEPS + 1, batch_size=len(rows), length=tokens, adapters=adapters, on_epoch=tell, **options)
    return [end - start for start, end in zip(times[1:], times[2:])]


def _turn(library: str, args: argparse.Namespace) -> list[float]:
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model.parent, gguf_file=args.model.name)
    words = [str(number) for number in range(10 * args.tokens * args.rows)]
    texts, at = [], 0
    for _ in range(args.rows):
        length = args.tokens
        while len(tokenizer(" ".join(words[at : at + length]))["input_ids"]) >= args.tokens:
            length -= 1
        texts.append(" ".join(words[at : at + length]))
        at += length
    if library == "adapters":
        return _of_adapters(args.model, texts, args.tokens, args.adapters, args.recompute)
    ids = [[*tokenizer(text)["input_ids"], tokenizer.eos_token_id] for text in texts]
    longest = max(map(len, ids))
    return _of_peft(args.model, [row + [tokenizer.eos_token_id] * (longest - len(row)) for row in ids], args.recompute)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("target/text-models/smollm2.gguf"))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--adapters", default="cpu")
    parser.add_argument("--recompute", action="store_true", help="compute values again for backward, in both")
    parser.add_argument("--turn", choices=["peft", "adapters"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.turn:
        print(json.dumps(_turn(args.turn, args)))
        return
    seconds: dict[str, list[float]] = {"peft": [], "adapters": []}
    for turn in range(args.turns):
        for library in sorted(seconds, reverse=turn % 2 == 0):
            command = [sys.executable, *sys.argv, "--turn", library]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            seconds[library] += json.loads(done.stdout.splitlines()[-1])
    medians = {library: statistics.median(all_of) for library, all_of in seconds.items()}
    print(f"PEFT {medians['peft']:.2f} s a step, adapters {medians['adapters']:.2f} s: {medians['peft'] / medians['adapters']:.2f}")


if __name__ == "__main__":
    main()
