"""Language models of others from Python: they learn and write as by the command, and give errors that name what is wrong."""

from __future__ import annotations

import itertools
import json
import logging
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from manyhands_ml import AdapterError, DataError, ManyhandsError, ModelError, SettingError
from manyhands_ml.text import LanguageModel

#: Small random models and adapters of PEFT, which `scripts/text_golden.py` made.
GOLDEN = Path(__file__).parents[2] / "text" / "tests" / "golden"
COLORS = ["red", "green", "blue", "white"]
CHAT = [{"messages": [{"role": "user", "content": word}, {"role": "assistant", "content": word}]} for word in COLORS * 6]
LORA = dict(r=2, alpha=4)
GREEDY: dict[str, Any] = dict(max_new_tokens=12, temperature=0, adapters="cpu")


def opened(name: str = "smollm", **lora: Any) -> LanguageModel:
    return LanguageModel.load(GOLDEN / name, lora=lora or LORA)


def command(folder: Path, *arguments: Any) -> str:
    program = Path(sys.executable).with_name("manyhands-ml")
    done = subprocess.run([program, *map(str, arguments)], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_model_learns_as_by_the_command(tmp_path: Path) -> None:
    """The same rows, settings and seed give the same bits."""
    (tmp_path / "chat.jsonl").write_text("\n".join(map(json.dumps, CHAT)))
    arguments = ["--epochs", 3, "--batch-size", 4, "--learning-rate", 0.01, "--rank", 2, "--alpha", 4, "--adapters", "cpu", "--seed", 5]
    command(tmp_path, "finetune", GOLDEN / "smollm", "chat.jsonl", "--run", "run", "--quiet", *arguments)
    lines = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    epochs = [line for line in lines if line["kind"] == "epoch"]
    assert len(epochs) == 3
    for rows in (CHAT, tmp_path / "chat.jsonl", str(tmp_path / "chat.jsonl")):
        model = opened()
        history = model.fit(rows, adapters="cpu", epochs=3, batch_size=4, learning_rate=0.01, validation=0.1, seed=5)
        assert set(history) == {"loss", "perplexity", "val_loss", "val_perplexity"}
        for name, values in history.items():
            assert values == [epoch[name] for epoch in epochs], name
        model.save_adapter(tmp_path / "adapter")
        own, known = (tmp_path / folder / "adapter_model.safetensors" for folder in ("adapter", "run/adapter"))
        assert own.read_bytes() == known.read_bytes()


@pytest.mark.parametrize(
    "page, title, model",
    [("python/README.md", "## Language models", "SmolLM2-135M-Instruct"), ("docs/guide/language-models.md", "## From Python", "SmolLM2")],
)
def test_the_examples_of_the_pages_run(page: str, title: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / model).symlink_to(GOLDEN / "smollm")
    text = (GOLDEN.parents[2] / page).read_text().split(f"{title}\n")[1]
    block = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    # One row can't be held out and learned.
    block = block.replace('adapters="all"', 'adapters="cpu"').replace("model.fit(rows,", "model.fit(4 * rows,")
    assert f'load("{model}"' in block
    exec(compile(block, page, "exec"), {})
    assert (tmp_path / "adapter/adapter_config.json").is_file()


def test_a_model_learns_on_any_adapters(rig: str) -> None:
    def losses(adapters: str) -> list[float]:
        return opened().fit(CHAT, adapters=adapters, epochs=3, batch_size=5, learning_rate=0.01)["loss"]

    expected = losses("cpu")
    assert expected[2] < 0.9 * expected[0]
    assert losses(rig) == pytest.approx(expected, rel=1e-5)


def test_texts_that_share_rows_train_as_those_that_do_not() -> None:
    # One step in each of three epochs, on all texts: their rows make no difference.
    settings: dict[str, Any] = {"adapters": "cpu", "epochs": 3, "batch_size": len(CHAT), "learning_rate": 0.01}
    alone, joined = (opened().fit(CHAT, join_texts=is_joined, **settings)["loss"] for is_joined in (False, True))
    assert joined == pytest.approx(alone, rel=1e-5)


def test_training_goes_on() -> None:
    model = opened()
    before = model.perplexity(CHAT, adapters="cpu")
    first = model.fit(CHAT, adapters="cpu", epochs=4, batch_size=4, learning_rate=0.01)["loss"]
    second = model.fit(CHAT, adapters="cpu", epochs=2, batch_size=4, learning_rate=0.01)["loss"]
    assert second[0] < first[-1]
    after = model.perplexity(CHAT, adapters="cpu")
    assert after < 0.5 * before
    # Any batch: each token counts once.
    assert model.perplexity(CHAT, adapters="cpu", batch_size=7) == pytest.approx(after, rel=1e-5)


def test_of_epochs_the_best_is_kept() -> None:
    """Nobody can guess these answers: rows that are held out are expected less after some epochs."""
    words = ["red", "green", "blue", "white", "quick", "brown", "lazy", "numbers"]
    rows = [{"prompt": prompt, "completion": completion} for prompt, completion in zip(words, words[3:] + words[:3])]
    model = opened()
    history = model.fit(rows, adapters="cpu", epochs=6, batch_size=2, learning_rate=0.05, validation=0.25, seed=3)
    best = min(history["val_perplexity"])
    assert history["val_perplexity"][-1] > 1.01 * best
    pairs = [model.perplexity(pair, adapters="cpu") for pair in itertools.combinations(rows, 2)]
    assert sum(perplexity == pytest.approx(best, rel=1e-5) for perplexity in pairs) == 1


def test_epochs_are_told_and_may_end_training() -> None:
    seen: list[tuple[int, list[str]]] = []

    def tell(epoch: int, numbers: dict[str, float]) -> bool:
        seen.append((epoch, list(numbers)))
        return epoch == 1

    model = opened()
    history = model.fit(CHAT, adapters="cpu", epochs=5, on_epoch=tell)
    assert seen == [(0, ["loss", "perplexity"]), (1, ["loss", "perplexity"])] and len(history["loss"]) == 2

    def interrupt(epoch: int, numbers: dict[str, float]) -> None:
        raise KeyboardInterrupt

    other = opened()
    with pytest.raises(KeyboardInterrupt):
        other.fit(CHAT, adapters="cpu", epochs=5, learning_rate=0.01, on_epoch=interrupt)
    # What was trained until then is kept.
    assert other.perplexity(CHAT, adapters="cpu") < opened().perplexity(CHAT, adapters="cpu")


@pytest.mark.parametrize("name", ["smollm", "qwen3.gguf", "gpt2"])
def test_an_adapter_goes_through_its_folder(name: str, tmp_path: Path) -> None:
    rows = [{"prompt": word, "completion": " " + word} for word in COLORS * 3]
    model = opened(name)
    plain = model.perplexity(rows, adapters="cpu")
    model.fit(rows, adapters="cpu", epochs=3, batch_size=4, learning_rate=0.02)
    model.save_adapter(tmp_path / "adapter")
    other = opened(name)
    assert other.perplexity(rows, adapters="cpu") == plain
    written = other.generate("red", raw=True, **GREEDY)
    other.load_adapter(tmp_path / "adapter")
    assert other.perplexity(rows, adapters="cpu") == model.perplexity(rows, adapters="cpu") < plain
    assert other.generate("red", raw=True, **GREEDY) == model.generate("red", raw=True, **GREEDY) != written
    model.save_merged(tmp_path / "merged", type="F32")
    merged = opened(str(tmp_path / "merged")).perplexity(rows, adapters="cpu")
    assert merged == pytest.approx(model.perplexity(rows, adapters="cpu"), rel=1e-5)
    # A loaded adapter learns on, with its own rank.
    before = other.perplexity(rows, adapters="cpu")
    other.fit(rows, adapters="cpu", epochs=2, batch_size=4, learning_rate=0.01)
    assert other.perplexity(rows, adapters="cpu") < before


def test_texts_are_those_of_the_command(tmp_path: Path) -> None:
    model = opened("llama")
    arguments = ["generate", GOLDEN / "llama", "Hello", "--json", "--temperature", 0, "--max-tokens", 12]
    for raw in (False, True):
        told = command(tmp_path, *arguments, *["--raw"] * raw)
        assert model.generate("Hello", raw=raw, **GREEDY) == json.loads(told)["text"]
    message = [{"role": "user", "content": "Hello"}]
    whole = model.generate("Hello", **GREEDY)
    assert model.generate(message, **GREEDY) == whole != model.generate("Hello", raw=True, **GREEDY)
    longer = [*message, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "What?"}]
    drawn = {**GREEDY, "temperature": 1.5}
    assert model.generate(longer, **drawn) != model.generate(message, **drawn)
    model.load_adapter(GOLDEN / "adapter")
    assert model.generate("Hello", **GREEDY) != whole


