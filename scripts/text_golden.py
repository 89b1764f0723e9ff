"""Golden values for the package `manyhands-text`, from transformers, tokenizers and gguf.

    python3 -m venv target/text-venv
    target/text-venv/bin/pip install -r scripts/text-requirements.txt
    scripts/fetch-text-models
    target/text-venv/bin/python scripts/text_golden.py

Writes `text/tests/golden/`: packed blocks with their values, and small random models of each family as Hugging Face folder, three of
them as GGUF file, too. `golden.json` in each folder has what transformers makes of the model's files, `outputs.json` what it computes and how PEFT trains it
(`outputs` as argument writes this file alone), `generation.json` (`generation`) what it draws tokens from and what PEFT's adapters change,
`packed.gguf` and `packed.json` (`packed`) a model in blocks of 8 and 4 bits and what transformers makes of it, `merged.json` (`merged`) what
models with an adapter merged compute in each type, `real.json` that of two real models (`real` computes their outputs anew). `gemma3` makes that
model and adds its outputs.
"""

import json
import shutil
import sys
from pathlib import Path

import gguf
import numpy as np
import peft
import regex
import torch
import transformers
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GOLDEN = Path(__file__).resolve().parent.parent / "text/tests/golden"
MODELS = GOLDEN.parents[2] / "target/text-models"

# Sizes with which every matrix has rows of whole blocks of 32.
LLAMA = dict(
    vocab_size=320, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=128,
)  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}  # fmt: skip

SMOLLM_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI "
    "assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# After the manner of Qwen 2.5: tools as JSON, nested conditions, whitespace control.
QWEN_TEMPLATE = r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are a helpful assistant.' }}
    {%- endif %}
    {{- "\n\n# Tools\n\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools><|im_end|>\n" }}
{%- elif messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\n<tool_call>\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""
# After the manner of Llama 3 and Mistral: namespaces, methods of strings, checks of the roles, a date.
LLAMA_TEMPLATE = """{{ bos_token }}
{%- set state = namespace(system='') %}
{% if messages[0]['role'] == 'system' %}
    {% set state.system = messages[0]['content'].strip() %}
    {% set messages = messages[1:] %}
{% endif %}
{% if date_string is not defined %}{% set date_string = '26 Jul 2024' %}{% endif %}
{% for message in messages %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {% endif %}
    {% if loop.first and state.system %}
<|im_start|>system
Today: {{ date_string }}. {{ state.system.upper() if state.system.startswith('!') else state.system }}<|im_end|>
    {% endif %}
{{ '<|im_start|>' ~ message.role ~ '\\n' ~ (message.content | trim) ~ '<|im_end|>' }}
{% endfor %}
{%- if add_generation_prompt %}
<|im_start|>assistant
{% endif %}
"""

# That of Gemma 3.
GEMMA_TEMPLATE = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '

' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '

' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '
' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
"""

TRICKY = [
    "Hello world", "  two  spaces ", "tabs\tand\n\nnewlines\r\n \n", "3.14159 and 1234567 and 2²", "don't we'll I'D", "äöü ñ é e\u0301 Å",
    "日本語のテキスト", "🙂👩‍👩‍👧 emoji", "<|im_start|>user\nhi<|im_end|>", "a<|endoftext|>b <|im_end|> c", "x" * 40, "", " ", "\u200b\ufeff",
    "def f(x):\n    return x**2  # comment\n", "ﬁ ligature ① ℌ", "\u0000 control \u001b",
]  # fmt: skip
CORPUS = [
    "The quick brown fox jumps over the lazy dog. Hello world, don't we all like 1234567 numbers and 3.14159?",
    "def f(x):\n    return x**2  # a comment, and another comment\n", "äöü Äpfel und Bäume, 日本語のテキスト, emoji 🙂",
] * 4  # fmt: skip


def blocks() -> None:
    """Packed blocks of each encoding: quantized random numbers, and random bytes with scales of all sizes."""
    random = np.random.default_rng(7)
    arrays = {}
    for kind in [Type.F16, Type.BF16, Type.Q4_0, Type.Q4_1, Type.Q8_0, Type.Q4_K, Type.Q6_K, Type.Q5_0, Type.Q5_1, Type.Q5_K]:
        length, size = gguf.GGML_QUANT_SIZES[kind]
        packed = random.integers(0, 256, (12, size), dtype=np.uint8)
        halves = {Type.BF16: [], Type.Q4_1: [0, 2], Type.Q5_1: [0, 2], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208]}
        scales = np.array([1e-7, 6e-5, 0.013, -0.4, 1, 3e4, 0, 5.96e-8, -2e-6, 0.1, 7, 1000], dtype=np.float16)
        for at in halves.get(kind, [0]):
            packed[:, at : at + 2] = random.permutation(scales).view(np.uint8).reshape(12, 2)
        if kind in [Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0]:
            usual = gguf.quants.quantize(random.normal(size=(4, length)).astype(np.float32), kind)
            packed = np.concatenate([packed, usual])
        arrays[f"{kind.name}.packed"] = packed
        arrays[f"{kind.name}.values"] = gguf.quants.dequantize(packed, kind).reshape(-1).astype(np.float32)
    usual = (random.normal(size=(4, 32)) * [[1], [1e-3], [300], [0]]).astype(np.float32)
    arrays["usual"] = usual
    for kind in [Type.F16, Type.Q8_0, Type.Q4_0, Type.Q4_1]:
        arrays[f"{kind.name}.quantized"] = gguf.quants.quantize(usual, kind).view(np.uint8)
    save_file(arrays, GOLDEN / "blocks.safetensors")


SPLITS = {
    "gpt-2": [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)],
    "smollm": [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)],
    "llama-bpe": [
        pre_tokenizers.Split(
            Regex(
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            ),
            "isolated",
        ),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ],
    "qwen2": [
        pre_tokenizers.Split(
            Regex(
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            ),
            "isolated",
        ),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ],
}
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_level(split: str) -> Tokenizer:
    """A small byte-level tokenizer with the splits of a family."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=split == "llama-bpe"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(SPLITS[split])
    tokenizer.decoder = decoders.ByteLevel()
    if split == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(
        vocab_size=319, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False)])
    if split == "llama-bpe":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|endoftext|> $A", pair="<|endoftext|> $A <|endoftext|> $B", special_tokens=[("<|endoftext|>", 0)]
        )
    return tokenizer


