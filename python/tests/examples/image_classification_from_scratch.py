"""Two kinds of pictures by a small Xception, with random changes in the model: "Image classification from scratch"."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import layers

from manyhands_ml import make_parallel

IMAGE_SIZE = (24, 24)


class Pictures(keras.utils.PyDataset):
    """A folder of files, one a picture, in folders by class: batches of bytes and classes."""

    def __init__(self, folder: Path, batch_size: int) -> None:
        super().__init__()
        self.paths, self.batch_size = sorted(folder.glob("*/*.npy")), batch_size
        # Classes take turns.
        self.paths = [path for both in zip(self.paths[: len(self.paths) // 2], self.paths[len(self.paths) // 2 :]) for path in both]

    def __len__(self) -> int:
        return -(-len(self.paths) // self.batch_size)

    def __getitem__(self, index: int) -> Any:
        paths = self.paths[index * self.batch_size :][: self.batch_size]
        return np.stack([np.load(path) for path in paths]), np.array([path.parent.name == "dog" for path in paths], "float32")


def write_pictures(folder: Path, count: int) -> None:
    """Pictures of noise: those of dogs are lighter on the left."""
    rng = np.random.default_rng(1)
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            picture = rng.integers(0, 160, (*IMAGE_SIZE, 3), dtype="uint8")
            half = picture[:, :12] if name == "dog" else picture[:, 12:]
            half += 90
            np.save(folder / name / f"{number:03}.npy", picture)


def make_model(input_shape: tuple[int, ...], num_classes: int, rate: float) -> Any:
    """A part of Xception, for pictures of bytes."""
    inputs = keras.Input(shape=input_shape)
    x = layers.RandomFlip("vertical", seed=1)(inputs)
    x = layers.RandomRotation(0.02, seed=2)(x)

    x = layers.Rescaling(1.0 / 255)(x)
    x = layers.Conv2D(16, 3, strides=2, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    x = layers.Activation("relu")(x)
    previous_block_activation = x

    for size in [24]:
        x = layers.Activation("relu")(x)
        x = layers.SeparableConv2D(size, 3, padding="same", use_bias=False)(x)
        x = layers.BatchNormalization()(x)

        x = layers.Activation("relu")(x)
        x = layers.SeparableConv2D(size, 3, padding="same", use_bias=False)(x)
        x = layers.BatchNormalization()(x)

        x = layers.MaxPooling2D(3, strides=2, padding="same")(x)

        residual = layers.Conv2D(size, 1, strides=2, padding="same")(previous_block_activation)
        x = layers.add([x, residual])
        previous_block_activation = x

    x = layers.SeparableConv2D(32, 3, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    x = layers.Activation("relu")(x)

    x = layers.GlobalAveragePooling2D()(x)
    units = 1 if num_classes == 2 else num_classes
    x = layers.Dropout(rate)(x)
    outputs = layers.Dense(units, activation=None)(x)
    return keras.Model(inputs, outputs)


def main(parallel: Any = make_parallel, rate: float = 0.25, callbacks: Any = (), epochs: int = 2) -> Any:
    """Writes pictures, trains on them, keeps the model of each epoch, and asks for the class of one picture."""
    with tempfile.TemporaryDirectory() as folder:
        write_pictures(Path(folder), 20)
        train_ds, val_ds = Pictures(Path(folder), batch_size=8), Pictures(Path(folder), batch_size=20)

        model = make_model(input_shape=(*IMAGE_SIZE, 3), num_classes=2, rate=rate)
        model = parallel(model)

        checkpoints = [keras.callbacks.ModelCheckpoint(f"{folder}/save_at_{{epoch}}.keras")]
        model.compile(
            optimizer=keras.optimizers.Adam(1e-3),
            loss=keras.losses.BinaryCrossentropy(from_logits=True),
            metrics=[keras.metrics.BinaryAccuracy(name="acc")],
        )
        model.fit(train_ds, epochs=epochs, shuffle=False, callbacks=[*checkpoints, *callbacks], validation_data=val_ds, verbose=0)

        image_array = np.load(f"{folder}/dog/000.npy")[None]
        predictions = model.predict(image_array, verbose=0)
        again = keras.models.load_model(f"{folder}/save_at_{epochs}.keras").predict(image_array, verbose=0)
        return {"dog": float(keras.ops.sigmoid(predictions[0][0])), "dog, of the file": float(keras.ops.sigmoid(again[0][0]))}
