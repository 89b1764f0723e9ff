"""What the way through Python costs: an epoch of `fit` beside one of the command, from the same wheel, in turns.

    python python/benches/bridge.py --adapters cpu --turns 9

Both train one network on the same rows. The command reads IDX files, Python has arrays of float32. Of the command count the
milliseconds of its steps; of Python all from the begin of an epoch to that of the next, the weights' way back to Keras included. On a
machine that does other things as well, the fastest epochs tell most.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
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
        20,
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


def command_ms(folder: Path, adapters: str, steps: int) -> list[float]:
    """Milliseconds of a step of the command, in each epoch but the first."""
    program = [sys.executable, "-m", "manyhands_ml", "train", "run.toml", "--adapters", adapters, "--quiet"]
    subprocess.run([*program, "--json", "log.json", "--save", "run.safetensors", "--overwrite"], cwd=folder, check=True)
    lines = [json.loads(line) for line in (folder / "log.json").read_text().splitlines()]
    (folder / "log.json").unlink()
    ms: dict[int, list[float]] = {}
    for line in lines:
        if "batch" in line:
            ms.setdefault(line["epoch"], []).append(line["ms"])
    assert len(ms) == EPOCHS and all(len(epoch) == steps for epoch in ms.values()), "not the steps that were asked for"
    return [sum(epoch) / steps for number, epoch in ms.items() if number > 1]


def python_ms(model: Any, x: Any, y: Any, batch_size: int, steps: int) -> list[float]:
    """Milliseconds of a step of `fit`, in each epoch but the first: from the begin of one epoch to that of the next."""
    begins: list[float] = []
    begin = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: begins.append(time.perf_counter()))
    model.fit(x, y, batch_size=batch_size, epochs=EPOCHS + 1, verbose=0, callbacks=[begin])
    return [(after - before) * 1000 / steps for before, after in zip(begins[1:], begins[2:])]


def measure(name: str, adapters: str, turns: int) -> None:
    batch_size, steps, stack, texts = NETWORKS[name]
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (batch_size * steps, 28, 28), dtype=np.uint8)
    labels = rng.integers(0, 10, batch_size * steps, dtype=np.uint8)
    model = make_parallel(keras.Sequential([keras.Input((28, 28, 1)), *stack]), adapters)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    x, y = images[..., None].astype(np.float32) / 255, labels.astype(np.int64)
    command: list[float] = []
    python: list[float] = []
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        write_idx(Path(folder) / "images", images)
        write_idx(Path(folder) / "labels", labels)
        text = SETTINGS.format(layers=",\n  ".join(texts), batch_size=batch_size, epochs=EPOCHS)
        (Path(folder) / "run.toml").write_text(text)
        for _ in range(turns):
            theirs, ours = command_ms(Path(folder), adapters, steps), python_ms(model, x, y, batch_size, steps)
            ratios.append(statistics.median(ours) / statistics.median(theirs))
            command += theirs
            python += ours
    for label, one in [("median", statistics.median), ("fastest", min)]:
        ours, theirs = one(python), one(command)
        print(f"{name}, {label} epoch: {ours:.3f} ms a step from Python, {theirs:.3f} ms by the command: {ours / theirs - 1:+.1%}")
    print(f"{name}, median of the ratios of {turns} turns: {statistics.median(ratios) - 1:+.1%}", flush=True)


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
