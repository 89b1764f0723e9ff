"""The command `manyhands-ml`: all that the command `manyhands` does, without Keras, and `convert`, with it.

Also `python -m manyhands_ml`.
"""

from __future__ import annotations

import argparse
import signal
import sys

from . import _native
from ._objects import Model
from .errors import ManyhandsError

CONVERT = "makes a model file of a Keras model with its weights, for `manyhands train`, `evaluate`, `predict` and `export`"


def main() -> None:
    """Runs the command that the program's arguments name, and ends the program with its exit status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # The command ends a run by itself, after the step at hand; Python has nothing to add.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1:2] == ["convert"]:
        sys.exit(_convert(sys.argv[2:]))
    status = _native.command(["manyhands-ml", *sys.argv[1:]])
    if sys.argv[1:] in (["help"], ["-h"], ["--help"]):
        print(f"\nAlso: `manyhands-ml convert` {CONVERT}.")
    sys.exit(status)


def _convert(arguments: list[str]) -> int:
    """Runs `manyhands-ml convert`; gives the exit status."""
    parser = argparse.ArgumentParser("manyhands-ml convert", description=CONVERT)
    parser.add_argument("file", help="the model of Keras: `model.keras`, or `model.h5` with its layers")
    parser.add_argument("output", help="the model file to write: `model.safetensors`")
    given = parser.parse_args(arguments)
    try:
        model = Model.from_keras(given.file)
        model.save(given.output)
    except (ManyhandsError, ImportError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(model.summary())
    if model.pixels is not None:
        print(f"expects pixels of `{model.pixels}`; a settings file that starts from it gives them by itself")
    return 0


if __name__ == "__main__":
    main()