def sentence_pieces() -> Tokenizer:
    """A small tokenizer as that of Gemma: spaces are letters, unknown letters are bytes."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>", *[f"<0x{byte:02X}>" for byte in range(256)]]
    trainer = trainers.BpeTrainer(vocab_size=319, special_tokens=special[:6], initial_alphabet=list("▁aeinrst"), limit_alphabet=30, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    # Bytes are words of the vocabulary, not special tokens.
    state = json.loads(tokenizer.to_str())
    words = [word for word, _ in sorted(state["model"]["vocab"].items(), key=lambda item: item[1])]
    words = [*special, *words[6:]][:320]
    state["model"]["vocab"] = {word: number for number, word in enumerate(words)}
    merges = [pair if isinstance(pair, list) else pair.split(" ") for pair in state["model"]["merges"]]
    state["model"]["merges"] = [pair for pair in merges if "".join(pair) in state["model"]["vocab"]]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", pair="<bos> $A <bos> $B", special_tokens=[("<bos>", 2)])
    return tokenizer


def word_pieces() -> Tokenizer:
    """A small tokenizer as that of BERT."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=200, special_tokens=special, show_progress=False))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


CONVERSATIONS = [
    dict(messages=[{"role": "user", "content": "Hello"}], add_generation_prompt=True),
    dict(messages=[{"role": "system", "content": " ! Be brief. "}, {"role": "user", "content": " Hi "}, {"role": "assistant", "content": "Hello, world"}]),
    dict(messages=[{"role": "user", "content": "1"}, {"role": "assistant", "content": "2\n"}, {"role": "user", "content": "3"}, {"role": "assistant", "content": "äö"}]),
    dict(
        messages=[
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Köln <&> 'x'", "days": 2, "f": 1.5, "none": None, "yes": True}}}]},
            {"role": "tool", "content": "sunny"}, {"role": "tool", "content": "warm"},
            {"role": "assistant", "content": "Sunny."},
        ],
        tools=[{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "b": {}, "a": []}}}}],
    ),
]  # fmt: skip


def rendered(tokenizer) -> list:
    """Each conversation with its text, or `None` where the template refuses it."""
    cases = []
    for conversation in CONVERSATIONS:
        try:
            text = tokenizer.apply_chat_template(conversation=conversation["messages"], tokenize=False, **{k: v for k, v in conversation.items() if k != "messages"})
        except Exception as error:
            assert "alternate" in str(error) or "undefined" in str(error), error
            text = None
        cases.append({**conversation, "text": text})
    return cases


# Heads of messages, and behind them a space that a word of the answer may take in.
PLAIN_TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}<|im_end|>{{ '\n' }}{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"


def masked(tokenizer) -> list:
    """Conversations as tokens, with the mask of transformers: templates with the answers marked."""
    marked = {
        SMOLLM_TEMPLATE: SMOLLM_TEMPLATE.replace(
            "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}",
            "{{'<|im_start|>' + message['role'] + '\n'}}{% if message['role'] == 'assistant' %}{% generation %}"
            "{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{'\n'}}",
        ),
        PLAIN_TEMPLATE: PLAIN_TEMPLATE.replace(
            "{{ m.content }}<|im_end|>",
            "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}",
        ),
    }
    cases = []
    for template, with_marks in marked.items():
        assert template != with_marks
        for conversation in CONVERSATIONS[1:3]:
            messages = [{**message, "content": message["content"].strip().replace("Hello, world", "world, hello")} for message in conversation["messages"]]
            options = dict(chat_template=with_marks, return_dict=True, return_assistant_tokens_mask=True)
            encoded = tokenizer.apply_chat_template(messages, **options)
            case = {"template": template, "messages": messages, "ids": encoded["input_ids"], "mask": encoded["assistant_masks"]}
            assert tokenizer.decode(case["ids"]) == tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False)
            cases.append(case)
    return cases


