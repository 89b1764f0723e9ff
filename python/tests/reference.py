"""Keras in float64 as the truth about a random program, and how far from it float32 may be.

The truth is Keras itself, in a process of its own whose `floatx` is float64. What may differ is measured for each program:

* The truth itself moves when weights and inputs change by a rounding of float32. Three such changes are tried.
* Keras' own float32 run differs from the truth by its rounding. It is only run where the movement does not explain a difference.

Results of the package may differ by `FACTOR` times the larger of both, and never by less than a few roundings of the largest number.

Where a ReLU reads 0, two maxima are equal, or Lion takes the sign of a gradient that is 0 but for rounding, the result jumps. If the
truth moves by more than `STEADY`, the data are drawn anew. What these three changes don't find is one chance in thousands, and
goes away with other data; an error in the package stays. So a difference counts if it is there with two draws of the data.
"""

from __future__ import annotations

import inspect
import multiprocessing
import unittest.mock
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
from keras.src.regularizers import regularizers
from numpy.typing import NDArray
from op_makers import CLASSES
from random_graphs import Program, load, without_random_start

import manyhands_ml
from manyhands_ml._engine import Engine

#: How many times the rounding of Keras' own float32 a difference may be.
FACTOR = 16.0
#: The least that a difference may be, relative to the largest number of an array: some roundings of float32.
LEAST = 2.0**-20
#: Relative movement of the truth up to which a program is compared.
STEADY = 2e-4
#: Probability below which the package and Keras may differ: Keras clips those of its cross-entropies at 1e-7 (python/README.md).
CLIPPED = 1e-6
#: Draws of the data until one is steady.
DRAWS = 4
#: Programs after which a new process goes on: JAX keeps some 30 MB of each.
PROGRAMS_OF_A_PROCESS = 25

Numbers = dict[str, NDArray[np.float64]]


def _absolute(x: Any) -> Any:
    """|x| with slope 0 at 0."""
    return x * keras.ops.stop_gradient(keras.ops.sign(x))


# JAX gives |0| the slope 1, TensorFlow and PyTorch give it 0, and so does the package (python/README.md).
regularizers.ops = SimpleNamespace(**{**vars(regularizers.ops), "absolute": _absolute})


def _in_one_call(stateless_call: Any) -> Any:
    """Keeps the penalties of each call of a shared layer. Keras on JAX forgets all but the last: it takes each for a step of its own."""

    def in_one_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._get_call_context()
        try:
            return stateless_call(self, *args, **kwargs)
        finally:
            self._maybe_reset_call_context()

    return in_one_call


keras.layers.Layer.stateless_call = _in_one_call(keras.layers.Layer.stateless_call)



@dataclass(frozen=True)
class Result:
    """What a program computes: numbers by name, and the names in logs."""

    numbers: Numbers
    names: dict[str, list[str]]


def set_start(model: Any, seed: list[int], moved: float = 0.0) -> None:
    """Weights that are no special ones, the same in each precision, and moved by a relative amount."""
    rng, shift = np.random.default_rng(seed), np.random.default_rng([*seed, int(moved * 2**40)])
    values = []
    for weight in model.weights:
        value = _start(weight, rng)
        values.append(value * (1 + moved * shift.uniform(-1, 1, value.shape)) if value.dtype == np.float32 else value)
    model.set_weights(values)
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.Normalization):
            # As `adapt` does: only then are the new weights what it computes with.
            layer.finalize_state()


def _start(weight: Any, rng: np.random.Generator) -> Any:
    shape = tuple(weight.shape)
    if weight.name == "count":
        return np.zeros(shape, np.int32)
    if weight.name in ("gamma", "scale", "variance", "moving_variance"):
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    fan_in = np.prod(shape[:-1]) if len(shape) > 1 else 8.0
    return (rng.normal(size=shape) * min(0.7, 1.2 / np.sqrt(fan_in))).astype(np.float32)


