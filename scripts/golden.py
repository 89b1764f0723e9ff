#!/usr/bin/env python3
"""Writes the golden values of tests/golden with Keras 3 on JAX.

    python3 -m venv target/golden-venv
    target/golden-venv/bin/pip install -r scripts/golden-requirements.txt
    target/golden-venv/bin/python scripts/golden.py [FOLDER]

Every value is computed in float64 on the CPU from inputs that float32 holds exactly, and stored as float32.
tests/golden/README.md says what the files hold.
"""

import json
import os
import sys
import tempfile
import zlib
from pathlib import Path

os.environ["KERAS_BACKEND"] = "jax"
os.environ["KERAS_HOME"] = tempfile.mkdtemp()  # a user's keras.json must not change what is written
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_ENABLE_X64"] = "1"

import jax
import jaxlib
import keras
import numpy as np
from keras import layers, losses, metrics, optimizers
from keras.src.backend.common import dtypes
from safetensors.numpy import save_file

# On JAX, Keras takes float64 for float32 wherever it promotes types. `double` makes sure that this cures it.
assert dtypes.BIT64_TO_BIT32_DTYPE["float64"] == "float32"
dtypes.BIT64_TO_BIT32_DTYPE["float64"] = "float64"

VERSIONS = {"keras": keras.__version__, "jax": jax.__version__, "jaxlib": jaxlib.__version__, "numpy": np.__version__}


class File:
    """One file: cases, each with a configuration and named tensors."""

    def __init__(self, stem, about):
        self.stem, self.about, self.cases, self.tensors = stem, about, [], {}

    def add(self, name, tensors, **facts):
        assert all(case["name"] != name for case in self.cases), name
        shapes = {}
        for role, value in tensors.items():
            value = np.array(value, dtype=np.float32, order="C")
            assert np.isfinite(value).all(), (name, role)
            self.tensors[f"{name}/{role}"] = value
            shapes[role] = list(value.shape)
        self.cases.append({"name": name, **facts, "tensors": shapes})

    def write(self, folder):
        manifest = {"about": self.about, "computed_in": "float64", "made_with": VERSIONS, "cases": self.cases}
        path = folder / f"{self.stem}.safetensors"
        save_file(self.tensors, path, metadata={"manifest": json.dumps(manifest, sort_keys=True)})
        print(f"{path}: {len(self.cases)} cases, {path.stat().st_size:,} bytes")