def summed(tensor: torch.Tensor) -> dict:
    """A tensor's shape, and a sum that any change of the order changes."""
    values = tensor.detach().float().numpy().reshape(-1).astype(np.float64)
    return {"shape": list(tensor.shape), "sum": float((values * (np.arange(len(values)) % 97 + 1)).sum())}


def llama_tensors(model) -> dict:
    tensors = {"embedding.embeddings": model.model.embed_tokens.weight, "norm.scale": model.model.norm.weight}
    if not model.config.tie_word_embeddings:
        tensors["output.kernel"] = model.lm_head.weight
    for number, layer in enumerate(model.model.layers):
        attention, mlp = layer.self_attn, layer.mlp
        parts = {
            "attention_norm.scale": layer.input_layernorm.weight, "feed_forward_norm.scale": layer.post_attention_layernorm.weight,
            "feed_forward.gate.kernel": mlp.gate_proj.weight, "feed_forward.up.kernel": mlp.up_proj.weight,
            "feed_forward.down.kernel": mlp.down_proj.weight, "attention.output.kernel": attention.o_proj.weight,
        }  # fmt: skip
        for name, module in {"query": attention.q_proj, "key": attention.k_proj, "value": attention.v_proj}.items():
            parts[f"attention.{name}.kernel"] = module.weight
            if module.bias is not None:
                parts[f"attention.{name}.bias"] = module.bias
        if attention.o_proj.bias is not None:
            parts["attention.output.bias"] = attention.o_proj.bias
        if hasattr(attention, "q_norm"):
            parts |= {"attention.query_norm.scale": attention.q_norm.weight, "attention.key_norm.scale": attention.k_norm.weight}
        tensors |= {f"blocks.{number}.{name}": tensor for name, tensor in parts.items()}
    return tensors


def gemma3_tensors(model) -> dict:
    """Those of Llama, but scales of normalizations are stored less 1, and blocks have more of them."""
    tensors = llama_tensors(model)
    for number, layer in enumerate(model.model.layers):
        tensors[f"blocks.{number}.attention_post_norm.scale"] = layer.post_attention_layernorm.weight
        tensors[f"blocks.{number}.feed_forward_norm.scale"] = layer.pre_feedforward_layernorm.weight
        tensors[f"blocks.{number}.feed_forward_post_norm.scale"] = layer.post_feedforward_layernorm.weight
    return {name: 1 + tensor.float() if name.endswith("norm.scale") else tensor for name, tensor in tensors.items()}


def gpt2_tensors(model) -> dict:
    body = model.transformer
    tensors = {"embedding.embeddings": body.wte.weight, "positions.embeddings": body.wpe.weight}
    tensors |= {"norm.gamma": body.ln_f.weight, "norm.beta": body.ln_f.bias}
    for number, layer in enumerate(body.h):
        parts = {"attention_norm.gamma": layer.ln_1.weight, "attention_norm.beta": layer.ln_1.bias}
        parts |= {"feed_forward_norm.gamma": layer.ln_2.weight, "feed_forward_norm.beta": layer.ln_2.bias}
        thirds = zip(["query", "key", "value"], layer.attn.c_attn.weight.T.chunk(3), layer.attn.c_attn.bias.chunk(3), strict=True)
        for name, kernel, bias in thirds:
            parts |= {f"attention.{name}.kernel": kernel, f"attention.{name}.bias": bias}
        for name, module in {"attention.output": layer.attn.c_proj, "feed_forward.up": layer.mlp.c_fc, "feed_forward.down": layer.mlp.c_proj}.items():
            parts |= {f"{name}.kernel": module.weight.T, f"{name}.bias": module.bias}
        tensors |= {f"blocks.{number}.{name}": tensor for name, tensor in parts.items()}
    return tensors


def bert_tensors(model) -> dict:
    table = model.embeddings
    tensors = {
        "embedding.embeddings": table.word_embeddings.weight, "positions.embeddings": table.position_embeddings.weight,
        "token_types.embeddings": table.token_type_embeddings.weight, "embedding_norm.gamma": table.LayerNorm.weight,
        "embedding_norm.beta": table.LayerNorm.bias, "pooler.kernel": model.pooler.dense.weight, "pooler.bias": model.pooler.dense.bias,
    }  # fmt: skip
    for number, layer in enumerate(model.encoder.layer):
        own = layer.attention.self
        modules = {
            "attention.query": own.query, "attention.key": own.key, "attention.value": own.value, "attention.output": layer.attention.output.dense,
            "feed_forward.up": layer.intermediate.dense, "feed_forward.down": layer.output.dense,
        }  # fmt: skip
        parts = {f"{name}.{what}": tensor for name, module in modules.items() for what, tensor in [("kernel", module.weight), ("bias", module.bias)]}
        for name, norm in {"attention_norm": layer.attention.output.LayerNorm, "feed_forward_norm": layer.output.LayerNorm}.items():
            parts |= {f"{name}.gamma": norm.weight, f"{name}.beta": norm.bias}
        tensors |= {f"blocks.{number}.{name}": tensor for name, tensor in parts.items()}
    return tensors


