"""What is not supported is refused before anything runs, all of it in one message."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from manyhands_ml import AdapterError, DataError, MismatchError, ModelError, NonFiniteError, SettingError, make_parallel


def _refusal(model: Any) -> str:
    with pytest.raises(ModelError) as error:
        make_parallel(model, "cpu").predict(np.zeros((1, 8, 8, 4), np.float32), verbose=0)
    return str(error.value)


def test_all_problems_of_a_model_are_told_at_once() -> None:
    inputs = keras.Input((8, 8, 4))
    orthogonal = keras.regularizers.OrthogonalRegularizer()
    x = layers.Conv2D(4, 3, kernel_constraint="max_norm", bias_constraint="non_neg", name="bound")(inputs)
    x = layers.Conv2D(4, 1, kernel_regularizer=orthogonal, data_format="channels_first", name="first")(x)
    x = layers.AlphaDropout(0.1, name="noise")(x)
    x = layers.Activation("celu", name="bent")(x)
    assert _refusal(keras.Model(inputs, x, name="net")) == (
        "model `net` can't train on adapters as it is: 6 places to change\n"
        "    layer `bound` (Conv2D): `kernel_constraint` is not supported, but is MaxNorm\n"
        "    layer `bound` (Conv2D): `bias_constraint` is not supported, but is NonNeg\n"
        '    layer `first` (Conv2D): `data_format` needs "channels_last", but is "channels_first"\n'
        "    layer `first` (Conv2D): `kernel_regularizer` is not supported, but is OrthogonalRegularizer\n"
        "    layer `noise` (AlphaDropout): this kind of layer is not supported\n"
        "    layer `bent` (Activation): `activation` 'celu' is not supported\n"
        "  help: change these, or train it with Keras itself"
    )


def test_what_uses_masks_in_another_way_is_refused() -> None:
    inputs = keras.Input((8,))
    x = layers.Embedding(4, 3, mask_zero=True, name="words")(inputs)
    y = layers.Dropout(0.1)(x)
    text = _refusal(keras.Model(inputs, layers.Multiply(name="times")([x, y]), name="net"))
    assert "layer `times` (Multiply): is not supported behind a mask" in text and "one place" in text
    # One sequence with a mask is enough: Keras takes 1 in place of its padding.
    other = keras.Input((8, 3))
    text = _refusal(keras.Model([inputs, other], layers.Multiply(name="times")([other, x]), name="net"))
    assert "layer `times` (Multiply): is not supported behind a mask" in text
    normalized = keras.Model(inputs, layers.BatchNormalization(name="norm")(x), name="net")
    normalized.compile("sgd", "mse")
    with pytest.raises(ModelError, match=r"layer `norm` \(BatchNormalization\): is not supported in training behind a mask"):
        make_parallel(normalized, "cpu").fit(np.ones((4, 8)), np.ones((4, 8, 3)), verbose=0)
    inputs = keras.Input((8, 3))
    model = keras.Model(inputs, layers.LSTM(2, return_sequences=True)(layers.Masking()(layers.Dense(3)(inputs))), name="net")
    model.compile("sgd", "mse")
    with pytest.raises(ModelError, match="needs a mask that an input alone decides"):
        make_parallel(model, "cpu").fit(np.ones((4, 8, 3)), np.ones((4, 8, 2)), verbose=0)


def test_operations_without_a_layer_are_refused_by_name() -> None:
    inputs = keras.Input((8, 8, 4))
    keras.utils.clear_session()  # names are counted over all models
    text = _refusal(keras.Model(inputs, keras.ops.sort(keras.ops.sin(inputs)), name="net"))
    assert "operation `sort` (Sort): this operation of `keras.ops` is not supported: use a layer in its place" in text
    assert "2 places to change" in text


def test_models_that_are_no_graph_are_refused() -> None:
    class Own(keras.Model):
        def call(self, x: Any) -> Any:
            return x if float(keras.ops.sum(x)) > 0 else -x

    text = _refusal(Own(name="own"))
    assert text.startswith("model `own` (Own) can't be traced with symbolic tensors: ")
    assert f"{__file__}:" in text and "build it as `keras.Model(inputs, outputs)`" in text

    class Stepping(keras.Model):
        def train_step(self, data: Any) -> Any:
            return {}

    inputs = keras.Input((3,))
    model = Stepping(inputs, layers.Dense(2)(inputs), name="stepping")
    model.compile("sgd", "mse")
    with pytest.raises(ModelError, match=r"model `stepping` \(Stepping\): has a `train_step` of its own; leave it out: Keras computes a loss"):
        make_parallel(model, "cpu").fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)


@pytest.mark.parametrize("name", ["fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch", "get_metrics_result"])
def test_runs_of_a_class_of_ones_own_are_refused(name: str) -> None:
    """They would not be called: those of the package take their place."""

    def run(self: Any, *args: Any, **named: Any) -> Any:
        raise AssertionError

    kind = type("Own", (keras.Sequential,), {name: run})
    kind.__module__ = __name__
    model = make_parallel(kind([keras.Input((3,)), layers.Dense(2)], name="net"), "cpu")
    model.compile("sgd", "mse")
    with pytest.raises(ModelError, match=rf"model `net` \(Own\): has a `{name}` of its own, which would not be called"):
        model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    with pytest.raises(ModelError, match=f"has a `{name}` of its own"):
        make_parallel(model.keras_model, "cpu").predict(np.ones((4, 3)), verbose=0)


def test_a_layer_that_is_not_there_is_the_only_problem() -> None:
    """Weights before it, which nothing reads then, are none."""
    model = keras.Sequential([keras.Input((6, 2)), layers.Dense(3), layers.Conv1DTranspose(2, 2, name="wide")], name="net")
    model.compile("sgd", "mse")
    with pytest.raises(ModelError, match=r"one place to change\n    layer `wide` \(Conv1DTranspose\): this kind of layer is not supported\n  help"):
        make_parallel(model, "cpu").fit(np.ones((4, 6, 2)), np.ones((4, 7, 2)), verbose=0)


def test_penalties_of_steps_are_refused() -> None:
    """Keras computes those of a layer on each step in another way."""
    each = layers.TimeDistributed(layers.Dense(3, activity_regularizer="l2"), name="each")
    model = keras.Sequential([keras.Input((6, 2)), each], name="net")
    model.compile("sgd", "mse")
    with pytest.raises(ModelError, match=r"layer `each` \(TimeDistributed\): needs a layer without `activity_regularizer`"):
        make_parallel(model, "cpu").fit(np.ones((4, 6, 2)), np.ones((4, 6, 3)), verbose=0)


def test_a_preprocessor_of_keras_hub_is_refused() -> None:
    """It is called in `fit` of KerasHub's own models, whose `fit` does nothing else than that of Keras."""
    kind = type("Classifier", (keras.Sequential,), {"fit": keras.Sequential.fit, "preprocessor": None})
    kind.__module__ = "keras_hub.src.models.classifier"
    x, y = np.ones((4, 3)), np.ones((4, 2))
    for preprocessor in (None, lambda x: x):
        model = make_parallel(kind([keras.Input((3,)), layers.Dense(2)], name="net"), "cpu")
        model.compile("sgd", "mse")
        model.preprocessor = preprocessor
        if preprocessor is None:
            model.fit(x, y, verbose=0)
            continue
        with pytest.raises(ModelError, match="has a `preprocessor`, which does not run"):
            model.fit(x, y, verbose=0)


