"""Does `export` write what onnxruntime computes as we do: each layer, each preset, each example's model, rows of tables and pictures?"""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import PIL.Image
import pytest

from manyhands_ml import ManyhandsError, Model, Predictor, SettingError, Trainer, digits
from manyhands_ml._native import layer_kinds

ROOT = Path(__file__).parents[2]
Shape = tuple[int, ...]
#: A layer: its kind, its settings, the shapes of its inputs.
Case = tuple[str, dict[str, Any], list[Shape]]

#: All that elements alone decide.
FUNCTIONS = "linear relu relu6 leaky_relu sigmoid tanh gelu silu hard_silu hard_sigmoid elu selu softplus softsign mish exponential log sqrt reciprocal softmax"
RECURRENT: list[dict[str, Any]] = [
    {"units": 3},
    {"units": 3, "return_sequences": True, "use_bias": False},
    {"units": 2, "go_backwards": True, "activation": "relu"},
    {"units": 2, "go_backwards": True, "return_sequences": True},
    # No operator of ONNX has these activations: they take another way.
    {"units": 2, "return_sequences": True, "activation": "elu", "go_backwards": True},
    {"units": 2, "activation": "linear", "use_bias": False},
]
IMAGE, SEQUENCE, MASK = (5, 4, 6), (7, 6), (7,)