def generator(name):
    """A case's own random numbers, so that a new case changes no other."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def exact(values):
    """The nearest numbers that float32 holds, in float64."""
    return np.asarray(values, dtype=np.float32).astype(np.float64)


def normal(rng, shape, scale=1.0):
    return exact(scale * rng.standard_normal(shape))


def double(function, *arguments):
    """Makes sure that a function computes in float64 throughout, and gives it back."""
    assert "f32" not in str(jax.make_jaxpr(function)(*arguments)), function
    return function


def roles(prefix, values):
    return {f"{prefix}.{index}": value for index, value in enumerate(values)}


# Layers


def layer_case(file, name, layer, inputs, config, training=False):
    """Output, and the gradients of `sum(output * output_gradient)`."""
    rng = generator(name)
    inputs = [normal(rng, value) if isinstance(value, tuple) else exact(value) for value in inputs]
    call = (lambda xs: xs) if len(inputs) > 1 else (lambda xs: xs[0])
    layer(call(inputs))
    for variable in layer.variables:
        values = normal(rng, variable.shape, 0.5)
        if variable.name in ("gamma", "moving_variance"):
            values = exact(0.5 + np.abs(values))
        variable.assign(values)
    trainable = [variable.value for variable in layer.trainable_variables]
    fixed = [variable.value for variable in layer.non_trainable_variables]

    mode = {"training": training} if fixed else {}  # only layers with statistics take it

    def forward(parameters, xs):
        return layer.stateless_call(parameters, fixed, call(xs), **mode)

    output, pull, updated = jax.vjp(double(forward, trainable, inputs), trainable, inputs, has_aux=True)
    output_gradient = normal(rng, output.shape)
    gradients, input_gradients = pull(output_gradient)
    names = [variable.name for variable in layer.trainable_variables]
    statistics = [variable.name for variable in layer.non_trainable_variables]
    tensors = {
        **roles("input", inputs),
        **{f"parameter.{key}": value for key, value in zip(names, trainable)},
        **{f"statistic.{key}": value for key, value in zip(statistics, fixed)},
        "output": output,
        "output_gradient": output_gradient,
        **roles("input_gradient", input_gradients),
        **{f"gradient.{key}": value for key, value in zip(names, gradients)},
    }
    if training:
        tensors |= {f"updated.{key}": value for key, value in zip(statistics, updated)}
    file.add(name, tensors, layer=type(layer).__name__, config=config, training=training)


ACTIVATIONS = {
    "relu": {"name": "relu"},
    "leaky_relu": {"name": "leaky_relu", "negative_slope": 0.2},
    "sigmoid": {"name": "sigmoid"},
    "tanh": {"name": "tanh"},
    "gelu": {"name": "gelu", "approximate": False},
    "gelu_approximate": {"name": "gelu", "approximate": True},
}


def activation(config):
    settings = {key: value for key, value in config.items() if key != "name"}
    function = getattr(keras.activations, config["name"])
    return lambda x: function(x, **settings)


def dense_cases(file):
    def case(name, shape, **config):
        settings = dict(config)
        if "activation" in config:
            settings["activation"] = activation(config["activation"])
        config = {"units": 4, "activation": None, "use_bias": True, **config}
        layer_case(file, name, layers.Dense(**{"units": 4, **settings}), [shape], config)

    case("dense", (3, 5))
    case("dense_no_bias", (3, 5), use_bias=False)
    case("dense_one_row_one_unit", (1, 7), units=1)
    case("dense_rank_3", (2, 3, 5), units=6)
    for name, config in ACTIVATIONS.items():
        case(f"dense_{name}", (3, 5), activation=config)


def convolution_cases(file):
    def case(name, shape, kernel_size, strides=(1, 1), padding="valid", **settings):
        config = {"filters": 3, "kernel_size": kernel_size, "strides": strides, "padding": padding,
                  "activation": None, "use_bias": True, **settings}
        layer_case(file, name, layers.Conv2D(**config), [shape], config)

    for padding in ("valid", "same"):
        for stride in (1, 2):
            for height, width in ((3, 3), (1, 1), (5, 3)):
                case(f"conv2d_{height}x{width}_stride{stride}_{padding}", (2, 6, 7, 2), (height, width),
                     (stride, stride), padding)
    case("conv2d_even_kernel_same", (2, 5, 6, 2), (2, 4), padding="same")
    case("conv2d_unequal_strides_same", (2, 7, 5, 2), (3, 3), (2, 1), "same")
    case("conv2d_no_bias", (2, 5, 4, 3), (3, 3), padding="same", use_bias=False)
    case("conv2d_relu", (2, 5, 4, 1), (3, 3), padding="same", activation="relu")
    case("conv2d_stride_over_kernel", (1, 7, 8, 2), (2, 2), (3, 3))


def batch_norm_cases(file):
    def case(name, shape, training, **settings):
        config = {"momentum": 0.99, "epsilon": 1e-3, "center": True, "scale": True, **settings}
        layer_case(file, name, layers.BatchNormalization(**config), [shape], config, training)

    for mode, training in (("training", True), ("inference", False)):
        case(f"batch_normalization_{mode}", (6, 5), training)
        case(f"batch_normalization_{mode}_rank_4", (3, 4, 2, 3), training)
        case(f"batch_normalization_{mode}_no_scale", (6, 5), training, scale=False)
        case(f"batch_normalization_{mode}_no_center", (6, 5), training, center=False)
        case(f"batch_normalization_{mode}_bare", (6, 5), training, center=False, scale=False)
    case("batch_normalization_training_momentum", (6, 5), True, momentum=0.9, epsilon=1e-5)
    offset = exact(1000 + generator("offset").standard_normal((16, 3)))
    layer_case(file, "batch_normalization_training_large_mean", layers.BatchNormalization(), [offset],
               {"momentum": 0.99, "epsilon": 1e-3, "center": True, "scale": True}, True)


def pooling_cases(file):
    for kind in ("MaxPooling2D", "AveragePooling2D"):
        for padding in ("valid", "same"):
            for pool, strides in (((2, 2), (2, 2)), ((3, 3), (2, 2)), ((2, 3), (1, 2)), ((2, 2), (3, 3))):
                config = {"pool_size": pool, "strides": strides, "padding": padding}
                name = f"{kind.removesuffix('2D').lower()}2d_{pool[0]}x{pool[1]}_stride{strides[0]}x{strides[1]}"
                layer_case(file, f"{name}_{padding}", getattr(layers, kind)(**config), [(2, 7, 6, 2)], config)
    layer_case(file, "global_average_pooling2d", layers.GlobalAveragePooling2D(), [(3, 4, 5, 2)], {})


# Where exponentials overflow in float32. Zero is left out: which derivative the kinks have is a convention.
EXTREMES = [[-100.0, -20.0, -5.0, -1e-3, 1e-3, 5.0, 20.0, 100.0]]


def activation_cases(file):
    def case(name, layer, config):
        layer_case(file, name, layer(), [(2, 3, 4)], config)
        layer_case(file, f"{name}_extreme", layer(), [EXTREMES], config)

    case("relu", layers.ReLU, {})
    case("leaky_relu", layers.LeakyReLU, {"negative_slope": 0.3})
    for name in ("sigmoid", "tanh", "gelu", "gelu_approximate"):
        config = ACTIVATIONS[name]
        case(f"activation_{name}", lambda config=config: layers.Activation(activation(config)), {"activation": config})
    case("softmax", layers.Softmax, {"axis": -1})
    layer_case(file, "softmax_rank_4", layers.Softmax(), [(2, 2, 3, 5)], {"axis": -1})


def merging_cases(file):
    layer_case(file, "add", layers.Add(), [(3, 4), (3, 4)], {})
    layer_case(file, "add_three_rank_4", layers.Add(), [(2, 3, 2, 2)] * 3, {})
    layer_case(file, "concatenate", layers.Concatenate(), [(3, 4), (3, 2)], {"axis": -1})
    layer_case(file, "concatenate_three_rank_4", layers.Concatenate(), [(2, 3, 2, 2), (2, 3, 2, 1), (2, 3, 2, 3)],
               {"axis": -1})
    layer_case(file, "flatten", layers.Flatten(), [(3, 2, 4, 2)], {})


def layer_file():
    file = File("layers", "single layers: output, and gradients of sum(output * output_gradient)")
    for cases in (dense_cases, convolution_cases, batch_norm_cases, pooling_cases, activation_cases, merging_cases):
        cases(file)
    return file


# Batch normalization over shards


def shard_file():
    file = File("sync_batch_norm", "batch normalization over a whole batch of 8 rows, held as shards of 5, 3 and 0")
    split = [5, 3, 0]
    for name, shape in (("rank_2", (8, 3)), ("rank_4", (8, 3, 2, 4))):
        config = {"momentum": 0.99, "epsilon": 1e-3, "center": True, "scale": True}
        layer_case(file, name, layers.BatchNormalization(**config), [shape], config, training=True)
        case, x = file.cases[-1], file.tensors[f"{name}/input.0"].astype(np.float64)
        case["split"] = split
        start, axes = 0, tuple(range(len(shape) - 1))
        for index, rows in enumerate(split[:2]):
            shard = x[start:start + rows]
            start += rows
            mean = shard.mean(axes)
            for role, value in (("mean", mean), ("squared_deviations", np.square(shard - mean).sum(axes))):
                file.tensors[f"{name}/shard.{index}.{role}"] = value.astype(np.float32)
                case["tensors"][f"shard.{index}.{role}"] = list(value.shape)
    return file


# Losses


def loss_case(file, name, kind, targets, logits, weights=None, reduction="sum_over_batch_size", **config):
    loss = getattr(losses, kind)(reduction=reduction, **config)
    each = getattr(losses, kind)(reduction=None, **config)
    reduced = double(lambda x: loss(targets, x, sample_weight=weights), logits)
    value, gradient = jax.value_and_grad(reduced)(logits)
    tensors = {"logits": logits, "targets": targets, "values": each(targets, logits), "loss": value,
               "logits_gradient": gradient}
    if weights is not None:
        tensors["sample_weight"] = weights
    file.add(name, tensors, loss=kind, config={"reduction": reduction, **config})


def weighted_loss_cases(file, name, kind, targets, logits, **config):
    """Without sample weights, with one a row (one of them zero), and divided by their sum."""
    weights = exact(generator(f"{name}_weights").uniform(0.25, 2.0, len(targets)))
    weights[1] = 0.0
    weights = weights.reshape((-1, *[1] * (np.ndim(logits) - 2)))  # one a row, whatever the positions
    loss_case(file, name, kind, targets, logits, **config)
    loss_case(file, f"{name}_weighted", kind, targets, logits, weights, **config)
    if np.ndim(logits) == 2:  # Keras forgets the positions in its divisor for more axes: see the README
        loss_case(file, f"{name}_weighted_mean", kind, targets, logits, weights, "mean_with_sample_weight", **config)


def loss_file():
    file = File("losses", "loss of a batch, of each sample, and the gradient with respect to the model's output")
    rng = generator("losses")
    for suffix, shape in (("", (6, 5)), ("_rank_3", (4, 3, 5))):
        logits, labels = normal(rng, shape, 2.0), rng.integers(0, 5, shape[:-1])
        soft, real = rng.dirichlet(np.ones(5), shape[:-1]), normal(rng, shape)
        one_hot, binary = np.eye(5)[labels], exact(rng.integers(0, 2, shape))
        name = "sparse_categorical_crossentropy" + suffix
        weighted_loss_cases(file, name, "SparseCategoricalCrossentropy", labels, logits, from_logits=True)
        name = "categorical_crossentropy" + suffix
        settings = {"from_logits": True, "label_smoothing": 0.0}
        smooth = {"from_logits": True, "label_smoothing": 0.1}
        weighted_loss_cases(file, name, "CategoricalCrossentropy", one_hot, logits, **settings)
        weighted_loss_cases(file, name + "_smoothed", "CategoricalCrossentropy", one_hot, logits, **smooth)
        weighted_loss_cases(file, name + "_soft_targets", "CategoricalCrossentropy", exact(soft), logits, **settings)
        name = "binary_crossentropy" + suffix
        weighted_loss_cases(file, name, "BinaryCrossentropy", binary, logits, **settings)
        weighted_loss_cases(file, name + "_smoothed", "BinaryCrossentropy", binary, logits, **smooth)
        weighted_loss_cases(file, "mean_squared_error" + suffix, "MeanSquaredError", real, logits)
    extreme = exact([[80.0, -80.0, 0.0], [-100.0, 100.0, 99.0], [30.0, 30.0, 30.0]])
    loss_case(file, "sparse_categorical_crossentropy_extreme", "SparseCategoricalCrossentropy",
              np.array([1, 2, 0]), extreme, from_logits=True)
    loss_case(file, "binary_crossentropy_extreme", "BinaryCrossentropy", np.array([[0.0, 1, 1], [1, 0, 1], [0, 1, 0]]),
              extreme, from_logits=True, label_smoothing=0.0)
    return file


def metric_case(file, name, logits, labels):
    """Accuracy takes the first of the largest logits; a class is among the top k if fewer than k are larger."""
    classes = logits.shape[-1]
    tensors = {"logits": logits, "labels": labels,
               "accuracy": np.mean(metrics.sparse_categorical_accuracy(labels, logits)),
               "top_k": [np.mean(metrics.sparse_top_k_categorical_accuracy(labels, logits, k=k + 1))
                         for k in range(classes)]}
    one_hot = np.eye(classes)[labels]
    assert tensors["accuracy"] == np.mean(metrics.categorical_accuracy(one_hot, logits))
    assert tensors["top_k"] == [np.mean(metrics.top_k_categorical_accuracy(one_hot, logits, k=k + 1))
                                for k in range(classes)]
    file.add(name, tensors)


def metric_file():
    file = File("metrics", "accuracy, and top-k accuracy for k from 1 to the number of classes")
    rng = generator("metrics")
    metric_case(file, "distinct", normal(rng, (40, 5), 2.0), rng.integers(0, 5, 40))
    # One of three values each: most rows have ties.
    metric_case(file, "tied", exact(rng.integers(0, 3, (60, 7))), rng.integers(0, 7, 60))
    metric_case(file, "tied_wide", exact(rng.integers(0, 3, (20, 70))), rng.integers(0, 70, 20))
    metric_case(file, "all_equal", exact(np.ones((8, 6))), np.array([0, 1, 2, 3, 4, 5, 0, 5]))
    return file


# Optimizers and learning rates

STEPS = 5


def problem():
    """Two parameters, and their gradients in each step."""
    rng = generator("optimizers")
    initial = {key: normal(rng, shape) for key, shape in (("kernel", (3, 4)), ("bias", (4,)))}
    gradients = [{key: normal(rng, value.shape, 10.0 if step == 2 else 0.3) for key, value in initial.items()}
                 for step in range(STEPS)]
    return initial, gradients


def optimizer_case(file, name, kind, **config):
    initial, gradients = problem()
    variables = [keras.Variable(value, name=key) for key, value in initial.items()]
    optimizer = getattr(optimizers, kind)(**config)
    optimizer.build(variables)
    values, state = [variable.value for variable in variables], [variable.value for variable in optimizer.variables]
    tensors = {}
    for step in range(STEPS):
        arguments = state, list(gradients[step].values()), values
        values, state = double(optimizer.stateless_apply, *arguments)(*arguments)
        tensors |= {f"parameter.{step}.{key}": value for key, value in zip(initial, values)}
    full = {key: value for key, value in optimizer.get_config().items()
            if key != "name" and not key.startswith(("ema_", "use_ema"))}
    file.add(name, tensors, optimizer=kind, config=full)


def optimizer_file():
    file = File("optimizers", "five steps of each optimizer with the same gradients, the third of them large")
    initial, gradients = problem()
    file.add("problem", {f"initial.{key}": value for key, value in initial.items()}
             | {f"gradient.{step}.{key}": value for step, named in enumerate(gradients) for key, value in named.items()},
             steps=STEPS)
    families = {
        "SGD": {"sgd": {}, "sgd_momentum": {"momentum": 0.9}, "sgd_nesterov": {"momentum": 0.9, "nesterov": True}},
        "Adam": {"adam": {}, "adam_settings": {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-3}},
        "AdamW": {"adam_w": {}},
        "RMSprop": {"rmsprop": {}, "rmsprop_momentum": {"momentum": 0.9}, "rmsprop_centered": {"centered": True},
                    "rmsprop_all": {"rho": 0.8, "momentum": 0.5, "epsilon": 1e-3, "centered": True}},
    }
    for kind, variants in families.items():
        for name, config in variants.items():
            config = {"learning_rate": 0.05, **config}
            optimizer_case(file, name, kind, **config)
            optimizer_case(file, f"{name}_clipped", kind, **config, global_clipnorm=2.0)
            if kind != "AdamW":
                optimizer_case(file, f"{name}_decayed", kind, **config, weight_decay=0.1)
            optimizer_case(file, f"{name}_decayed_clipped", kind, **config, weight_decay=0.1, global_clipnorm=2.0)
    schedule = optimizers.schedules.CosineDecay(0.01, 3, warmup_target=0.1, warmup_steps=2)
    optimizer_case(file, "sgd_momentum_cosine", "SGD", learning_rate=schedule, momentum=0.9)
    return file


def schedule_file():
    file = File("schedules", "learning rates at steps; step 0 is the first update")

    def case(name, schedule, steps, kind, config):
        rates = [float(double(schedule, step)(step)) if schedule else config["learning_rate"] for step in steps]
        file.add(name, {"steps": steps, "rates": rates}, schedule=kind, config=config)

    case("constant", None, [0, 1, 1000], "Constant", {"learning_rate": 0.01})
    config = {"boundaries": [10, 20, 50], "values": [0.1, 0.05, 0.01, 0.001]}
    steps = [0, 1, 9, 10, 11, 19, 20, 21, 50, 51, 1000]
    case("step", optimizers.schedules.PiecewiseConstantDecay(**config), steps, "PiecewiseConstantDecay", config)
    for name, config in {
        "cosine": {"initial_learning_rate": 0.1, "decay_steps": 100, "alpha": 0.0},
        "cosine_floor": {"initial_learning_rate": 0.1, "decay_steps": 100, "alpha": 0.1},
        "cosine_warmup": {"initial_learning_rate": 0.0, "decay_steps": 100, "alpha": 0.0, "warmup_target": 0.1,
                          "warmup_steps": 10},
        "cosine_warmup_floor": {"initial_learning_rate": 0.01, "decay_steps": 90, "alpha": 0.05, "warmup_target": 0.2,
                                "warmup_steps": 15},
    }.items():
        steps = [0, 1, 5, 9, 10, 11, 14, 15, 16, 50, 90, 99, 100, 105, 109, 110, 111, 1000]
        case(name, optimizers.schedules.CosineDecay(**config), steps, "CosineDecay", config)
    return file


# Ten training steps

BATCH, BATCHES = 32, 10


def images():
    """Ten classes of 8 x 8 pictures: a prototype each, and noise; values are multiples of 1/16."""
    rng = generator("images")
    prototypes = rng.standard_normal((10, 8, 8, 1))
    labels = rng.integers(0, 10, BATCH * BATCHES)
    noisy = prototypes[labels] + 0.8 * rng.standard_normal((len(labels), 8, 8, 1))
    return np.round(noisy * 16) / 16, labels


def compute_in(dtype):
    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)  # the default policy does not follow floatx once it was read


def network(dtype):
    compute_in(dtype)
    return keras.Sequential([
        layers.Input((8, 8, 1)),
        layers.Conv2D(8, 3, padding="same", use_bias=False, name="conv1"),
        layers.BatchNormalization(momentum=0.9, name="norm1"),
        layers.ReLU(name="relu1"),
        layers.MaxPooling2D(2, name="pool"),
        layers.Conv2D(16, 3, padding="same", use_bias=False, name="conv2"),
        layers.BatchNormalization(momentum=0.9, name="norm2"),
        layers.ReLU(name="relu2"),
        layers.GlobalAveragePooling2D(name="average"),
        layers.Dense(10, name="logits"),
    ], name="network")


def label(variable):
    """`conv1.kernel`."""
    return variable.path.removeprefix("network/").replace("/", ".")


NODES = [
    {"name": "conv1", "layer": "Conv2D", "config": {"filters": 8, "kernel_size": [3, 3], "padding": "same",
                                                    "use_bias": False}},
    {"name": "norm1", "layer": "BatchNormalization", "config": {"momentum": 0.9, "epsilon": 1e-3}},
    {"name": "relu1", "layer": "ReLU", "config": {}},
    {"name": "pool", "layer": "MaxPooling2D", "config": {"pool_size": [2, 2]}},
    {"name": "conv2", "layer": "Conv2D", "config": {"filters": 16, "kernel_size": [3, 3], "padding": "same",
                                                    "use_bias": False}},
    {"name": "norm2", "layer": "BatchNormalization", "config": {"momentum": 0.9, "epsilon": 1e-3}},
    {"name": "relu2", "layer": "ReLU", "config": {}},
    {"name": "average", "layer": "GlobalAveragePooling2D", "config": {}},
    {"name": "logits", "layer": "Dense", "config": {"units": 10}},
]


def train(dtype, initial, data, labels, kind, config):
    """Losses before each step, the loss at inference after the last, and all variables then."""
    model = network(dtype)
    for variable in model.variables:
        variable.assign(initial[label(variable)])
    optimizer = getattr(optimizers, kind)(**config)
    criterion = losses.SparseCategoricalCrossentropy(from_logits=True)
    data = data.astype(dtype)

    def objective(trainable, fixed, x, y, training):
        logits, fixed = model.stateless_call(trainable, fixed, x, training=training)
        return criterion(y, logits), fixed

    def variables():
        return [[variable.value for variable in group]
                for group in (model.trainable_variables, model.non_trainable_variables)]

    if dtype == "float64":
        double(lambda *state: objective(*state, data[:BATCH], labels[:BATCH], True), *variables())
    differentiate = jax.jit(jax.value_and_grad(objective, has_aux=True), static_argnames="training")
    assert all(variable.dtype == dtype for variable in model.variables)
    history = []
    for start in range(0, len(data), BATCH):
        batch = data[start:start + BATCH], labels[start:start + BATCH]
        trainable, fixed = variables()
        (value, fixed), gradients = differentiate(trainable, fixed, *batch, training=True)
        optimizer.apply(gradients, model.trainable_variables)
        for variable, updated in zip(model.non_trainable_variables, fixed):
            variable.assign(updated)
        assert value.dtype == dtype
        history.append(value)
    after, _ = objective(*variables(), data, labels, False)
    return {"losses": np.array(history), "loss_at_inference": np.array(after),
            **{f"final.{label(variable)}": np.array(variable.value) for variable in model.variables}}


def training_file():
    file = File("training", "ten steps of a small network with batch normalization, 32 rows each, in the order given")
    data, labels = images()
    file.add("data", {"inputs": data, "labels": labels}, batch_rows=BATCH)
    rng, initial = generator("network"), {}
    for variable in network("float64").variables:
        shape, fan_in = variable.shape, np.prod(variable.shape[:-1])
        values = normal(rng, shape, 1 / np.sqrt(fan_in)) if variable.name == "kernel" else np.zeros(shape)
        initial[label(variable)] = values + (variable.name in ("gamma", "moving_variance"))
    file.add("initial", initial, nodes=NODES,
             loss="SparseCategoricalCrossentropy")
    for name, kind, config in (("adam", "Adam", {"learning_rate": 0.01}),
                               ("sgd_momentum", "SGD", {"learning_rate": 0.05, "momentum": 0.9})):
        truth = train("float64", initial, data, labels, kind, config)
        single = train("float32", initial, data, labels, kind, config)
        # What rounding alone does in Keras itself: a measure for the tolerance of a test.
        drift = {role: float(np.abs(truth[role] - single[role]).max()) for role in truth}
        file.add(name, truth, optimizer=kind, config=config, float32_differs_by=drift)
    return file


def main():
    root = Path(__file__).resolve().parent.parent
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else root / "tests" / "golden"
    folder.mkdir(parents=True, exist_ok=True)
    for make in (layer_file, shard_file, loss_file, metric_file, optimizer_file, schedule_file, training_file):
        compute_in("float64")
        make().write(folder)


if __name__ == "__main__":
    main()
