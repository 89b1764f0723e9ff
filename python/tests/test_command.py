"""Do other programs read what the command writes: TensorBoard its events, JSON Schema the settings and the logs?"""

from __future__ import annotations

import copy
import inspect
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import keras
import pytest
from jsonschema import Draft4Validator
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from manyhands_ml import make_parallel

ROOT = Path(__file__).parents[2]


def command(*arguments: str, folder: Path = ROOT) -> str:
    """Runs the command; gives what it printed."""
    line = [sys.executable, "-m", "manyhands_ml", *arguments]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def train(folder: Path, *more: str) -> list[dict[str, Any]]:
    """Trains for some epochs; gives the lines of its log."""
    files = ["--save", str(folder / "a.safetensors"), "--json", str(folder / "log.jsonl")]
    command("train", "examples/settings/table.toml", "--quiet", "--adapters", "cpu,cpu", "--split", "3:1", *files, *more)
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def events(folder: Path) -> EventAccumulator:
    """What TensorBoard reads in a folder."""
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    accumulator.Reload()
    return accumulator


def test_tensorboard_reads_the_numbers_of_each_epoch(tmp_path: Path) -> None:
    """Tags, folders and steps are those of Keras' callback; the values are those of the log."""
    lines = train(tmp_path, "--epochs", "3", "--tensorboard", str(tmp_path / "events"))
    train_events, validation = events(tmp_path / "events" / "train"), events(tmp_path / "events" / "validation")
    epochs = [line for line in lines if line["kind"] == "epoch"]
    adapters = {f"adapters/{idx} {step['name']}/{what}" for step in lines[0]["adapters"] for idx in [step["adapter"]] for what in ["share", "ms"]}
    names = {name for name in epochs[0] if name == "loss" or name == "accuracy"}
    assert set(train_events.Tags()["scalars"]) == {f"epoch_{name}" for name in names} | adapters | {"epoch_learning_rate", "epoch_samples_per_s"}
    assert set(validation.Tags()["scalars"]) == {f"epoch_{name}" for name in names}
    for name in names:
        for accumulator, key in [(train_events, name), (validation, f"val_{name}")]:
            read = accumulator.Scalars(f"epoch_{name}")
            assert [event.step for event in read] == [0, 1, 2]
            assert [event.value for event in read] == pytest.approx([epoch[key] for epoch in epochs], rel=1e-6)
    shares = [train_events.Scalars(tag)[0].value for tag in sorted(adapters) if tag.endswith("share")]
    assert sum(shares) == pytest.approx(1.0) and shares[0] == pytest.approx(0.75, abs=0.05)
    assert all(event.wall_time > 1.7e9 for event in train_events.Scalars("epoch_loss"))


def test_tensorboard_forgets_epochs_that_a_resumed_run_repeats(tmp_path: Path) -> None:
    """A run that goes on in the same folder has each epoch once."""
    folder = str(tmp_path / "events")
    train(tmp_path, "--epochs", "2", "--tensorboard", folder)
    train(tmp_path, "--epochs", "4", "--tensorboard", folder, "--resume")
    assert [event.step for event in events(tmp_path / "events" / "train").Scalars("epoch_loss")] == [0, 1, 2, 3]
    train(tmp_path, "--epochs", "1", "--tensorboard", folder, "--overwrite")
    assert [event.step for event in events(tmp_path / "events" / "train").Scalars("epoch_loss")] == [0]


def test_the_schema_of_logs_accepts_every_line(tmp_path: Path) -> None:
    """Each line of a log is as the schema says, and a line with a missing field is not."""
    schema = json.loads(command("schema", "log"))
    Draft4Validator.check_schema(schema)
    validator = Draft4Validator(schema)
    lines = train(tmp_path, "--epochs", "2")
    assert {line["kind"] for line in lines} == {"step", "epoch"}
    for line in lines:
        validator.validate(line)
        for key in ["kind", "step", "learning_rate"]:
            assert not validator.is_valid({name: value for name, value in line.items() if name != key}), key
        assert not validator.is_valid({**line, "learning_rate": "fast"})


def settings_files() -> dict[str, dict[str, Any]]:
    """All whole settings files of the repository, also those in documents."""
    files = [*(ROOT / "examples" / "settings").glob("*.toml"), *(ROOT / "examples").glob("*.toml"), ROOT / "cli" / "src" / "digits.toml"]
    texts = {path.name: path.read_text(encoding="utf-8") for path in files}
    for document in [ROOT / "README.md", ROOT / "python" / "README.md", *(ROOT / "docs").rglob("*.md")]:
        blocks = re.findall(r"```toml\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL)
        texts |= {f"{document.name} {number}": block for number, block in enumerate(blocks) if "[data]" in block}
    return {name: tomllib.loads(text) for name, text in texts.items()}


@pytest.fixture(scope="module")
def settings_schema() -> Draft4Validator:
    """The schema that the command prints."""
    schema = json.loads(command("schema"))
    Draft4Validator.check_schema(schema)
    return Draft4Validator(schema)


@pytest.mark.parametrize("name", settings_files())
def test_the_schema_accepts_every_example(name: str, settings_schema: Draft4Validator) -> None:
    """No setting that is right is refused."""
    settings_schema.validate(settings_files()[name])


def tables(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all tables whose keys are settings: a class's weight, for example, may have any name."""
    if isinstance(value, list):
        return [place for at, item in enumerate(value) for place in tables(item, (*path, at))]
    if not isinstance(value, dict) or (path and path[-1] in ["class_weight", "kinds"]):
        return []
    return [path, *(place for key, item in value.items() for place in tables(item, (*path, key)))]


@pytest.mark.parametrize("name", settings_files())
def test_the_schema_refuses_a_misspelt_key_in_every_table(name: str, settings_schema: Draft4Validator) -> None:
    """As the command itself does."""
    settings = settings_files()[name]
    places = tables(settings)
    assert len(places) > 3
    for path in places:
        wrong = copy.deepcopy(settings)
        table: Any = wrong
        for key in path:
            table = table[key]
        table["lerning_rate"] = 1
        assert not settings_schema.is_valid(wrong), path


@pytest.mark.parametrize(("table", "key", "value"), [
    ("training", "epochs", "ten"), ("training", "shuffle", 1), ("training", "non_finite", "halt"), ("optimizer", "type", "Adamm"),
    ("loss", "type", "MeanSquared"), ("data", "type", "cvs"), ("training", "metrics", ["acuracy"]), ("training", "early_stopping", {"monitor": "loss"}),
])  # fmt: skip
def test_the_schema_refuses_values_of_another_kind(table: str, key: str, value: Any, settings_schema: Draft4Validator) -> None:
    """Numbers, names and required keys are checked."""
    settings = settings_files()["table.toml"]
    settings_schema.validate(settings)
    settings.setdefault(table, {})[key] = value
    assert not settings_schema.is_valid(settings)


def test_arguments_are_the_settings_of_files(settings_schema: Draft4Validator) -> None:
    """Of one name, with one default and the same values."""
    settings = settings_schema.schema["properties"]["training"]["properties"]
    signature = inspect.signature(make_parallel, eval_str=True, locals={"keras": keras, "ParallelModel": object})
    shared = {name: it for name, it in signature.parameters.items() if name in settings}
    assert len(shared) > 5
    for name, argument in shared.items():
        # Neither adapters nor a seed have a default in files: there the command chooses them.
        unset = {"adapters": "", "seed": 0}.get(name)
        assert argument.default == settings[name].get("default", unset), name
        if get_origin(argument.annotation) is Literal:
            assert set(get_args(argument.annotation)) == set(settings[name]["enum"]), name