def test_what_compile_says_is_refused_with_the_layers() -> None:
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2, name="out")], name="net")
    model.compile(keras.optimizers.Adam(loss_scale_factor=2.0), "sparse_categorical_crossentropy", metrics=["mse"])
    with pytest.raises(ModelError) as error:
        make_parallel(model, "cpu").fit(np.zeros((4, 3)), np.zeros(4), verbose=0)
    assert str(error.value) == (
        "model `net` can't train on adapters as it is: 2 places to change\n"
        "    output `out`: needs to end in softmax, because SparseCategoricalCrossentropy takes probabilities; "
        'add `activation="softmax"`, or give the loss `from_logits=True`\n'
        "    optimizer `Adam`: `loss_scale_factor` needs None, but is 2.0\n"
        "  help: change these, or train it with Keras itself"
    )


def test_other_mistakes_say_what_is_needed() -> None:
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2, activation="softmax")])
    with pytest.raises(AdapterError, match="help:"):
        make_parallel(model, "unobtainium")
    with pytest.raises(SettingError, match='`split` needs "learned", "even" or shares, but is "fast"'):
        make_parallel(model, "cpu", split="fast")  # type: ignore[arg-type]
    parallel = make_parallel(model, "cpu")
    with pytest.raises(SettingError, match="`fit` needs a compiled model"):
        parallel.fit(np.zeros((4, 3)), np.zeros(4))
    parallel.compile("sgd", "sparse_categorical_crossentropy")
    with pytest.raises(DataError, match=r"needs shape \[None, 3\], but the data have \[4, 5\]"):
        parallel.fit(np.zeros((4, 5)), np.zeros(4), verbose=0)
    with pytest.raises(DataError, match="needs labels from 0 to 1, but row 1 has label 2"):
        parallel.fit(np.zeros((4, 3)), np.array([0, 2, 1, 1]), verbose=0, shuffle=False)
    with pytest.raises(DataError, match="needs finite numbers, but row 0, column 2 holds NaN"):
        parallel.fit(np.array([[0, 0, np.nan]]), np.zeros(1), verbose=0)