def folder(name: str, model, tensors: dict, tokenizer: Tokenizer, template: str | None, dtype: torch.dtype, **saving) -> None:
    """A model's folder, and what transformers makes of it."""
    path = GOLDEN / name
    rotary = getattr(getattr(model, "model", None), "rotary_emb", None)
    frequencies = {} if rotary is None else {key: value.clone() for key, value in rotary.named_buffers()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    model = model.to(dtype)
    for key, value in frequencies.items():
        setattr(rotary, key, value)
    model.save_pretrained(path, **saving)
    is_bert = template is None
    names = dict(unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]") if is_bert else dict(
        bos_token="<|endoftext|>", eos_token="<|im_end|>", pad_token="<|endoftext|>")  # fmt: skip
    if name == "gemma3":
        names = dict(bos_token="<bos>", eos_token="<eos>", pad_token="<pad>", unk_token="<unk>")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    if template is not None:
        fast.chat_template = template
    fast.save_pretrained(path)
    golden = {"tensors": {key: summed(tensor) for key, tensor in tensors(model).items()}}
    golden["tokens"] = [{"text": text, "ids": fast(text).input_ids, "plain": fast(text, add_special_tokens=False).input_ids} for text in TRICKY]
    for case in golden["tokens"]:
        case["decoded"] = fast.decode(case["plain"])
    if name == "gemma3":
        golden["inverse_frequencies"] = rotary.full_attention_inv_freq.tolist()
    elif rotary is not None:
        golden["inverse_frequencies"] = rotary.inv_freq.tolist()
    if template is not None:
        golden["chats"] = rendered(fast)
    if name == "smollm":
        golden["masks"] = masked(fast)
    (path / "golden.json").write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n")
    for unneeded in ["generation_config.json"]:
        (path / unneeded).unlink(missing_ok=True)


def permuted(weights: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q or k as `LlamaModel.permute` of llama.cpp's converter stores them."""
    return weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:]).swapaxes(1, 2).reshape(weights.shape)


