"""Random programs of Keras compute the same on adapters as in Keras with 64 bits. `reference.py` says how both are compared.

A failing program is made smaller and printed as Python that shows the difference. `MANYHANDS_GRAPHS=N` sets how many fresh programs
the slow test draws; `MANYHANDS_GRAPH_SEED=S` repeats the program that was drawn from that seed.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
import reference
from conftest import rigs
from graph_makers import LOSSES, MAKERS, OPTIMIZERS
from op_makers import OPS
from random_graphs import KINDS, Given, Group, Output, Program, Step, generate, is_whole, load, smaller
from reference import PROGRAMS_OF_A_PROCESS, Float64, Truth, Verdict, built, judge, script

from manyhands_ml import _objective, make_parallel
from manyhands_ml._layers import LAYERS
from manyhands_ml._ops import _OPERATIONS

#: Programs that every run of the tests draws.
QUICK = 20
#: Fresh programs of the slow test.
MANY = int(os.environ.get("MANYHANDS_GRAPHS", "500"))
#: Processes that compare fresh programs. Each takes up to 3 GB, with the one in float64 that it has.
PROCESSES = min(2, os.cpu_count() or 1)
#: Seconds that making a failing program smaller may take.
PATIENCE_S = 300
#: Adapters that every program runs on.
SPLIT = "cpu,cpu,cpu"
#: Verdicts of the quick programs so far.
CAME: Counter[str] = Counter()
RIGS = list(dict.fromkeys([*rigs(), SPLIT]))


def test_every_layer_loss_and_optimizer_is_drawn() -> None:
    assert set(MAKERS) == set(LAYERS)
    assert set(LOSSES) == set(_objective.LOSSES)
    assert set(OPTIMIZERS) == set(_objective.OPTIMIZERS)


def test_every_operation_is_drawn() -> None:
    """Under the class that Keras gives it."""
    assert set(OPS) == set(_OPERATIONS)
    for seed, kind in enumerate(OPS):
        program = generate(seed, [f"ops.{kind}"])
        assert program is not None, f"no {kind} fits"
        program = replace(program, groups=())
        model = load(program.source())[0]()
        assert kind in {type(operation).__name__ for operation in model.operations}, program.source()


def _wanted(seed: int) -> Sequence[str]:
    """Layers and operations of the program of a seed: those of 20 seeds in a row are all."""
    kinds = np.random.default_rng(seed // QUICK).permutation(list(KINDS))
    return [str(kind) for kind in kinds[seed % QUICK :: QUICK]]


def drawn(seed: int) -> Program:
    """The program of a seed; where a layer that it has to hold fits nowhere, that of another number behind the seed."""
    return next(program for attempt in itertools.count() if (program := generate(seed, _wanted(seed), attempt)))


@pytest.fixture(scope="module")
def float64() -> Iterator[Float64]:
    """The process that computes in 64 bits."""
    process = Float64()
    yield process
    process.close()


@pytest.fixture(scope="module")
def truths(float64: Float64) -> dict[int, tuple[Program, Future[Truth]]]:
    """The quick programs; what they compute is begun at once, beside the tests."""
    programs = {seed: drawn(seed) for seed in range(QUICK)}
    return {seed: (program, float64.begin(program)) for seed, program in programs.items()}


@pytest.mark.parametrize("seed", range(QUICK))
def test_a_random_program_is_as_in_keras(
    seed: int, float64: Float64, truths: dict[int, tuple[Program, Future[Truth]]]
) -> None:
    """On three CPUs, or for every fourth program on another choice of adapters. Drivers take a second to compile a program."""
    program, begun = truths[seed]
    verdict = judge(program, [SPLIT if seed % 4 else RIGS[seed // 4 % len(RIGS)]], float64, begun)
    CAME[verdict.kind] += 1
    assert verdict.kind in ("same", "unsteady"), _report(program, verdict, float64)


def test_most_quick_programs_are_compared() -> None:
    """Rounding decides what comes of some: these say nothing."""
    assert CAME["unsteady"] <= 0.2 * QUICK, f"too few programs were compared: {dict(CAME)}"


@pytest.mark.slow
def test_fresh_programs_are_as_in_keras() -> None:
    given = os.environ.get("MANYHANDS_GRAPH_SEED")
    first = int(given) if given else secrets.randbelow(10**9)
    seeds = range(first, first + (1 if given else MANY))
    print(f"\n{len(seeds)} programs from MANYHANDS_GRAPH_SEED={first}", flush=True)
    came: Counter[str] = Counter()
    failures = []
    spawn = multiprocessing.get_context("spawn")
    parts = [seeds[begin : begin + PROGRAMS_OF_A_PROCESS] for begin in range(0, len(seeds), PROGRAMS_OF_A_PROCESS)]
    with ProcessPoolExecutor(PROCESSES, spawn, max_tasks_per_child=1) as processes:
        for seed, kind, text in itertools.chain.from_iterable(processes.map(_compared, parts)):
            came[kind] += 1
            if kind != "same":
                print(f"MANYHANDS_GRAPH_SEED={seed}: {kind}: {text}", flush=True)
            if kind == "different":
                failures.append(f"MANYHANDS_GRAPH_SEED={seed}\n{text}")
    print(dict(came))
    assert not failures, "\n\n".join(failures)
    assert given or came["same"] >= 0.8 * len(seeds), f"too few programs were compared: {dict(came)}"


def _compared(seeds: Sequence[int]) -> list[tuple[int, str, str]]:
    """What came of the program of each seed: its kind, and a line or, of a difference, the whole report."""
    found = []
    with contextlib.closing(Float64()) as float64:
        for seed in seeds:
            try:
                program = drawn(seed)
            except Exception as error:
                # Keras makes some of its layers refuse what others give.
                found.append((seed, "invalid", f"{type(error).__name__}: {error}".partition("\n")[0]))
                continue
            verdict = judge(program, list(dict.fromkeys([SPLIT, RIGS[seed % len(RIGS)]])), float64)
            text = _report(program, verdict, float64) if verdict.is_failure else verdict.text.partition("\n")[0]
            found.append((seed, verdict.kind, text))
    return found


def _report(program: Program, verdict: Verdict, float64: Float64) -> str:
    """What differs, and the smallest program in which something does."""
    if not verdict.is_failure:
        return f"{verdict.kind}: {verdict.text}\n{program.source()}"
    program, verdict = shrunk(program, verdict, float64)
    return f"{verdict.text}\n\n{script(program)}"


def shrunk(program: Program, verdict: Verdict, float64: Float64) -> tuple[Program, Verdict]:
    """A program from which nothing more can be taken, or what patience has left of it."""
    end = time.monotonic() + PATIENCE_S
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for less in smaller(program):
            if time.monotonic() > end:
                return program, verdict
            if is_whole(less) and (found := judge(less, RIGS, float64)).is_failure:
                program, verdict, is_smaller = less, found, True
                break
    return program, verdict


def _large() -> Program:
    """More layers than it takes."""
    steps = (
        Step("t0", "wide", "layers.Dense(6)", "one", ("in0",)),
        Step("t1", "bent", 'layers.Dense(6, activation="tanh", use_bias=False)', "one", ("t0",)),
        Step("t2", "norm", "layers.LayerNormalization(epsilon=0.01)", "one", ("t1",)),
        Step("t3", "head", "layers.Dense(2)", "one", ("t2",)),
    )
    output = Output("t3", '"mse"', "real", (2,), ('"mae"',))
    return Program(1, (Given("in0", "row", (4,)),), steps, (output,), "keras.optimizers.SGD(0.1, momentum=0.9)")


def test_a_wrong_result_is_found(float64: Float64, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the package had another activation than Keras."""

    def wrong(model: Any, rig: str) -> Any:
        model.get_layer("bent").activation = keras.activations.relu
        return make_parallel(model, rig)

    program = _large()
    begun = float64.begin(program)
    assert judge(program, ["cpu"], float64, begun).kind == "same"
    monkeypatch.setattr(reference, "make", wrong)
    verdict = judge(program, ["cpu"], float64, begun)
    assert verdict.is_failure and "predict before" in verdict.text and "weight 2 of bent" in verdict.text


