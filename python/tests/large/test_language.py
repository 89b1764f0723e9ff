"""Language models that leave this package are read by PEFT, transformers and gguf, and compute there what they compute here."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import peft
import pytest
import torch
import transformers

from manyhands_ml.text import LanguageModel

#: Small random models, which `scripts/text_golden.py` made.
GOLDEN = Path(__file__).parents[3] / "text" / "tests" / "golden"
ROWS = [{"text": text} for text in ["Hello world, don't we", "def f(x): return x", "The quick fox", "äöü Bäume"] * 3]
TEXTS = ["Hello world", "  two  spaces \n", "3.14159 and 1234567", "we'll", "äöü 日本 🙂", "<|im_start|>hi<|im_end|>", "a<|endoftext|>b"]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def trained(name: str) -> LanguageModel:
    """A model with an adapter that changes much."""
    model = LanguageModel.load(GOLDEN / name, lora=dict(r=4, alpha=8))
    model.fit(ROWS, adapters="cpu", epochs=6, batch_size=4, learning_rate=0.02)
    return model


def causal(folder: Path, dtype: torch.dtype = torch.float64, **options: Any) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager", **options)


def by_peft(name: str, adapter: Path, rounded: Callable[[str, torch.Tensor], torch.Tensor]) -> Any:
    """The model with its adapter merged by PEFT in float64, and each weight rounded."""
    model = peft.PeftModel.from_pretrained(causal(GOLDEN / name), adapter).double().merge_and_unload()
    with torch.no_grad():
        for key, weight in model.state_dict().items():
            weight.copy_(rounded(key, weight.float()))
    return model


def logits(model: Any) -> Any:
    ids = torch.tensor(np.random.default_rng(3).integers(0, model.config.vocab_size, (2, 16)))
    with torch.no_grad():
        return model.double()(ids).logits.numpy()


def assert_same(own: Any, known: Any) -> None:
    assert np.abs(own - known).max() <= 1e-5 * np.abs(known).max()


@pytest.mark.parametrize("name", ["smollm", "llama", "mistral", "qwen2", "qwen3", "gpt2"])
def test_an_adapter_loads_in_peft(name: str, tmp_path: Path) -> None:
    model = trained(name)
    model.save_adapter(tmp_path / "adapter")
    theirs = peft.PeftModel.from_pretrained(causal(GOLDEN / name), tmp_path / "adapter").double()
    tokenizer = transformers.AutoTokenizer.from_pretrained(GOLDEN / name)

    def perplexity(model: Any) -> float:
        loss = count = 0.0
        for row in ROWS:
            ids = torch.tensor([[*tokenizer(row["text"]).input_ids, tokenizer.eos_token_id]])
            with torch.no_grad():
                loss += model(ids, labels=ids).loss.item() * (ids.shape[1] - 1)
            count += ids.shape[1] - 1
        return math.exp(loss / count)

    own = model.perplexity(ROWS, adapters="cpu")
    assert own == pytest.approx(perplexity(theirs), rel=1e-4)
    with theirs.disable_adapter():
        assert own < 0.8 * perplexity(theirs)


@pytest.mark.parametrize(
    "name, dtype",
    [("smollm", torch.float16), ("llama", torch.bfloat16), ("qwen2", torch.bfloat16), ("gpt2", torch.float16)],
)
def test_a_merged_folder_loads_in_transformers(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model = trained(name)
    model.save_adapter(tmp_path / "adapter")
    for kind, folder in ((dtype, "own"), (torch.float32, "wide")):
        model.save_merged(tmp_path / folder, type=None if folder == "own" else "F32")
        assert causal(tmp_path / folder, "auto").dtype == kind
        expected = by_peft(name, tmp_path / "adapter", lambda _, weight: weight.to(kind))
        assert_same(logits(causal(tmp_path / folder)), logits(expected))
    tokenizers = [transformers.AutoTokenizer.from_pretrained(folder) for folder in (GOLDEN / name, tmp_path / "own")]
    assert tokenizers[0].get_vocab() == tokenizers[1].get_vocab()
    for text in TEXTS:
        assert tokenizers[0](text).input_ids == tokenizers[1](text).input_ids
    chat = [{"role": "user", "content": "Hi"}]
    assert len({tokenizer.apply_chat_template(chat, tokenize=False) for tokenizer in tokenizers}) == 1


def as_file_has_it(name: str, weight: torch.Tensor, kind: gguf.GGMLQuantizationType) -> torch.Tensor:
    """A weight as a GGUF file of a type has it: vectors and positions are floats of 32 bits."""
    if weight.ndim == 1 or name.endswith("wpe.weight"):
        return weight
    # GPT-2 has its products transposed; blocks lie along their inputs.
    is_turned = ".h." in name
    values = np.ascontiguousarray(weight.numpy().T if is_turned else weight.numpy())
    unpacked = gguf.quants.dequantize(gguf.quants.quantize(values, kind), kind).reshape(values.shape)
    return torch.tensor(unpacked.T if is_turned else unpacked)


@pytest.mark.parametrize("name", ["smollm", "llama", "mistral", "qwen3", "gpt2", "qwen3.gguf"])
@pytest.mark.parametrize("kind", ["F16", "Q8_0"])
def test_a_merged_gguf_file_loads_in_gguf_and_transformers(name: str, kind: str, tmp_path: Path) -> None:
    model = trained(name)
    model.save_adapter(tmp_path / "adapter")
    model.save_merged(tmp_path / "merged.gguf", type=None if kind == "F16" else kind)
    reader = gguf.GGUFReader(tmp_path / "merged.gguf")
    kinds = {tensor.tensor_type.name for tensor in reader.tensors if len(tensor.shape) == 2 and "position" not in tensor.name}
    assert kinds == {kind} and {tensor.tensor_type.name for tensor in reader.tensors if len(tensor.shape) == 1} == {"F32"}
    folder = name.split(".")[0]
    expected = by_peft(folder, tmp_path / "adapter", lambda key, weight: as_file_has_it(key, weight, gguf.GGMLQuantizationType[kind]))
    config = expected.config
    family = {"smollm": "llama", "mistral": "llama"}.get(folder, folder)
    written = {
        "general.architecture": family,
        f"{family}.context_length": config.max_position_embeddings,
        f"{family}.attention.head_count": config.num_attention_heads,
    }
    if family != "gpt2":
        written[f"{family}.attention.key_length"] = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    assert {key: reader.fields[key].contents() for key in written} == written

    # transformers reads no biases, widths of heads, positions and rotary factors from these files: Mistral here has the usual ones.
    options = {} if name == "mistral" else {"config": transformers.AutoConfig.from_pretrained(GOLDEN / folder)}
    assert_same(logits(causal(tmp_path, torch.float32, gguf_file="merged.gguf", **options)), logits(expected))
    tokenizers = [
        transformers.AutoTokenizer.from_pretrained(GOLDEN / folder),
        transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file="merged.gguf"),
    ]
    assert tokenizers[0].get_vocab() == tokenizers[1].get_vocab()
    chat = [{"role": "user", "content": "Hi"}]
    assert len({tokenizer.apply_chat_template(chat, tokenize=False) for tokenizer in tokenizers}) == 1
