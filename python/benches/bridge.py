"""What the way through Python costs: an epoch of `fit` beside one of the command, from the same wheel, in turns.

    python python/benches/bridge.py --adapters cpu --turns 9

Both train one network on the same rows, from initial weights in each turn. The command reads IDX files, Python has arrays of
float32. An epoch of Python goes from its begin
to that of the next, the weights' way back to Keras included. It is set beside the command's epochs, and beside the milliseconds of
its steps alone. CPU time is that of all epochs but the first, over all threads, the command's saving included: on a machine that does other
things as well it tells more than the clock, of which the fastest epochs tell most.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from keras import layers

from manyhands_ml import make_parallel

#: Batch size, steps of an epoch, and the layers as Keras' and as the command's.
NETWORKS: dict[str, tuple[int, int, list[Any], list[str]]] = {
    "mlp": (
        256,
        60,
        [layers.Flatten(), layers.Dense(256, "relu"), layers.Dense(128, "relu"), layers.Dense(10)],
        [
            '{ type = "Flatten" }',
            '{ type = "Dense", units = 256, activation = "relu" }',
            '{ type = "Dense", units = 128, activation = "relu" }',
            '{ type = "Dense", units = 10 }',
        ],
    ),
    "cnn": (
        64,
        60,
        [
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(10),
        ],
        [
            '{ type = "Conv2D", filters = 16, kernel_size = 3, activation = "relu" }',
            '{ type = "MaxPooling2D" }',
            '{ type = "Conv2D", filters = 32, kernel_size = 3, activation = "relu" }',
            '{ type = "MaxPooling2D" }',
            '{ type = "Flatten" }',
            '{ type = "Dense", units = 10 }',
        ],
    ),
}

#: Epochs of a turn; the first does not count.
EPOCHS = 7

SETTINGS = """
data = {{ type = "idx_files", train_images = "images", train_labels = "labels" }}
loss = {{ type = "SparseCategoricalCrossentropy" }}
optimizer = {{ type = "Adam", learning_rate = 0.001 }}

[model]
input = [28, 28, 1]
layers = [
  {layers},
]

[training]
epochs = {epochs}
batch_size = {batch_size}
validation = "none"
"""


def write_idx(path: Path, values: Any) -> None:
    """A file in the format of MNIST."""
    header = bytes([0, 0, 8, values.ndim]) + b"".join(size.to_bytes(4, "big") for size in values.shape)
    path.write_bytes(header + values.astype(np.uint8).tobytes())


@dataclass
class Turn:
    """Milliseconds of a training step: by the clock in each epoch but the first, and of CPU time over all of these."""

    epochs: list[float]
    cpu: float
    steps: list[float] = field(default_factory=list)


def cpu_ms(whose: int) -> float:
    """CPU time of this process, or of those that it has started and that have ended."""
    used = resource.getrusage(whose)
    return (used.ru_utime + used.ru_stime) * 1000


def command_turn(folder: Path, settings: str, adapters: str, steps: int) -> Turn:
    """A run of the command, and a short one, whose CPU time is taken off."""
    program = [sys.executable, "-m", "manyhands_ml", "train", "run.toml", "--adapters", adapters, "--quiet"]
    cpu = []
    for epochs in (1, EPOCHS):
        (folder / "run.toml").write_text(settings.replace("EPOCHS", str(epochs)))
        before = cpu_ms(resource.RUSAGE_CHILDREN)
        subprocess.run([*program, "--json", "log.json", "--save", "run.safetensors", "--overwrite"], cwd=folder, check=True)
        cpu.append(cpu_ms(resource.RUSAGE_CHILDREN) - before)
        lines = [json.loads(line) for line in (folder / "log.json").read_text().splitlines()]
        (folder / "log.json").unlink()
    ms = [line["ms"] for line in lines if line["kind"] == "step" and line["epoch"] > 1]
    assert len(ms) == (EPOCHS - 1) * steps, "not the steps that were asked for"
    of_epochs = [line["seconds"] * 1000 / steps for line in lines if line["kind"] == "epoch" and line["epoch"] > 1]
    of_steps = [sum(ms[begin : begin + steps]) / steps for begin in range(0, len(ms), steps)]
    return Turn(of_epochs, (cpu[1] - cpu[0]) / len(ms), of_steps)


def python_turn(stack: list[Any], adapters: str, x: Any, y: Any, batch_size: int, steps: int) -> Turn:
    """A run of `fit` with new weights: an epoch goes from its begin to that of the next."""
    model = keras.models.clone_model(keras.Sequential([keras.Input((28, 28, 1)), *stack]))
    model = make_parallel(model, adapters)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    begins: list[float] = []
    cpu: list[float] = []

    def begin(epoch: int, logs: Any) -> None:
        begins.append(time.perf_counter())
        cpu.append(cpu_ms(resource.RUSAGE_SELF))

    callback = keras.callbacks.LambdaCallback(on_epoch_begin=begin)
    model.fit(x, y, batch_size=batch_size, epochs=EPOCHS + 1, verbose=0, callbacks=[callback])
    of_epochs = [(after - before) * 1000 / steps for before, after in zip(begins[1:], begins[2:])]
    return Turn(of_epochs, (cpu[-1] - cpu[1]) / steps / len(of_epochs))


def measure(name: str, adapters: str, turns: int) -> None:
    batch_size, steps, stack, texts = NETWORKS[name]
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (batch_size * steps, 28, 28), dtype=np.uint8)
    labels = rng.integers(0, 10, batch_size * steps, dtype=np.uint8)
    x, y = images[..., None].astype(np.float32) / 255, labels.astype(np.int64)
    pairs: list[tuple[Turn, Turn]] = []
    with tempfile.TemporaryDirectory() as folder:
        write_idx(Path(folder) / "images", images)
        write_idx(Path(folder) / "labels", labels)
        settings = SETTINGS.format(layers=",\n  ".join(texts), batch_size=batch_size, epochs="EPOCHS")
        for _ in range(turns):
            theirs = command_turn(Path(folder), settings, adapters, steps)
            pairs.append((theirs, python_turn(stack, adapters, x, y, batch_size, steps)))
    tell(name, "epochs", [(theirs.epochs, ours.epochs) for theirs, ours in pairs])
    tell(name, "epochs beside steps", [(theirs.steps, ours.epochs) for theirs, ours in pairs])
    tell(name, "CPU time", [([theirs.cpu], [ours.cpu]) for theirs, ours in pairs])


def tell(name: str, what: str, pairs: list[tuple[list[float], list[float]]]) -> None:
    """Medians of all, the fastest of each, and the median of the turns' ratios."""
    all_theirs, all_ours = ([value for pair in pairs for value in pair[side]] for side in (0, 1))
    for label, one in [("median", statistics.median), ("least", min)]:
        theirs, ours = one(all_theirs), one(all_ours)
        print(f"{name}, {what}, {label}: {ours:.3f} ms a step from Python, {theirs:.3f} ms by the command: {ours / theirs - 1:+.1%}")
    ratios = [statistics.median(ours) / statistics.median(theirs) for theirs, ours in pairs]
    print(f"{name}, {what}, median of the ratios of {len(pairs)} turns: {statistics.median(ratios) - 1:+.1%}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="What the way through Python costs.")
    parser.add_argument("--adapters", default="cpu")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--networks", default="mlp,cnn")
    arguments = parser.parse_args()
    for name in arguments.networks.split(","):
        measure(name, arguments.adapters, arguments.turns)


if __name__ == "__main__":
    main()