CASES: list[Case] = [
    *[("Activation", {"activation": name}, [(3, 5)]) for name in FUNCTIONS.split()],
    ("Activation", {"activation": "softmax"}, [IMAGE]),
    ("Add", {}, [IMAGE, IMAGE, (1, 1, 6)]),
    ("Add", {}, [(4, 3), (3,)]),
    ("Average", {}, [IMAGE, IMAGE, IMAGE]),
    ("AveragePooling1D", {"pool_size": 3, "strides": 2, "padding": "same"}, [SEQUENCE]),
    ("AveragePooling2D", {"pool_size": [2, 3], "strides": [1, 2], "padding": "same"}, [IMAGE]),
    ("AveragePooling2D", {}, [IMAGE]),
    ("BatchNormalization", {}, [IMAGE]),
    ("BatchNormalization", {"scale": False, "epsilon": 0.01}, [SEQUENCE]),
    ("BatchNormalization", {"center": False}, [(5,)]),
    ("ComputeMask", {"mask_value": 1.0}, [MASK]),
    ("ComputeMask", {}, [SEQUENCE]),
    ("Concatenate", {}, [(2, 3, 1), (2, 3, 4)]),
    ("Concatenate", {"axis": 1}, [(2, 3, 4), (1, 3, 4), (5, 3, 4)]),
    ("Concatenate", {"axis": -2}, [(2, 3), (4, 3)]),
    ("Conv1D", {"filters": 3, "kernel_size": 3, "strides": 2, "padding": "same", "activation": "tanh"}, [SEQUENCE]),
    ("Conv1D", {"filters": 3, "kernel_size": 3, "padding": "causal", "dilation_rate": 2}, [SEQUENCE]),
    ("Conv1D", {"filters": 4, "kernel_size": 2, "groups": 2, "use_bias": False}, [SEQUENCE]),
    ("Conv2D", {"filters": 3, "kernel_size": [3, 2], "strides": [2, 1], "padding": "same", "activation": "softmax"}, [IMAGE]),
    ("Conv2D", {"filters": 4, "kernel_size": 2, "groups": 2, "use_bias": False, "activation": "gelu"}, [IMAGE]),
    ("Conv2D", {"filters": 12, "kernel_size": 3, "groups": 6, "padding": "same", "dilation_rate": 2}, [IMAGE]),
    ("Conv2DTranspose", {"filters": 3, "kernel_size": 3, "strides": 2, "padding": "same", "activation": "relu"}, [IMAGE]),
    ("Conv2DTranspose", {"filters": 3, "kernel_size": [4, 3], "strides": [2, 3]}, [IMAGE]),
    ("Conv2DTranspose", {"filters": 2, "kernel_size": 1, "strides": 3}, [IMAGE]),
    ("Conv2DTranspose", {"filters": 2, "kernel_size": 3, "strides": 2, "output_padding": 1, "padding": "same"}, [IMAGE]),
    ("Conv2DTranspose", {"filters": 2, "kernel_size": 2, "dilation_rate": 2, "use_bias": False}, [IMAGE]),
    ("Cropping1D", {"cropping": [1, 2]}, [SEQUENCE]),
    ("Cropping2D", {"cropping": [[1, 0], [2, 1]]}, [IMAGE]),
    ("Dense", {"units": 7, "activation": "gelu"}, [(3, 5)]),
    ("Dense", {"units": 5, "activation": "softmax"}, [(7,)]),
    ("Dense", {"units": 2, "use_bias": False}, [(7,)]),
    ("Dense", {"units": 2, "activation": "tanh", "lora_rank": 3, "lora_alpha": 2.0}, [(3, 5)]),
    ("DepthwiseConv2D", {"kernel_size": 3, "depth_multiplier": 2, "padding": "same", "strides": 2}, [IMAGE]),
    ("DepthwiseConv2D", {"kernel_size": [2, 3], "use_bias": False, "activation": "relu"}, [IMAGE]),
    ("Dropout", {"rate": 0.4}, [IMAGE]),
    ("ELU", {"alpha": 0.5}, [IMAGE]),
    ("Embedding", {"input_dim": 9, "output_dim": 4}, [MASK]),
    ("Embedding", {"input_dim": 9, "output_dim": 4}, [(2, 3)]),
    ("Embedding", {"input_dim": 9, "output_dim": 4, "lora_rank": 2}, [(2, 3)]),
    ("Flatten", {}, [IMAGE]),
    ("Flatten", {}, [(1, 1, 6)]),
    ("GaussianDropout", {"rate": 0.4}, [IMAGE]),
    ("GaussianNoise", {"stddev": 0.4}, [IMAGE]),
    ("GELU", {}, [IMAGE]),
    ("GELU", {"approximate": True}, [IMAGE]),
    ("GlobalAveragePooling1D", {}, [SEQUENCE]),
    ("GlobalAveragePooling1D", {"keepdims": True}, [SEQUENCE, MASK]),
    ("GlobalAveragePooling1D", {}, [SEQUENCE, MASK]),
    ("GlobalAveragePooling2D", {}, [IMAGE]),
    ("GlobalAveragePooling2D", {"keepdims": True}, [IMAGE]),
    ("GlobalMaxPooling1D", {"keepdims": True}, [SEQUENCE]),
    ("GlobalMaxPooling2D", {}, [IMAGE]),
    ("GroupNormalization", {"groups": 3}, [IMAGE]),
    ("GroupNormalization", {"groups": -1, "scale": False}, [SEQUENCE]),
    ("GroupNormalization", {"groups": 2, "center": False}, [(6,)]),
    ("GroupQueryAttention", {"head_dim": 3, "num_query_heads": 4, "num_key_value_heads": 2}, [SEQUENCE]),
    (
        "GroupQueryAttention",
        {"head_dim": 2, "num_query_heads": 3, "num_key_value_heads": 1, "use_causal_mask": True, "use_bias": False, "dropout": 0.1},
        [SEQUENCE, (5, 4), (7,), (5,)],
    ),
    ("DotProductAttention", {"use_causal_mask": True}, [(5, 4, 3), (5, 2, 3), (5, 2, 3)]),
    ("DotProductAttention", {"use_causal_mask": True, "sliding_window": 2}, [(5, 4, 3), (5, 2, 3), (5, 2, 3)]),
    ("DotProductAttention", {}, [(5, 2, 3), (4, 2, 3), (4, 2, 1), (4,)]),
    *[("GRU", settings, [SEQUENCE]) for settings in RECURRENT],
    ("GRU", {"units": 3, "recurrent_activation": "hard_sigmoid"}, [SEQUENCE, MASK]),
    ("GRU", {"units": 3, "return_sequences": True, "zero_output_for_mask": True, "use_bias": False}, [SEQUENCE, MASK]),
    ("LayerNormalization", {}, [SEQUENCE]),
    ("LayerNormalization", {"axis": [-2, -1], "scale": False, "center": False}, [IMAGE]),
    ("LayerScale", {"projection_dim": 6}, [IMAGE]),
    ("LeakyReLU", {"negative_slope": 0.1}, [IMAGE]),
    *[("LSTM", settings, [SEQUENCE]) for settings in RECURRENT],
    ("LSTM", {"units": 3, "go_backwards": True}, [SEQUENCE, MASK]),
    ("LSTM", {"units": 3, "go_backwards": True, "zero_output_for_mask": True}, [SEQUENCE, MASK]),
    *[
        (kind, {"units": 3, **settings, **ends}, [SEQUENCE, *[(3,)] * (states if "initial_state" in ends else 0), *mask])
        for kind, states in (("LSTM", 2), ("GRU", 1), ("SimpleRNN", 1))
        for settings in ({}, {"return_sequences": True, "go_backwards": True}, {"return_sequences": True, "activation": "elu"})
        for ends in ({"return_state": True, "initial_state": True}, {"return_state": True}, {"initial_state": True})
        for mask in ([], [MASK])
    ],
    ("LSTM", {"units": 3, "return_sequences": True, "recurrent_activation": "hard_sigmoid"}, [SEQUENCE, MASK]),
    ("Masking", {"mask_value": 0.0}, [SEQUENCE]),
    ("Maximum", {}, [IMAGE, IMAGE, (1, 4, 6)]),
    ("MaxPooling1D", {"pool_size": 3, "strides": 2, "padding": "same"}, [SEQUENCE]),
    ("MaxPooling2D", {"pool_size": 3, "strides": 2, "padding": "same"}, [IMAGE]),
    ("MaxPooling2D", {"pool_size": [1, 2]}, [IMAGE]),
    ("Minimum", {}, [(5,), (5,)]),
    ("MultiHeadAttention", {"num_heads": 2, "key_dim": 3}, [SEQUENCE]),
    ("MultiHeadAttention", {"num_heads": 2, "key_dim": 3, "value_dim": 5, "use_causal_mask": True, "use_bias": False}, [SEQUENCE, (5, 4)]),
    ("MultiHeadAttention", {"num_heads": 2, "key_dim": 3, "output_shape": 4}, [SEQUENCE, (5, 4), (5, 3)]),
    ("MultiHeadAttention", {"num_heads": 2, "key_dim": 3}, [SEQUENCE, MASK]),
    ("MultiHeadAttention", {"num_heads": 2, "key_dim": 3, "dropout": 0.1, "use_causal_mask": True}, [SEQUENCE, MASK]),
    ("MultiHeadAttention", {"num_heads": 2, "key_dim": 3}, [SEQUENCE, (5, 4), (7,), (5,)]),
    ("Multiply", {}, [IMAGE, IMAGE, (1, 1, 6)]),
    ("Normalization", {}, [IMAGE]),
    ("Normalization", {"axis": 1, "invert": True}, [IMAGE]),
    ("Normalization", {"axis": [], "mean": 2.0, "variance": 4.0}, [SEQUENCE]),
    ("Permute", {"dims": [3, 1, 2]}, [IMAGE]),
    ("PositionEmbedding", {"sequence_length": 9}, [SEQUENCE]),
    ("PositionEmbedding", {"sequence_length": 7}, [SEQUENCE]),
    ("PReLU", {}, [IMAGE]),
    ("PReLU", {"shared_axes": [1, 2]}, [IMAGE]),
    ("ReLU", {}, [IMAGE]),
    ("ReLU", {"max_value": 6.0}, [IMAGE]),
    ("ReLU", {"negative_slope": 0.2}, [IMAGE]),
    ("ReLU", {"max_value": 0.5, "negative_slope": 0.2, "threshold": 0.1}, [IMAGE]),
    ("ReLU", {"threshold": 0.1}, [IMAGE]),
    ("RepeatVector", {"n": 3}, [(5,)]),
    ("Rescaling", {"scale": 0.5, "offset": -1.0}, [IMAGE]),
    ("Rescaling", {"scale": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}, [IMAGE]),
    ("Reshape", {"target_shape": [10, 12]}, [IMAGE]),
    ("RMSNormalization", {}, [SEQUENCE]),
    ("RotaryEmbedding", {}, [(5, 6)]),
    ("RotaryEmbedding", {"max_wavelength": 50.0, "scaling_factor": 2.0}, [IMAGE]),
    ("ReversibleEmbedding", {"input_dim": 9, "output_dim": 4}, [MASK]),
    ("ReversibleEmbedding", {"input_dim": 9, "output_dim": 4, "reverse": True}, [(3, 4)]),
    ("ReversibleEmbedding", {"input_dim": 9, "output_dim": 6, "reverse": True, "tie_weights": False, "logit_soft_cap": 2.0}, [SEQUENCE]),
    ("SeparableConv2D", {"filters": 3, "kernel_size": 3, "depth_multiplier": 2, "padding": "same", "activation": "relu"}, [IMAGE]),
    ("Sigmoid", {}, [IMAGE]),
    *[("SimpleRNN", settings, [SEQUENCE]) for settings in RECURRENT],
    ("SimpleRNN", {"units": 3}, [SEQUENCE, MASK]),
    ("SinePositionEncoding", {}, [SEQUENCE]),
    ("Softmax", {}, [IMAGE]),
    ("SpatialDropout2D", {"rate": 0.4}, [IMAGE]),
    ("StochasticDepth", {"drop_path_rate": 0.4}, [IMAGE]),
    ("Subtract", {}, [IMAGE, (4, 6)]),
    ("Tanh", {}, [(5,)]),
    ("UpSampling1D", {"size": 3}, [SEQUENCE]),
    ("UpSampling2D", {"size": [2, 3]}, [IMAGE]),
    ("UpSampling2D", {"size": [2, 3], "interpolation": "bilinear"}, [IMAGE]),
    ("ZeroPadding1D", {"padding": [1, 2]}, [SEQUENCE]),
    ("ZeroPadding2D", {"padding": [[1, 0], [2, 3]]}, [IMAGE]),
    *[
        ("Bidirectional", {"layer": {"type": kind, "units": 2, "return_sequences": merge != "ave"}, "merge_mode": merge}, inputs)
        for kind, merge, inputs in [
            ("LSTM", "concat", [SEQUENCE]),
            ("LSTM", "sum", [SEQUENCE, MASK]),
            ("GRU", "ave", [SEQUENCE]),
            ("GRU", "concat", [SEQUENCE, MASK]),
            ("SimpleRNN", "mul", [SEQUENCE]),
        ]
    ],
]


