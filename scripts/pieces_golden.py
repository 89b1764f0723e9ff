#!/usr/bin/env python3
"""Golden values of SentencePiece vocabularies in GGUF files: those of Llama 2, Mistral and Gemma.

    python3 -m venv target/text-venv
    target/text-venv/bin/pip install -r scripts/text-requirements.txt
    target/text-venv/bin/python scripts/pieces_golden.py

Writes `text/tests/golden/pieces/`: small GGUF files with a vocabulary and no tensor, and in `tokens.json` what transformers makes of texts
with each. `gemma3.gguf` has a network, too, and `gemma3.json` what transformers computes with it.
"""

import functools
import json
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType, TokenType
from text_golden import CORPUS, GEMMA_TEMPLATE, LENGTH, TRICKY, gemma3_tensors, greedy, summary, summed
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

GOLDEN = Path(__file__).resolve().parent.parent / "text/tests/golden/pieces"
TEXTS = [
    *TRICKY, "Hello", " Hello", "  Hello", "▁Hello", "Hello▁world", "<s>Hello</s> world", "<unk> and <pad>", "<0x41><0x0A>", "\n\nHello", "a\n\n\nb",
    "x   y    z", "<|user|> fox<|end|>\n<|user|>dog", "<start_of_turn>user\nfox<end_of_turn>", "<s> fox", "</s>\nfox", "ß\u0301 ☃ 𝄞",
]  # fmt: skip