def write_gguf(name: str, model, tokenizer: Tokenizer, split: str, template: str, kinds: list, file: str | None = None) -> None:
    """A model as the converter of llama.cpp would write it."""
    config, path = model.config, GOLDEN / f"{file or name}.gguf"
    writer = gguf.GGUFWriter(path, name)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(4 * config.hidden_size if name == "gpt2" else config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    if name == "gpt2":
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
    elif name == "bert":
        writer.add_layer_norm_eps(config.layer_norm_eps)
        writer.add_causal_attention(False)
    else:
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if name == "qwen3":
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if name == "llama":
        writer.add_rope_dimension_count(config.head_dim)
    if name == "bert":
        writer.add_tokenizer_model("bert")
    else:
        write_vocabulary(writer, tokenizer, split, template)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[name.upper()], config.num_hidden_layers)
    for number, (key, tensor) in enumerate(model.state_dict().items()):
        # The converter leaves out the pooler of BERT.
        if (key == "lm_head.weight" and config.tie_word_embeddings) or key.startswith("pooler."):
            continue
        values = tensor.float().numpy()
        if name == "llama" and "q_proj" in key:
            values = permuted(values, config.num_attention_heads)
        if name == "llama" and "k_proj" in key:
            values = permuted(values, config.num_key_value_heads)
        if name == "gpt2" and key.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
            values = np.ascontiguousarray(values.T)
        kind = Type.F32 if values.ndim == 1 else kinds[number % len(kinds)]
        new = names.get_name(key, try_suffixes=(".weight", ".bias"))
        writer.add_tensor(new, gguf.quants.quantize(values, kind), raw_dtype=kind)
    if name == "llama":
        # The converter writes the factors by which Llama 3 divides its frequencies.
        usual = 1 / config.rope_parameters["rope_theta"] ** (np.arange(0, config.head_dim, 2) / config.head_dim)
        factors = usual / model.model.rotary_emb.inv_freq.double().numpy()
        writer.add_tensor("rope_freqs.weight", factors.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_vocabulary(writer: gguf.GGUFWriter, tokenizer: Tokenizer, split: str, template: str) -> None:
    state = json.loads(tokenizer.to_str())
    tokens = [token for token, _ in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])]
    special = {token["content"] for token in state["added_tokens"] if token["special"]}
    added = {token["content"] for token in state["added_tokens"]}
    kinds = [gguf.TokenType.CONTROL if t in special else gguf.TokenType.USER_DEFINED if t in added else gguf.TokenType.NORMAL for t in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) if isinstance(pair, list) else pair for pair in state["model"]["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(split == "llama-bpe")
    writer.add_chat_template(template)


def bytes_as_letters() -> dict:
    """The letter that stands for each byte in a byte-level BPE, as GPT-2 wrote it."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + number) for number, byte in enumerate(others)}


def joined(word: str, ranks: dict) -> list:
    """A word's pieces: again and again the pair of the lowest rank is joined."""
    pieces = list(word)
    while len(pieces) > 1:
        pairs = [ranks.get(pair, len(ranks)) for pair in zip(pieces, pieces[1:])]
        best = min(pairs)
        if best == len(ranks):
            break
        pair = (pieces[pairs.index(best)], pieces[pairs.index(best) + 1])
        new, at = [], 0
        while at < len(pieces):
            width = 2 if tuple(pieces[at : at + 2]) == pair else 1
            new.append("".join(pieces[at : at + width]))
            at += width
        pieces = new
    return pieces


def smollm2_tokens(reader: gguf.GGUFReader, text: str) -> list:
    """Tokens of SmolLM2 by the regular expressions of llama.cpp for `smollm`, and byte pairs in plain Python."""
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    kinds = reader.fields["tokenizer.ggml.token_type"].contents()
    ids = {token: number for number, token in enumerate(tokens)}
    ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(reader.fields["tokenizer.ggml.merges"].contents())}
    special = [token for token, kind in zip(tokens, kinds) if kind == gguf.TokenType.CONTROL]
    letters, found = bytes_as_letters(), []
    for part in regex.split("(" + "|".join(regex.escape(token) for token in special) + ")", text):
        if part in special:
            found.append(ids[part])
            continue
        for digits in regex.findall(r"\p{N}|[^\p{N}]+", part):
            for word in regex.findall(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", digits):
                found += [ids[piece] for piece in joined("".join(letters[byte] for byte in word.encode()), ranks)]
    return found


def real(models_folder: Path) -> None:
    """Golden values of the models that `scripts/fetch-text-models` fetches."""
    reader = gguf.GGUFReader(models_folder / "smollm2.gguf")
    stored = {tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type) for tensor in reader.tensors}
    names = {
        "embedding.embeddings": "token_embd", "norm.scale": "output_norm", "blocks.0.attention.query.kernel": "blk.0.attn_q",
        "blocks.29.attention.key.kernel": "blk.29.attn_k", "blocks.7.attention.value.kernel": "blk.7.attn_v",
        "blocks.29.feed_forward.down.kernel": "blk.29.ffn_down",
    }  # fmt: skip
    tensors = {}
    for name, key in names.items():
        values, heads = stored[f"{key}.weight"], 9 if "query" in name else 3
        if "query" in name or "key" in name:
            values = values.reshape(heads, values.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(values.shape)
        tensors[name] = summed(torch.tensor(values.copy()))
    smollm2 = {"tensors": tensors, "tokens": []}
    for text in TRICKY:
        ids = smollm2_tokens(reader, text)
        smollm2["tokens"].append({"text": text, "ids": ids, "plain": ids, "decoded": text})
    bert = transformers.AutoModel.from_pretrained(models_folder / "minilm")
    fast = transformers.AutoTokenizer.from_pretrained(models_folder / "minilm")
    minilm = {"tensors": {key: summed(tensor) for key, tensor in bert_tensors(bert).items()}, "tokens": []}
    for text in TRICKY:
        plain = fast(text, add_special_tokens=False).input_ids
        # `clean_up_tokenization_spaces` is no part of the tokenizer's own decoder.
        decoded = fast.decode(plain, clean_up_tokenization_spaces=False)
        minilm["tokens"].append({"text": text, "ids": fast(text).input_ids, "plain": plain, "decoded": decoded})
    (GOLDEN / "real.json").write_text(json.dumps({"smollm2": smollm2, "minilm": minilm}, ensure_ascii=False) + "\n")


def adapter(model) -> None:
    """A LoRA adapter as PEFT saves it, with random matrices."""
    config = peft.LoraConfig(r=2, lora_alpha=6, lora_dropout=0.1, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM")
    tuned = peft.get_peft_model(model, config)
    with torch.no_grad():
        for name, parameter in tuned.named_parameters():
            if "lora_" in name:
                parameter.copy_(torch.randn_like(parameter))
    tuned.peft_config["default"].base_model_name_or_path = "llama"
    tuned.save_pretrained(GOLDEN / "adapter")
    (GOLDEN / "adapter/README.md").unlink()


def main() -> None:
    shutil.rmtree(GOLDEN, ignore_errors=True)
    GOLDEN.mkdir(parents=True)
    torch.manual_seed(7)
    blocks()
    half, wide = torch.float16, torch.bfloat16
    rope = {"rope_theta": 500000.0}
    llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA, rope_parameters=rope | LLAMA3, tie_word_embeddings=True))
    folder("llama", llama, llama_tensors, byte_level("llama-bpe"), LLAMA_TEMPLATE, wide)
    write_gguf("llama", llama, byte_level("llama-bpe"), "llama-bpe", LLAMA_TEMPLATE, [Type.F16, Type.BF16])
    smollm = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**LLAMA, rope_parameters={"rope_theta": 100000.0}, attention_bias=True)
    )
    folder("smollm", smollm, llama_tensors, byte_level("smollm"), SMOLLM_TEMPLATE, half)
    mistral = transformers.MistralForCausalLM(transformers.MistralConfig(**LLAMA, sliding_window=16, head_dim=8))
    folder("mistral", mistral, llama_tensors, byte_level("llama-bpe"), LLAMA_TEMPLATE, half)
    qwen2 = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**LLAMA, use_sliding_window=True, sliding_window=16, max_window_layers=1))
    folder("qwen2", qwen2, llama_tensors, byte_level("qwen2"), QWEN_TEMPLATE, wide)
    qwen3 = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**LLAMA, head_dim=16, tie_word_embeddings=True))
    folder("qwen3", qwen3, llama_tensors, byte_level("qwen2"), QWEN_TEMPLATE, wide, max_shard_size="20KB")
    write_gguf("qwen3", qwen3, byte_level("qwen2"), "qwen2", QWEN_TEMPLATE, [Type.F16])
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=320, n_positions=64, n_embd=32, n_layer=2, n_head=4))
    folder("gpt2", gpt2, gpt2_tensors, byte_level("gpt-2"), SMOLLM_TEMPLATE, half)
    write_gguf("gpt2", gpt2, byte_level("gpt-2"), "gpt-2", SMOLLM_TEMPLATE, [Type.F16])
    bert = transformers.BertModel(
        transformers.BertConfig(vocab_size=200, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32, max_position_embeddings=64)
    )
    folder("bert", bert, bert_tensors, word_pieces(), None, torch.float32)
    write_gguf("bert", bert, word_pieces(), "", "", [Type.F16])
    read_again(llama)
    adapter(transformers.AutoModelForCausalLM.from_pretrained(GOLDEN / "llama", dtype=torch.float32))
    packed()
    outputs()
    generation()
    merged()
    real(MODELS)
    real_outputs(MODELS)
    gemma3()