def run(program: Program, model: Any, data: tuple[Any, Any, Any]) -> Result:
    """Predictions, logs of each step, weights, and an evaluation."""
    (x, y, weights), batch_size = data, program.batch_size
    numbers, names, steps = Numbers(), dict[str, list[str]](), list[dict[str, float]]()
    quiet: dict[str, Any] = {"batch_size": batch_size, "verbose": 0}
    _keep(numbers, "predict before", model.predict(x, **quiet))
    if program.trains:
        see = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: steps.append(dict(logs)))
        history = model.fit(x, y, epochs=program.epochs, shuffle=False, callbacks=[see], **quiet, **weights)
        for step, found in enumerate(steps):
            _keep_logs(numbers, f"step {step}", found)
        names["history"] = sorted(history.history)
        for idx, (weight, value) in enumerate(zip(model.weights, model.get_weights())):
            # Keras numbers variables without a name through the process.
            _keep(numbers, f"weight {idx} of {weight.path.split('/')[0]}", value)
    sample_weight = weights.get("sample_weight")
    found = model.evaluate(x, y, sample_weight=sample_weight, return_dict=True, **quiet)
    _keep_logs(numbers, "evaluate", found)
    names["evaluate"] = sorted(found)
    if program.trains:
        _keep(numbers, "predict after", model.predict(x, **quiet))
    return Result(numbers, names)


def _keep(numbers: Numbers, what: str, values: Any) -> None:
    for idx, value in enumerate(keras.tree.flatten(values)):
        numbers[f"{what} {idx}"] = np.asarray(value, np.float64)


def _keep_logs(numbers: Numbers, what: str, logs: dict[str, float]) -> None:
    numbers.update({f"{what} {name}": np.asarray(value, np.float64) for name, value in logs.items()})


@without_random_start()
def built(program: Program) -> tuple[Any, tuple[Any, Any, Any]]:
    """The model of a program at its start, and its data."""
    build, data = load(program.source())
    model = build()
    set_start(model, [program.seed, program.draw])
    return model, data()


@dataclass(frozen=True)
class Truth:
    """What Keras computes in float64, and how far that moves by roundings of float32."""

    result: Result
    moves: Numbers

    def problem(self, program: Program) -> str | None:
        """What is no number, moves too far to be compared, or is clipped by Keras alone."""
        for name, value in self.result.numbers.items():
            if not np.all(np.isfinite(value)):
                return f"{name} is not finite"
            if self.moves[name] > STEADY * _size(value):
                return f"{name} jumps"
        outputs = [idx for idx, output in enumerate(program.outputs) if output.clips]
        for name in (f"predict {when} {idx}" for idx in outputs for when in ("before", "after")):
            found = self.result.numbers.get(name, np.float64(0.5))
            if np.min(found) < CLIPPED or np.max(found) > 1 - CLIPPED:
                return f"{name} has a probability that Keras clips"
        return None


def _size(value: NDArray[np.float64]) -> float:
    return max(1e-3, float(np.max(np.abs(value), initial=0.0)))