@functools.cache
def pieces(count: int) -> list[str]:
    """Words of a BPE, the first joined first, and then its letters, as SentencePiece has them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=count, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    vocabulary = json.loads(tokenizer.to_str())["model"]["vocab"]
    words = sorted(vocabulary, key=lambda word: (len(word) == 1, vocabulary[word]))
    return [word for word in words if "\n" not in word]


def write(name: str, architecture: str, tokens: list[tuple[str, float, TokenType]], ids: dict, flags: dict, merges: list[str] | None = None) -> None:
    """A file with what transformers needs to find the tokenizer."""
    writer = gguf.GGUFWriter(GOLDEN / f"{name}.gguf", architecture)
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_key_length(16)
    writer.add_rope_freq_base(10000.0)
    writer.add_name(name)
    vocabulary(writer, tokens, ids, flags, merges)
    finish(writer)


def vocabulary(writer: gguf.GGUFWriter, tokens: list[tuple[str, float, TokenType]], ids: dict, flags: dict, merges: list[str] | None = None) -> None:
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([token for token, _, _ in tokens])
    writer.add_token_scores([score for _, score, _ in tokens])
    writer.add_token_types([kind for _, _, kind in tokens])
    if merges is not None:
        writer.add_token_merges(merges)
    for key, value in ids.items():
        writer.add_uint32(f"tokenizer.ggml.{key}_token_id", value)
    for key, value in flags.items():
        writer.add_bool(f"tokenizer.ggml.{key}", value)


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


BYTES = [(f"<0x{byte:02X}>", 0.0, TokenType.BYTE) for byte in range(256)]


def llama(bytes_: list) -> list:
    words = [(word, -float(rank), TokenType.NORMAL) for rank, word in enumerate(pieces(200))]
    head = [("<unk>", 0.0, TokenType.UNKNOWN), ("<s>", 0.0, TokenType.CONTROL), ("</s>", 0.0, TokenType.CONTROL)]
    late = [("<|user|>", 0.0, TokenType.USER_DEFINED), ("<|end|>", 0.0, TokenType.CONTROL), ("<|unused|>", 0.0, TokenType.UNUSED)]
    return [*head, *bytes_, *words, *late]


def gemma() -> list:
    head = [("<pad>", 0.0, TokenType.CONTROL), ("<eos>", 0.0, TokenType.CONTROL), ("<bos>", 0.0, TokenType.CONTROL), ("<unk>", 0.0, TokenType.CONTROL)]
    turns = [(token, 0.0, TokenType.CONTROL) for token in ("<mask>", "<start_of_turn>", "<end_of_turn>")]
    lines = [("\n" * count, 0.0, TokenType.USER_DEFINED) for count in (1, 2, 3)]
    spaces = [(" " * count, 0.0, TokenType.USER_DEFINED) for count in (2, 3, 4)]
    # Scores do not follow the order.
    words = [(word, -float(rank * 7 % 31), TokenType.NORMAL) for rank, word in enumerate(pieces(200))]
    return [*head, *turns, *lines, *spaces, *BYTES, *words]


# Words of two letters, the last first.
JOINED = [" ".join(word) for word in reversed(pieces(200)) if len(word) == 2]
LLAMA = dict(bos=1, eos=2, unknown=0)
GEMMA = dict(bos=2, eos=1, unknown=3, padding=0)
FILES = {
    "llama": ("llama", llama(BYTES), LLAMA, {}),
    "spaced": ("llama", llama(BYTES), LLAMA, dict(add_bos_token=True, add_eos_token=True, add_space_prefix=True)),
    "unspaced": ("llama", llama(BYTES), LLAMA, dict(add_bos_token=False, add_space_prefix=False)),
    "without-bytes": ("llama", llama([]), LLAMA | dict(padding=2), dict(add_bos_token=True)),
    "merges": ("llama", llama(BYTES), LLAMA, {}, JOINED),
    "gemma": ("gemma3", gemma(), GEMMA, dict(add_bos_token=True, add_eos_token=False, add_space_prefix=False)),
}  # fmt: skip


def gemma3() -> None:
    """Gemma 3 as the converter of llama.cpp writes it: scales of normalizations plus 1, windows in five of six blocks."""
    torch.manual_seed(31)
    tokens = gemma()
    config = transformers.Gemma3TextConfig(
        vocab_size=len(tokens), hidden_size=32, intermediate_size=32, num_hidden_layers=7, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
        query_pre_attn_scalar=32, sliding_window=6, max_position_embeddings=128, bos_token_id=2, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    model = transformers.Gemma3ForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_((torch.randn_like(parameter) * 0.3).half().float())
    assert config.layer_types.count("full_attention") == 1
    writer = gguf.GGUFWriter(GOLDEN / "gemma3.gguf", "gemma3")
    writer.add_name("gemma3")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_freq_base(1_000_000.0)
    writer.add_sliding_window(config.sliding_window)
    writer.add_chat_template(GEMMA_TEMPLATE)
    vocabulary(writer, tokens, GEMMA | dict(eot=6), dict(add_bos_token=True, add_eos_token=False, add_space_prefix=False))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GEMMA3, config.num_hidden_layers)
    for key, tensor in model.state_dict().items():
        if key == "lm_head.weight":
            continue
        values = tensor.float().numpy() + (1 if key.endswith("norm.weight") else 0)
        kind = GGMLQuantizationType.F32 if values.ndim == 1 else GGMLQuantizationType.F16
        new = names.get_name(key, try_suffixes=(".weight",))
        assert new, key
        writer.add_tensor(new, gguf.quants.quantize(values, kind), raw_dtype=kind)
    finish(writer)
    # Files don't have it: transformers takes the 256 of the real models, llama.cpp the width of a head, which is as much in these.
    options = dict(query_pre_attn_scalar=config.head_dim, dtype=torch.float64, attn_implementation="eager")
    read = transformers.AutoModelForCausalLM.from_pretrained(GOLDEN, gguf_file="gemma3.gguf", **options)
    ids = np.random.default_rng(31).integers(0, config.vocab_size, (2, LENGTH))
    with torch.no_grad():
        by_file, logits = read(torch.tensor(ids)).logits, model.double()(torch.tensor(ids)).logits
    # transformers multiplies by a file's weights in 32 bits.
    assert (by_file - logits).abs().max() < 1e-5 * logits.abs().max(), (by_file - logits).abs().max()
    golden = {
        "tensors": {name: summed(tensor) for name, tensor in gemma3_tensors(model).items()}, "ids": ids.tolist(),
        "logits": [summary(row) for row in logits], "greedy": greedy(model, ids[0, :6].tolist(), 10),
    }  # fmt: skip
    (GOLDEN / "gemma3.json").write_text(json.dumps(golden) + "\n")


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    gemma3()
    golden = {}
    for name, parts in FILES.items():
        write(name, *parts)
        tokenizer = transformers.AutoTokenizer.from_pretrained(GOLDEN, gguf_file=f"{name}.gguf")
        if name == "unspaced":
            # transformers leaves out the flag in GGUF files. Its class for the model's folder does not, and so does not llama.cpp.
            plain = transformers.LlamaTokenizer(tokenizer.backend_tokenizer.get_vocab(), add_prefix_space=False).backend_tokenizer
            tokenizer.backend_tokenizer.pre_tokenizer, tokenizer.backend_tokenizer.decoder = plain.pre_tokenizer, plain.decoder
        assert len(tokenizer) == len(parts[1]), name
        golden[name] = [
            {"text": text, "ids": tokenizer(text).input_ids, "plain": tokenizer(text, add_special_tokens=False).input_ids} for text in TEXTS
        ]
        for case in golden[name]:
            case["decoded"] = tokenizer.decode(case["plain"])
    (GOLDEN / "tokens.json").write_text(json.dumps(golden, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