#: Rows of which models are asked: of one length, below every window.
LENGTH = 16
CAUSAL = ["llama", "smollm", "mistral", "qwen2", "qwen3", "gpt2"]


def outputs() -> None:
    """What transformers computes with each folder, in float64, and how PEFT trains it."""
    rng = np.random.default_rng(11)
    golden = {}
    for name in CAUSAL:
        golden[name] = outputs_of(name, rng)
    bert = transformers.AutoModel.from_pretrained(GOLDEN / "bert", dtype=torch.float64, attn_implementation="eager")
    ids, types = rng.integers(0, bert.config.vocab_size, (2, LENGTH)), rng.integers(0, 2, (2, LENGTH))
    mask = np.ones((2, LENGTH), dtype=int)
    mask[1, 9:] = 0
    with torch.no_grad():
        vectors = bert(torch.tensor(ids), attention_mask=torch.tensor(mask), token_type_ids=torch.tensor(types)).last_hidden_state
    means = (vectors * torch.tensor(mask)[..., None]).sum(1) / torch.tensor(mask).sum(1)[:, None]
    golden["bert"] = {"ids": ids.tolist(), "types": types.tolist(), "mask": mask.tolist(), "vectors": vectors[0].tolist(), "means": means.tolist()}
    (GOLDEN / "outputs.json").write_text(json.dumps(golden) + "\n")


def outputs_of(name: str, rng) -> dict:
    """What a folder's model gives for random tokens, and how it is trained."""
    model = transformers.AutoModelForCausalLM.from_pretrained(GOLDEN / name, dtype=torch.float64, attn_implementation="eager")
    ids = rng.integers(0, model.config.vocab_size, (2, LENGTH))
    with torch.no_grad():
        logits = model(torch.tensor(ids)).logits
    golden = {"ids": ids.tolist(), "logits": [summary(row) for row in logits], "greedy": greedy(model, ids[0, :6].tolist(), 10)}
    return golden | {"training": trained(name, model, rng)}


def gemma3() -> None:
    """A model with windows of 6 tokens in two of three blocks, and two bases of rotary positions."""
    torch.manual_seed(29)
    rope = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    config = transformers.Gemma3TextConfig(
        **LLAMA | {"num_hidden_layers": 3}, head_dim=16, query_pre_attn_scalar=16, sliding_window=6, rope_parameters=rope,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"], bos_token_id=2, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    folder("gemma3", transformers.Gemma3ForCausalLM(config), gemma3_tensors, sentence_pieces(), GEMMA_TEMPLATE, torch.bfloat16)
    golden = json.loads((GOLDEN / "outputs.json").read_text())
    golden["gemma3"] = outputs_of("gemma3", np.random.default_rng(29))
    (GOLDEN / "outputs.json").write_text(json.dumps(golden) + "\n")


def packed() -> None:
    """A model whose matrices are blocks of three formats, in turn, and what transformers reads in it and computes with it in float64."""
    torch.manual_seed(13)
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**LLAMA, rope_parameters={"rope_theta": 100000.0}, initializer_range=0.2, tie_word_embeddings=True)
    )
    write_gguf("llama", model, byte_level("smollm"), "smollm", SMOLLM_TEMPLATE, [Type.Q8_0, Type.Q4_1, Type.Q4_0], "packed")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        GOLDEN, gguf_file="packed.gguf", dtype=torch.float64, attn_implementation="eager"
    )
    ids = np.random.default_rng(13).integers(0, model.config.vocab_size, (2, LENGTH))
    with torch.no_grad():
        logits = model(torch.tensor(ids)).logits
    golden = {
        "tensors": {name: summed(tensor) for name, tensor in llama_tensors(model).items()}, "ids": ids.tolist(),
        "logits": [summary(row) for row in logits], "greedy": greedy(model, ids[0, :6].tolist(), 10),
    }  # fmt: skip
    (GOLDEN / "packed.json").write_text(json.dumps(golden) + "\n")


