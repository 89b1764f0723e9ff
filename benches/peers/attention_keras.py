#!/usr/bin/env python3
"""Keras' side of `benches/attention.rs`, on JAX's CPU kernels: the same layers, rows and optimizer, medians of whole steps.

    attention_keras.py [STEPS]
"""

import os
import sys
import time

os.environ["KERAS_BACKEND"] = "jax"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import keras
import numpy as np
from keras import layers, losses, optimizers

FEATURES = 256


def attention(steps):
    x = keras.Input((steps, FEATURES))
    model = keras.Model(x, layers.MultiHeadAttention(4, FEATURES // 4)(x, x, use_causal_mask=True))
    values = ((np.arange(steps * FEATURES) * 37 % 101 - 50.0) * 0.02).astype(np.float32).reshape(1, steps, FEATURES)
    return model, losses.MeanSquaredError(), values, values


class Positions(layers.Layer):
    """A learned vector for each position, added."""

    def build(self, shape):
        self.embeddings = self.add_weight(shape=shape[1:])

    def call(self, x):
        return x + self.embeddings


def gpt_mini(rows):
    ids = keras.Input((128,))
    x = Positions()(layers.Embedding(96, 128)(ids))
    for _ in range(4):
        normed = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(4, 32)(normed, normed, use_causal_mask=True)
        normed = layers.LayerNormalization()(x)
        x = x + layers.Dense(128)(layers.Dense(512, activation="gelu")(normed))
    model = keras.Model(ids, layers.Dense(96)(layers.LayerNormalization()(x)))
    characters = (np.arange(rows * 128) * 37 % 96).astype(np.float32).reshape(rows, 128)
    return model, losses.SparseCategoricalCrossentropy(from_logits=True), characters, characters


def measure(name, workload, steps):
    model, criterion, x, y = workload
    optimizer = optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)

    def loss(trainable, fixed):
        output, _ = model.stateless_call(trainable, fixed, x, training=True)
        return criterion(y, output)

    @jax.jit
    def step(trainable, fixed, state):
        value, gradients = jax.value_and_grad(loss)(trainable, fixed)
        trainable, state = optimizer.stateless_apply(state, gradients, trainable)
        return value, trainable, state

    trainable = [variable.value for variable in model.trainable_variables]
    fixed = [variable.value for variable in model.non_trainable_variables]
    state, times = [variable.value for variable in optimizer.variables], []
    for _ in range(steps + 1):
        before = time.perf_counter()
        value, trainable, state = step(trainable, fixed, state)
        jax.block_until_ready((value, trainable))
        times.append(1e3 * (time.perf_counter() - before))
    print(f"{name:<32} {np.median(times[1:]):9.1f} ms a step", flush=True)


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for length in (1024, 4096):
        measure(f"attention over {length} positions", attention(length), steps)
    measure("gpt_mini, 16 rows", gpt_mini(16), steps)


if __name__ == "__main__":
    main()