def randomize(model: Model, rng: np.random.Generator) -> None:
    """Gives all weights other values than the initial ones; variances are positive."""
    weights = {name: 0.5 * rng.standard_normal(values.shape) for name, values in model.weights.items()}
    model.set_weights({name: abs(values) + 0.5 if "variance" in name else values for name, values in weights.items()})


def rows(model: Model, rng: np.random.Generator, n_rows: int, indices: int | None = None) -> list[np.ndarray]:
    """Rows of each input: numbers, indices, or a mask for an input called so."""

    def values(name: str, shape: Shape) -> np.ndarray:
        size = (n_rows, *shape)
        if name.startswith("mask"):
            return rng.integers(0, 2, size).astype(np.float32)
        if indices is not None:
            return rng.integers(0, indices, size).astype(np.float32)
        numbers = rng.standard_normal(size).astype(np.float32)
        numbers[0, :1] = 0.0
        return numbers

    return [values(name, shape) for name, shape in model.inputs.items()]


def exported(model: Model, folder: Path) -> onnxruntime.InferenceSession:
    """The model in onnxruntime, after ONNX' own check of it."""
    path = folder / "model.onnx"
    model.export(path)
    onnx.checker.check_model(path, full_check=True)
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def compare(model: Model, folder: Path, inputs: Sequence[np.ndarray], what: str = "") -> onnxruntime.InferenceSession:
    """Compares both for a batch and for a single row, within 1e-5 of the size of the values."""
    session = exported(model, folder)
    predictor = Predictor(model, adapters="cpu")
    for n_rows in {1, len(inputs[0])}:
        part = [values[:n_rows] for values in inputs]
        needed = predictor.predict(part if len(part) > 1 else part[0])
        needed = needed if isinstance(needed, list) else [needed]
        got = session.run(None, dict(zip(model.inputs, part)))
        for name, ours, theirs in zip(model.outputs, needed, got):
            assert theirs.shape == ours.shape, f"{what} {name}"
            # Of what is no number, such as the logarithm of 0, both have the same.
            is_same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
            with np.errstate(invalid="ignore"):
                error = float(np.max(np.where(is_same, 0.0, np.abs(ours - theirs) / (1.0 + np.abs(ours)))))
            assert error < 1e-5, f"{what} {name}, {n_rows} rows: {error}"
    return session


