#!/usr/bin/env python3
"""Keras' side of the comparison, on TensorFlow's CPU kernels: README.md tells the protocol.

    keras_steps.py --model mlp --rows 256 --threads 2

A step is one compiled function. It is compiled twice, with XLA and without, and goes on with the faster.
"""

import math
import os
import sys
import time

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf
from keras import layers, losses, optimizers

import turns


def conv_norm(filters, side, strides=1, padding="same"):
    """A convolution without bias, and batch normalization with Keras' settings."""
    conv = layers.Conv2D(filters, side, strides=strides, padding=padding, use_bias=False)
    return keras.Sequential([conv, layers.BatchNormalization()])


def block(x, filters, strides):
    """Two convolutions beside a shortcut."""
    y = layers.ReLU()(conv_norm(filters, 3, strides)(x))
    y = conv_norm(filters, 3)(y)
    shortcut = x if strides == 1 and x.shape[-1] == filters else conv_norm(filters, 1, strides)(x)
    return layers.ReLU()(layers.Add()([y, shortcut]))


def dense_stack(inputs, widths):
    """Dense layers of these widths with ReLU between them."""
    hidden = [layers.Dense(width, activation="relu") for width in widths[:-1]]
    return keras.Sequential([keras.Input(inputs), layers.Flatten(), *hidden, layers.Dense(widths[-1])])


def cnn():
    """conv32 - BN - ReLU - conv64 - BN - ReLU - pool - dense128 - dense10, over 28 x 28 x 1."""
    convolutions = [conv_norm(32, 3, padding="valid"), layers.ReLU(), conv_norm(64, 3, padding="valid"), layers.ReLU()]
    dense = [layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dense(10)]
    return keras.Sequential([keras.Input((28, 28, 1)), *convolutions, layers.MaxPooling2D(2), *dense])


def resnet18():
    """He et al. 2015, arXiv:1512.03385, in its form for 32 x 32 x 3."""
    inputs = keras.Input((32, 32, 3))
    x = layers.ReLU()(conv_norm(64, 3)(inputs))
    for filters, strides in [(64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)]:
        x = block(x, filters, strides)
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def application(build):
    """A network of `keras.applications` for 64 x 64 x 3, which gives logits of ten classes."""
    return build(weights=None, input_shape=(64, 64, 3), classes=10, classifier_activation=None)


def lstm():
    """The layer that reads tweets in Keras' guide to the functional API."""
    return keras.Sequential([keras.Input((140, 256)), layers.LSTM(64), layers.Dense(10)])


class Positions(layers.Layer):
    """A vector for each position, added: `PositionEmbedding` of keras_hub."""

    def build(self, shape):
        self.embeddings = self.add_weight(shape=shape[1:])

    def call(self, x):
        return x + self.embeddings


def gpt_mini():
    """A decoder of four blocks over 128 characters."""
    ids = keras.Input((128,), dtype="int32")
    x = Positions()(layers.Embedding(96, 128)(ids))
    for _ in range(4):
        normed = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(4, 32)(normed, normed, use_causal_mask=True)
        normed = layers.LayerNormalization()(x)
        x = x + layers.Dense(128)(layers.Dense(512, activation="gelu")(normed))
    return keras.Model(ids, layers.Dense(96)(layers.LayerNormalization()(x)))


MODELS = {
    "mlp": (lambda: dense_stack((28, 28, 1), [1024, 1024, 10]), 10, lambda: optimizers.Adam(1e-3, 0.9, 0.999, 1e-7)),
    "cnn": (cnn, 10, lambda: optimizers.SGD(0.01, 0.9)),
    "resnet18": (resnet18, 10, lambda: optimizers.SGD(0.01, 0.9)),
    "resnet50": (lambda: application(keras.applications.ResNet50), 10, lambda: optimizers.SGD(0.01, 0.9)),
    "mobilenet_v2": (lambda: application(keras.applications.MobileNetV2), 10, lambda: optimizers.SGD(0.01, 0.9)),
    "lstm": (lstm, 10, lambda: optimizers.Adam(1e-3, 0.9, 0.999, 1e-7)),
    "gpt_mini": (gpt_mini, 96, lambda: optimizers.Adam(1e-3, 0.9, 0.999, 1e-7)),
    "make_parallel": (lambda: dense_stack((8000,), [4000, 2000, 500, 300, 1]), 1, lambda: optimizers.SGD(0.05)),
}


