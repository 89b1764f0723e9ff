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


if __name__ == "__main__":
    main()
