"""Does a network that Keras has trained go on here, with Keras' accuracy, and with another head?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnxruntime
import pytest
from keras import layers

from manyhands_ml import Model, ModelError, Predictor, digits

ROOT = Path(__file__).parents[2]
BARS = ROOT / "examples" / "settings" / "data" / "bars"


def command(folder: Path, *arguments: str, status: int = 0) -> str:
    """Runs the command as someone who has told Keras no backend, which then takes TensorFlow; gives what it printed."""
    line = [sys.executable, "-m", "manyhands_ml", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"} | {"KERAS_HOME": str(folder.parent / "keras-home")}
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == status, done
    return done.stderr if status else done.stdout


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder with a network that Keras has trained on the digits, as `.keras` and converted, and the network."""
    folder = tmp_path_factory.mktemp("trained")
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1), name="image"),
            layers.Conv2D(8, 3, padding="same", use_bias=False, name="conv"),
            layers.BatchNormalization(momentum=0.9, name="norm"),
            layers.ReLU(name="relu"),
            layers.MaxPooling2D(name="pool"),
            layers.Flatten(name="flat"),
            layers.Dense(10, activation="softmax", name="head"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    (x, y), _ = digits()
    model.fit(x, y, batch_size=64, epochs=4, verbose=0)
    model.save(folder / "pretrained.keras")
    assert "head" in command(folder, "convert", "pretrained.keras", "pretrained.safetensors")
    return folder, model


def test_the_accuracy_is_that_of_keras_at_once(trained: tuple[Path, Any]) -> None:
    folder, model = trained
    _, (x, y) = digits()
    loss, accuracy = model.evaluate(x, y, verbose=0)
    assert accuracy > 0.9
    told = json.loads(command(folder, "evaluate", "pretrained.safetensors", "--adapters", "cpu", "--json"))
    assert told["accuracy"] == pytest.approx(accuracy, abs=1e-6) and told["loss"] == pytest.approx(loss, rel=1e-4)
    logits = Predictor(folder / "pretrained.safetensors", adapters="cpu").predict(x)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    np.testing.assert_allclose(powers / powers.sum(axis=1, keepdims=True), model.predict(x, verbose=0), atol=1e-5)
    command(folder, "export", "pretrained.safetensors")
    session = onnxruntime.InferenceSession(folder / "pretrained.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"image": x})[0], logits, atol=1e-4)


def settings(model: str, data: str, more: str) -> str:
    """A settings file."""
    loss = "[loss]\ntype = 'SparseCategoricalCrossentropy'\n[optimizer]\ntype = 'Adam'\nlearning_rate = 0.01\n"
    return f"{model}\n[data]\n{data}\n{loss}[training]\nbatch_size = 10\nseed = 1\n{more}\n"


def same(folder: Path, new: str) -> dict[str, bool]:
    """Whether each tensor that both files have is the same, to the bit."""
    old, other = Model.load(folder / "pretrained.safetensors").weights, Model.load(folder / new).weights
    return {name: old[name].shape == values.shape and old[name].tobytes() == values.tobytes() for name, values in other.items() if name in old}


TRUNK = {"conv/kernel", "norm/gamma", "norm/beta", "norm/moving_mean", "norm/moving_variance"}


def test_training_goes_on_with_a_frozen_trunk(trained: tuple[Path, Any]) -> None:
    folder, _ = trained
    text = settings("model = 'pretrained.safetensors'", "type = 'digits'", "epochs = 1\ntrainable = ['head']")
    (folder / "on.toml").write_text(text, encoding="utf-8")
    before = json.loads(command(folder, "evaluate", "pretrained.safetensors", "--adapters", "cpu", "--json"))
    command(folder, "train", "on.toml", "--adapters", "cpu,cpu", "--quiet", "--save", "on.safetensors")
    assert same(folder, "on.safetensors") == {**dict.fromkeys(TRUNK, True), "head/kernel": False, "head/bias": False}
    after = json.loads(command(folder, "evaluate", "on.safetensors", "--adapters", "cpu", "--json"))
    assert after["accuracy"] > before["accuracy"] - 0.02


def test_a_new_head_learns_other_classes(trained: tuple[Path, Any]) -> None:
    """Two classes in place of ten: the layers up to `flat` stay, to the bit."""
    folder, _ = trained
    head = "[model]\nstart = 'pretrained.safetensors'\npixels = '0..1'\nuntil = 'flat'\nlayers = [{ type = 'Dense', name = 'bars', units = 2 }]"
    data = f"type = 'image_folder'\ntrain = '{BARS / 'train'}'\ntest = '{BARS / 'test'}'\nheight = 8\nwidth = 8\nchannels = 1"
    (folder / "bars.toml").write_text(settings(head, data, "epochs = 40\ntrainable = ['bars']"), encoding="utf-8")
    command(folder, "train", "bars.toml", "--adapters", "cpu", "--quiet", "--save", "bars.safetensors")
    assert same(folder, "bars.safetensors") == dict.fromkeys(TRUNK, True)
    told = json.loads(command(folder, "evaluate", "bars.safetensors", str(BARS / "test"), "--adapters", "cpu", "--json"))
    # Five of six: chance would be three.
    assert told["accuracy"] > 0.8
    (folder / "wrong.toml").write_text(settings(head.replace("'flat'", "'flatt'"), data, "epochs = 1"), encoding="utf-8")
    refused = command(folder, "train", "wrong.toml", "--adapters", "cpu", status=1)
    assert "`wrong.toml`, table `model`, layer `flatt` needs to be a layer of the model" in refused and "did you mean `flat`?" in refused


def test_what_is_no_model_is_refused(trained: tuple[Path, Any], tmp_path: Path) -> None:
    folder, _ = trained
    assert "`manyhands-ml convert model.keras model.safetensors`" in command(folder, "evaluate", "pretrained.keras", status=1)
    (tmp_path / "a.keras").write_text("no model")
    for name in ["a.keras", "nowhere.keras"]:
        with pytest.raises(ModelError, match=f"{name}` can't be read by Keras"):
            Model.from_keras(tmp_path / name)
    (tmp_path / "notes.txt").write_text("mine")
    assert "error: " in (refused := command(tmp_path, "convert", str(folder / "pretrained.keras"), "notes.txt", status=1))
    assert "holds something else" in refused and (tmp_path / "notes.txt").read_text() == "mine"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.keras", "notes.txt"]
    with pytest.raises(ModelError, match="AlphaDropout"):
        Model.from_keras(keras.Sequential([keras.Input((3,)), layers.AlphaDropout(0.1)]))


def test_what_was_not_compiled_keeps_its_softmax() -> None:
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2, activation="softmax")])
    x = np.eye(3, dtype=np.float32)
    np.testing.assert_allclose(Predictor(Model.from_keras(model), adapters="cpu").predict(x), model.predict(x, verbose=0), atol=1e-6)
