"""The protocol of the comparison, for peers in Python: README.md tells it."""

import argparse
import json
import math
import sys
import time

# Parameters that training changes.
PARAMETERS = {"mlp": 1_863_690, "cnn": 1_199_978, "resnet18": 11_173_962, "resnet50": 23_555_082,
              "mobilenet_v2": 2_236_682, "lstm": 82_826, "gpt_mini": 834_400, "make_parallel": 41_157_101,
              "smollm2": 2_442_240, "smollm2_small": 325_632}  # fmt: skip


def settings():
    """The program's arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, choices=[*PARAMETERS, "product"])
    parser.add_argument("--rows", type=int, required=True, help="rows of the batch, or of the matrices of a product")
    parser.add_argument("--warm-up", type=int, default=5, help="steps before the first turn")
    parser.add_argument("--threads", type=int, default=0, help="threads that compute; 0 leaves the choice to the peer")
    parser.add_argument("--device", default="default", choices=["default", "cpu", "gpu"])
    return parser.parse_args()


def pattern(count, factor, modulus):
    """Values between 0 and 1 that no training would learn from: the same in every program of the comparison."""
    import numpy

    return (numpy.arange(count, dtype=numpy.int64) * factor % modulus / modulus).astype(numpy.float32)


def characters(rows, length, count, offset):
    """Whole numbers below `count`: the input of a language model, and its target with `offset` 1."""
    import numpy

    places = numpy.arange(rows * length, dtype=numpy.int64) + offset
    return (places * 7919 % 251 % count).reshape(rows, length)


def classes(rows, count):
    """A class for each row."""
    import numpy

    return (numpy.arange(rows) % count).astype(numpy.int64)


def factors(rows):
    """The factors of a product, and the last element of the result in f64."""
    a = pattern(rows * rows, 7919, 251).reshape(rows, rows)
    b = pattern(rows * rows, 6007, 241).reshape(rows, rows)
    return a, b, float(a[-1].astype("float64") @ b[:, -1].astype("float64"))


def check_product(found, expected):
    """The last element of a product, if it is right."""
    if abs(found - expected) > 1e-3 * expected:
        sys.exit(f"the last element is {found}, not {expected}")
    return found


def check_parameters(model, found):
    """The number of parameters, if it is that of the other programs."""
    if found != PARAMETERS[model]:
        sys.exit(f"`{model}` has {PARAMETERS[model]} parameters in the other programs, but {found} here")
    return found


def serve(peer, device, chosen, parameters, step, finish, begin, tune=str):
    """Warms up, says so, and does the turns that stdin asks for.

    `step()` begins a step; `finish()` waits for all that was begun, and gives the last loss or the last element of
    a product. `begin` is when the program began, after its imports. `tune()` follows the first step, chooses how to
    go on, and says what it chose.
    """
    open_ms = (time.perf_counter() - begin) * 1e3
    warm_up_begin = time.perf_counter()
    value, first_step_ms = turn(step, finish, 1)
    choice = tune()
    for _ in range(1, chosen.warm_up):
        turn(step, finish, 1)
    warm_up_ms = (time.perf_counter() - warm_up_begin) * 1e3
    say(peer=peer, device=device, model=chosen.model, rows=chosen.rows, parameters=parameters, open_ms=open_ms,
        first_step_ms=first_step_ms, warm_up_ms=warm_up_ms, value=value, choice=choice)
    for line in sys.stdin:
        match line.split():
            case ["quit"]:
                return
            case ["turn", steps]:
                value, ms = turn(step, finish, int(steps))
                say(steps=int(steps), ms=ms, value=value)
            case _:
                sys.exit(f"`{line.strip()}` is neither `turn N` nor `quit`")


def turn(step, finish, steps):
    """Some steps, and then the wait for all of them: the last value, and the milliseconds of all."""
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    value = finish()
    ms = (time.perf_counter() - begin) * 1e3
    if not math.isfinite(value):
        sys.exit(f"a turn of {steps} steps ends with {value}")
    return value, ms


def say(**fields):
    """A line of the protocol."""
    print(json.dumps(fields), flush=True)
