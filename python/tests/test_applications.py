"""Every network of `keras.applications`, with random weights and small pictures: it is built here from Keras' `get_config()`,
predicts as in Keras, and the smallest of each family trains as in Keras, whose own float32 is measured by its float64.

`scripts/test-python -m slow -k applications` runs all; with `XLA_FLAGS=''` before it those that train take a tenth of the time, since
XLA then optimizes their convolutions of 64 bits.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import keras
import numpy as np
import pytest

from manyhands_ml import make_parallel
from manyhands_ml._graph import read

CLASSES = 10


@dataclass(frozen=True)
class Network:
    """A network and what is tried of it."""

    #: Side of the pictures: the smallest that it takes, and twice that where batch normalization needs more values to train.
    size: int
    #: Side of the pictures that it trains on; 0 for those that are only predicted.
    trained: int = 0
    #: Is it predicted? What has more than 300 million weights is only converted.
    is_predicted: bool = True
    #: Pictures of a batch that it trains on: more where batch normalization behind random weights multiplies rounding.
    rows: int = 8
    #: Steps that it trains.
    steps: int = 5
    #: Part of the step size at which rounding does not yet move single weights.
    pace: float = 1.0
    #: Scale of the last batch normalization of each block at the beginning. ResNets train from 0 (Goyal et al. 2017,
    #: arXiv:1706.02677, section 5.1). With Keras' 1 and random weights ResNet50's gradient has a norm of 1160 in place of 23: the first
    #: loss of float32 is then 8e-6 from that of float64 in Keras itself, with 0.2 it is 1e-8. EfficientNetV2L's logits are then 7,500
    #: large, and Keras' own move by 95 % when the pictures move by 1e-7.
    branch: float = 1.0
    #: Relative difference of losses.
    most: float = 1e-4
    #: Are weights compared after each step, and the next begun from those of float64? Of VGG16's wide layers, without normalization,
    #: about two units in 20 steps come within float32's rounding of 0. Such a unit may learn in one step more or less; that moves the
    #: next layer's 4096 inputs by 1e-7, and twenty more units with them: four steps later single biases differ by 1e-4.
    each_step: bool = False


#: All of `keras.applications`.
NETWORKS: dict[str, Network] = {
    "ConvNeXtTiny": Network(32, trained=32),
    "ConvNeXtSmall": Network(32),
    "ConvNeXtBase": Network(32),
    "ConvNeXtLarge": Network(32),
    "ConvNeXtXLarge": Network(32, is_predicted=False),
    "DenseNet121": Network(32, trained=64),
    "DenseNet169": Network(32),
    "DenseNet201": Network(32),
    "EfficientNetB0": Network(32, trained=64),
    **{f"EfficientNetB{size}": Network(32) for size in range(1, 8)},
    "EfficientNetV2B0": Network(32, trained=64),
    **{f"EfficientNetV2{size}": Network(32) for size in ("B1", "B2", "B3", "S", "M")},
    "EfficientNetV2L": Network(32, branch=0.2),
    "InceptionResNetV2": Network(75, trained=96),
    "InceptionV3": Network(75, trained=96, pace=0.25),
    "MobileNet": Network(32, trained=64),
    "MobileNetV2": Network(32, trained=64, steps=20, most=1e-5),
    "MobileNetV3Small": Network(32, trained=64),
    "MobileNetV3Large": Network(32),
    "NASNetMobile": Network(32, trained=64),
    "NASNetLarge": Network(32),
    "ResNet50": Network(32, trained=96, rows=16, steps=20, branch=0.2, most=1e-5),
    "ResNet101": Network(32),
    "ResNet152": Network(32),
    "ResNet50V2": Network(32, trained=64),
    "ResNet101V2": Network(32),
    "ResNet152V2": Network(32),
    "VGG16": Network(32, trained=32, steps=20, pace=0.25, most=1e-5, each_step=True),
    "VGG19": Network(32),
    "Xception": Network(71, trained=96),
}
#: How Keras names the last batch normalization of a block: of a ResNet, of an EfficientNet.
LAST_OF_BLOCKS = ("_3_bn", "project_bn")
#: Networks that train on a driver, and on all adapters together, too.
TOGETHER = ("MobileNetV2", "ResNet50")
#: Drivers that compute on the CPU, where the environment promises them.
DRIVERS = [name for name in os.environ.get("MANYHANDS_EXPECT_ADAPTERS", "").split(",") if name]


@pytest.fixture(autouse=True)
def _forgets() -> Iterator[None]:
    """Weights of hundreds of megabytes, and what JAX has compiled for them, do not stay."""
    yield
    keras.backend.clear_session()
    gc.collect()


def _build(name: str, size: int) -> Any:
    """The network with random weights, which gives logits, without dropout and stochastic depth."""
    keras.utils.set_random_seed(7)
    model = getattr(keras.applications, name)(
        weights=None, input_shape=(size, size, 3), classes=CLASSES, classifier_activation=None
    )
    for layer in model._flatten_layers():
        for rate in ("rate", "drop_path_rate"):
            if getattr(layer, rate, 0):
                setattr(layer, rate, 0.0)
        if NETWORKS[name].branch != 1 and layer.name.endswith(LAST_OF_BLOCKS):
            layer.gamma.assign(np.full(layer.gamma.shape, NETWORKS[name].branch))
    return model


def _pictures(name: str, rows: int, size: int, seed: int = 3) -> tuple[Any, Any]:
    """Pictures in the range that the network expects, and labels."""
    rng = np.random.default_rng(seed)
    takes_bytes = "include_preprocessing" in inspect.signature(getattr(keras.applications, name)).parameters
    high = 255 if takes_bytes or name.startswith("EfficientNet") else 1
    return rng.uniform(0, high, (rows, size, size, 3)).astype(np.float32), rng.integers(0, CLASSES, rows)


def test_all_networks_are_here() -> None:
    assert set(NETWORKS) == {name for name in dir(keras.applications) if name[0].isupper()}


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_known_networks_predict_as_in_keras(name: str) -> None:
    """Logits within 1e-4 of the largest."""
    network = NETWORKS[name]
    model = _build(name, network.size)
    _, problems = read(model, is_trained=True)
    assert not problems
    if not network.is_predicted:
        return
    x, _ = _pictures(name, 2, network.size)
    expected = keras.ops.convert_to_numpy(model(x, training=False))
    # Without training, signals of some networks fade to 1e-12 at the logits.
    assert np.abs(expected).max() > 0
    got = make_parallel(model, "cpu").predict_on_batch(x)
    distance = np.abs(got - expected).max() / np.abs(expected).max()
    print(f"{name}: logits differ by {distance:.1e} of the largest")
    assert distance < 1e-4


def _compiled(model: Any) -> Any:
    model.compile(keras.optimizers.SGD(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


@contextlib.contextmanager
def _float64() -> Iterator[None]:
    """Within it, Keras builds and computes in 64 bits."""
    policy = keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    try:
        with jax.enable_x64(True):
            yield
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy(policy)


def _exact(name: str, size: int) -> Any:
    """The network that computes in 64 bits, within `_float64`. Normalization counts what it has seen in whole numbers."""
    model = _compiled(_build(name, size))
    assert {variable.dtype for variable in model.weights if variable.name != "count"} == {"float64"}
    return model


def _losses(model: Any, weights: list[Any], data: tuple[Any, Any], rate: float, steps: int) -> list[float]:
    """Losses of some steps of gradient descent."""
    model.set_weights(weights)
    model.optimizer.learning_rate = rate
    return [float(model.train_on_batch(*data)) for _ in range(steps)]


def _gentle(model: Any, weights: list[Any], data: tuple[Any, Any]) -> float:
    """A step size at which five steps move the loss by a two-hundredth or more. Random weights behind batch
    normalization have gradients of norms up to a thousand: larger steps would jump about, and multiply rounding."""
    rate = 2e-9
    while True:
        losses = _losses(model, weights, data, rate, 5)
        change = abs(losses[-1] / losses[0] - 1)
        if change > 5e-3:
            return rate
        rate *= 4 if change > 2e-4 else 16


def _compare_each_step(models: Sequence[Any], begin: list[Any], data: tuple[Any, Any], rate: float, steps: int) -> None:
    """What a step of the first model changes in each tensor is as near to float64, the last model, as that of Keras, the second, but
    for a hundredth: of 4096 units and 8 pictures, one that learns in a step more or less is a half of that."""
    weights, farthest = begin, [0.0, 0.0]
    for step in range(steps):
        ends = []
        for model in models:
            with _float64() if model is models[-1] else contextlib.nullcontext():
                _losses(model, weights, data, rate, 1)
                ends.append(model.get_weights())
        for number, (before, *after, right) in enumerate(zip(weights, *ends, strict=True)):
            distances = [np.linalg.norm(it - right) / np.linalg.norm(right - before) for it in after]
            assert distances[0] < distances[1] + 0.01, (step, number, distances)
            farthest = [max(pair) for pair in zip(farthest, distances)]
        weights = [tensor.astype(np.float32) for tensor in ends[-1]]
    print(f"changes of a step differ from float64 by {farthest[0]:.1e} at most, those of Keras by {farthest[1]:.1e}")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, network in NETWORKS.items() if network.trained])
def test_known_networks_train_as_in_keras(name: str) -> None:
    """Losses and weights; of some networks also on a driver alone, and on all drivers and the CPU together."""
    network = NETWORKS[name]
    model = _compiled(_build(name, network.trained))
    begin = model.get_weights()
    data = _pictures(name, network.rows, network.trained)
    rate = _gentle(model, begin, data) * network.pace * 5 / network.steps
    expected = _losses(model, begin, data, rate, network.steps)
    end = model.get_weights()
    with _float64():
        exact = _exact(name, network.trained)
        if not network.each_step:
            _losses(exact, begin, data, rate, network.steps)
            truth = exact.get_weights()
    more = [DRIVERS[0], ",".join([*DRIVERS, "cpu"])] if name in TOGETHER and DRIVERS else []
    for rig in ("cpu", *more):
        parallel = make_parallel(model, rig, batch_statistics="batch")
        got = _losses(parallel, begin, data, rate, network.steps)
        distance = max(abs(a / b - 1) for a, b in zip(got, expected))
        print(f"{name} on {rig}: losses {expected[0]:.4f} to {expected[-1]:.4f} at {rate:.1g} differ by {distance:.1e}")
        assert got == pytest.approx(expected, rel=network.most)
        if network.each_step:
            _compare_each_step((parallel, model, exact), begin, data, rate, network.steps)
            continue
        for ours, theirs, right in zip(parallel.get_weights(), end, truth, strict=True):
            # A ReLU whose input is within rounding of 0 passes the gradient in one run and not in another: where Keras'
            # own float32 is far from float64, others may be, too.
            np.testing.assert_allclose(ours, right, rtol=1e-4, atol=1e-4 + 4 * np.abs(theirs - right).max())


def _gradient(model: Any, weights: list[Any], data: tuple[Any, Any]) -> Any:
    """The gradient of a step, from a step so large that rounding of the weights does not count."""
    rate = 2.0**20
    _losses(model, weights, data, rate, 1)
    changes = [(old - new.astype(np.float64)) / rate for old, new in zip(weights, model.get_weights(), strict=True)]
    # Moving statistics, too, change, but not by that rate: they weigh nothing here.
    return np.concatenate([change.ravel() for change in changes])


@pytest.mark.slow
def test_gradients_are_as_exact_as_those_of_keras() -> None:
    """One step of MobileNet. A value within rounding of 0 or 6 may fall on either side of that kink of ReLU6, and one such sign
    moves all gradients before it by up to 5 %. Keras' float32 meets as many of them, so over several sets of pictures the usual
    distance from float64 has to be the same; that of a wrong slope would be larger each time."""
    name, size = "MobileNet", NETWORKS["MobileNet"].trained
    model = _compiled(_build(name, size))
    begin = model.get_weights()
    parallel = make_parallel(model, "cpu", batch_statistics="batch")
    with _float64():
        exact = _exact(name, size)
    distances = []
    for seed in range(12):
        data = _pictures(name, 8, size, seed)
        with _float64():
            truth = _gradient(exact, begin, data)
        found = [_gradient(it, begin, data) for it in (model, parallel)]
        distances.append([np.linalg.norm(it - truth) / np.linalg.norm(truth) for it in found])
        print(f"pictures {seed}: Keras is {distances[-1][0]:.1e} from float64, manyhands {distances[-1][1]:.1e}")
    theirs, ours = np.median(distances, axis=0)
    assert ours < 5 * theirs
