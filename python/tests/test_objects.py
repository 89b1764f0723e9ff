"""Models, trainers and predictors without Keras; the examples of the documentation; the command."""

from __future__ import annotations

import doctest
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import manyhands_ml
from manyhands_ml import AdapterError, DataError, Model, ModelError, Predictor, SettingError, Trainer, digits, simulate

MLP: dict[str, Any] = {
    "input": [8, 8, 1],
    "layers": [{"type": "Flatten"}, {"type": "Dense", "units": 16, "activation": "relu"}, {"type": "Dense", "units": 10}],
}


@pytest.mark.parametrize("module", [manyhands_ml, sys.modules["manyhands_ml._objects"]], ids=lambda module: module.__name__)
def test_examples_of_the_documentation_run(module: Any) -> None:
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0 and result.attempted > 0


def test_a_model_goes_through_a_file_and_to_the_command(tmp_path: Path) -> None:
    (x, y), (x_test, y_test) = digits()
    trainer = Trainer(Model.from_dict(MLP, seed=1), "Adam", adapters="cpu")
    seen = []
    history = trainer.fit(
        x, y, epochs=9, batch_size=64, validation_data=(x_test, y_test), on_epoch=lambda epoch, logs: seen.append(epoch) or epoch == 2
    )
    assert seen == [0, 1, 2] and [len(values) for values in history.values()] == [3] * 4
    assert trainer.step == 3 * 23
    trainer.model.save(tmp_path / "digits.safetensors")
    predictor = Predictor(tmp_path / "digits.safetensors", adapters="cpu,cpu")
    np.testing.assert_allclose(predictor.predict(x_test), trainer.predict(x_test, batch_size=7), atol=1e-5)
    assert Model.load(tmp_path / "digits.safetensors").config["layers"][1]["units"] == 16
    program = Path(sys.executable).with_name("manyhands-ml")
    told = subprocess.run([program, "evaluate", "digits.safetensors", "--adapters", "cpu"], cwd=tmp_path, capture_output=True, text=True)
    accuracy = trainer.evaluate(x_test, y_test)["accuracy"]
    assert told.returncode == 0 and f"accuracy {accuracy:.4f}" in told.stdout, told


def test_memory_is_limited_as_said() -> None:
    (x, y), _ = digits()

    def trained(memory: str | None) -> dict[str, Any]:
        trainer = Trainer(Model.from_dict(MLP, seed=1), {"type": "SGD", "learning_rate": 0.1}, adapters="cpu", memory=memory)
        trainer.fit(x, y, epochs=1, batch_size=512, shuffle=False)
        return trainer.model.weights

    free, limited = trained(None), trained("cpu=150kB")
    for name, values in free.items():
        np.testing.assert_allclose(limited[name], values, atol=1e-5)
    with pytest.raises(SettingError, match="needs an adapter and an amount, such as `0=6GB`"):
        trained("cpu")
    with pytest.raises(AdapterError, match="the memory limit for `radeon` needs an adapter in use"):
        trained("radeon=1GB")


def _command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "manyhands_ml", *arguments], cwd=cwd, capture_output=True, text=True)


@pytest.mark.skipif(sys.platform != "linux", reason="the system must say what memory it has")
def test_outputs_that_do_not_fit_are_refused_before_they_are_computed() -> None:
    names = ["input", *(f"c{idx}" for idx in range(26))]
    layers = [{"type": "Concatenate", "name": name, "inputs": [last, last]} for last, name in itertools.pairwise(names)]
    model = Model.from_dict({"input": [1], "layers": layers})
    with pytest.raises(AdapterError, match=r"the outputs of 3000 rows need 805\.31 GB, but the system has"):
        Predictor(model, adapters="cpu").predict(np.ones((3000, 1), np.float32))


def test_mistakes_of_the_command_have_its_status(tmp_path: Path) -> None:
    wrong = _command("trian", cwd=tmp_path)
    assert wrong.returncode == 2 and "manyhands-ml" in wrong.stderr
    told = _command("--help", cwd=tmp_path)
    assert told.returncode == 0 and "train" in told.stdout and "`manyhands-ml convert` makes a model file" in told.stdout
    missing = _command("summary", "none", cwd=tmp_path)
    assert missing.returncode == 1 and "help:" in missing.stderr


