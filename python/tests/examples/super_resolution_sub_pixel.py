"""Pictures with three times as many pixels: "Image Super-Resolution using an Efficient Sub-Pixel CNN"."""

from __future__ import annotations

import math
import tempfile
from typing import Any

import keras
import numpy as np
from keras import layers, ops

from manyhands_ml import digits, make_parallel


class DepthToSpace(layers.Layer):
    """Channels become pixels between the pixels."""

    def __init__(self, block_size: int) -> None:
        super().__init__()
        self.block_size = block_size

    def call(self, input: Any) -> Any:
        batch, height, width, depth = ops.shape(input)
        depth = depth // (self.block_size**2)
        x = ops.reshape(input, [batch, height, width, self.block_size, self.block_size, depth])
        x = ops.transpose(x, [0, 1, 3, 2, 4, 5])
        return ops.reshape(x, [batch, height * self.block_size, width * self.block_size, depth])


def get_model(upscale_factor: int = 3, channels: int = 1) -> Any:
    """Convolutions on small pictures of any size."""
    conv_args = {"activation": "relu", "kernel_initializer": "orthogonal", "padding": "same"}
    inputs = keras.Input(shape=(None, None, channels))
    x = layers.Conv2D(16, 5, **conv_args)(inputs)
    x = layers.Conv2D(16, 3, **conv_args)(x)
    x = layers.Conv2D(8, 3, **conv_args)(x)
    x = layers.Conv2D(channels * (upscale_factor**2), 3, **conv_args)(x)
    outputs = DepthToSpace(upscale_factor)(x)
    return keras.Model(inputs, outputs)


class ESPCNCallback(keras.callbacks.Callback):
    """Tells of each epoch how near the pictures are, and looks at one."""

    def __init__(self, small: Any) -> None:
        super().__init__()
        self.small = small
        self.told: list[Any] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.psnr: list[float] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.told.append((float(np.mean(self.psnr)), self.model.predict(self.small, verbose=0)))

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.psnr.append(10 * math.log10(1 / logs["loss"]))


def main(parallel: Any = make_parallel, rate: float = 0.0, callbacks: Any = (), epochs: int = 2) -> Any:
    """Trains on small pictures, keeps the best weights, and makes a picture of another size larger. There is no dropout in it."""
    (large, _), _ = digits()
    large = np.kron(large[:40], np.ones((1, 3, 3, 1))).astype("float32")
    small = large[:, 1::3, 1::3]
    large[:, ::2] *= 0.9

    model = get_model(upscale_factor=3, channels=1)
    model = parallel(model)

    with tempfile.TemporaryDirectory() as folder:
        espcn = ESPCNCallback(small[:1, :6])
        checkpoint = keras.callbacks.ModelCheckpoint(
            filepath=f"{folder}/checkpoint.weights.h5", save_weights_only=True, monitor="loss", mode="min", save_best_only=True
        )
        stopping = keras.callbacks.EarlyStopping(monitor="loss", patience=10)
        model.compile(optimizer=keras.optimizers.Adam(learning_rate=0.001), loss=keras.losses.MeanSquaredError())
        model.fit(
            small, large, epochs=epochs, batch_size=8, shuffle=False, callbacks=[espcn, stopping, checkpoint, *callbacks],
            validation_data=(small[:9], large[:9]), verbose=0,
        )
        model.load_weights(f"{folder}/checkpoint.weights.h5")
    return espcn.told, model.predict(small[:2, :4, :5], verbose=0)
