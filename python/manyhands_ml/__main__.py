"""The command `manyhands-ml`: all that the command `manyhands` does, without Keras. Also `python -m manyhands_ml`."""

from __future__ import annotations

import signal
import sys

from . import _native


def main() -> None:
    """Runs the command that the program's arguments name, and ends the program with its exit status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # The command ends a run by itself, after the step at hand; Python has nothing to add.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_native.command(["manyhands-ml", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
