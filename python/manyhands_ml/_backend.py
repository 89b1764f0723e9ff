"""A backend for Keras where the user chose none."""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

#: What Keras takes where nothing says another one.
USUAL = "tensorflow"
#: Backends that compute here by the name of their module.
BACKENDS = (USUAL, "jax", "torch")


def choose() -> None:
    """Lets Keras take a backend that is installed, unless it is loaded, or `KERAS_BACKEND` names one.

    Keras takes TensorFlow where its settings name no other, and fails where TensorFlow is missing.
    """
    if "keras" in sys.modules or os.environ.get("KERAS_BACKEND"):
        return
    installed = [name for name in BACKENDS if find_spec(name) is not None]
    configured = _configured()
    if installed and configured in BACKENDS and configured not in installed:
        os.environ["KERAS_BACKEND"] = installed[0]


def _configured() -> str:
    """The backend in the settings of Keras."""
    home = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras")
    try:
        settings = json.loads((home / "keras.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return USUAL
    backend = settings.get("backend") if isinstance(settings, dict) else None
    return backend if isinstance(backend, str) else USUAL
