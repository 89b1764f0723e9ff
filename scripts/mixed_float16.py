#!/usr/bin/env python3
"""Writes `tests/golden/mixed_float16.safetensors`: ten steps in which products round their factors to float16.

    python3 scripts/mixed_float16.py [tests/golden]

Needs the environment of `scripts/golden.py`. The network is written in JAX alone, in float64 but for that rounding, with the
gradients of the products by hand; the optimizer, and what scales the loss, are those of Keras. In the case `overflow` the loss has such a
weight that the scale must fall twice before a step is applied.
"""

import json
import os
import sys

os.environ["KERAS_BACKEND"] = "jax"

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp
import jaxlib
import keras
import numpy as np
from safetensors.numpy import load_file, save_file

keras.config.set_floatx("float64")

ROWS, STEPS, FILTERS, CLASSES = 32, 10, 8, 10


def rounded(values):
    return values.astype(jnp.float16).astype(jnp.float64)


@jax.custom_vjp
def product(a, b):
    return rounded(a) @ rounded(b)


def product_forward(a, b):
    return product(a, b), (a, b)


def product_backward(kept, slope):
    a, b = kept
    return rounded(slope) @ rounded(b).T, rounded(a).T @ rounded(slope)


product.defvjp(product_forward, product_backward)


def convolved(x, kernel):
    """3 x 3 with zeros around: a product of patches, in the order of the kernel."""
    high, wide = x.shape[1:3]
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    patches = jnp.concatenate([padded[:, i : i + high, j : j + wide] for i in range(3) for j in range(3)], axis=-1)
    y = product(patches.reshape(-1, patches.shape[-1]), kernel.reshape(-1, kernel.shape[-1]))
    return y.reshape(*x.shape[:3], -1)


def loss_of(weights, x, labels):
    kernel1, bias1, kernel2, kernel3, bias3 = weights
    x = jax.nn.relu(convolved(x, kernel1) + bias1)
    x = jax.nn.relu(convolved(x, kernel2))
    logits = product(x.reshape(len(x), -1), kernel3) + bias3
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1))


def train(optimizer, start, inputs, labels, weight):
    variables = [keras.Variable(value, dtype="float64") for value in start]
    optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    optimizer.build(variables)
    names = [variable.path.split("/")[-1] for variable in optimizer.variables]
    values, weights = [variable.value for variable in optimizer.variables], [variable.value for variable in variables]
    scaled = jax.value_and_grad(lambda weights, x, y, scale: scale * weight * loss_of(weights, x, y))
    losses, scales = [], []
    for step in range(STEPS):
        rows = slice(step * ROWS, (step + 1) * ROWS)
        scale = values[names.index("dynamic_scale")]
        loss, gradients = scaled(weights, inputs[rows], labels[rows], scale)
        weights, values = optimizer.stateless_apply(values, gradients, weights)
        losses.append(float(loss / scale))
        scales.append(float(scale))
    return losses, scales, weights


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "tests/golden"
    data = load_file(os.path.join(folder, "training.safetensors"))
    inputs, labels = data["data/inputs"], data["data/labels"]
    draw = np.random.default_rng(16)
    shapes = {
        "conv1.kernel": (3, 3, 1, FILTERS),
        "conv1.bias": (FILTERS,),
        "conv2.kernel": (3, 3, FILTERS, FILTERS),
        "logits.kernel": (64 * FILTERS, CLASSES),
        "logits.bias": (CLASSES,),
    }
    sizes = {name: np.sqrt(2 / np.prod(shape[:-1])) if len(shape) > 1 else 0.1 for name, shape in shapes.items()}
    start = {name: (draw.normal(size=shape) * sizes[name]).astype(np.float32) for name, shape in shapes.items()}
    convolution = {"filters": FILTERS, "kernel_size": [3, 3], "padding": "same", "activation": "relu"}
    nodes = [
        {"layer": "Conv2D", "name": "conv1", "config": convolution},
        {"layer": "Conv2D", "name": "conv2", "config": {**convolution, "use_bias": False}},
        {"layer": "Flatten", "name": "flat", "config": {}},
        {"layer": "Dense", "name": "logits", "config": {"units": CLASSES}},
    ]
    tensors = {f"initial/{name}": values for name, values in start.items()}
    listed = [{"name": "initial", "nodes": nodes}]
    cases = [
        ("sgd", "SGD", {"learning_rate": 0.05, "momentum": 0.9}, 1.0),
        ("overflow", "Adam", {"learning_rate": 0.01}, 200.0),
    ]
    for name, kind, config, weight in cases:
        optimizer = getattr(keras.optimizers, kind)(**config)
        first = [jnp.asarray(values, jnp.float64) for values in start.values()]
        rows = jnp.asarray(inputs, jnp.float64), jnp.asarray(labels).astype(int)
        losses, scales, weights = train(optimizer, first, *rows, weight)
        print(name, scales, losses)
        final = {f"final.{key}": values for key, values in zip(start, weights)}
        roles = {"losses": losses, "loss_scales": scales, **final}
        tensors |= {f"{name}/{role}": np.asarray(values, np.float32) for role, values in roles.items()}
        listed.append({"name": name, "optimizer": kind, "config": config, "loss_weight": weight})
    for case in listed:
        prefix = case["name"] + "/"
        case["tensors"] = {key[len(prefix) :]: list(t.shape) for key, t in tensors.items() if key.startswith(prefix)}
    versions = {"jax": jax.__version__, "jaxlib": jaxlib.__version__, "keras": keras.__version__, "numpy": np.__version__}
    about = "ten steps of 32 rows each, in the order given, with the factors of products rounded to float16"
    manifest = {"about": about, "computed_in": "float64", "made_with": versions, "cases": listed}
    tensors = {name: np.ascontiguousarray(tensors[name]) for name in sorted(tensors)}
    path = os.path.join(folder, "mixed_float16.safetensors")
    save_file(tensors, path, metadata={"manifest": json.dumps(manifest, sort_keys=True)})


main()
