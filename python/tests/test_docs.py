"""The code of the page "From Keras" runs, from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parents[1] / "README.md"
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
    exec(compile(block.replace('adapters="all"', 'adapters="cpu"'), str(README), "exec"), {})
    assert "accuracy" in capsys.readouterr().out and (tmp_path / "digits.safetensors").exists()
