"""Classes of series of numbers by transformer blocks: "Timeseries classification with a Transformer model"."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers

from manyhands_ml import make_parallel


def transformer_encoder(inputs: Any, head_size: int, num_heads: int, ff_dim: int, dropout: float = 0) -> Any:
    """Attention and convolutions over one step, each with a normalization and a sum."""
    x = layers.MultiHeadAttention(key_dim=head_size, num_heads=num_heads, dropout=dropout)(inputs, inputs)
    x = layers.Dropout(dropout)(x)
    x = layers.LayerNormalization(epsilon=1e-6)(x)
    res = x + inputs

    x = layers.Conv1D(filters=ff_dim, kernel_size=1, activation="relu")(res)
    x = layers.Dropout(dropout)(x)
    x = layers.Conv1D(filters=inputs.shape[-1], kernel_size=1)(x)
    x = layers.LayerNormalization(epsilon=1e-6)(x)
    return x + res


def build_model(input_shape: tuple[int, ...], n_classes: int, dropout: float, mlp_dropout: float) -> Any:
    """Two blocks and a perceptron of what is left of each step."""
    inputs = keras.Input(shape=input_shape)
    x = inputs
    for _ in range(2):
        x = transformer_encoder(x, head_size=8, num_heads=2, ff_dim=4, dropout=dropout)

    x = layers.GlobalAveragePooling1D(data_format="channels_last")(x)
    x = layers.Dense(16, activation="relu")(x)
    x = layers.Dropout(mlp_dropout)(x)
    outputs = layers.Dense(n_classes, activation="softmax")(x)
    return keras.Model(inputs, outputs)


def main(parallel: Any = make_parallel, rate: float = 0.25, callbacks: Any = (), epochs: int = 3) -> Any:
    """Trains on noise of motors, of which the broken ones drift, with early stopping."""
    rng = np.random.default_rng(5)
    y_train = rng.integers(0, 2, 40)
    drift = np.linspace(0, 2, 20)[:, None] * y_train[:, None, None]
    x_train = (rng.normal(size=(40, 20, 1)) * 0.5 + drift).astype("float32")

    model = build_model(x_train.shape[1:], n_classes=2, dropout=rate, mlp_dropout=rate)
    model = parallel(model)

    model.compile(
        loss="sparse_categorical_crossentropy",
        optimizer=keras.optimizers.Adam(learning_rate=1e-3),
        metrics=["sparse_categorical_accuracy"],
    )
    stopping = [keras.callbacks.EarlyStopping(patience=10, restore_best_weights=True)]
    model.fit(
        x_train, y_train, validation_split=0.2, epochs=epochs, batch_size=8, shuffle=False, callbacks=[*stopping, *callbacks], verbose=0
    )
    return model.evaluate(x_train, y_train, verbose=0, return_dict=True)