def test_every_layer_has_a_case() -> None:
    assert {kind for kind, *_ in CASES} == set(layer_kinds())


def of_case(case: Case, is_between: bool) -> Model:
    """A model of one layer, or of it with convolutions before and behind, which have another order of axes."""
    kind, settings, shapes = case
    names = [f"mask{at}" if at > 0 and len(shape) == 1 and kind not in ["Add", "Minimum"] else f"in{at}" for at, shape in enumerate(shapes)]
    layers: list[dict[str, Any]] = []

    def convolution(name: str, reads: str, rank: int, filters: int) -> str:
        layers.append({"type": f"Conv{rank - 1}D", "name": name, "inputs": [reads], "filters": filters, "kernel_size": 1})
        return name

    reads = list(names)
    if is_between:
        for at, shape in enumerate(shapes):
            if len(shape) > 1:
                reads[at] = convolution(f"before{at}", names[at], len(shape), shape[-1])
    layers.append({"type": kind, "name": "it", "inputs": reads, **settings})
    config = {"inputs": [{"name": name, "shape": list(shape)} for name, shape in zip(names, shapes)], "layers": layers}
    shape = next(iter(Model.from_dict(config).outputs.values()))
    if is_between and len(shape) in [2, 3]:
        convolution("behind", "it", len(shape), 2)
    return Model.from_dict(config, seed=1)


@pytest.mark.parametrize("is_between", [False, True], ids=["alone", "between"])
def test_each_layer_is_what_onnxruntime_computes(is_between: bool, tmp_path: Path) -> None:
    rng, problems = np.random.default_rng(5), []
    for case in CASES:
        kind, settings, shapes = case
        has_neighbours = any(2 <= len(shape) <= 3 for shape in shapes) and kind != "Embedding"
        if is_between and not has_neighbours:
            continue
        model = of_case(case, is_between)
        randomize(model, rng)
        try:
            compare(model, tmp_path, rows(model, rng, 3, settings.get("input_dim")), str(case))
        except Exception as problem:
            problems.append(f"{case}: {problem}")
    assert not problems, "\n".join(problems)


def test_shared_layers_and_several_inputs_and_outputs(tmp_path: Path) -> None:
    """Weights of a shared layer are in the file once; an output may be another one's input, or an input of the model."""
    model = Model.from_dict({
        "inputs": [{"name": "a", "shape": [6]}, {"name": "b", "shape": [6]}],
        "layers": [
            {"type": "Dense", "name": "shared", "units": 6, "inputs": ["a"]},
            {"reuse": "shared", "inputs": ["b"]},
            {"type": "Dropout", "name": "same", "rate": 0.5, "inputs": ["shared"]},
            {"type": "Subtract", "name": "difference", "inputs": ["same", "shared:1"]},
        ],
        "outputs": ["shared", "difference", "same", "b"],
    })
    rng = np.random.default_rng(1)
    randomize(model, rng)
    session = compare(model, tmp_path, rows(model, rng, 4))
    stored = [tensor.name for tensor in onnx.load(tmp_path / "model.onnx").graph.initializer]
    assert sorted(stored) == ["shared/bias", "shared/kernel"]
    assert [output.name for output in session.get_outputs()] == ["shared", "difference", "same", "b_1"]


def test_masks_of_padded_sequences(tmp_path: Path) -> None:
    """Padding before, behind and between the tokens of two texts, which go through the same layers, and through attention."""
    model = Model.from_dict({
        "inputs": [{"name": "a", "shape": [6]}, {"name": "b", "shape": [6]}],
        "layers": [
            {"type": "Embedding", "name": "tokens", "input_dim": 9, "output_dim": 4, "mask_zero": True, "inputs": ["a"]},
            {"reuse": "tokens", "inputs": ["b"]},
            {"type": "Bidirectional", "name": "text", "layer": {"type": "LSTM", "units": 3}, "inputs": ["tokens"]},
            {"reuse": "text", "inputs": ["tokens:1"]},
            {"type": "MultiHeadAttention", "name": "seen", "num_heads": 2, "key_dim": 3, "inputs": ["tokens", "tokens:1"]},
            {"type": "GRU", "name": "read", "units": 3, "inputs": ["seen"]},
            {"type": "Concatenate", "name": "all", "inputs": ["text", "text:1", "read"]},
            {"type": "Dense", "name": "head", "units": 1, "inputs": ["all"]},
        ],
        "outputs": ["head"],
    })
    rng = np.random.default_rng(6)
    randomize(model, rng)
    texts = np.array([[1, 2, 3, 0, 0, 0], [0, 0, 4, 5, 0, 6], [0, 0, 0, 0, 0, 0], [7, 8, 1, 2, 3, 4]], np.float32)
    compare(model, tmp_path, [texts, texts[::-1].copy()])


def test_axes_are_moved_only_where_orders_differ(tmp_path: Path) -> None:
    """A convolutional network takes one transposition before the first convolution, and none after the last pooling."""
    images = Model.from_preset("resnet18", input=[32, 32, 3], outputs=10)
    images.export(tmp_path / "images.onnx")
    kinds = [node.op_type for node in onnx.load(tmp_path / "images.onnx").graph.node]
    assert (kinds[0], kinds.count("Transpose"), kinds.count("Reshape")) == ("Transpose", 1, 0), kinds


