"""Inputs, targets and outputs in lists and dicts, also within each other: the same logs and structures as in Keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from manyhands_ml import make_parallel

ROWS = 20
LOSS = "sparse_categorical_crossentropy"
Structure = Callable[[Any, Any], Any]


def _list(one: Any, other: Any) -> Any:
    return [one, other]


#: Structures of two inputs.
INPUTS: dict[str, Structure] = {
    "a list in a dict": lambda a, b: {"a": a, "r": [b]},
    "a list in a list": lambda a, b: [a, [b]],
    "a tuple in a tuple": lambda a, b: (b, (a,)),
    "dicts in a dict, in another order": lambda a, b: {"z": {"k": a}, "r": {"l": b}},
}
#: Structures of two outputs, and what `compile` gets of losses and metrics in them.
OUTPUTS: dict[str, tuple[Structure, dict[str, Any]]] = {
    "a list in a dict": (lambda o, q: {"o": o, "q": [q]}, {"loss": {"o": LOSS, "q": ["mse"]}}),
    "a list in a dict, with metrics": (
        lambda o, q: {"o": o, "q": [q]},
        {"loss": {"o": LOSS, "q": ["mse"]}, "metrics": {"o": ["accuracy"], "q": ["mae"]}},
    ),
    "a list in a list": (lambda o, q: [o, [q]], {"loss": [LOSS, ["mse"]]}),
    "dicts in a dict": (lambda o, q: {"z": {"o": o}, "q": {"q": q}}, {"loss": {"z": {"o": LOSS}, "q": {"q": "mse"}}}),
}


def _model(inputs: Structure, outputs: Structure) -> Any:
    a, b = keras.Input((6,), name="a"), keras.Input((6,), name="b")
    both = layers.Concatenate()([a, b])
    return keras.Model(inputs(a, b), outputs(layers.Dense(3, "softmax", name="o")(both), layers.Dense(1, name="q")(both)))


def _compare(make: Callable[[], Any], arguments: dict[str, Any], x: Any, y: Any) -> None:
    told = []
    for adapters in (None, "cpu,cpu"):
        keras.utils.set_random_seed(1)
        model = make() if adapters is None else make_parallel(make(), adapters)
        model.compile("sgd", **arguments)
        history = model.fit(x, y, batch_size=8, shuffle=False, validation_data=(x, y), verbose=0).history
        evaluated = model.evaluate(x, y, batch_size=8, verbose=0, return_dict=True)
        told.append((history, evaluated, model.predict(x, verbose=0), model.predict_on_batch(x)))
    for found, needed in zip(told[1], told[0], strict=True):
        keras.tree.assert_same_structure(found, needed)
        for one, other in zip(keras.tree.flatten(found), keras.tree.flatten(needed), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def _data() -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, ROWS, 6)).astype("float32")
    return a, 2 * b + 1, rng.integers(0, 3, ROWS), a[:, :1]


@pytest.mark.parametrize("name", INPUTS)
def test_structures_of_inputs_are_those_of_keras(name: str) -> None:
    a, b, o, q = _data()
    _compare(lambda: _model(INPUTS[name], _list), {"loss": [LOSS, "mse"]}, INPUTS[name](a, b), [o, q])


@pytest.mark.filterwarnings("ignore:Keras computes loss and metrics")
@pytest.mark.parametrize("name", OUTPUTS)
def test_structures_of_outputs_are_those_of_keras(name: str) -> None:
    a, b, o, q = _data()
    structure, arguments = OUTPUTS[name]
    _compare(lambda: _model(_list, structure), arguments, [a, b], structure(o, q))


@pytest.mark.filterwarnings("ignore:Keras computes loss and metrics")
def test_metrics_of_rows_of_single_numbers_are_those_of_keras() -> None:
    """Means over batches: the last one has fewer rows."""
    a, _, _, q = _data()
    _compare(
        lambda: keras.Sequential([keras.Input((6,)), layers.Dense(1), layers.Reshape(())]), {"loss": "mse", "metrics": ["mae"]}, a, q[:, 0]
    )


def test_an_output_may_be_there_twice() -> None:
    a, *_ = _data()
    inputs = keras.Input((6,))
    out = layers.Dense(3)(inputs)
    model = keras.Model(inputs, [out, out])
    expected = model.predict(a, verbose=0)
    for found, needed in zip(make_parallel(model, "cpu").predict(a, verbose=0), expected, strict=True):
        np.testing.assert_allclose(found, needed, atol=1e-5)
