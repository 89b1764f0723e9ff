#!/usr/bin/env python3
"""Golden values of conversations to train on: rows, and which of their tokens are learned.

    python3 -m venv target/text-venv
    target/text-venv/bin/pip install -r scripts/text-requirements.txt
    target/text-venv/bin/python scripts/chats_golden.py

Writes `text/tests/golden/chats.json`, with the tokenizer that `text_golden.py` made for `smollm`.
"""

import json
from pathlib import Path

import transformers

GOLDEN = Path(__file__).parent.parent / "text/tests/golden"

#: After the manner of Qwen 3: thoughts of answers before the last question are left out, and the last answer always has one.
THINKING = r"""{%- set last = namespace(question=-1) %}
{%- for m in messages %}
    {%- if m.role == 'user' %}{% set last.question = loop.index0 %}{% endif %}
{%- endfor %}
{%- for m in messages %}
    {%- set content = m.content if m.content is string else '' %}
    {%- set thought = m.reasoning_content if m.reasoning_content is string else '' %}
    {%- if not thought and '</think>' in content %}
        {%- set thought = content.split('</think>')[0].split('<think>')[-1].strip('\n') %}
        {%- set content = content.split('</think>')[-1].lstrip('\n') %}
    {%- endif %}
    {{- '<|im_start|>' + m.role + '\n' }}
    {%- if m.role == 'assistant' and loop.index0 > last.question and (loop.last or thought) %}
        {{- '<think>\n' + thought + '\n</think>\n\n' }}
    {%- endif %}
    {{- content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}
"""
PLAIN = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

#: Templates with marks around what is learned: all of an answer, parts of it, the last alone, with the line break behind, by variables of the
#: loop, where earlier answers are rendered otherwise, in a macro that is called where it writes.
MARKED = [
    PLAIN.replace("{{ m.content }}<|im_end|>", "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}"),
    PLAIN.replace("{{ m.content }}<|im_end|>\n", "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>\n{% endgeneration %}{% else %}{{ m.content }}<|im_end|>\n{% endif %}"),
    PLAIN.replace("{{ m.content }}", "{% if m.role == 'assistant' %}{%- generation -%} {{ m.content[:1] }} {%- endgeneration -%}{{ m.content[1:-1] }}{%- generation -%}{{ m.content[-1:] }}{%- endgeneration -%}{% else %}{{ m.content }}{% endif %}"),
    PLAIN.replace("{{ m.content }}<|im_end|>", "{% if loop.last %}{%generation%}{{ m.content }}<|im_end|>{%endgeneration%}{% else %}{{ m.content }}<|im_end|>{% endif %}"),
    PLAIN.replace("{{ m.content }}", "{% set text = m.content | trim %}{% generation %}{% set text = text + '!' %}{{ loop.index }}{{ text }}{% if not loop.last %}…{% endif %}{% endgeneration %}{{ text }}"),
    THINKING.replace("""    {{- content + '<|im_end|>\\n' }}""", """    {%- if m.role == 'assistant' %}{% generation %}{{- content + '<|im_end|>' }}{% endgeneration %}{{- '\\n' }}{% else %}{{- content + '<|im_end|>\\n' }}{% endif %}"""),
    "{% macro answer(m) %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% endmacro %}" + PLAIN.replace("{{ m.content }}<|im_end|>", "{{ answer(m) }}"),
]  # fmt: skip


def said(*messages: str, **last) -> list[dict]:
    """Messages, each as a letter for its role and its content; fields of the last."""
    roles = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}
    conversation = [{"role": roles[message[0]], "content": message[2:]} for message in messages]
    conversation[-1] |= last
    return conversation


