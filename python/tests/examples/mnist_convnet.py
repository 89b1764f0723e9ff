"""Handwritten digits by two convolutions: "Simple MNIST convnet"."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers

from manyhands_ml import digits, make_parallel


def main(parallel: Any = make_parallel, rate: float = 0.5, callbacks: Any = (), epochs: int = 2) -> Any:
    """Trains on a part of the training pictures, validates with the rest, and evaluates the others."""
    num_classes = 10
    input_shape = (16, 16, 1)

    (x_train, y_train), (x_test, y_test) = digits()
    # Pictures of 8 x 8 pixels, twice as wide and as high.
    x_train = np.kron(x_train, np.ones((1, 2, 2, 1))).astype("float32")[:40]
    x_test = np.kron(x_test, np.ones((1, 2, 2, 1))).astype("float32")[:20]
    y_train = keras.utils.to_categorical(y_train[:40], num_classes)
    y_test = keras.utils.to_categorical(y_test[:20], num_classes)

    model = keras.Sequential(
        [
            keras.Input(shape=input_shape),
            layers.Conv2D(32, kernel_size=(3, 3), activation="relu"),
            layers.MaxPooling2D(pool_size=(2, 2)),
            layers.Conv2D(64, kernel_size=(3, 3), activation="relu"),
            layers.MaxPooling2D(pool_size=(2, 2)),
            layers.Flatten(),
            layers.Dropout(rate),
            layers.Dense(num_classes, activation="softmax"),
        ]
    )
    model = parallel(model)

    model.compile(loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
    model.fit(x_train, y_train, batch_size=8, epochs=epochs, validation_split=0.1, verbose=0, callbacks=[*callbacks])
    score = model.evaluate(x_test, y_test, verbose=0)
    return {"Test loss": score[0], "Test accuracy": score[1]}
