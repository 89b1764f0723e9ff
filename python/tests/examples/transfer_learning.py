"""A trunk of `keras.applications` below a new head, frozen at first and then thawed: "Transfer learning & fine-tuning"."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers

from manyhands_ml import make_parallel


def main(parallel: Any = make_parallel, rate: float = 0.2, callbacks: Any = (), epochs: int = 1) -> Any:
    """Trains the head, then all of it with a low rate."""
    rng = np.random.default_rng(2)
    images = rng.uniform(0, 255, (40, 64, 64, 3)).astype("float32")
    labels = (images[:, :32].mean((1, 2, 3)) > images[:, 32:].mean((1, 2, 3))).astype("float32")

    # Its weights are random: nothing is downloaded.
    base_model = keras.applications.MobileNetV2(weights=None, alpha=0.35, input_shape=(64, 64, 3), include_top=False)
    base_model.trainable = False

    inputs = keras.Input(shape=(64, 64, 3))
    scale_layer = layers.Rescaling(scale=1 / 127.5, offset=-1)
    x = scale_layer(inputs)
    x = base_model(x, training=False)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dropout(rate)(x)
    outputs = layers.Dense(1)(x)
    model = keras.Model(inputs, outputs)
    model = parallel(model)

    model.compile(
        optimizer=keras.optimizers.Adam(),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[keras.metrics.BinaryAccuracy()],
    )
    model.fit(images, labels, epochs=epochs, batch_size=8, shuffle=False, callbacks=[*callbacks], verbose=0)

    base_model.trainable = True
    model.compile(
        optimizer=keras.optimizers.Adam(1e-5),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[keras.metrics.BinaryAccuracy()],
    )
    model.fit(images, labels, epochs=epochs, batch_size=8, shuffle=False, callbacks=[*callbacks], verbose=0)
    return model.evaluate(images, labels, verbose=0, return_dict=True)