def _far(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    return float(np.max(np.abs(one - other), initial=0.0))


def truth(program: Program) -> Truth:
    """Runs a program in float64: as it is, and with weights and inputs that rounding has changed."""
    model, data = built(program)
    model.optimizer.build(model.trainable_variables)
    fresh = [np.array(variable.numpy()) for variable in model.optimizer.variables]
    result = run(program, model, data)
    moves = dict.fromkeys(result.numbers, np.float64(0.0))
    for change in (1.0, 2.0, 3.0):
        for variable, value in zip(model.optimizer.variables, fresh):
            variable.assign(value)
        rounding = change * 2.0**-23
        set_start(model, [program.seed, program.draw], rounding)
        rng = np.random.default_rng([program.seed, int(change)])
        x = keras.tree.map_structure(lambda part: _rounded(part, rounding, rng), data[0])
        for name, value in run(program, model, (x, *data[1:])).numbers.items():
            moves[name] = np.maximum(moves[name], _far(value, result.numbers[name]))
    return Truth(result, moves)


def _rounded(values: Any, rounding: float, rng: np.random.Generator) -> Any:
    if values.dtype != np.float32:
        return values
    return values.astype(np.float64) * (1 + rounding * rng.uniform(-1, 1, values.shape))


def _in_float64() -> None:
    import jax

    jax.config.update("jax_enable_x64", True)
    keras.config.set_floatx("float64")


class Float64:
    """A process that runs Keras in float64; after some programs another one."""

    def __init__(self) -> None:
        self._pool, self._begun = self._opened(), 0

    @staticmethod
    def _opened() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _in_float64)

    def begin(self, program: Program) -> Future[Truth]:
        """Begins to compute the truth about a program."""
        if self._begun == PROGRAMS_OF_A_PROCESS:
            # `max_tasks_per_child` does so, too, and may wait forever: python/cpython#115634.
            self._pool.shutdown(wait=False)
            self._pool, self._begun = self._opened(), 0
        self._begun += 1
        return self._pool.submit(truth, program)

    def close(self) -> None:
        """Ends the process."""
        self._pool.shutdown(cancel_futures=True)


def make(model: Any, rig: str) -> Any:
    """The model on adapters, with statistics of whole batches, as Keras has them."""
    return manyhands_ml.make_parallel(model, rig, batch_statistics="batch")


@dataclass(frozen=True)
class Verdict:
    """What came of a program: "same", "refused", "unsteady", "invalid" or "different"."""

    kind: str
    text: str = ""

    @property
    def is_failure(self) -> bool:
        """Does the package do something else than Keras?"""
        return self.kind == "different"


def judge(program: Program, rigs: list[str], float64: Float64, begun: Future[Truth] | None = None) -> Verdict:
    """Compares the package with Keras on adapters. A difference counts if two draws of the data have it."""
    differences: list[str] = []
    verdict = Verdict("unsteady", "no draw of the data is steady")
    for draw in range(DRAWS):
        drawn = replace(program, draw=program.draw + draw)
        verdict = _judge_draw(drawn, rigs, begun if begun and not draw else float64.begin(drawn))
        if verdict.kind == "different":
            differences.append(verdict.text)
        if verdict.kind in ("same", "refused", "invalid") or len(differences) == 2:
            return verdict
    return verdict


def _judge_draw(program: Program, rigs: list[str], begun: Future[Truth]) -> Verdict:
    try:
        expected = begun.result()
    except Exception as error:  # noqa: BLE001, any error of Keras says that it doesn't take the program
        return Verdict("invalid", f"{type(error).__name__}: {error}")
    if problem := expected.problem(program):
        return Verdict("unsteady", problem)
    single: Result | None = None
    for rig in rigs:
        model, data = built(program)
        try:
            # The package lets Keras compute the first batch, too, one operation after the other. All batches are compared here.
            with unittest.mock.patch.object(Engine, "check", lambda self, data: None):
                got = run(program, make(model, rig), data)
        except (manyhands_ml.ModelError, manyhands_ml.SettingError, manyhands_ml.DataError) as error:
            return _refused(program, str(error))
        except Exception as error:  # noqa: BLE001, an error without a name is what is looked for
            return Verdict("different", f"on {rig}: {type(error).__name__}: {error}")
        if _differences(program, expected, expected.result, got):
            single = single or run(program, *built(program))
            if found := _differences(program, expected, single, got):
                return Verdict("different", f"on {rig}:\n" + "\n".join(found))
    return Verdict("same")


def _refused(program: Program, text: str) -> Verdict:
    """A refusal is right if it names what it refuses."""
    named = any(f"`{name}`" in text for name in program.names()) or any(
        f"{what} `" in text for what in ("optimizer", "metric", "loss of", "output", "compile:", "operation")
    )
    return Verdict("refused" if named else "different", text)