def test_a_failing_program_is_made_small(float64: Float64, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every program with a tanh failed: the layer and an output remain, in a program that runs by itself."""

    def fails_with_tanh(program: Program, *_: Any) -> Verdict:
        return Verdict("different" if "tanh" in program.source() else "same")

    monkeypatch.setitem(globals(), "judge", fails_with_tanh)
    small, _ = shrunk(_large(), Verdict("different"), float64)
    assert [step.code for step in small.steps] == ["layers.Dense(6, activation='tanh')", "layers.Dense(2)"]
    assert small.optimizer == "keras.optimizers.SGD(0.1)" and not small.outputs[0].metrics
    names: dict[str, Any] = {"__name__": "program"}
    exec(compile(script(small), "program", "exec"), names)
    assert [np.shape(weight) for weight in names["came"](on_adapters=True)["weights"]] == [(4, 6), (6,), (6, 2), (2,)]


@pytest.mark.parametrize("kind", ["Layer", "Model", "Functional", "Lambda"])
def test_steps_in_code_of_ones_own_compute_the_same(kind: str) -> None:
    """The steps of a group are the program's own, and making it small begins by taking the code around them away."""
    steps = (*_large().steps[:2], Step("t2", None, "keras.ops.square({0}) + {1}", "text", ("t1", "t1")), *_large().steps[3:])
    plain = replace(_large(), steps=steps)
    inner = ("t2",) if kind == "Lambda" else ("t1", "t2")
    grouped = replace(plain, groups=(Group("own0", kind, inner),))
    (one, data), (other, _) = built(plain), built(grouped)
    assert "own0" in {layer.name for layer in other.layers}
    np.testing.assert_array_equal(other(data[0]), one(data[0]))
    assert plain in smaller(grouped)
