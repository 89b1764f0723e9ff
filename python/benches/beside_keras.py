"""How long `fit` takes beside Keras itself, on the CPU, from the same wheel: the first call, and each epoch after it.

    python python/benches/beside_keras.py --turns 5 --networks mlp,cnn,lstm,large,encoder

Both train the same network on the same rows. Each turn is a process of its own, Keras and adapters in turns, with all cores. The first
call has two epochs, with all that is compiled and checked; the epochs after it are those of a second call, its copies of the weights
included. Ratios are Keras' time over ours, of the medians: above 1 ours is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

#: Epochs of the second call.
EPOCHS = 5


def _network(name: str) -> tuple[Any, Any, Any, int]:
    """A model, its rows and targets, and the batch size."""
    import keras
    import numpy as np
    from keras import layers

    rng = np.random.default_rng(0)
    if name == "encoder":
        inputs = keras.Input((64,), dtype="int32")
        x = layers.Embedding(1000, 64)(inputs)
        for _ in range(2):
            x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 16)(x, x))
            x = layers.LayerNormalization()(x + layers.Dense(64)(layers.Dense(128, "relu")(x)))
        outputs = layers.Dense(10, "softmax")(layers.GlobalAveragePooling1D()(x))
        return keras.Model(inputs, outputs), rng.integers(0, 1000, (640, 64)), rng.integers(0, 10, 640), 64
    convolutions = [layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(), layers.Conv2D(64, 3, activation="relu"), layers.MaxPooling2D()]
    shape, rows, batch, hidden = {
        "mlp": ((784,), 6000, 128, [layers.Dense(512, "relu"), layers.Dense(512, "relu")]),
        "large": ((8000,), 96, 32, [layers.Dense(width, "relu") for width in (4000, 2000, 500, 300)]),
        "cnn": ((28, 28, 1), 1500, 128, [*convolutions, layers.Flatten()]),
        "lstm": ((64, 32), 1000, 64, [layers.LSTM(64)]),
    }[name]
    model = keras.Sequential([keras.Input(shape), *hidden, layers.Dense(10, "softmax")])
    return model, rng.random((rows, *shape), np.float32), rng.integers(0, 10, rows), batch


def _turn(name: str, adapters: str | None) -> None:
    """Prints the seconds of the first call, and of an epoch of the second."""
    os.environ.setdefault("KERAS_BACKEND", "jax")
    model, x, y, batch = _network(name)
    if adapters is not None:
        from manyhands_ml import make_parallel

        model = make_parallel(model, adapters)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    seconds = []
    for epochs in (2, EPOCHS):
        begin = time.perf_counter()
        model.fit(x, y, batch_size=batch, epochs=epochs, verbose=0)
        seconds.append(time.perf_counter() - begin)
    print(json.dumps([seconds[0], seconds[1] / EPOCHS]))


def _medians(told: list[list[float]]) -> list[float]:
    return [statistics.median(column) for column in zip(*told)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default="mlp,cnn,lstm,large,encoder")
    parser.add_argument("--adapters", default="cpu")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--turn", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.turn:
        _turn(arguments.turn[0], arguments.turn[1] if len(arguments.turn) > 1 else None)
        return
    print("| network | first call: Keras | ours | ratio | epoch: Keras | ours | ratio |\n| --- | --- | --- | --- | --- | --- | --- |")
    for name in arguments.networks.split(","):
        told: list[list[list[float]]] = [[], []]
        for _ in range(arguments.turns):
            for of_side, side in zip(told, ([], [arguments.adapters])):
                command = [sys.executable, __file__, "--turn", name, *side]
                of_side.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1]))
        keras_first, keras_epoch, first, epoch = *_medians(told[0]), *_medians(told[1])
        print(
            f"| {name} | {keras_first:.2f} s | {first:.2f} s | {keras_first / first:.2f} "
            f"| {keras_epoch:.3f} s | {epoch:.3f} s | {keras_epoch / epoch:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