def summary(logits) -> dict:
    """Logits of the last position, and the largest of each position."""
    return {"last": logits[-1].tolist(), "largest": logits.max(-1).values.tolist()}


def greedy(model, ids: list[int], count: int) -> list[int]:
    """The likeliest next token, again and again."""
    for _ in range(count):
        with torch.no_grad():
            ids = [*ids, int(model(torch.tensor([ids])).logits[0, -1].argmax())]
    return ids


def generation() -> None:
    """How transformers changes probabilities before it draws a token, and logits of models with PEFT's adapters."""
    rng = np.random.default_rng(17)
    logits = np.round(rng.normal(0, 2, (3, 40)), 3)
    # Equal logits at the bounds of `top_k`.
    logits[2, :12] = 2.5
    scores = torch.tensor(logits, dtype=torch.float64)
    warped = []
    for temperature, top_k, top_p in [(1.0, 0, 1.0), (0.7, 0, 1.0), (1.0, 5, 1.0), (1.0, 0, 0.8), (0.6, 20, 0.9), (1.5, 3, 0.5), (1.0, 0, 0.01)]:
        warpers = [transformers.TemperatureLogitsWarper(temperature)]
        warpers += [transformers.TopKLogitsWarper(top_k)] if top_k else []
        warpers += [transformers.TopPLogitsWarper(top_p)] if top_p < 1 else []
        # Ties at the bound of `top_p` fall as the sort has them: the row with ties is for the others.
        rows = scores[:2] if top_p < 1 else scores
        probabilities = transformers.LogitsProcessorList(warpers)(None, rows).softmax(-1)
        warped.append({"temperature": temperature, "top_k": top_k, "top_p": top_p, "probabilities": probabilities.tolist()})
    golden = {"logits": logits.tolist(), "warped": warped, "adapters": {}}
    torch.manual_seed(19)
    for name, folder, options in [
        ("llama", "adapter", None),
        ("gpt2", "adapter-gpt2", dict(target_modules=["c_attn", "c_fc"], use_rslora=True)),
    ]:
        model = transformers.AutoModelForCausalLM.from_pretrained(GOLDEN / name, dtype=torch.float32)
        if options:
            tuned = peft.get_peft_model(model, peft.LoraConfig(r=2, lora_alpha=3, task_type="CAUSAL_LM", **options))
            with torch.no_grad():
                for key, parameter in tuned.named_parameters():
                    if "lora_" in key:
                        parameter.copy_(torch.randn_like(parameter) / 2)
            tuned.peft_config["default"].base_model_name_or_path = name
            tuned.save_pretrained(GOLDEN / folder)
            (GOLDEN / folder / "README.md").unlink()
            model = transformers.AutoModelForCausalLM.from_pretrained(GOLDEN / name, dtype=torch.float32)
        tuned = peft.PeftModel.from_pretrained(model, GOLDEN / folder).double()
        ids = rng.integers(0, model.config.vocab_size, (2, LENGTH))
        with torch.no_grad():
            logits = tuned(torch.tensor(ids)).logits
        golden["adapters"][folder] = {"model": name, "ids": ids.tolist(), "logits": [summary(row) for row in logits]}
    (GOLDEN / "generation.json").write_text(json.dumps(golden) + "\n")


def rounded(name: str, weight: torch.Tensor, kind: Type) -> torch.Tensor:
    """A merged weight as the file of a type has it."""
    values = weight.float().numpy()
    # GPT-2 has its products transposed; blocks lie along their inputs.
    is_turned = ".h." in name and values.ndim == 2
    values = np.ascontiguousarray(values.T if is_turned else values)
    packed = gguf.quants.quantize(values, kind)
    unpacked = gguf.quants.dequantize(packed, kind).reshape(values.shape)
    return torch.tensor(unpacked.T if is_turned else unpacked, dtype=torch.float64)


def merged() -> None:
    """What PEFT's adapters make of models when they are merged, and rounded to the type of a file."""
    rng = np.random.default_rng(23)
    golden = {}
    for folder, name, own in [("adapter", "llama", Type.BF16), ("adapter-gpt2", "gpt2", Type.F16)]:
        model = transformers.AutoModelForCausalLM.from_pretrained(GOLDEN / name, dtype=torch.float64, attn_implementation="eager")
        whole = peft.PeftModel.from_pretrained(model, GOLDEN / folder).double().merge_and_unload()
        state = {key: weight.clone() for key, weight in whole.state_dict().items()}
        ids = rng.integers(0, whole.config.vocab_size, (1, LENGTH))
        golden[folder] = {"model": name, "ids": ids.tolist(), "own": own.name, "logits": {}}
        for form, kind in [("folder", Type.F32), ("folder", own), ("gguf", Type.F16), ("gguf", Type.Q8_0)]:
            for key, weight in state.items():
                # As llama.cpp's converter, GGUF files have vectors and positions as 32-bit floats.
                is_float = form == "gguf" and (weight.ndim == 1 or key == "transformer.wpe.weight")
                whole.state_dict()[key].copy_(rounded(key, weight, Type.F32 if is_float else kind))
            with torch.no_grad():
                golden[folder]["logits"][f"{form} {kind.name}"] = summary(whole(torch.tensor(ids)).logits[0])
    (GOLDEN / "merged.json").write_text(json.dumps(golden) + "\n")