@pytest.mark.parametrize(("wrong", "told"), [("input", "holds NaN"), ("target", "has label 7")])
def test_a_wrong_value_is_named_by_its_row_of_the_data(wrong: str, told: str) -> None:
    """In any batch, and in any order."""
    for row in (2, 61):
        x, y = np.zeros((64, 3), np.float32), np.zeros(64, np.int64)
        if wrong == "input":
            x[row, 1] = np.nan
        else:
            y[row] = 7
        for seed in range(3):
            keras.utils.set_random_seed(seed)
            parallel = make_parallel(keras.Sequential([keras.Input((3,)), layers.Dense(2, "softmax")]), "cpu")
            parallel.compile("sgd", "sparse_categorical_crossentropy")
            with pytest.raises(DataError, match=rf"row {row}\b.*{told}"):
                parallel.fit(x, y, batch_size=8, verbose=0)
        with pytest.raises(DataError, match=rf"row {row}\b.*{told}"):
            parallel.evaluate(x, y, batch_size=8, verbose=0)
        with pytest.raises(DataError, match=rf"row {row}\b.*{told}"):
            parallel.fit(np.zeros((8, 3)), np.zeros(8), validation_data=(x, y), batch_size=8, verbose=0)
        if wrong == "input":
            with pytest.raises(DataError, match=rf"row {row}\b.*{told}"):
                parallel.predict(x, batch_size=8, verbose=0)


def test_a_result_that_is_not_that_of_keras_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a layer computed something else here: Keras' own gives a tenth more."""
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2)], name="net")
    model.compile("sgd", "mse")
    call = layers.Dense.call
    parallel = make_parallel(model, "cpu")
    before = model.get_weights()
    monkeypatch.setattr(layers.Dense, "call", lambda self, x, *args, **kwargs: 1.1 * call(self, x, *args, **kwargs))
    with pytest.raises(MismatchError, match="needs to be as Keras computes it, but differs by"):
        parallel.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_code_that_decides_by_the_number_of_rows_is_an_error() -> None:
    """It has none where the code is read."""
    twice = layers.Lambda(lambda x: x if x.shape[0] is None else 2.0 * x)
    model = make_parallel(keras.Sequential([keras.Input((3,)), twice, layers.Dense(2)], name="net"), "cpu")
    model.compile("sgd", "mse")
    with pytest.raises(MismatchError, match="nothing was trained; does code of your own decide by `x.shape\\[0\\]`"):
        model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)


