"""Observes a forward in PyTorch for what no trace shows: gradients that it stops, modes, random numbers and buffers that it changes."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree

#: Functions that draw random numbers as the engine's layers do.
_DROPS = frozenset(
    "alpha_dropout dropout dropout1d dropout2d dropout3d feature_dropout gru lstm multi_head_attention_forward "
    "scaled_dot_product_attention".split()
)
#: Rows of the call that is observed.
_ROWS = 2


@dataclass
class Observed:
    """Findings of a call of a module in training."""

    #: Parameters with a gradient, by identity.
    learning: frozenset[int] = frozenset()
    problems: list[str] = field(default_factory=list)
    #: Functions that drew random numbers, by the number of their calls: a trace may read some of them.
    draws: Counter[str] = field(default_factory=Counter)


@dataclass
class _Stop:
    """A call whose result has no gradient, though what it reads has one."""

    function: str
    read: list[torch.Tensor]
    #: A zero that is added to the result: what has a gradient by it depends on the call.
    mark: torch.Tensor = field(default_factory=lambda: torch.zeros((), requires_grad=True))


class _Calls(TorchFunctionMode):  # type: ignore[misc]
    """Notes calls of PyTorch's functions."""

    def __init__(self, module: nn.Module, modes: dict[str, bool]) -> None:
        super().__init__()
        parts = dict(module.named_modules())
        self._modes = [(name, part, modes[name]) for name, part in parts.items()]
        self._device = next((parameter.device.type for parameter in module.parameters()), "cpu")
        #: Each call that gives numbers with a fraction: its name, and the numbers in its arguments.
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        #: Calls that stop gradients.
        self.stops: list[_Stop] = []
        self.draws: list[str] = []
        self.is_cast = False
        self.moved = dict[str, bool]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = _name(func), kwargs or {}
        self.is_cast |= torch.is_autocast_enabled(self._device)
        self.note_modes()
        leaves = _pytree.tree_leaves((args, kwargs))
        before = torch.get_rng_state()
        result = func(*args, **kwargs)
        drawn = not torch.equal(before, torch.get_rng_state())
        if drawn:
            self.draws.append(name)
        stopped = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        outputs = [leaf for leaf in _pytree.tree_leaves(result) if _is_floating(leaf)]
        if outputs:
            # Not what counts batches.
            numbers = () if name in _DROPS else tuple(leaf for leaf in leaves if type(leaf) in (int, float))
            self.calls.append((name, numbers))
        if not stopped or not outputs or any(output.requires_grad for output in outputs) or _is_of_shape(name):
            return result
        stop = _Stop(name, stopped)
        self.stops.append(stop)
        with torch.inference_mode(False), torch.enable_grad():
            return _pytree.tree_map(lambda part: part + stop.mark if _is_floating(part) else part, result)

    def note_modes(self) -> None:
        """Notes modules that are in another mode than at first."""
        self.moved.update({name: part.training for name, part, mode in self._modes if part.training != mode})


def returned(module: nn.Module, inputs: Sequence[torch.Tensor], modes: dict[str, bool]) -> Any:
    """What a call of a module in training returns."""
    with kept(module), torch.no_grad():
        return _called(module, inputs, modes, len(inputs[0]))[1]


def observe(module: nn.Module, inputs: Sequence[torch.Tensor], modes: dict[str, bool], unread: frozenset[int]) -> Observed:
    """Calls a module in training on a few rows, and puts all that the call has changed back.

    Of the tensors that it returns, the loss does not read those of these numbers.
    """
    wanting = [parameter for parameter in module.parameters() if parameter.requires_grad]
    buffers, states, numbers = _buffers(module), _states(), _numbers(module)
    with kept(module), torch.enable_grad():
        calls, output = _called(module, inputs, modes)
        output = [leaf for place, leaf in enumerate(_pytree.tree_leaves(output)) if place not in unread]
        learning = frozenset(map(id, _reached(output, wanting)))
        problems = list(_stopped(module, calls.stops, output, learning))
        changed = [name for name, (buffer, version) in _buffers(module).items() if _differs(buffers.get(name), buffer, version)]
        draws = [name for name, before, now in zip(("random", "NumPy"), states, _states()) if repr(before) != repr(now)]
        counted = _numbers(module)
        if counted != numbers:
            # A size that a forward notes is the same again.
            _called(module, inputs, modes)
            again = _numbers(module)
            changed += [name for name, number in counted.items() if again.get(name, number) != number]
    problems += _told(calls, changed)
    drawn = Counter(f"`{name}`" for name in calls.draws if name not in _DROPS) + Counter(draws)
    if wanting and not learning:
        problems.append("forward: gives no parameter a gradient, by which PyTorch could not train it either: look for `torch.no_grad()`")
    return Observed(learning, problems, drawn)


def _told(calls: _Calls, changed: list[str]) -> Iterator[str]:
    """A line for each thing in a forward that adapters would not do."""
    for name in changed:
        yield f"`{name}` of the module: forward changes it, which adapters do not: leave that out, or do it in `on_epoch`"
    for name, is_training in calls.moved.items():
        yield f"module `{name}`: forward puts it in {'training' if is_training else 'evaluation'} mode: do that before training"
    if calls.is_cast:
        yield "forward: runs under `torch.autocast`, and adapters compute in 32 bits: leave it out"


def told_of_draws(draws: Counter[str]) -> list[str]:
    """A line on random numbers, if there are any."""
    names = ", ".join(draws)
    return [f"forward: draws random numbers by {names}, which adapters would not draw again: give them as an input"] if names else []


