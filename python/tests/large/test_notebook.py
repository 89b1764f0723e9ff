"""The notebook runs from top to bottom, with its plots."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[3] / "docs" / "digits.ipynb"


def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MANYHANDS_ADAPTERS", "cpu")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "the file holds no outputs: they are those of a machine"
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 4
    accuracies = [output["data"]["text/plain"] for output in outputs if output["output_type"] == "execute_result"]
    # Keras alone gives 0.9222 from this seed.
    assert float(accuracies[1]) == pytest.approx(0.9222, abs=0.01)
