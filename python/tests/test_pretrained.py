"""Does a network that others have trained see its pixels, here and as ONNX, and does a new head on it learn what Keras' learns?

The network is the trunk of MobileNetV2, trained on ImageNet, from npm's `nsfwjs` (8 bits a weight). The pictures are pieces of photographs in
the wheel of `scikit-image`: a class for each photograph, trained on its left half and tested on its right one. Both are fetched once.

`scripts/test-python -m slow -k pretrained` runs it.
"""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnxruntime
import pytest
from keras import layers
from PIL import Image

from manyhands_ml import Model

ROOT = Path(__file__).parents[2]
FETCHED = ROOT / "target" / "pretrained"
SIDE = 96
PHOTOGRAPHS = ["astronaut", "brick", "chelsea", "coffee", "grass", "gravel", "hubble_deep_field", "ihc", "motorcycle_left", "retina", "rocket"]
#: Pieces of each half.
PIECES = 20

SETTINGS = """
[data]
type = "image_folder"
train = "train"
test = "test"
height = 96
width = 96
channels = 3

[model]
start = "trained.safetensors"
until = "global_average_pooling2d"
layers = [{ type = "Dense", name = "head", units = 11 }]

[loss]
type = "SparseCategoricalCrossentropy"

[training]
epochs = 10
batch_size = 20
seed = 1
trainable = ["head"]
"""


def run(folder: Path, *line: str) -> str:
    """Runs a program; gives what it printed."""
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done
    return done.stdout


def command(folder: Path, *arguments: str) -> str:
    """Runs the command."""
    return run(folder, sys.executable, "-m", "manyhands_ml", *arguments)


def weights() -> dict[str, np.ndarray[Any, Any]]:
    """The weights of nsfwjs' network by name."""
    folder = FETCHED / "package" / "dist" / "models" / "mobilenet_v2"
    if not folder.exists():
        FETCHED.mkdir(parents=True, exist_ok=True)
        run(FETCHED, "npm", "pack", "--silent", "nsfwjs@4.3.0")
        run(FETCHED, "tar", "xzf", "nsfwjs-4.3.0.tgz")
    script = "process.stdout.write(JSON.stringify([require('./model.min.js').weightsManifest, require('./group1-shard1of1.min.js')]))"
    manifest, shard = json.loads(run(folder, "node", "-e", script))
    data, at, found = base64.b64decode(shard), 0, {}
    for entry in manifest[0]["weights"]:
        size, packed = int(np.prod(entry["shape"])), entry["quantization"]
        values = np.frombuffer(data, packed["dtype"], size, at).astype(np.float64)
        at += values.size
        found[entry["name"]] = (values * packed["scale"] + packed["min"]).reshape(entry["shape"])
    assert at == len(data)
    return found


def trunk() -> Any:
    """Keras' MobileNetV2 without its head, with these weights."""
    model = keras.applications.MobileNetV2((SIDE, SIDE, 3), include_top=False, pooling="avg", weights=None)
    known = weights()
    for layer in model.layers:
        names = [f"{layer.name}/{weight.name}" for weight in layer.weights]
        if names:
            layer.set_weights([known[name.replace("depthwise/kernel", "depthwise/depthwise_kernel")] for name in names])
    return model


def photographs() -> zipfile.ZipFile:
    """The wheel of scikit-image."""
    if not list(FETCHED.glob("scikit_image*.whl")):
        run(ROOT, sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(FETCHED), "scikit-image==0.26.0")
    return zipfile.ZipFile(next(FETCHED.glob("scikit_image*.whl")))


def write_pieces(folder: Path) -> None:
    """Pieces of each photograph as files: of the left half in `train`, of the right one in `test`."""
    draw = np.random.default_rng(1)
    wheel = photographs()
    files = {Path(name).stem: name for name in wheel.namelist() if name.startswith("skimage/data/")}
    for photograph in PHOTOGRAPHS:
        image = Image.open(io.BytesIO(wheel.read(files[photograph]))).convert("RGB")
        middle = image.width // 2
        for part, left in [("train", 0), ("test", middle)]:
            place = folder / part / photograph
            place.mkdir(parents=True)
            for number in range(PIECES):
                x, y = left + draw.integers(0, middle - SIDE), draw.integers(0, image.height - SIDE)
                image.crop((x, y, x + SIDE, y + SIDE)).save(place / f"{number:02}.png")


def read_pieces(folder: Path) -> tuple[Any, Any]:
    """Bytes and classes of all pieces."""
    files = sorted(folder.glob("*/*.png"))
    classes = [PHOTOGRAPHS.index(file.parent.name) for file in files]
    return np.stack([np.asarray(Image.open(file), np.float32) for file in files]), np.array(classes)


def keras_accuracy(model: Any, folder: Path, head: Any) -> float:
    """Accuracy of a head that Keras trains on what the trunk makes of the pieces."""
    (x, y), (x_test, y_test) = [read_pieces(folder / part) for part in ("train", "test")]
    seen, seen_test = [model.predict(keras.applications.mobilenet_v2.preprocess_input(part), verbose=0) for part in (x, x_test)]
    head.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    head.fit(seen, y, batch_size=20, epochs=10, verbose=0)
    return float(head.evaluate(seen_test, y_test, verbose=0)[1])


@pytest.mark.slow
def test_a_head_on_mobilenet_learns_what_that_of_keras_learns(tmp_path: Path) -> None:
    write_pieces(tmp_path)
    model = trunk()
    model.save(tmp_path / "trained.keras")
    assert "expects pixels of `-1..1`" in command(tmp_path, "convert", "trained.keras", "trained.safetensors")
    (tmp_path / "run.toml").write_text(SETTINGS, encoding="utf-8")
    command(tmp_path, "train", "run.toml", "--adapters", "cpu", "--save", "head.safetensors")
    saved = Model.load(tmp_path / "head.safetensors")
    assert saved.config["layers"][0]["name"] == "pixels" and saved.pixels == "0..1"
    evaluated = json.loads(command(tmp_path, "evaluate", "head.safetensors", "test", "--adapters", "cpu", "--json"))
    keras.utils.set_random_seed(1)
    head = keras.Sequential([keras.Input((1280,)), layers.Dense(len(PHOTOGRAPHS))])
    theirs = keras_accuracy(model, tmp_path, head)
    print(f"accuracy {evaluated['accuracy']:.3f}, of Keras {theirs:.3f}")
    assert theirs > 0.7 and abs(evaluated["accuracy"] - theirs) < 0.04
    # With the same head, both compute the same.
    trained = saved.weights
    head.set_weights([trained["head/kernel"], trained["head/bias"]])
    x, _ = read_pieces(tmp_path / "test")
    # It changes the array that it is given.
    expected = keras.applications.mobilenet_v2.preprocess_input(x.copy())
    logits = head.predict(model.predict(expected, verbose=0), verbose=0)
    table = command(tmp_path, "predict", "head.safetensors", "test", "--logits", "--adapters", "cpu").splitlines()
    ours = np.array([[float(value) for value in line.split(",")[-len(PHOTOGRAPHS) :]] for line in table[1:]])
    np.testing.assert_allclose(ours, logits, atol=2e-3 * np.abs(logits).max())
    # So does ONNX, from the bytes.
    command(tmp_path, "export", "head.safetensors", "head.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "head.onnx", providers=["CPUExecutionProvider"])
    (taken,) = session.get_inputs()
    (labels,) = session.run(["label"], {taken.name: x.astype(np.uint8)})
    assert labels.ravel().tolist() == [PHOTOGRAPHS[at] for at in ours.argmax(axis=1)]
