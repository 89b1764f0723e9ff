"""The models of the parity tests, small: those of the documents."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers


def perceptron() -> Any:
    """The first example of `make_parallel`: a few dense layers."""
    return keras.Sequential(
        [
            keras.Input((20,)),
            layers.Dense(32, activation="relu"),
            layers.Dense(16, activation="tanh"),
            layers.Dense(5, activation="softmax"),
        ]
    )


def mnist() -> Any:
    """Keras' example `mnist_convnet`, without its dropout, whose numbers are others here."""
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(32, kernel_size=(3, 3), activation="relu"),
            layers.MaxPooling2D(pool_size=(2, 2)),
            layers.Conv2D(64, kernel_size=(3, 3), activation="relu"),
            layers.MaxPooling2D(pool_size=(2, 2)),
            layers.Flatten(),
            layers.Dense(10, activation="softmax"),
        ]
    )


def convnet() -> Any:
    """A small one with other strides, padding and activation."""
    return keras.Sequential(
        [
            keras.Input((14, 14, 1)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Conv2D(12, (3, 3), padding="same", strides=2, use_bias=False),
            layers.LeakyReLU(negative_slope=0.1),
            layers.Flatten(),
            layers.Dense(10, activation="softmax"),
        ]
    )


def residual() -> Any:
    """A functional model with batch normalization and a sum.

    Convolutions before it have no bias: its gradient would be 0 but for rounding, of which Adam makes whole steps.
    """
    inputs = keras.Input((10, 10, 3))
    x = layers.Conv2D(8, 3, padding="same", use_bias=False)(inputs)
    x = layers.BatchNormalization(momentum=0.9)(x)
    x = short = layers.ReLU()(x)
    x = layers.Conv2D(8, 3, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization(axis=3, momentum=0.9)(x)
    x = layers.Add()([x, short])
    x = layers.Activation("relu")(x)
    x = layers.AveragePooling2D(2)(x)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dense(4)(x)
    return keras.Model(inputs, layers.Softmax()(x))


def shared() -> Any:
    """Two inputs that one layer reads, and a yes or no of both."""
    left, right = keras.Input((12,), name="left"), keras.Input((12,), name="right")
    dense = layers.Dense(8, activation="gelu", name="shared")
    both = layers.Concatenate()([dense(left), dense(right), dense(left)])
    return keras.Model([left, right], layers.Dense(1, activation="sigmoid")(both))


def penalized() -> Any:
    """Penalties of weights and outputs, and a frozen layer whose penalty Keras does not count."""
    return keras.Sequential(
        [
            keras.Input((20,)),
            layers.Dense(16, activation="tanh", kernel_regularizer="l2", trainable=False),
            layers.Dense(12, activation="relu", kernel_regularizer=keras.regularizers.L1L2(1e-3, 1e-2), bias_regularizer="l2"),
            layers.Dense(8, activation="tanh", activity_regularizer=keras.regularizers.L2(1e-2)),
            layers.Dense(5, activation="softmax"),
        ]
    )


def recurrent() -> Any:
    """Sequences of words, padded with 0, that are read from both ends."""
    return keras.Sequential(
        [
            keras.Input((7,)),
            layers.Embedding(20, 6, mask_zero=True),
            layers.Bidirectional(layers.LSTM(5, return_sequences=True)),
            layers.GRU(6),
            layers.Dense(3, activation="softmax"),
        ]
    )
