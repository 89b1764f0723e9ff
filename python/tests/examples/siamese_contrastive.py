"""Are two digits the same? One trunk reads both: "Image similarity estimation using a Siamese Network with a contrastive loss"."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers, ops

from manyhands_ml import digits, make_parallel


def euclidean_distance(vects: Any) -> Any:
    """The distance of two vectors."""
    x, y = vects
    sum_square = ops.sum(ops.square(x - y), axis=1, keepdims=True)
    return ops.sqrt(ops.maximum(sum_square, keras.backend.epsilon()))


def loss(margin: float = 1) -> Any:
    """Pairs of one digit shall be near, others apart by a margin."""

    def contrastive_loss(y_true: Any, y_pred: Any) -> Any:
        square_pred = ops.square(y_pred)
        margin_square = ops.square(ops.maximum(margin - y_pred, 0))
        return ops.mean((1 - y_true) * square_pred + y_true * margin_square)

    return contrastive_loss


def pairs_of(x: Any, y: Any, count: int) -> tuple[Any, Any]:
    """Pictures beside others: every second pair is of one digit."""
    rng = np.random.default_rng(6)
    left = rng.integers(0, len(x), count)
    right = [rng.choice(np.flatnonzero((y == y[one]) == (place % 2 == 0))) for place, one in enumerate(left)]
    return [x[left], x[right]], (np.arange(count) % 2).astype("float32")


def main(parallel: Any = make_parallel, rate: float = 0.0, callbacks: Any = (), epochs: int = 2) -> Any:
    """Trains on pairs. There is no dropout in it."""
    (x, y), _ = digits()
    x = np.kron(x.reshape(-1, 8, 8), np.ones((1, 2, 2))).astype("float32")
    pairs, labels = pairs_of(x, y, 40)

    inputs = keras.Input((16, 16, 1))
    x = layers.BatchNormalization()(inputs)
    x = layers.Conv2D(4, (5, 5), activation="tanh")(x)
    x = layers.AveragePooling2D(pool_size=(2, 2))(x)
    x = layers.Conv2D(16, (3, 3), activation="tanh")(x)
    x = layers.AveragePooling2D(pool_size=(2, 2))(x)
    x = layers.Flatten()(x)
    x = layers.BatchNormalization()(x)
    x = layers.Dense(10, activation="tanh")(x)
    embedding_network = keras.Model(inputs, x)

    input_1, input_2 = keras.Input((16, 16, 1)), keras.Input((16, 16, 1))
    tower_1, tower_2 = embedding_network(input_1), embedding_network(input_2)
    merge_layer = layers.Lambda(euclidean_distance, output_shape=(1,))([tower_1, tower_2])
    normal_layer = layers.BatchNormalization()(merge_layer)
    output_layer = layers.Dense(1, activation="sigmoid")(normal_layer)
    siamese = keras.Model(inputs=[input_1, input_2], outputs=output_layer)
    siamese = parallel(siamese)

    siamese.compile(loss=loss(margin=1), optimizer="RMSprop", metrics=["accuracy"])
    history = siamese.fit(pairs, labels, batch_size=8, epochs=epochs, shuffle=False, callbacks=[*callbacks], verbose=0)
    return history.history