@pytest.mark.skipif(os.name == "nt", reason="needs signals of Unix")
def test_an_interrupt_ends_the_command_with_its_run_saved(tmp_path: Path) -> None:
    arguments = ["train", "--adapters", "cpu", "--epochs", "100000", "--save", "run.safetensors", "--quiet"]
    program = subprocess.Popen(
        [sys.executable, "-m", "manyhands_ml", *arguments],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs the tests may ignore interrupts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "run.safetensors").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    program.send_signal(signal.SIGINT)
    _, told = program.communicate(timeout=60)
    assert program.returncode == 130, told
    assert "finishing this step, then saving" in told and "Traceback" not in told
    assert Model.load(tmp_path / "run.safetensors").n_parameters > 0


def test_weights_and_rates_are_taken(rng: np.random.Generator) -> None:
    model = Model.from_dict({"input": [3], "layers": [{"type": "Dense", "units": 2}]})
    kernel = rng.normal(size=(3, 2))
    model.set_weights({"dense/kernel": kernel})
    x, y = rng.normal(size=(8, 3)), rng.normal(size=(8, 2))
    trainer = Trainer(model, {"type": "SGD", "learning_rate": 0.5}, "MeanSquaredError", adapters="cpu")
    assert trainer.learning_rate == 0.5
    trainer.learning_rate = 0.1
    trainer.fit(x, y, batch_size=8)
    # A step of gradient descent by hand.
    expected = kernel - 0.1 * 2 / 16 * x.T @ (x @ kernel - y)
    np.testing.assert_allclose(trainer.model.weights["dense/kernel"], expected, atol=1e-5)
    np.testing.assert_allclose(model.weights["dense/kernel"], kernel, atol=1e-6)


def test_a_timeline_is_data(rng: np.random.Generator) -> None:
    (x, y), _ = digits()
    trainer = Trainer(Model.from_dict(MLP), adapters="cpu,cpu", split="even")
    assert trainer.timeline().spans == []
    trainer.fit(x[:64], y[:64], batch_size=32)
    assert trainer.timeline().spans == []
    trainer.fit(x[:70], y[:70], batch_size=32, epochs=2, timeline=True)
    timeline = trainer.timeline()
    assert len(timeline.adapters) == 2 and timeline.n_dropped == 0
    steps = [span for span in timeline.spans if span.what == "step"]
    assert [span.rows for span in steps] == [32, 32, 6] * 2 and all(span.adapter is None for span in steps)
    computed = [span for span in timeline.spans if span.what == "compute"]
    # After a slow step, one adapter's rows may be computed again by the other, to compare them.
    assert sum(span.rows for span in computed if span.step == steps[0].step) in (32, 48)
    assert {span.adapter for span in computed} == {0, 1}
    for span in computed:
        around = next(step for step in steps if step.step == span.step)
        assert span.ms > 0 and around.start_ms <= span.start_ms + 1 and span.start_ms <= around.start_ms + around.ms


def test_mistakes_say_what_is_needed() -> None:
    with pytest.raises(ModelError, match="help:"):
        Model.from_dict({"input": [3], "layers": [{"type": "Dense", "units": 0}]})
    with pytest.raises(SettingError, match="line 2.*help:|help:"):
        Model.from_toml("input = [3]\nlayer = []")
    model = Model.from_dict(MLP)
    with pytest.raises(DataError, match="`dense/weight` needs to be a tensor of the model"):
        model.set_weights({"dense/weight": np.zeros(3)})
    with pytest.raises(DataError, match="needs 10 values, but got 3"):
        model.set_weights({"dense_1/bias": np.zeros(3)})
    with pytest.raises(SettingError):
        Trainer(model, "Adamm", adapters="cpu")
    trainer = Trainer(model, adapters="cpu")
    with pytest.raises(DataError, match=r"needs shape \[None, 8, 8, 1\]"):
        trainer.predict(np.zeros((2, 8, 9)))
    with pytest.raises(SettingError, match="help:"):
        simulate({"batch_size": 0, "preset": "mlp", "adapters": []})
