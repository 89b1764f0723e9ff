"""How long a LoRA step of SmolLM2-135M takes beside PEFT with PyTorch, from the same rows.

    python python/benches/finetune.py --turns 3 --tokens 64 --rows 4                       on the CPU, with all cores
    python python/benches/finetune.py --adapters gpu --steps 20 --tokens 256 --rows 8      on a GPU; PyTorch on it too, where it can

Both train factors of rank 8 beside all products of the blocks, in 32-bit floats without TF32. Each turn is a process of its own, PEFT and
adapters in turns. A turn is three epochs of as many steps; the first, with all that is read, checked and tuned, does not count. The ratio is
PEFT's time over ours, of the medians: above 1 ours is faster. Needs `python/requirements-large.txt`; `scripts/fetch-text-models` fetches
the model. `--model` also takes a Hugging Face folder.
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

EPOCHS = 3
PRODUCTS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def _place(model: Path) -> tuple[Path, dict[str, Any]]:
    """What `from_pretrained` takes for a folder, or for a GGUF file."""
    return (model, {}) if model.is_dir() else (model.parent, {"gguf_file": model.name})


def _of_peft(batches: list[list[list[int]]], args: argparse.Namespace) -> list[float]:
    """Seconds of a step in each epoch."""
    import peft
    import torch
    import transformers

    device = "cuda" if args.adapters != "cpu" and torch.cuda.is_available() else "cpu"
    torch.set_num_threads(os.cpu_count() or 1)
    folder, options = _place(args.model)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options).to(device)
    if args.recompute:
        model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
    config = peft.LoraConfig(r=8, lora_alpha=16, target_modules=PRODUCTS, task_type="CAUSAL_LM")
    tuned: Any = peft.get_peft_model(model, config)
    tuned.train()
    weights = [weight for weight in tuned.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, 2e-4, weight_decay=0.0)
    seconds = []
    for _ in range(EPOCHS):
        start = time.perf_counter()
        for batch in batches:
            rows = torch.tensor(batch, device=device)
            optimizer.zero_grad()
            loss = tuned(input_ids=rows, labels=rows).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            # As ours, each step tells its loss.
            loss.item()
        seconds.append((time.perf_counter() - start) / len(batches))
    return seconds


def _of_adapters(texts: list[str], args: argparse.Namespace) -> list[float]:
    """Seconds of a step in each epoch."""
    from manyhands_ml.text import LanguageModel

    model, times = LanguageModel.load(args.model, lora=dict(r=8, alpha=16)), [time.perf_counter()]

    def tell(epoch: int, numbers: dict[str, float]) -> None:
        times.append(time.perf_counter())

    rows = [{"text": text} for text in texts]
    options: Any = {"recompute": True} if args.recompute else {}
    settings: Any = {"epochs": EPOCHS, "batch_size": args.rows, "length": args.tokens, "adapters": args.adapters}
    model.fit(rows, **settings, on_epoch=tell, **options)
    return [(end - start) / args.steps for start, end in zip(times, times[1:])]


def _turn(library: str, args: argparse.Namespace) -> list[float]:
    import transformers

    folder, options = _place(args.model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options)
    count = args.rows * args.steps
    words = [str(number) for number in range(args.tokens * count)]
    texts, at, length = [], 0, args.tokens
    for _ in range(count):
        length = min(length + 2, args.tokens)
        while len(tokenizer(" ".join(words[at : at + length]))["input_ids"]) >= args.tokens:
            length -= 1
        texts.append(" ".join(words[at : at + length]))
        at += length
    if library == "adapters":
        return _of_adapters(texts, args)[1:]
    ids = [[*tokenizer(text)["input_ids"], tokenizer.eos_token_id] for text in texts]
    padded = [row + [tokenizer.eos_token_id] * (args.tokens - len(row)) for row in ids]
    return _of_peft([padded[at : at + args.rows] for at in range(0, count, args.rows)], args)[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("target/text-models/smollm2.gguf"))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--steps", type=int, default=2, help="of an epoch")
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
    print(f"PEFT {medians['peft']:.3f} s a step, adapters {medians['adapters']:.3f} s: {medians['peft'] / medians['adapters']:.2f}")


if __name__ == "__main__":
    main()