#: Prompts of which a real model is asked.
PROMPTS = [
    "The capital of France is", "Once upon a time, there was a little", "Dear Sir,\n\nI am writing to", "def fibonacci(n):\n    ",
    "Water boils at", "The three primary colors are", "In 1969, Neil Armstrong", "To be, or not to be,", "1, 2, 3, 4, 5,",
    "Photosynthesis is the process by which", "The opposite of hot is", "SELECT name FROM users WHERE", "Q: What is 2 + 2?\nA:",
    "My favourite recipe for bread begins with", "The largest planet of the solar system", "<html>\n<head>\n<title>", "Roses are red,",
    "Die Hauptstadt von Deutschland ist", "A", "A list of fruits:\n- apple\n- banana\n-",
]  # fmt: skip
SENTENCES = [
    "A man is eating food.", "A man is eating a piece of bread.", "The girl is carrying a baby.", "Two men pushed carts through the woods.",
    "A monkey is playing drums.", "", "GPU", "Ein Satz in einer anderen Sprache, der ein wenig länger ist als die vorigen Sätze.",
]  # fmt: skip


def real_outputs(models_folder: Path) -> None:
    """What transformers computes with the real models, added to `real.json`: in float64, with the weights that it reads."""
    golden = json.loads((GOLDEN / "real.json").read_text())
    reader = gguf.GGUFReader(models_folder / "smollm2.gguf")
    model = transformers.AutoModelForCausalLM.from_pretrained(models_folder, gguf_file="smollm2.gguf", dtype=torch.float32).double()
    prompts, wholes = [], []
    for text in PROMPTS:
        ids = smollm2_tokens(reader, text)
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0]
        wholes.append(logits[-1].float().numpy())
        # Every 64th of the last position, and the largest of each position: all of them would be 4 MB.
        parts = [float(f"{value:.8g}") for value in logits[-1, ::64].tolist()]
        prompts.append({"text": text, "ids": ids, "every_64th": parts, "largest": logits.max(-1).values.tolist()})
    # For a comparison of all of them by hand.
    np.stack(wholes).tofile(models_folder / "smollm2-logits.f32")
    written = [{"text": text, "greedy": greedy(model, smollm2_tokens(reader, text), 50)} for text in (PROMPTS[0], PROMPTS[2], PROMPTS[19])]
    golden["smollm2"] |= {"prompts": prompts, "written": written}
    bert = transformers.AutoModel.from_pretrained(models_folder / "minilm", dtype=torch.float32).double()
    fast = transformers.AutoTokenizer.from_pretrained(models_folder / "minilm")
    vectors = []
    for text in SENTENCES:
        batch = fast(text, return_tensors="pt")
        with torch.no_grad():
            hidden = bert(**batch).last_hidden_state[0].mean(0)
        vectors.append({"text": text, "ids": batch.input_ids[0].tolist(), "vector": torch.nn.functional.normalize(hidden, dim=0).tolist()})
    golden["minilm"]["vectors"] = vectors
    (GOLDEN / "real.json").write_text(json.dumps(golden, ensure_ascii=False) + "\n")


def trained(name: str, model, rng) -> dict:
    """Thirty steps of LoRA on all products of the blocks, with answers masked; factors as they were and as they became."""
    target = ["c_proj", "c_fc"] if name == "gpt2" else "all-linear"
    tuned = peft.get_peft_model(model, peft.LoraConfig(r=2, lora_alpha=4, target_modules=target, task_type="CAUSAL_LM"))
    factors = {key: parameter for key, parameter in tuned.named_parameters() if parameter.requires_grad}
    with torch.no_grad():
        for key, parameter in factors.items():
            parameter.copy_(torch.tensor(rng.normal(0, 0.3 if "lora_A" in key else 0.0, tuple(parameter.shape)).astype(np.float32)))
    initial = {key: parameter.detach().tolist() for key, parameter in factors.items() if "lora_A" in key}
    ids = torch.tensor(rng.integers(0, model.config.vocab_size, (4, LENGTH)))
    labels = ids.clone()
    labels[torch.tensor(rng.random((4, LENGTH)) < 0.4)] = -100
    optimizer = torch.optim.AdamW(factors.values(), lr=1e-2, weight_decay=0.0)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = tuned(ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"ids": ids.tolist(), "labels": labels.tolist(), "initial": initial, "losses": losses}


def read_again(llama) -> None:
    """transformers reads the GGUF file of Llama back: its rows are permuted as llama.cpp has them."""
    model = transformers.AutoModelForCausalLM.from_pretrained(GOLDEN, gguf_file="llama.gguf", dtype=torch.float32)
    for name, tensor in llama.state_dict().items():
        read = model.state_dict()[name]
        assert torch.allclose(read, tensor.float(), rtol=1e-3, atol=1e-6), name


if __name__ == "__main__":
    parts = {"gemma3": gemma3, "outputs": outputs, "generation": generation, "merged": merged, "packed": packed, "real": lambda: real_outputs(MODELS)}
    parts.get("".join(sys.argv[1:]), main)()
