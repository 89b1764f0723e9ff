"""Prints the numbers of Keras' `LossScaleOptimizer` that `src/trainer/loss_scale.rs` is tested against: scale and counter."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import jax
import jax.numpy as jnp
import keras

STEPS = [(1, False), (1, False), (3, True), (1, False), (1999, True), (1, True), (1, True), (2000, True), (1, False)]

variable = keras.Variable(jnp.ones(2))
optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.0))
optimizer.build([variable])
values, weights = [v.value for v in optimizer.variables], [variable.value]
step = jax.jit(optimizer.stateless_apply)
names = [v.path.split("/")[-1] for v in optimizer.variables]


def show():
    numbers = dict(zip(names, values))
    print(*(f"{name} {float(numbers[name]):g}" for name in ["dynamic_scale", "step_counter", "iteration"]))


show()
for count, is_finite in STEPS:
    for _ in range(count):
        weights, values = step(values, [jnp.full(2, 1.0 if is_finite else jnp.inf)], weights)
    show()