#: Presets, the shape that they are tested with, and the indices that they take.
PRESETS: dict[str, tuple[Shape, int | None]] = {
    "mlp": ((28, 28, 1), None),
    "cnn": ((12, 12, 1), None),
    "small_cnn": ((12, 12, 1), None),
    "cnn6": ((16, 16, 3), None),
    "digits_cnn": ((8, 8, 1), None),
    "digits_small_cnn": ((8, 8, 1), None),
    "digits_wide_cnn": ((8, 8, 1), None),
    "lstm": ((20, 16), None),
    "char_lstm": ((16,), 96),
    "gpt_mini": ((16,), 96),
}
LARGE: dict[str, tuple[Shape, int | None]] = {
    "resnet18": ((32, 32, 3), None),
    "resnet50": ((32, 32, 3), None),
    "mobilenet_v2": ((64, 64, 3), None),
    "efficientnet_b0": ((64, 64, 3), None),
    "convnext_tiny": ((64, 64, 3), None),
    "vgg": ((32, 32, 3), None),
    "vgg16": ((32, 32, 3), None),
    "vgg11": ((32, 32, 3), None),
    "make_parallel": ((80,), None),
}


def compare_preset(name: str, folder: Path, shape: Shape, indices: int | None) -> None:
    model = Model.from_preset(name, input=shape, outputs=indices or 5)
    rng = np.random.default_rng(2)
    compare(model, folder, rows(model, rng, 3, indices), name)


