"""The programs that are compared: where they are, how they are built, and what they are started with."""

import json
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# Everything that is built lies here, none of it in the repository.
BUILT = ROOT / "target" / "peers"


class Unavailable(Exception):
    """A program that can't take part, and why."""


@dataclass
class Program:
    """A command that speaks the protocol."""

    name: str
    command: list
    # Is it told how many threads compute? Those in Rust find it in their environment.
    takes_threads: bool = False


@dataclass
class Places:
    """Where programs were built already; what is None is built."""

    ours: Path | None = None
    burn: Path | None = None
    keras_python: Path | None = None
    torch_python: Path = Path("python3")


def is_software(adapter):
    """Is it a driver that computes on the CPU?"""
    return any(name in adapter.lower() for name in ("llvmpipe", "lavapipe", "swiftshader", "software"))


def ours(places, adapter, model):
    """Our program on an adapter, or on several with `+` between them."""
    places.ours = places.ours or build_ours()
    return Program("manyhands", [places.ours, "--adapters", adapter.replace("+", ","), "--model", model])


def naive(places, adapter, _model):
    """Our program with a product of one result an invocation."""
    program = ours(places, adapter, "naive_product")
    return Program("naive WGSL", program.command)


def burn(places, adapter, model):
    """burn's program, through wgpu."""
    places.burn = places.burn or build_burn()
    device = "cpu" if is_software(adapter) else "default"
    return Program("burn", [places.burn, "--device", device, "--model", model])


def keras(places, _adapter, model):
    """Keras' program, in a virtual environment."""
    places.keras_python = places.keras_python or build_keras()
    return Program("Keras", [places.keras_python, HERE / "keras_steps.py", "--model", model], takes_threads=True)


def torch(places, adapter, model):
    """PyTorch's program, with the Python that has it."""
    finds = [places.torch_python, "-c", "import torch"]
    if shutil.which(places.torch_python) is None or subprocess.run(finds, capture_output=True).returncode:
        raise Unavailable(f"`{places.torch_python}` has no module `torch`: name one that has, with --torch-python")
    device = "cpu" if is_cpu(adapter) else "default" if is_software(adapter) else "gpu"
    command = [places.torch_python, HERE / "torch_steps.py", "--device", device, "--model", model]
    return Program("PyTorch", command, takes_threads=True)


PEERS = {"naive": naive, "burn": burn, "keras": keras, "torch": torch}


def is_cpu(adapter):
    """Is it the CPU adapter, once or several times?"""
    return set(adapter.split("+")) == {"cpu"}


def fits(peer, adapter):
    """Does a peer compute on what an adapter is?"""
    match peer:
        case "naive" | "burn":
            return not is_cpu(adapter)
        case "keras":
            return is_cpu(adapter)
        case _:
            return not is_software(adapter)


def build_ours():
    """Builds our program, and says where it is."""
    messages = run(["cargo", "build", "--release", "--locked", "--bench", "turns",
                    "--message-format", "json-render-diagnostics"], ROOT)  # fmt: skip
    for line in messages.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == "turns":
            return Path(message["executable"])
    raise Unavailable("cargo built no program")


def build_burn():
    """Builds burn's program: some twelve minutes on two cores, once."""
    say("building burn, which takes minutes the first time")
    run(["cargo", "build", "--release", "--locked", "--target-dir", BUILT / "burn"], HERE / "burn")
    return BUILT / "burn" / "release" / "burn-steps"


def build_keras():
    """Makes a virtual environment with Keras and TensorFlow, and gives its Python."""
    place, wanted = BUILT / "keras", HERE / "keras-requirements.txt"
    python, installed = place / "bin" / "python", place / "requirements.txt"
    if installed.exists() and installed.read_text() == wanted.read_text():
        return python
    say("installing Keras and TensorFlow")
    venv.create(place, clear=True, with_pip=True)
    run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", wanted], ROOT)
    shutil.copy(wanted, installed)
    return python


def run(command, folder):
    """Runs a command; its complaints go to stderr, what it prints comes back."""
    if shutil.which(command[0]) is None:
        raise Unavailable(f"there is no `{command[0]}` to build it with")
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise Unavailable(f"`{' '.join(str(part) for part in command[:3])}` failed")
    return done.stdout


def environment(threads, caches):
    """What all programs are started with: threads where they are chosen, an empty place for caches if there is one."""
    chosen = dict(os.environ)
    if threads:
        names = ("RAYON_NUM_THREADS", "LP_NUM_THREADS", "OMP_NUM_THREADS")
        chosen |= {name: str(threads) for name in names}
    if caches:
        # burn has its own place for what it tuned, and takes a name in it.
        chosen |= {"XDG_CACHE_HOME": caches, "CUBECL_ENVIRONMENT": Path(caches).name}
    return chosen


def default_adapters(places):
    """The GPU, or Mesa's driver that computes on the CPU where there is none; and the CPU adapter."""
    return ["gpu" if starts(ours(places, "gpu", "product")) else "llvmpipe", "cpu"]


def starts(program):
    """Does a program find its adapter?"""
    command = [*program.command, "--rows", "64", "--warm-up", "1"]
    return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0


def say(text):
    """A line for who waits."""
    print(f"peers: {text}", file=sys.stderr, flush=True)
