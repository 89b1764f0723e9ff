"""Pictures without their noise by a convolutional autoencoder: "Convolutional autoencoder for image denoising"."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers

from manyhands_ml import digits, make_parallel


def main(parallel: Any = make_parallel, rate: float = 0.0, callbacks: Any = (), epochs: int = 1) -> Any:
    """Learns pictures from themselves, then from noise on them. There is no dropout in it."""
    (train_data, _), _ = digits()
    train_data = train_data[:40].astype("float32")
    noise = np.random.default_rng(8).normal(0.0, 1.0, train_data.shape)
    noisy_train_data = np.clip(train_data + 0.4 * noise, 0.0, 1.0)

    inputs = layers.Input(shape=(8, 8, 1))
    # Encoder
    x = layers.Conv2D(32, (3, 3), activation="relu", padding="same")(inputs)
    x = layers.MaxPooling2D((2, 2), padding="same")(x)
    x = layers.Conv2D(32, (3, 3), activation="relu", padding="same")(x)
    x = layers.MaxPooling2D((2, 2), padding="same")(x)
    # Decoder
    x = layers.Conv2DTranspose(32, (3, 3), strides=2, activation="relu", padding="same")(x)
    x = layers.Conv2DTranspose(32, (3, 3), strides=2, activation="relu", padding="same")(x)
    x = layers.Conv2D(1, (3, 3), activation="sigmoid", padding="same")(x)
    autoencoder = keras.Model(inputs, x)
    autoencoder = parallel(autoencoder)

    autoencoder.compile(optimizer="adam", loss="binary_crossentropy")
    autoencoder.fit(
        x=train_data, y=train_data, epochs=epochs, batch_size=8, shuffle=False, callbacks=[*callbacks],
        validation_data=(train_data[:9], train_data[:9]), verbose=0,
    )
    autoencoder.fit(x=noisy_train_data, y=train_data, epochs=epochs, batch_size=8, shuffle=False, callbacks=[*callbacks], verbose=0)
    return autoencoder.predict(noisy_train_data[:3], verbose=0)