CONVERSATIONS = [
    said("u hello", "a world"),
    said("u 1", "a 2", "u 3 and äö", "a four\n"),
    said("s be brief", "u 1", "a <think>\none, two\n</think>\n\ntwo", "u 3", "a <think>\nthree\n</think>\n\n4", "u 5", "a six"),
    # Steps of one answer keep their thoughts.
    said("u sun?", "a <think>\nask\n</think>\n\ncall", "t sunny", "a <think>\nsun\n</think>\n\nyes"),
    said("u sun?", "a call", "t sunny", "a yes"),
    said("u 1", "a 2", "u 3"),
    [*said("u 1", "a 2", reasoning_content="count"), *said("u 3", "a 4", thinking="count on")],
    [*said("u 1", "a 2", reasoning="count"), *said("u 3", "a 4", thinking="count on", reasoning="not this")],
]


def rows(tokenizer, template: str, messages: list[dict]) -> list[dict]:
    """One row with all answers if the template writes each as where it is the last, else a row for each.

    The texts are those of transformers: the prompt of each answer, and the conversation up to its end.
    """

    def text(count: int, **options) -> str:
        return tokenizer.apply_chat_template(messages[:count], chat_template=template, tokenize=False, **options)

    places = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    answers = [(text(place, add_generation_prompt=True), text(place + 1)) for place in places]
    assert all(closed.startswith(prompt) for prompt, closed in answers)
    whole = text(len(messages))
    if all(whole.startswith(closed) for _, closed in answers):
        return [row(tokenizer, whole, answers)]
    return [row(tokenizer, closed, [(prompt, closed)]) for prompt, closed in answers]


def row(tokenizer, text: str, answers: list[tuple[str, str]]) -> dict:
    """Tokens of a text; those of answers are learned, up to the token that ends each."""
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    learned = [0] * len(encoded.input_ids)
    for prompt, closed in answers:
        end = closed.rindex("<|im_end|>") + len("<|im_end|>")
        for place, (first, behind) in enumerate(encoded.offset_mapping):
            if behind > len(prompt) and first < end:
                learned[place] = 1
    return {"ids": encoded.input_ids, "learned": learned}


def masked(tokenizer, template: str, messages: list[dict]) -> dict:
    """The mask of transformers."""
    encoded = tokenizer.apply_chat_template(messages, chat_template=template, return_dict=True, return_assistant_tokens_mask=True)
    return {"template": template, "messages": messages, "ids": encoded["input_ids"], "learned": encoded["assistant_masks"]}


def unlearned(tokenizer) -> list[dict]:
    """Answers of weight 0, by a template that does not mark them; the golden template does."""
    messages = CONVERSATIONS[2]
    cases = []
    for weights in [(0, 1, 1), (1, 0, 1), (1, 1, 0), (0, 0, 0)]:
        weighed, left = [dict(message) for message in messages], list(weights)
        for message in weighed:
            if message["role"] == "assistant":
                message["weight"] = left.pop(0)
        template = MARKED[0].replace("m.role == 'assistant'", "m.role == 'assistant' and m.weight == 1")
        assert template != MARKED[0]
        cases.append({**masked(tokenizer, template, weighed), "template": MARKED[0]})
    return cases


def of_two(tokenizer) -> dict:
    """Texts of a model with one template for tools and one for all else."""
    templates = {"default": PLAIN, "tool_use": "{{ tools | tojson }}{% generation %}" + PLAIN + "{% endgeneration %}"}
    tools = [None, [], [{"type": "function", "function": {"name": "f"}}]]
    tokenizer.chat_template = templates
    texts = [tokenizer.apply_chat_template(CONVERSATIONS[0], tools=some, tokenize=False) for some in tools]
    return {"templates": templates, "messages": CONVERSATIONS[0], "tools": tools, "texts": texts}


def main() -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(GOLDEN / "smollm")
    answers = [
        {"template": template, "messages": messages, "rows": rows(tokenizer, template, messages)}
        for template in (THINKING, PLAIN)
        for messages in CONVERSATIONS
    ]
    assert all("generation %}" in template or "generation%}" in template or "generation -%}" in template for template in MARKED)
    marked = [masked(tokenizer, template, messages) for template in MARKED for messages in CONVERSATIONS[:5]]
    golden = {"answers": answers, "marked": marked + unlearned(tokenizer), "two": of_two(tokenizer)}
    (GOLDEN / "chats.json").write_text(json.dumps(golden, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
