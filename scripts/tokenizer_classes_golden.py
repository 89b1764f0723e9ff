#!/usr/bin/env python3
"""Golden values of folders whose tokenizer transformers opens by a class with splits of its own.

    python3 -m venv target/text-venv
    target/text-venv/bin/pip install -r scripts/text-requirements.txt
    target/text-venv/bin/python scripts/tokenizer_classes_golden.py

Writes `text/tests/golden/tokenizer_classes.json`: a few `tokenizer.json`, and with each class, model type and flag the tokens of texts.
"""

import json
import tempfile
from pathlib import Path

import transformers
from text_golden import CORPUS, GOLDEN, SPECIAL, SPLITS, sentence_pieces
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXTS = [
    "Hello", " Hello", "  Hello fox", "don't 1234567  12", "a  1\n\n 2", "e\u0301 Å", "<s>Hello<s> fox", "fox<|im_end|>fox <|im_end|>\nfox", "🙂 ö", "",
    "def f(x):\n    return x**2",
]  # fmt: skip


def bytes_(split: str, ignore_merges: bool = False) -> str:
    """Bytes, with words of several digits and spaces, and splits by which these come up or don't."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(",", "removed")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([tokenizer.pre_tokenizer, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, max_token_length=6)
    tokenizer.train_from_iterator([*CORPUS, *["12,  ,1234,   1, 2,don't, fox, Hello,e\u0301"] * 20], trainer)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(SPLITS[split])
    tokenizer.decoder = decoders.ByteLevel()
    if split == "llama-bpe":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|endoftext|> $A", pair="<|endoftext|> $A <|endoftext|> $B", special_tokens=[("<|endoftext|>", 0)]
        )
    return tokenizer.to_str()


def llama(prefix: str) -> str:
    """Pieces as those of Llama 2: with normalizers of the older kind, or splits of the newer."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(GOLDEN / "pieces", gguf_file="llama.gguf").backend_tokenizer
    if prefix == "normalizers":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.pre_tokenizer = None
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prefix, split=False)
    state = json.loads(tokenizer.to_str())
    if tokenizer.pre_tokenizer is None or prefix == "normalizers":
        state["pre_tokenizer"] = None
    state["model"]["unk_token"] = "<unk>"
    return json.dumps(state, ensure_ascii=False)


BYTES = dict(bos_token="<|endoftext|>", eos_token="<|im_end|>")
PIECES = dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>")
GEMMA = dict(bos_token="<bos>", eos_token="<eos>", pad_token="<pad>", unk_token="<unk>")
WORDS = dict(unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
#: Flags of added tokens that are others than in the file: transformers takes these.
STRIPPED = {"2": dict(content="<|im_end|>", special=True, lstrip=True, rstrip=True, single_word=False, normalized=False)}
#: File, special tokens, and pairs of a model's type and `tokenizer_config.json`.
CASES = [
    ("smollm", BYTES, [
        ("llama", dict(tokenizer_class="GPT2Tokenizer")), ("llama", dict(tokenizer_class="GPT2TokenizerFast", add_prefix_space=True)),
        ("llama", dict(tokenizer_class="PreTrainedTokenizerFast", add_prefix_space=True)), ("llama", dict(tokenizer_class="LlamaTokenizerFast")),
        ("llama", {}), ("gpt2", {}), ("gpt2", dict(tokenizer_class="PreTrainedTokenizerFast")), ("qwen2", dict(tokenizer_class="LlamaTokenizerFast")),
        ("qwen3", dict(tokenizer_class="Qwen2Tokenizer", add_prefix_space=True)), ("mistral", dict(tokenizer_class="GPT2Tokenizer")),
        ("qwen3", dict(tokenizer_class="GPT2Tokenizer")), ("llama", dict(tokenizer_class="GPT2Tokenizer", added_tokens_decoder=STRIPPED)),
        ("llama", dict(tokenizer_class="TokenizersBackend", added_tokens_decoder=STRIPPED)),
    ]),
    ("llama3", BYTES, [
        ("llama", dict(tokenizer_class="PreTrainedTokenizerFast")), ("llama", dict(tokenizer_class="LlamaTokenizer", add_bos_token=False)),
        ("qwen3", dict(tokenizer_class="Qwen2Tokenizer")), ("qwen2", dict(tokenizer_class="PreTrainedTokenizerFast")), ("gpt2", {}),
        ("llama", dict(tokenizer_class="TokenizersBackend", add_bos_token=False, add_eos_token=True)),
    ]),
    ("normalizers", PIECES, [
        ("llama", dict(tokenizer_class="LlamaTokenizer")), ("llama", dict(tokenizer_class="LlamaTokenizer", legacy=True)),
        ("llama", dict(tokenizer_class="LlamaTokenizerFast", add_prefix_space=False, legacy=True)), ("llama", {}),
        ("llama", dict(tokenizer_class="LlamaTokenizer", add_bos_token=False, add_eos_token=True, legacy=None, add_prefix_space=None)),
        ("mistral", dict(tokenizer_class="LlamaTokenizer")), ("llama", dict(tokenizer_class="TokenizersBackend")),
    ]),
    ("first", PIECES, [("llama", dict(tokenizer_class="LlamaTokenizer", legacy=True)), ("mistral", {})]),
    ("never", PIECES, [("llama", dict(tokenizer_class="LlamaTokenizerFast")), ("llama", dict(tokenizer_class="PreTrainedTokenizerFast"))]),
    ("gemma", GEMMA, [("gemma3_text", dict(tokenizer_class="GemmaTokenizer", add_bos_token=True)), ("gemma3_text", {}), ("llama", dict(tokenizer_class="GemmaTokenizerFast"))]),
    ("bert", WORDS, [
        ("bert", {}), ("bert", dict(tokenizer_class="BertTokenizer", do_lower_case=False)), ("gpt2", dict(tokenizer_class="BertTokenizerFast")),
        ("gpt2", dict(tokenizer_class="BertTokenizer", do_lower_case=False, strip_accents=True)), ("bert", dict(tokenizer_class="TokenizersBackend", do_lower_case=False)),
    ]),
    ("normalizers", PIECES, [("gemma3_text", dict(tokenizer_class="LlamaTokenizer"))]),
]  # fmt: skip


def main() -> None:
    files = {"smollm": bytes_("smollm"), "llama3": bytes_("llama-bpe", ignore_merges=True), "gemma": sentence_pieces().to_str()}
    files["bert"] = (GOLDEN / "bert/tokenizer.json").read_text()
    files |= {name: llama(name) for name in ("normalizers", "first", "never")}
    cases = []
    for name, special, variants in CASES:
        for model_type, config in variants:
            config = special | config
            with tempfile.TemporaryDirectory() as folder:
                texts = {"tokenizer.json": files[name], "tokenizer_config.json": json.dumps(config)}
                texts["config.json"] = json.dumps({"model_type": model_type})
                for file, text in texts.items():
                    (Path(folder) / file).write_text(text)
                tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            tokens = []
            for text in TEXTS:
                plain = tokenizer(text, add_special_tokens=False).input_ids
                tokens.append({"text": text, "ids": tokenizer(text).input_ids, "plain": plain, "decoded": tokenizer.decode(plain)})
            as_file = Tokenizer.from_str(files[name])
            differ = sum(as_file.encode(case["text"]).ids != case["ids"] for case in tokens)
            cases.append({"file": name, "model_type": model_type, "config": config, "differ": differ, "tokens": tokens})
    golden = {"files": {name: json.loads(text) for name, text in files.items()}, "cases": cases}
    (GOLDEN / "tokenizer_classes.json").write_text(json.dumps(golden, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