def blame(module: nn.Module, inputs: Sequence[torch.Tensor], modes: dict[str, bool]) -> str | None:
    """A reason in a module for which its output in evaluation mode is another than that of a trace in training."""
    with kept(module), torch.enable_grad():
        in_training, _ = _called(module, inputs, modes)
        in_evaluation, _ = _called(module, inputs, dict.fromkeys(modes, False))
    for name in in_evaluation.draws[:1]:
        if name in _DROPS:
            return f"`{name}` in forward drops in evaluation, too: give it `training=self.training`, or leave it out"
        return f"`{name}` in forward draws in evaluation, too, where each prediction would be another: draw `if self.training` alone"
    if in_training.calls != in_evaluation.calls:
        pairs = zip([*in_training.calls, ("", ())], [*in_evaluation.calls, ("", ())])
        first = next((here[0] or there[0] for here, there in pairs if here != there), "")
        return f"forward computes something else in training than in evaluation, from `{first}` on: leave out `if self.training`"
    return None


def _called(module: nn.Module, inputs: Sequence[torch.Tensor], modes: dict[str, bool], rows: int = _ROWS) -> tuple[_Calls, Any]:
    places = torch.arange(rows) % len(inputs[0])
    for name, part in module.named_modules():
        part.training = modes[name]
    calls = _Calls(module, modes)
    # Code that `torch.compile` has made may not see the mode.
    is_there = "torch._dynamo" in sys.modules
    call = torch.compiler.disable(module) if is_there else module
    # That of modules within, too: PyTorch has it from 2.6 on.
    stance = getattr(torch.compiler, "set_stance", None) if is_there else None
    with nullcontext() if stance is None else stance("force_eager"), calls:
        output = call(*(part[places] for part in inputs))
    calls.note_modes()
    return calls, output


def _reached(outputs: Any, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors by which outputs have a gradient."""
    found = [leaf.sum() for leaf in _pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not found or not tensors:
        return []
    slopes = torch.autograd.grad(found, tensors, allow_unused=True, retain_graph=True)
    return [tensor for tensor, slope in zip(tensors, slopes) if slope is not None]


def _stopped(module: nn.Module, stops: list[_Stop], output: Any, learning: frozenset[int]) -> Iterator[str]:
    """Calls between output and weights that stop the gradient of a weight which learns elsewhere: the engine freezes whole layers."""
    names = {id(parameter): (name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad}
    marks = {id(stop.mark): stop for stop in stops}
    left, seen = [output], set[int]()
    told = set[str]()
    while left:
        for mark in _reached(left.pop(), [stop.mark for stop in stops]):
            if id(mark) in seen:
                continue
            seen.add(id(mark))
            stop = marks[id(mark)]
            left.append(stop.read)
            for parameter in _reached(stop.read, [parameter for _, parameter in names.values()]):
                text = (
                    f"call of `{stop.function}`: stops the gradient of `{names[id(parameter)][0]}`, by `torch.no_grad()` or `detach`, "
                    "which has one elsewhere; that is not supported: freeze the module by `requires_grad_(False)`, or leave it out"
                )
                if id(parameter) in learning and stop.function not in told:
                    told.add(stop.function)
                    yield text


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _name(func: Any) -> str:
    # Of an attribute such as `data`, PyTorch calls its getter.
    name = getattr(func, "__name__", str(func))
    return str(getattr(func.__self__, "__name__", name)) if name == "__get__" else name


def _is_of_shape(name: str) -> bool:
    """Does a function read no numbers, but the shape alone?"""
    return name.endswith("_like") or name.startswith("new_")


# The changes of a call.


def _buffers(module: nn.Module) -> dict[str, tuple[torch.Tensor, int]]:
    """Buffers and their versions, but for the statistics that the engine has, too."""
    found = {}
    for name, part in module.named_modules():
        if not isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
            found.update({f"{name}.{key}".lstrip("."): (it, it._version) for key, it in part._buffers.items() if it is not None})
    return found


def _numbers(module: nn.Module) -> dict[str, float]:
    """Attributes that are plain numbers."""
    parts = module.named_modules()
    return {f"{name}.{key}".lstrip("."): it for name, part in parts for key, it in vars(part).items() if type(it) in (int, float)}


def _differs(before: tuple[torch.Tensor, int] | None, now: torch.Tensor, version: int) -> bool:
    return before is None or before[0] is not now or before[1] != version


def _states() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state(legacy=False)


@contextmanager
def kept(module: nn.Module, attributes: bool = True) -> Iterator[None]:
    """Puts back what calls of a module change: buffers, random numbers, and attributes if so told."""
    parts = list(module.modules())
    held = [(part, dict(vars(part)), dict(part._buffers)) for part in parts]
    lists = [(value, list(value)) for _, values, _ in held for value in values.values() if type(value) is list]
    buffers = [(buffer, buffer.clone()) for part in parts for buffer in part._buffers.values() if buffer is not None]
    states = _states()
    devices = {parameter.device.index or 0 for parameter in module.parameters() if parameter.device.type == "cuda"}
    try:
        with torch.random.fork_rng(devices=sorted(devices)):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        for part, values, of in held:
            part._buffers.update(of)
            if attributes:
                vars(part).clear()
                vars(part).update(values)
        for value, before in lists if attributes else []:
            value[:] = before
        with torch.no_grad():
            for buffer, values in buffers:
                # Batch normalization changes its own without a new version.
                if not torch.equal(buffer, values):
                    buffer.copy_(values)
