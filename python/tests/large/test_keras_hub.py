"""Do models of KerasHub train on adapters as in Keras: backbones, classifiers, language models, with low-rank factors, too?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import keras_hub
import numpy as np
import pytest

from manyhands_ml import ModelError, make_parallel

LENGTH, WORDS, ROWS = 6, 30, 6
RNG = np.random.default_rng(5)
IDS = RNG.integers(1, WORDS, (ROWS, LENGTH))
PADDING = np.arange(LENGTH) < np.array([[6], [5], [4], [6], [3], [6]])
X = {"token_ids": IDS, "padding_mask": PADDING.astype("int32")}
SEGMENTS = {"segment_ids": np.zeros_like(IDS)}
CLASSES = np.array([0, 1, 2, 0, 1, 2])

SIZES: dict[str, Any] = dict(vocabulary_size=WORDS, num_layers=2, hidden_dim=16, intermediate_dim=24)
ENCODER: dict[str, Any] = SIZES | dict(num_heads=2, max_sequence_length=LENGTH, dropout=0.0)
DECODER: dict[str, Any] = SIZES | dict(num_query_heads=4, num_key_value_heads=2)
OF_ELECTRA: dict[str, Any] = dict(vocab_size=WORDS, num_layers=2, num_heads=2, hidden_dim=16, embedding_dim=16, intermediate_dim=24)

models = keras_hub.models
BACKBONES: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "ALBERT": (lambda: models.AlbertBackbone(**ENCODER, embedding_dim=8), X | SEGMENTS),
    "BART": (
        lambda: models.BartBackbone(**ENCODER),
        {f"{part}_{name}": values for part in ("encoder", "decoder") for name, values in X.items()},
    ),
    "BERT": (lambda: models.BertBackbone(**ENCODER), X | SEGMENTS),
    "DistilBERT": (lambda: models.DistilBertBackbone(**ENCODER), X),
    "ELECTRA": (lambda: models.ElectraBackbone(**OF_ELECTRA, max_sequence_length=LENGTH, dropout=0.0), X | SEGMENTS),
    "GPT-2": (lambda: models.GPT2Backbone(**ENCODER), X),
    "Llama": (lambda: models.LlamaBackbone(**DECODER), X),
    "Llama 3": (lambda: models.Llama3Backbone(**DECODER), X),
    "Mistral": (lambda: models.MistralBackbone(**DECODER, sliding_window=LENGTH), X),
    "OPT": (lambda: models.OPTBackbone(**ENCODER), X),
    "Phi 3": (lambda: models.Phi3Backbone(**DECODER), X),
    "Qwen 2.5": (lambda: models.QwenBackbone(**DECODER), X),
    "Qwen 3": (lambda: models.Qwen3Backbone(**DECODER, head_dim=4), X),
    "RoBERTa": (lambda: models.RobertaBackbone(**ENCODER), X),
    "XLM-RoBERTa": (lambda: models.XLMRobertaBackbone(**ENCODER), X),
}


def _headed(backbone: Any) -> Any:
    """A backbone with a head for each token."""
    output = backbone.output
    if isinstance(output, dict):
        output = output.get("sequence_output", output.get("decoder_sequence_output"))
    return keras.Model(backbone.input, keras.layers.Dense(5)(output))


def _adapted(task: Any) -> Any:
    """A model whose backbone has low-rank factors that change it from the first step."""
    task.backbone.enable_lora(2)
    for layer in task._flatten_layers():
        if getattr(layer, "lora_enabled", False):
            layer.lora_kernel_b.assign(0.1 * np.random.default_rng(2).normal(size=layer.lora_kernel_b.shape))
    return task


TASKS: dict[str, tuple[Callable[[], Any], dict[str, Any], Any]] = {
    "a classifier": (
        lambda: models.BertTextClassifier(models.BertBackbone(**ENCODER), num_classes=3, preprocessor=None, dropout=0.0),
        X | SEGMENTS,
        CLASSES,
    ),
    "a language model": (lambda: models.GPT2CausalLM(models.GPT2Backbone(**ENCODER), preprocessor=None), X, np.roll(IDS, -1, 1)),
    "Llama with factors": (
        lambda: _adapted(models.LlamaCausalLM(models.LlamaBackbone(**DECODER), preprocessor=None)),
        X,
        np.roll(IDS, -1, 1),
    ),
    "GPT-2 with factors": (
        lambda: _adapted(models.GPT2CausalLM(models.GPT2Backbone(**ENCODER), preprocessor=None)),
        X,
        np.roll(IDS, -1, 1),
    ),
}


def _losses(build: Callable[[], Any], x: Any, y: Any, adapters: str | None) -> list[float]:
    """Losses of ten steps in Keras, or on adapters."""
    keras.utils.set_random_seed(1)
    model = build() if adapters is None else make_parallel(build(), adapters)
    model.compile(keras.optimizers.Adam(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    history = model.fit(x, y, batch_size=ROWS, epochs=10, shuffle=False, verbose=0)
    return list(map(float, history.history["loss"]))


def _compare(build: Callable[[], Any], x: Any, y: Any) -> None:
    expected, ours = (_losses(build, x, y, adapters) for adapters in (None, "cpu,cpu,cpu"))
    np.testing.assert_allclose(ours, expected, rtol=1e-5)
    assert expected[-1] < expected[0]


@pytest.mark.parametrize("name", BACKBONES)
def test_backbones_train_as_in_keras(name: str) -> None:
    build, x = BACKBONES[name]
    _compare(lambda: _headed(build()), x, RNG.integers(0, 5, (ROWS, LENGTH)))


@pytest.mark.parametrize("name", TASKS)
def test_tasks_train_as_in_keras(name: str) -> None:
    _compare(*TASKS[name])


def test_what_lacks_an_operation_is_refused_by_name() -> None:
    model = make_parallel(_headed(models.GemmaBackbone(**DECODER, head_dim=4)), "cpu")
    model.compile("sgd", "mse")
    with pytest.raises(ModelError, match="GemmaDecoderBlock|RMSNormalization"):
        model.fit(X, np.zeros((ROWS, LENGTH, 5)), verbose=0)