class Training:
    """Training steps on one batch, which each step takes from the host's memory, as training does."""

    def __init__(self, chosen):
        make, outputs, optimizer = MODELS[chosen.model]
        self.model = make()
        self.optimizer = optimizer()
        self.optimizer.build(self.model.trainable_variables)
        shape = (chosen.rows, *self.model.input_shape[1:])
        self.images = turns.pattern(math.prod(shape), 7919, 251).reshape(shape)
        self.targets = turns.classes(chosen.rows, max(outputs, 2))
        self.criterion = losses.SparseCategoricalCrossentropy(from_logits=True)
        if outputs == 1:
            self.criterion = losses.BinaryCrossentropy(from_logits=True)
            self.targets = self.targets.astype("float32").reshape(-1, 1)
        if len(self.model.output_shape) > 2:
            self.images, self.targets = (turns.characters(*shape, outputs, offset).astype("int32") for offset in (0, 1))
        count = sum(math.prod(variable.shape) for variable in self.model.trainable_variables)
        self.parameters = turns.check_parameters(chosen.model, count)
        self.run = tf.function(self.update, jit_compile=False)
        self.loss = None

    def update(self, images, targets):
        with tf.GradientTape() as tape:
            loss = self.criterion(targets, self.model(images, training=True))
        variables = self.model.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    def step(self):
        self.loss = self.run(tf.constant(self.images), tf.constant(self.targets))

    def finish(self):
        return float(self.loss)

    def tune(self):
        """Goes on with XLA if that is faster, and says which."""
        plain, with_xla = self.run, tf.function(self.update, jit_compile=True)
        is_faster = self.median_ms(with_xla) < self.median_ms(plain)
        self.run = with_xla if is_faster else plain
        return "compiled by XLA" if is_faster else "not compiled by XLA"

    def median_ms(self, run, times=5):
        self.run = run
        turns.turn(self.step, self.finish, 1)
        return sorted(turns.turn(self.step, self.finish, 1)[1] for _ in range(times))[times // 2]


class Product:
    """A bare matrix product."""

    parameters = 0

    def __init__(self, chosen):
        a, b, self.last = turns.factors(chosen.rows)
        self.a, self.b = tf.constant(a), tf.constant(b)
        self.c = None

    def step(self):
        self.c = tf.linalg.matmul(self.a, self.b)

    def finish(self):
        return turns.check_product(float(self.c[-1, -1]), self.last)

    def tune(self):
        return ""


def main():
    chosen = turns.settings()
    begin = time.perf_counter()
    if chosen.device == "gpu":
        sys.exit("Keras is measured on TensorFlow's CPU kernels alone")
    if chosen.model not in (*MODELS, "product"):
        sys.exit(f"Keras has no model `{chosen.model}` here")
    keras.utils.set_random_seed(0)
    if chosen.threads:
        tf.config.threading.set_intra_op_parallelism_threads(chosen.threads)
        # Operations of one step wait for each other; a second pool would add threads that compute.
        tf.config.threading.set_inter_op_parallelism_threads(1)
    work = (Product if chosen.model == "product" else Training)(chosen)
    peer = f"Keras {keras.__version__} on TensorFlow {tf.__version__}"
    device = f"CPU, {chosen.threads or 'all'} threads"
    turns.serve(peer, device, chosen, work.parameters, work.step, work.finish, begin, work.tune)


if __name__ == "__main__":
    main()