@pytest.mark.parametrize("name", PRESETS)
def test_each_preset_is_what_onnxruntime_computes(name: str, tmp_path: Path) -> None:
    compare_preset(name, tmp_path, *PRESETS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_each_large_preset_is_what_onnxruntime_computes(name: str, tmp_path: Path) -> None:
    compare_preset(name, tmp_path, *LARGE[name])


def test_all_presets_are_tested() -> None:
    with pytest.raises(SettingError) as refused:
        Model.from_preset("there is no such network")
    known = set(str(refused.value).split("the models are")[1].replace("`", "").replace(":", "").replace(",", "").split())
    assert known == {*PRESETS, *LARGE}


def command(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Runs the command."""
    line = [sys.executable, "-m", "manyhands_ml", *arguments]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, encoding="utf-8", check=False)


# `frozen.toml` has no model of its own: it goes on with that of `images.toml`.
@pytest.mark.parametrize("name", ["table", "images", "regression", "two_inputs_two_outputs", "sentences", "text"])
def test_each_example_is_what_onnxruntime_computes(name: str, tmp_path: Path) -> None:
    """The model of a settings file, trained for an epoch, exported by the command; its texts tell what the file knows."""
    done = command("train", f"examples/settings/{name}.toml", "--epochs", "1", "--quiet", "--adapters", "cpu", "--save", str(tmp_path / "a.safetensors"))
    assert done.returncode == 0, done.stderr
    done = command("export", "a.safetensors", "--encoded", folder=tmp_path)
    assert done.returncode == 0 and "a.onnx: " in done.stdout, done
    model = Model.load(tmp_path / "a.safetensors")
    first = model.config["layers"][0]
    compare(model, tmp_path, rows(model, np.random.default_rng(4), 3, first.get("input_dim")), name)
    texts = {entry.key: entry.value for entry in onnx.load(tmp_path / "a.onnx").metadata_props}
    assert json.loads(texts["manyhands.schema"])["format"]["type"] in ["csv", "image_folder", "text"]
    assert texts["preprocessing"] and set(json.loads(texts["activations"])) == set(model.outputs)
    if name == "table":
        assert json.loads(texts["class_names"]) == ["daisy", "rose", "tulip"]
        assert json.loads(texts["activations"]) == {"dense_1": "softmax"}


def test_a_trained_model_has_the_same_accuracy(tmp_path: Path) -> None:
    (x, y), (x_test, y_test) = digits()
    trainer = Trainer(Model.from_preset("digits_small_cnn"), "Adam", adapters="cpu")
    trainer.fit(x, y, epochs=2, batch_size=64)
    session = exported(trainer.model, tmp_path)
    outputs = session.run(None, {"input": x_test})[0]
    assert np.mean(outputs.argmax(-1) == y_test) == pytest.approx(trainer.evaluate(x_test, y_test)["accuracy"])


def test_nothing_is_lost(tmp_path: Path) -> None:
    """Other files are not written over, and the model file least of all."""
    model = Model.from_preset("digits_small_cnn")
    path = tmp_path / "a.onnx"
    model.export(path)
    first = path.read_bytes()
    model.export(path)
    assert path.read_bytes() == first and onnx.load(path).producer_name == "manyhands"
    path.write_bytes(b"\x08\x07\x12\x07pytorch and more")
    with pytest.raises(SettingError, match="needs to be an ONNX file that manyhands wrote or a new file"):
        model.export(path)
    with pytest.raises(SettingError, match=r"needs a name that ends in `.onnx`"):
        model.export(tmp_path / "a.pb")
    model.save(tmp_path / "a.safetensors")
    done = command("export", "a.safetensors", "./a.safetensors", folder=tmp_path)
    assert done.returncode == 1 and "is an input of this run, and can't be written" in done.stderr, done
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.onnx", "a.safetensors"]
    weights = {"dense/bias": np.full(10, np.nan)}
    model.set_weights(weights)
    with pytest.raises(ManyhandsError, match="needs finite numbers"):
        model.export(tmp_path / "b.onnx")


#: Categories that a reader or writer could take apart.
CATEGORIES = ["plain", "a, b", 'say "x"', "Größe", "Ω; 日本"]
#: Columns of dates: their form in Python and, where the reader can't know it, in settings.
DATES = {
    "day": ("%Y-%m-%d", ""),
    "at": ("%Y-%m-%d %H:%M:%S.25", ""),
    "named": ("%d %b %Y", ""),
    "short": ("%d.%m.%y %H:%M", "%d.%m.%y %H:%M"),
    "joined": ("%Y%m%d", "%Y%m%d"),
    "zone": ("%Y-%m-%dT%H:%M:%S.5+02:00", ""),
}
KINDS = {"grade": "category"} | {name: form for name, (_, form) in DATES.items() if form}
MISSING = ["", "NA", "?", "null"]
Row = dict[str, str]


def table(rng: np.random.Generator, n_rows: int, missing: float = 0.1) -> list[Row]:
    """Rows with a column of each kind, of which a part of the fields is missing, and with targets."""

    def row() -> Row:
        at = datetime(2019, 1, 1) + timedelta(seconds=int(rng.integers(0, 2500 * 86_400)))
        size, kind = float(rng.normal(170.0, 9.0)), str(rng.choice(CATEGORIES))
        fields = {
            "size": f"{size:.3f}",
            "far": f"{1.7e9 + rng.normal():.4f}",
            "grade": str(rng.choice(["1", "2", "10"])),
            "kind": kind,
            "fresh": str(rng.choice(["yes", "No", "TRUE", "f"])),
        }
        fields |= {name: at.strftime(form) for name, (form, _) in DATES.items()}
        fields = {name: field if rng.random() >= missing else str(rng.choice(MISSING)) for name, field in fields.items()}
        one, two = f"{1000.0 + 3.0 * size + 50.0 * len(kind):.2f}", f"{rng.normal():.3f}"
        return fields | {"species": ["x", "y, z", "ü"][CATEGORIES.index(kind) % 3], "sold": "ja" if size > 170.0 else "nein", "one": one, "two": two}

    return [row() for _ in range(n_rows)]


def new_rows(rng: np.random.Generator) -> list[Row]:
    """Rows of which each column is missing once, in each spelling, and of categories and signs that training did not have."""
    rows = table(rng, 8)
    inputs = [name for name in rows[0] if name not in ["species", "sold", "one", "two"]]
    rows += [row | {name: missing} for row in rows[:1] for name in inputs for missing in MISSING]
    changes = [("kind", "new"), ("kind", "a"), ("grade", "3"), ("grade", "2.0"), ("size", "-1e9"), ("fresh", "n"), ("fresh", "Y")]
    changes += [("day", "2020-2-29"), ("day", "1900-03-01"), ("day", "2100-12-31"), ("named", "1 DEC 2024"), ("at", "2024-01-01 23:59:59")]
    return rows + [rows[1] | {name: field} for name, field in changes]


def write(path: Path, rows: list[Row], signs: str) -> None:
    """Writes a table whose delimiter and decimal sign are these."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=signs[0])
        writer.writerow(rows[0])
        numbers = ["size", "far", "one", "two"]
        writer.writerows([field.replace(".", signs[1]) if name in numbers else field for name, field in row.items()] for row in rows)


def feeds(session: onnxruntime.InferenceSession, rows: list[Row]) -> dict[str, np.ndarray]:
    """The columns as another program has them: numbers, of which missing ones are NaN, and texts."""

    def column(name: str, kind: str) -> np.ndarray:
        fields = [row[name] for row in rows]
        if kind == "tensor(string)":
            return np.array(fields, object)[:, None]
        return np.array([np.nan if field in MISSING else float(field) for field in fields])[:, None]

    return {value.name: column(value.name, value.type) for value in session.get_inputs()}


def trained(folder: Path, settings: str, signs: str = ",.", missing: float = 0.1) -> onnxruntime.InferenceSession:
    """A model of the table, trained and exported by the command, in onnxruntime."""
    write(folder / "train.csv", table(np.random.default_rng(8), 80, missing), signs)
    kinds = ", ".join(f"{name} = {json.dumps(kind)}" for name, kind in KINDS.items())
    text = settings.replace("[data]", f'[data]\ntype = "csv"\ntrain = "train.csv"\nkinds = {{ {kinds} }}')
    (folder / "run.toml").write_text(text + '\n[optimizer]\ntype = "Adam"\nlearning_rate = 0.05\n\n[training]\nepochs = 3\nbatch_size = 16\n', encoding="utf-8")
    done = command("train", "run.toml", "--quiet", "--adapters", "cpu", "--save", "a.safetensors", folder=folder)
    assert done.returncode == 0, done.stderr
    done = command("export", "a.safetensors", folder=folder)
    assert done.returncode == 0, done.stderr
    onnx.checker.check_model(folder / "a.onnx", full_check=True)
    return onnxruntime.InferenceSession(folder / "a.onnx", providers=["CPUExecutionProvider"])


def predicted(folder: Path, data: str) -> list[Row]:
    """What `predict` writes."""
    done = command("predict", "a.safetensors", data, "--adapters", "cpu", "-o", "predicted.csv", folder=folder)
    assert done.returncode == 0, done.stderr
    with (folder / "predicted.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def agree(outputs: dict[str, np.ndarray], needed: list[Row], prefix: str = "") -> None:
    """Compares outputs with the columns that `predict` wrote."""
    if f"{prefix}label" in outputs:
        assert outputs[f"{prefix}label"].tolist() == [row[f"{prefix}class"] for row in needed]
    what = "values" if f"{prefix}values" in outputs else "probabilities"
    names = [name for name in needed[0] if name.startswith(f"{prefix}{'value' if what == 'values' else 'probability'}_")]
    ours, theirs = np.array([[float(row[name]) for name in names] for row in needed]), outputs[f"{prefix}{what}"]
    # A single column is the probability of the second class.
    error = np.max(np.abs(ours - theirs[:, -len(names) :]) / (1.0 + np.abs(ours)))
    assert error < 1e-6, f"{prefix}{what}: {error}"
    assert np.max(np.std(ours, axis=0)) > 0.01, "the rows differ"


HEADS = {
    "classes": ('target = "species"\ntarget_kind = "classes"\nignore = ["sold", "one", "two"]', 3, 'type = "SparseCategoricalCrossentropy"', ""),
    "two_classes": ('target = "sold"\ntarget_kind = "classes"\nignore = ["species", "one", "two"]', 1, 'type = "BinaryCrossentropy"', ""),
    "values": (
        'target = ["one", "two"]\ntarget_kind = "values"\nignore = ["species", "sold"]',
        2,
        'type = "MeanSquaredError"',
        '{ type = "Rescaling", scale = 30.0, offset = 1500.0 },',
    ),
}


@pytest.mark.parametrize("head", HEADS)
def test_rows_of_a_table_give_what_predict_writes(head: str, tmp_path: Path) -> None:
    data, units, loss, more = HEADS[head]
    layers = f'layers = [{{ type = "Dense", units = 8, activation = "relu" }}, {{ type = "Dense", units = {units} }}, {more}]'
    signs = ";," if head == "values" else ",."
    session = trained(tmp_path, f"[data]\n{data}\n\n[model]\n{layers}\n\n[loss]\n{loss}\n", signs)
    types = {value.name: value.type for value in session.get_inputs()}
    assert types["size"] == types["grade"] == "tensor(double)" and types["kind"] == types["fresh"] == types["at"] == "tensor(string)"
    rows = new_rows(np.random.default_rng(9))
    write(tmp_path / "new.csv", rows, signs)
    names = [value.name for value in session.get_outputs()]
    assert names == (["values"] if head == "values" else ["label", "probabilities"])
    agree(dict(zip(names, session.run(None, feeds(session, rows)))), predicted(tmp_path, "new.csv"))
    if head == "classes":
        refused_rows_have_no_answer(session, rows)
        texts = {entry.key: entry.value for entry in onnx.load(tmp_path / "a.onnx").metadata_props}
        assert json.loads(texts["class_names"]) == ["x", "y, z", "ü"]


def refused_rows_have_no_answer(session: onnxruntime.InferenceSession, rows: list[Row]) -> None:
    """Fields that `predict` refuses give an empty label, and change no other row. A blank before or behind a name is none of these."""
    refused = [("fresh", "maybe"), ("day", "2023-02-29"), ("day", "soon"), ("named", "31 Apr 2020"), ("at", "2024-01-01"), ("size", "inf"), ("size", "1e39")]
    changed = [rows[0] | {name: field} for name, field in refused]
    blanks = [rows[0] | {"kind": kind} for kind in (" a, b", "a, b ", " a, b ", "a, b")]
    label, numbers = session.run(None, feeds(session, [*changed, rows[0], *blanks]))
    assert label[: len(refused)].tolist() == [""] * len(refused) and np.isnan(numbers[: len(refused)]).all()
    assert np.isfinite(numbers[len(refused) :]).all() and (numbers[-4:] == numbers[-1]).all() and label[-1]


def test_a_missing_field_that_is_an_error_has_no_answer(tmp_path: Path) -> None:
    """Each kind of column refuses a missing field, as `predict` does with `missing = "error"`."""
    data, units, loss, _ = HEADS["two_classes"]
    settings = f'[data]\nmissing = "error"\n{data}\n\n[model]\nlayers = [{{ type = "Dense", units = {units} }}]\n\n[loss]\n{loss}\n'
    session = trained(tmp_path, settings, missing=0.0)
    (whole,) = table(np.random.default_rng(9), 1, missing=0.0)
    columns = [value.name for value in session.get_inputs()]
    label, numbers = session.run(None, feeds(session, [whole, *[whole | {name: ""} for name in columns]]))
    assert label[0] in ["ja", "nein"] and label[1:].tolist() == [""] * len(columns) and np.isnan(numbers).sum() == 2 * len(columns)
    write(tmp_path / "new.csv", [whole | {"kind": ""}], ",.")
    assert command("predict", "a.safetensors", "new.csv", "--adapters", "cpu", folder=tmp_path).returncode == 1


def test_dates_that_no_operator_reads_are_refused_by_name(tmp_path: Path) -> None:
    days = [datetime(2020, 1 + at % 12, 1 + at) for at in range(20)]
    write(tmp_path / "train.csv", [{"day": day.strftime("%d %B %Y"), "y": "ab"[day.month % 2]} for day in days], ",.")
    settings = '[data]\ntype = "csv"\ntrain = "train.csv"\ntarget = "y"\ntarget_kind = "classes"\nkinds = { day = "%d %B %Y" }\n\n'
    settings += '[model]\nlayers = [{ type = "Dense", units = 2 }]\n\n[loss]\ntype = "SparseCategoricalCrossentropy"\n\n[optimizer]\ntype = "Adam"\n\n'
    (tmp_path / "run.toml").write_text(settings + "[training]\nepochs = 1\n", encoding="utf-8")
    done = command("train", "run.toml", "--quiet", "--adapters", "cpu", "--save", "a.safetensors", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    done = command("export", "a.safetensors", folder=tmp_path)
    assert done.returncode == 1 and not (tmp_path / "a.onnx").exists()
    assert "column `day` has dates of the form `%d %B %Y`, which no operator of ONNX can read" in done.stderr and "`--encoded`" in done.stderr
    assert command("export", "a.safetensors", "--encoded", folder=tmp_path).returncode == 0


def test_rows_with_two_inputs_two_outputs_and_an_index(tmp_path: Path) -> None:
    """Outputs have the names of the model's in front; a column that is an index goes to an `Embedding`."""
    inputs = '[[data.inputs]]\nname = "kinds"\ncolumns = ["kind"]\n\n[[data.inputs]]\nname = "rest"\ncolumns = ["size", "at"]\n'
    outputs = '[[data.outputs]]\nname = "price"\ntarget = "two"\ntarget_kind = "values"\n\n[[data.outputs]]\nname = "sort"\ntarget = "species"\ntarget_kind = "classes"\n'
    model = """[model]
inputs = [{ name = "rest", shape = [10] }, { name = "kinds", shape = [1] }]
layers = [
  { name = "vectors", type = "Embedding", input_dim = 6, output_dim = 3, inputs = ["kinds"] },
  { name = "pooled", type = "GlobalAveragePooling1D" },
  { name = "all", type = "Concatenate", inputs = ["rest", "pooled"] },
  { name = "price", type = "Dense", units = 1, inputs = ["all"] },
  { name = "sort", type = "Dense", units = 3, inputs = ["all"] },
]
outputs = ["price", "sort"]

[[losses]]
type = "MeanSquaredError"

[[losses]]
type = "SparseCategoricalCrossentropy"
"""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KINDS, "kind", "index")
        session = trained(tmp_path, f"[data]\n\n{inputs}\n{outputs}\n{model}")
    rows = new_rows(np.random.default_rng(9))
    write(tmp_path / "new.csv", rows, ",.")
    names = [value.name for value in session.get_outputs()]
    assert names == ["price_values", "sort_label", "sort_probabilities"]
    given, needed = dict(zip(names, session.run(None, feeds(session, rows)))), predicted(tmp_path, "new.csv")
    agree(given, needed, "price_")
    agree(given, needed, "sort_")


def test_bytes_of_pictures_give_what_predict_writes(tmp_path: Path) -> None:
    done = command("train", "examples/settings/images.toml", "--epochs", "2", "--quiet", "--adapters", "cpu", "--save", str(tmp_path / "a.safetensors"))
    assert done.returncode == 0, done.stderr
    assert command("export", "a.safetensors", folder=tmp_path).returncode == 0
    onnx.checker.check_model(tmp_path / "a.onnx", full_check=True)
    session = onnxruntime.InferenceSession(tmp_path / "a.onnx", providers=["CPUExecutionProvider"])
    data = ROOT / "examples/settings/data/bars/test"
    needed = predicted(tmp_path, str(data))
    (taken,) = session.get_inputs()
    assert (taken.type, taken.shape) == ("tensor(uint8)", ["batch", 8, 8, 1])
    pictures = [np.asarray(PIL.Image.open(data / row["file"]).convert("L"))[:, :, None] for row in needed]
    agree(dict(zip(["label", "probabilities"], session.run(None, {taken.name: np.stack(pictures)}))), needed)


def test_the_example_of_the_guide_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The Python of `docs/guide/saving.md` prints what `predict` writes."""
    guide = (ROOT / "docs/guide/saving.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?onnxruntime.*?)```", guide, re.DOTALL)
    data, units, loss, _ = HEADS["classes"]
    trained(tmp_path, f'[data]\n{data}\n\n[model]\nlayers = [{{ type = "Dense", units = {units} }}]\n\n[loss]\n{loss}\n')
    write(tmp_path / "new.csv", table(np.random.default_rng(3), 6), ",.")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        (tmp_path / "a.onnx").rename(tmp_path / "model.onnx")
        exec(code, {})
    labels = [row["class"] for row in predicted(tmp_path, "new.csv")]
    assert capsys.readouterr().out == f"{labels}\n"


def test_texts_stay_numbers_of_tokens(tmp_path: Path) -> None:
    """No operator splits texts as training did: the command says so, and labels and probabilities come all the same."""
    done = command("train", "examples/settings/sentences.toml", "--epochs", "1", "--quiet", "--adapters", "cpu", "--save", str(tmp_path / "a.safetensors"))
    assert done.returncode == 0, done.stderr
    done = command("export", "a.safetensors", folder=tmp_path)
    assert done.returncode == 0 and "no operator of ONNX splits texts as training did" in done.stderr, done.stderr
    session = onnxruntime.InferenceSession(tmp_path / "a.onnx", providers=["CPUExecutionProvider"])
    assert [value.type for value in session.get_inputs()] == ["tensor(float)"]
    assert [value.name for value in session.get_outputs()] == ["label", "probabilities"]
    # The lines of the guide make them of a text: the labels are those of `predict`, for all rows.
    guide = (ROOT / "docs/guide/saving.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(import json\nimport string.*?)```", guide, re.DOTALL)
    known: dict[str, Any] = {"session": session, "np": np}
    exec(code, known)
    data = ROOT / "examples/settings/data/sentences_test.csv"
    with data.open(encoding="utf-8", newline="") as file:
        texts = [row["sentence"] for row in csv.DictReader(file)]
    (taken,) = session.get_inputs()
    (labels,) = session.run(["label"], {taken.name: np.stack([known["tokens"](text) for text in texts])})
    assert labels.ravel().tolist() == [row["class"] for row in predicted(tmp_path, str(data))]
