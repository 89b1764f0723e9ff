"""How long `fit` takes beside Keras or PyTorch itself, on the CPU, from the same wheel: the first call, and each epoch after it.

    python python/benches/beside.py --library keras --turns 5 --networks mlp,cnn,lstm,large,encoder

Both train the same network on the same rows. Each turn is a process of its own, the library and adapters in turns, with all cores. The
first call has two epochs, with all that is compiled and checked; the epochs after it are those of a second call, its copies of the
weights included. PyTorch's are the usual loop over a `DataLoader`, not compiled. Ratios are the library's time over ours, of the
medians: above 1 ours is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

#: Epochs of the second call.
EPOCHS = 5

#: Networks by their rows: shape, rows, batch size.
ROWS: dict[str, tuple[tuple[int, ...], int, int]] = {
    "mlp": ((784,), 6000, 128),
    "large": ((8000,), 96, 32),
    "cnn": ((28, 28, 1), 1500, 128),
    "lstm": ((64, 32), 1000, 64),
    "encoder": ((64,), 640, 64),
}
#: Units of the networks that are rows of products.
UNITS = {"mlp": (512, 512), "large": (4000, 2000, 500, 300)}


def _rows(name: str) -> tuple[Any, Any, int]:
    """Rows and targets, and the batch size."""
    import numpy as np

    rng = np.random.default_rng(0)
    shape, rows, batch = ROWS[name]
    x = rng.integers(0, 1000, (rows, *shape)) if name == "encoder" else rng.random((rows, *shape), np.float32)
    return x, rng.integers(0, 10, rows), batch


def _of_keras(name: str, adapters: str | None) -> Callable[[int], None]:
    """Trains a network for some epochs."""
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras
    from keras import layers

    x, y, batch = _rows(name)
    inputs = keras.Input(x.shape[1:], dtype=str(x.dtype) if name != "encoder" else "int32")
    if name == "encoder":
        z = layers.Embedding(1000, 64)(inputs)
        for _ in range(2):
            z = layers.LayerNormalization()(z + layers.MultiHeadAttention(4, 16)(z, z))
            z = layers.LayerNormalization()(z + layers.Dense(64)(layers.Dense(128, "relu")(z)))
        z = layers.GlobalAveragePooling1D()(z)
    elif name == "cnn":
        z = layers.MaxPooling2D()(layers.Conv2D(32, 3, activation="relu")(inputs))
        z = layers.Flatten()(layers.MaxPooling2D()(layers.Conv2D(64, 3, activation="relu")(z)))
    elif name == "lstm":
        z = layers.LSTM(64)(inputs)
    else:
        z = inputs
        for units in UNITS[name]:
            z = layers.Dense(units, "relu")(z)
    model: Any = keras.Model(inputs, layers.Dense(10, "softmax")(z))
    if adapters is not None:
        from manyhands_ml import make_parallel

        model = make_parallel(model, adapters)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return lambda epochs: model.fit(x, y, batch_size=batch, epochs=epochs, verbose=0)


def _of_torch(name: str, adapters: str | None) -> Callable[[int], None]:
    """Trains a network for some epochs."""
    import torch
    from torch import nn

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = nn.LSTM(32, 64, batch_first=True), nn.Linear(64, 10)

        def forward(self, x: Any) -> Any:
            steps, _ = self.lstm(x)
            return self.head(steps[:, -1])

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.head = nn.Embedding(1000, 64), nn.Linear(64, 10)
            self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True), 2)

        def forward(self, x: Any) -> Any:
            return self.head(self.encoder(self.words(x)).mean(1))

    x, y, batch = _rows(name)
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    if name == "cnn":
        x = x.permute(0, 3, 1, 2).contiguous()
        blocks = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)]
        module: nn.Module = nn.Sequential(*blocks, nn.Flatten(), nn.Linear(1600, 10))
    elif name in UNITS:
        widths = [ROWS[name][0][0], *UNITS[name]]
        hidden = [part for pair in zip(widths, widths[1:]) for part in (nn.Linear(*pair), nn.ReLU())]
        module = nn.Sequential(*hidden, nn.Linear(widths[-1], 10))
    else:
        module = {"lstm": Recurrent, "encoder": Encoder}[name]()
    loss, optimizer = nn.CrossEntropyLoss(), torch.optim.Adam(module.parameters())
    if adapters is not None:
        from manyhands_ml.torch import Trainer

        trainer = Trainer(module, loss=loss, optimizer=optimizer, adapters=adapters)
        return lambda epochs: trainer.fit(x, y, batch_size=batch, epochs=epochs)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch, shuffle=True)

    def fit(epochs: int) -> None:
        for _ in range(epochs):
            for part, classes in loader:
                optimizer.zero_grad()
                loss(module(part), classes).backward()
                optimizer.step()

    return fit


def _turn(library: str, name: str, adapters: str | None) -> None:
    """Prints the seconds of the first call, and of an epoch of the second."""
    fit = {"keras": _of_keras, "torch": _of_torch}[library](name, adapters)
    seconds = []
    for epochs in (2, EPOCHS):
        begin = time.perf_counter()
        fit(epochs)
        seconds.append(time.perf_counter() - begin)
    print(json.dumps([seconds[0], seconds[1] / EPOCHS]))


def _medians(told: list[list[float]]) -> list[float]:
    return [statistics.median(column) for column in zip(*told)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", choices=("keras", "torch"), default="keras")
    parser.add_argument("--networks", default=",".join(ROWS))
    parser.add_argument("--adapters", default="cpu")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--turn", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.turn:
        _turn(arguments.library, arguments.turn[0], arguments.turn[1] if len(arguments.turn) > 1 else None)
        return
    print(f"| network | first call: {arguments.library} | ours | ratio | epoch: {arguments.library} | ours | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in arguments.networks.split(","):
        told: list[list[list[float]]] = [[], []]
        for _ in range(arguments.turns):
            for of_side, side in zip(told, ([], [arguments.adapters])):
                command = [sys.executable, __file__, "--library", arguments.library, "--turn", name, *side]
                of_side.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1]))
        their_first, their_epoch, first, epoch = *_medians(told[0]), *_medians(told[1])
        print(
            f"| {name} | {their_first:.2f} s | {first:.2f} s | {their_first / first:.2f} "
            f"| {their_epoch:.3f} s | {epoch:.3f} s | {their_epoch / epoch:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
