"""Models in stages on adapters of their own, and batches in micro-batches: they train as in Keras."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import manyhands_ml
from manyhands_ml import Model, ModelError, SettingError, Trainer, digits

ROWS = 24


def _stack() -> Any:
    return keras.Sequential(
        [
            keras.Input((12,)),
            layers.Dense(16, activation="relu", name="first"),
            layers.Dense(16, activation="tanh", name="hidden"),
            layers.Dense(5, name="scores"),
            layers.Softmax(name="probabilities"),
        ]
    )


def _towers() -> Any:
    """A model within that reads two inputs, one after the other."""
    tower = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="gelu", name="dense"), layers.Dense(4, name="end")], name="tower")
    left, right = keras.Input((6,), name="left"), keras.Input((6,), name="right")
    both = layers.Concatenate(name="both")([tower(left), tower(right)])
    return keras.Model([left, right], layers.Dense(5, activation="softmax", name="scores")(both))


STAGES: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "names": (_stack, [{"layers": ["first"], "adapters": [0]}, {"layers": ["hidden", "scores", "probabilities"], "adapters": [1]}]),
    "ranges": (_stack, [{"layers": ["..hidden"], "adapters": [1]}, {"layers": ["scores..probabilities"], "adapters": [0]}]),
    "three": (_stack, [{"layers": [name], "adapters": [number]} for number, name in enumerate(["first", "hidden", "scores.."])]),
    "team": (_stack, [{"layers": ["..first"], "adapters": [0, 2]}, {"layers": ["hidden.."], "adapters": [1]}]),
    "model within": (_towers, [{"layers": ["tower"], "adapters": [0]}, {"layers": ["both.."], "adapters": [1]}]),
    "further use": (
        _towers,
        [{"layers": ["tower.dense", "tower.end"], "adapters": [0]}, {"layers": ["tower.dense:1..scores"], "adapters": [1]}],
    ),
}


def _batch(model: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    x = [rng.normal(size=(ROWS, *tensor.shape[1:])).astype(np.float32) for tensor in model.inputs]
    return x if len(x) > 1 else x[0], rng.integers(0, 5, ROWS)


@pytest.mark.parametrize("name", STAGES)
def test_stages_train_as_keras(name: str, pair: Any, rng: np.random.Generator) -> None:
    build, placement = STAGES[name]
    n_adapters = 1 + max(position for stage in placement for position in stage["adapters"])
    plain, parallel = pair(build, ",".join(["cpu"] * n_adapters), placement=placement, micro_batches=4)
    for model in (plain, parallel):
        model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    for _ in range(10):
        x, y = _batch(plain, rng)
        expected, got = plain.train_on_batch(x, y), parallel.train_on_batch(x, y)
        assert got == pytest.approx([float(value) for value in expected], rel=1e-5)
    for ours, theirs in zip(parallel.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    x, y = _batch(plain, rng)
    np.testing.assert_allclose(parallel.predict(x, verbose=0), plain.predict(x, verbose=0), atol=1e-5)
    assert parallel.evaluate(x, y, verbose=0) == pytest.approx(plain.evaluate(x, y, verbose=0), rel=1e-5)


def test_what_is_placed_by_measurement_trains_as_keras(pair: Any, rng: np.random.Generator) -> None:
    plain, parallel = pair(_stack, "cpu,cpu", placement="auto", micro_batches=4)
    for model in (plain, parallel):
        model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
    for _ in range(4):
        batch = _batch(plain, rng)
        assert parallel.train_on_batch(*batch) == pytest.approx(float(plain.train_on_batch(*batch)), rel=1e-5)


@pytest.mark.parametrize("adapters", ["cpu", "cpu,cpu"])
def test_micro_batches_train_as_keras(adapters: str, pair: Any, rng: np.random.Generator) -> None:
    """A last batch of 3 rows has fewer of them."""
    plain, parallel = pair(_stack, adapters, micro_batches=4)
    x, y = rng.normal(size=(2 * ROWS + 3, 12)), rng.integers(0, 5, 2 * ROWS + 3)
    runs = []
    for model in (plain, parallel):
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy", metrics=["accuracy"])
        runs.append(model.fit(x, y, batch_size=ROWS, epochs=4, shuffle=False, validation_data=(x, y), verbose=0))
    for name, values in runs[0].history.items():
        assert runs[1].history[name] == pytest.approx(values, rel=1e-5), name
    for ours, theirs in zip(parallel.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_each_stage_computes_all_rows(pair: Any, rng: np.random.Generator, capsys: pytest.CaptureFixture[str]) -> None:
    _, parallel = pair(_stack, "cpu,cpu", placement=STAGES["ranges"][1], micro_batches=2)
    parallel.compile("sgd", "sparse_categorical_crossentropy")
    parallel.fit(rng.normal(size=(50, 12)), rng.integers(0, 5, 50), epochs=2, verbose=2)
    name = manyhands_ml.adapters("cpu")[0].name
    assert f"rows by adapter: {name} 100%, {name} 100%" in capsys.readouterr().out


def test_stages_without_keras() -> None:
    (x, y), _ = digits()
    text = '''
    input = [8, 8, 1]
    layers = [
        { type = "Flatten" },
        { type = "Dense", name = "hidden", units = 16, activation = "relu" },
        { type = "Dense", name = "scores", units = 10 },
    ]
    '''

    def trained(**settings: Any) -> Trainer:
        trainer = Trainer(Model.from_toml(text), {"type": "SGD", "learning_rate": 0.1}, **settings)
        trainer.fit(x, y, epochs=2, batch_size=128, shuffle=False)
        return trainer

    whole = trained(adapters="cpu")
    stages: Any = [{"layers": ["..hidden"], "adapters": [0]}, {"layers": ["scores"], "adapters": [1]}]
    for trainer in (trained(adapters="cpu,cpu", placement=stages, micro_batches=4), trained(adapters="cpu", micro_batches=3)):
        for name, values in whole.model.weights.items():
            np.testing.assert_allclose(trainer.model.weights[name], values, atol=1e-5)


def _first(**settings: Any) -> Any:
    """What a model on two adapters says of its first batch."""
    parallel = manyhands_ml.make_parallel(_stack(), "cpu,cpu", **settings)
    return parallel.predict_on_batch(np.zeros((4, 12)))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"micro_batches": 0}, "`micro_batches` needs to be at least 1, but is 0"),
        ({"placement": [{"layers": "first", "adapters": [0]}]}, "`placement` needs lists of layers and of adapters in each stage"),
        ({"placement": [{"layers": ["first"]}]}, "`placement` needs lists of layers and of adapters in each stage"),
        ({"placement": "halves"}, "`placement` can't be read: .*halves"),
        (
            {"placement": [{"layers": ["..hiden"], "adapters": [0]}, {"layers": ["scores.."], "adapters": [1]}]},
            "(?s)`hiden` is none.*help: `hidden` is there",
        ),
        (
            {"placement": [{"layers": ["hidden..first"], "adapters": [0]}, {"layers": ["scores.."], "adapters": [1]}]},
            "(?s)needs ranges in the order of the layers, but has `hidden..first`.*help: take `first..hidden`",
        ),
        ({"placement": [{"layers": ["..first"], "adapters": [0]}, {"layers": ["scores.."], "adapters": [1]}]}, "`hidden` has none"),
        ({"placement": [{"layers": ["..first"], "adapters": [0]}, {"layers": ["hidden.."], "adapters": [2]}]}, "needs adapters below 2"),
    ],
)
def test_wrong_placements_say_what_is_needed(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingError, match=text):
        _first(**settings)


def test_what_belongs_to_the_loss_is_no_stage() -> None:
    placement = [{"layers": ["..scores"], "adapters": [0]}, {"layers": ["probabilities"], "adapters": [1]}]
    parallel = manyhands_ml.make_parallel(_stack(), "cpu,cpu", placement=placement)
    parallel.compile("sgd", "sparse_categorical_crossentropy")
    with pytest.raises(SettingError, match="stage 1 has none that is computed apart from the loss"):
        parallel.train_on_batch(np.zeros((4, 12)), np.zeros(4))


def test_batch_statistics_of_the_whole_batch_need_one_stage() -> None:
    model = keras.Sequential([keras.Input((6,)), layers.BatchNormalization(name="norm"), layers.Dense(2, name="scores")])
    placement = [{"layers": ["norm"], "adapters": [0]}, {"layers": ["scores"], "adapters": [1]}]
    parallel = manyhands_ml.make_parallel(model, "cpu,cpu", placement=placement, batch_statistics="batch")
    parallel.compile("sgd", "mse")
    with pytest.raises((SettingError, ModelError), match="`?placement`? needs one stage"):
        parallel.train_on_batch(np.zeros((4, 6)), np.zeros((4, 2)))