def _differences(program: Program, expected: Truth, single: Result, got: Result) -> list[str]:
    """What is further from the truth than rounding explains."""
    found = [
        f"names of {what}: Keras has {names}, we have {got.names.get(what)}"
        for what, names in expected.result.names.items()
        if got.names.get(what) != names
    ]
    if expected.result.numbers.keys() != got.numbers.keys():
        return [*found, f"numbers of other names: {sorted(expected.result.numbers.keys() ^ got.numbers.keys())}"]
    for name, value in expected.result.numbers.items():
        # Keras on JAX loses the mask on its way from the gradient to the metrics of `fit`.
        if any(output.is_masked for output in program.outputs) and name.startswith("step") and not name.endswith("loss"):
            continue
        if got.numbers[name].shape != value.shape:
            found.append(f"{name}: Keras gives shape {value.shape}, we give {got.numbers[name].shape}")
            continue
        own = max(_far(single.numbers[name], value), float(expected.moves[name]))
        allowed = max(FACTOR * own, LEAST * _size(value))
        if not _far(got.numbers[name], value) <= allowed:
            far = _far(got.numbers[name], value)
            found.append(f"{name}: differs by {far:.2g}, Keras' float32 by {own:.2g}; {_shown(value)} is {_shown(got.numbers[name])}")
    return found


def _shown(values: NDArray[np.float64]) -> str:
    flat = values.ravel()
    return ", ".join(f"{value:.7g}" for value in flat[:4]) + (", …" if flat.size > 4 else "")


#: What stands around the functions of a program, so that it runs by itself.
_HEAD = """# Keras beside manyhands_ml: run it with Python.
import os

os.environ.setdefault("KERAS_BACKEND", "jax")
import keras
import numpy as np
from keras import layers, ops
from keras.src.applications.convnext import LayerScale, StochasticDepth
from keras.src.applications.inception_resnet_v2 import CustomScaleLayer

import manyhands_ml

"""
_TAIL = """
def came(on_adapters):
    model = build()
    set_start(model, SEED)
    if on_adapters:
        model = manyhands_ml.make_parallel(model, "cpu", batch_statistics="batch")
    x, y, weights = data()
    found = {"predict": model.predict(x, batch_size=4, verbose=0)}
    if TRAINS:
        found["fit"] = model.fit(x, y, batch_size=4, epochs=EPOCHS, shuffle=False, verbose=0, **weights).history
        found["weights"] = model.get_weights()
    sample_weight = weights.get("sample_weight")
    found["evaluate"] = model.evaluate(x, y, batch_size=4, verbose=0, sample_weight=sample_weight, return_dict=True)
    return found


if __name__ == "__main__":
    theirs, ours = came(False), came(True)
    print("Keras:     ", theirs.get("fit"), theirs["evaluate"])
    print("manyhands: ", ours.get("fit"), ours["evaluate"])
    for what in theirs:
        for one, other in zip(keras.tree.flatten(theirs[what]), keras.tree.flatten(ours[what])):
            print(what, np.shape(one), "differs by", np.max(np.abs(np.subtract(one, other)), initial=0))
"""


def script(program: Program) -> str:
    """A program that shows by itself what Keras and the package compute."""
    sources = [inspect.getsource(function) for function in (set_start, _start)]
    own = [inspect.getsource(kind) for kind in CLASSES if f"{kind.__name__}(" in program.source()]
    tail = _TAIL.replace("SEED", str([program.seed, program.draw])).replace("EPOCHS", str(program.epochs))
    start = "\n\n".join([*sources, *own]).replace(": Any", "").replace(" -> Any", "")
    return f"{_HEAD}\n{program.source()}\n\n{start}\n{tail.replace('TRAINS', str(program.trains))}"