@pytest.mark.parametrize("loss", ["sparse_categorical_crossentropy", "binary_crossentropy", "mse"])
def test_a_loss_that_is_not_that_of_keras_is_an_error(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where Keras clips probabilities, which the first batch has here."""
    activation = {"sparse_categorical_crossentropy": "softmax", "binary_crossentropy": "sigmoid"}.get(loss)
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2, activation=activation, kernel_initializer="identity")], name="net")
    x = np.array([[90.0, -90.0, 0.0], [-90.0, 90.0, 0.0]])
    y = np.array([1, 1]) if loss.startswith("sparse") else np.array([[0.0, 1.0], [0.0, 1.0]])
    parallel = make_parallel(model, "cpu")
    parallel.compile(keras.optimizers.SGD(0.0), loss)
    assert parallel.fit(x, y, verbose=0).history["loss"][0] > 1
    compute = keras.Model.compute_loss
    parallel.compile("sgd", loss)
    monkeypatch.setattr(keras.Model, "compute_loss", lambda self, *args, **named: 1.1 * compute(self, *args, **named))
    with pytest.raises(MismatchError, match="the loss needs to be as Keras computes it, but differs by"):
        parallel.fit(x, y, verbose=0)


def test_what_keras_refuses_is_refused_with_a_reason() -> None:
    """No rows; weights that were frozen after `compile`; a loss that is not finite in Keras, too."""

    def compiled() -> Any:
        model = make_parallel(keras.Sequential([keras.Input((3,)), layers.Dense(2), layers.Dense(2)], name="net"), "cpu")
        model.compile("sgd", "mse")
        return model

    for call in (lambda model, x, y: model.predict(x, verbose=0), lambda model, x, y: model.evaluate(x, y, verbose=0)):
        with pytest.raises(DataError, match="the data need at least one row, but have none"):
            call(compiled(), np.zeros((0, 3)), np.zeros((0, 2)))
    model = compiled()
    model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    model.layers[0].trainable = False
    with pytest.raises(SettingError, match="`trainable` of a layer has changed since `compile`"):
        model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    model.compile("sgd", "mse")
    model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    with pytest.raises(NonFiniteError, match="the loss needs to be finite, but Keras, too, computes inf for the first rows"):
        compiled().fit(np.full((4, 3), 1e30), np.ones((4, 2)), verbose=0)


def test_layers_that_were_frozen_behind_keras_own_training_are_refused() -> None:
    """The optimizer keeps moments by position: those of one layer would go to another."""
    x, y = np.ones((4, 3)), np.ones((4, 2))

    def frozen() -> Any:
        statistics = layers.BatchNormalization(center=False, scale=False)
        model = keras.Sequential([keras.Input((3,)), layers.Dense(3), statistics, layers.Dense(2)])
        model.compile(keras.optimizers.Adam(0.05), "mse")
        model.fit(x, y, verbose=0)
        model.layers[0].trainable = False
        return model

    with pytest.raises(ValueError, match="1:1"):
        frozen().fit(x, y, verbose=0)
    model = frozen()
    changed = "`trainable` of a layer has changed since `compile`"
    with pytest.raises(SettingError, match=changed):
        make_parallel(model, "cpu").fit(x, y, verbose=0)
    # A layer without weights to train has statistics that move.
    model.compile(keras.optimizers.Adam(0.05), "mse")
    parallel = make_parallel(model, "cpu")
    parallel.evaluate(x, y, verbose=0)
    model.layers[1].trainable = False
    with pytest.raises(SettingError, match=changed):
        parallel.fit(x, y, verbose=0)


def test_the_optimizer_of_now_trains(pair: Any) -> None:
    """One that replaces that of `compile`, and one whose rate a function of the user's gives."""
    x, y = np.linspace(0, 1, 24).reshape(8, 3), np.ones((8, 2))
    found = []
    for model in pair(lambda: keras.Sequential([keras.Input((3,)), layers.Dense(2)])):
        model.compile(keras.optimizers.SGD(0.1), "mse")
        model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
        plain = getattr(model, "keras_model", model)
        plain.optimizer = keras.optimizers.SGD(lambda: 0.02)
        found.append([*model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0).history["loss"], *plain.get_weights()])
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
