"""The code of the page "From Keras" runs, from top to bottom."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parents[1] / "README.md"
ROOT_README = Path(__file__).parents[2] / "README.md"
PAGE = Path(__file__).parents[2] / "docs" / "from-keras.md"


def test_the_page_from_keras(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MANYHANDS_ADAPTERS", "cpu")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 6
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["history"].history["loss"][-1] < names["history"].history["loss"][0]


def test_the_readme_without_keras(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    text = README.read_text().split("## Without Keras")[1]
    block = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    exec(compile(block, str(README), "exec"), {})
    assert "accuracy" in capsys.readouterr().out and (tmp_path / "digits.safetensors").exists()


@pytest.mark.parametrize("page", [ROOT_README, README], ids=["repository", "package"])
def test_the_first_example_of_a_readme_runs_as_it_stands_without_a_gpu(page: Path, tmp_path: Path) -> None:
    block = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[0]
    assert "..." not in block and 'adapters="all"' in block
    without = {name: value for name, value in os.environ.items() if name != "MANYHANDS_ADAPTERS"}
    # No driver of Vulkan is found: `all` is the processor.
    done = subprocess.run(
        [sys.executable, "-c", block + "\nfrom manyhands_ml import adapters\nprint([it.kind for it in adapters('all')])\n"],
        cwd=tmp_path,
        env={**without, "VK_DRIVER_FILES": "/nonexistent", "VK_ICD_FILENAMES": "/nonexistent"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "['cpu']"
    assert (tmp_path / "trained.keras").exists()