def test_choices_are_those_that_are_asked_for() -> None:
    model = opened("llama")

    def text(**settings: Any) -> str:
        return model.generate("Hello", raw=True, **{**GREEDY, "temperature": 1.5, **settings})

    greedy = text(temperature=0)
    assert text() == text() and text(seed=1) != text()
    assert text(top_k=1) == text(top_p=1e-9) == greedy
    stop = greedy[3:5]
    assert text(temperature=0, stop=stop) == text(temperature=0, stop=["never", stop]) == greedy[: greedy.index(stop)]
    assert len(text(temperature=0, max_new_tokens=3)) < len(greedy)


def test_texts_that_are_too_long_are_told(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    rows = [{"text": "red " * 60}, *[{"text": "red red"}] * 4]
    with caplog.at_level(logging.WARNING, "manyhands"):
        opened().fit(rows, adapters="cpu", epochs=1, length=32)
    assert re.search(r"1 text is left out, longer than 32 tokens: the longest has \d+", caplog.text)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text("to be or not to be " * 20)
    history = opened().fit(tmp_path / "texts", adapters="cpu", epochs=1, length=16)
    assert math.exp(history["loss"][0]) == pytest.approx(history["perplexity"][0], rel=0.05)


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: LanguageModel.load("nowhere"), DataError, "nowhere"),
        (lambda: opened(rank=8), SettingError, "`lora` needs `r`, `alpha`, `dropout`, `layers`, but has `rank`"),
        (lambda: opened(r=0), SettingError, "needs a rank `r` from 1 up and a number `alpha`, but has 0 and 16.0"),
        (lambda: opened(layers=["gate"]), SettingError, "`layers` of `lora` names `gate`, which can't have factors"),
        (lambda: opened(dropout=1.0).fit(CHAT, adapters="cpu"), ManyhandsError, "but got 1"),
        (lambda: opened().fit([], adapters="cpu"), DataError, "`rows` needs at least one row, but has none"),
        (lambda: opened().fit([CHAT[0], {"txt": "red"}], adapters="cpu"), DataError, "`rows[1]` needs `messages`"),
        (lambda: opened().fit(CHAT, adapters="cpu", length=4), DataError, "needs a text of at most 4 tokens, but all have more"),
        (lambda: opened().fit(CHAT, adapters="cpu", validation=1), SettingError, "`validation` needs a part from 0 to below 1"),
        (lambda: opened().fit(CHAT, adapters="cpu", epochs=0), SettingError, "`epochs` needs to be a whole number from 1 up, but is 0"),
        (lambda: opened().fit(CHAT, adapters="cpu", length=129), SettingError, "`length` needs to be at most 128"),
        (lambda: opened().fit(CHAT, adapters="cpu", learning_rate=-1), SettingError, "leave it out to take 2e-4"),
        (lambda: opened().generate("red", adapters="cpu", stop=""), SettingError, "`stop` needs a text before which to end"),
        (lambda: opened().fit(CHAT, adapters="radeon 9"), AdapterError, "radeon 9"),
        (lambda: opened().perplexity("nowhere.jsonl", adapters="cpu"), DataError, "nowhere.jsonl"),
        (lambda: opened().save_adapter("adapter"), ModelError, "needs an adapter, but has none"),
        (lambda: opened("gpt2").load_adapter(GOLDEN / "adapter"), ModelError, "which changes no kernel of this model"),
        (lambda: opened().generate("", raw=True, adapters="cpu"), DataError, "the prompt needs at least one token"),
        (lambda: opened().generate("Hi", top_p=2, adapters="cpu"), SettingError, "`top_p` needs to be above 0 and at most 1"),
        (lambda: opened("llama").generate([], adapters="cpu"), DataError, "needs a list of messages in `messages`, but has none"),
        (lambda: opened(alpha=math.inf), SettingError, "`alpha` needs to be a finite number, but is inf"),
        (lambda: opened(layers="q_proj"), SettingError, "`layers` of `lora` names `q_proj`, which can't have factors"),
        (lambda: opened().fit(CHAT, adapters="cpu", learning_rate="1"), SettingError, "`the settings of fit`, line 1, key `learning_rate`"),
        (lambda: opened().fit(CHAT, adapters="cpu", learning_rate=math.nan), SettingError, "`learning_rate` needs to be a finite number"),
        (lambda: opened().fit([{"text": "red", "n": math.nan}], adapters="cpu"), DataError, "`rows[0]` needs to be what JSON has, but: "),
        (lambda: opened().generate([{"role": "user", "content": "Hi"}], raw=True), SettingError, "`raw` needs a text as prompt"),
        (lambda: LanguageModel.load("owner/name"), DataError, "`hf download owner/name --local-dir name`"),
        (lambda: opened("bert").generate([{"role": "user", "content": "Hi"}]), DataError, "needs a model with a chat template"),
    ],
)
def test_what_is_wrong_is_named(call: Any, error: type[Exception], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=re.escape(text)) as raised:
        call()
    assert "\n  help: " in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_merged_models_are_written_over_nothing(tmp_path: Path) -> None:
    model = opened()
    with pytest.raises(ModelError, match="needs an adapter, but has none"):
        model.save_merged(tmp_path / "merged")
    model.fit(CHAT, adapters="cpu", epochs=1)
    model.save_merged(tmp_path / "merged.gguf")
    with pytest.raises(SettingError, match="needs to be a new file, but is there already"):
        model.save_merged(tmp_path / "merged.gguf", type="Q8_0")
    with pytest.raises(SettingError, match="`type` needs to be F32, F16, BF16 or Q8_0, but is `int3`"):
        model.save_merged(tmp_path / "other.gguf", type="int3")
    assert [path.name for path in tmp_path.iterdir()] == ["merged.gguf"]
