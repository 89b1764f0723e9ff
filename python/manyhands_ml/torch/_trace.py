"""Reads a module by `torch.fx`: a run on an example gives the shapes, the tables give the layers."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.fx
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin

from ..errors import ModelError, explained, raise_problems
from ._graph import Graph, Tensor
from ._inplace import read_after, unused
from ._layers import MODULES, Call, Refused, function, made, settled
from ._settings import hooks


def trace(module: nn.Module, examples: list[torch.Tensor]) -> tuple[Graph, list[str]]:
    """The graph of a module for inputs like these examples, and all that is wrong with it, one line a problem.

    Raises:
        ModelError: If `torch.fx` can't trace it, or its forward can't take the examples.
    """
    if type(module) in MODULES:
        # It is one of those that a trace does not look into.
        wrapped = nn.Sequential(module)
        wrapped.training = module.training
        module = wrapped
    modes = training_modes(module)
    if any(isinstance(part, LazyModuleMixin) for part in module.modules()):
        # The first call makes its weights.
        with in_modes(module, dict.fromkeys(modes, False)), torch.no_grad():
            module(*examples)
    _check_types(module)
    with in_modes(module, modes):
        try:
            traced = torch.fx.symbolic_trace(module)
        except Exception as error:
            raise ModelError(
                explained(
                    f"module `{type(module).__name__}`",
                    f"needs a forward that `torch.fx` can trace, but it says: {error}",
                    "leave out of forward what depends on values, such as `if x.sum() > 0`",
                )
            ) from error
    problems = [*hooks(module), *unused(traced)]
    traced.graph.eliminate_dead_code()
    traced.recompile()
    values = _Values(traced)
    with in_modes(module, dict.fromkeys(modes, False)), torch.no_grad():
        values.run(*examples)
    reader = _Reader(traced, values.values, modes, module)
    return reader.graph, problems + [*read_after(traced, values.values), *reader.problems]


def _check_types(module: nn.Module) -> None:
    """Raises for parameters of another type: rows are float32, and PyTorch itself would not multiply them."""
    held = {name: parameter.dtype for name, parameter in module.named_parameters() if parameter.dtype != torch.float32}
    problems = [f"parameter `{name}`: `dtype` needs torch.float32, but is {dtype}" for name, dtype in held.items()]
    raise_problems(f"module `{type(module).__name__}`", problems, "PyTorch")


def training_modes(module: nn.Module) -> dict[str, bool]:
    """Which modules train: all, but those in evaluation mode within a module in training mode."""
    return {name: part.training or not module.training for name, part in module.named_modules()}


@contextmanager
def in_modes(module: nn.Module, modes: dict[str, bool]) -> Iterator[None]:
    """Puts modules into training or evaluation mode for a while."""
    before = {name: part.training for name, part in module.named_modules()}
    try:
        for name, part in module.named_modules():
            part.training = modes[name]
        yield
    finally:
        for name, part in module.named_modules():
            part.training = before[name]


class _Values(torch.fx.Interpreter):  # type: ignore[misc]
    """Keeps what each node has given."""

    def __init__(self, traced: torch.fx.GraphModule) -> None:
        super().__init__(traced, garbage_collect_values=False)
        self.values: dict[str, Any] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        self.values[n.name] = value
        return value


class _Reader:
    """Turns the nodes of a trace into layers, one after the other."""

    def __init__(
        self, traced: torch.fx.GraphModule, values: dict[str, Any], modes: dict[str, bool], module: nn.Module
    ) -> None:
        self.graph, self.problems = Graph(), list[str]()
        self._values, self._modes = values, modes
        self._modules = dict(module.named_modules())
        self._made: dict[str, Any] = {}
        self._known: dict[int, tuple[str, Any]] = {}
        for node in traced.graph.nodes:
            self._read(node)
        self._check_weights()

    def _read(self, node: torch.fx.Node) -> None:
        value = self._values.get(node.name)
        if node.op == "placeholder":
            self._made[node.name] = self._input(node.name, value)
        elif node.op == "output":
            made = self._argument(node.args[0])
            outputs = [settled(part) for part in (made if isinstance(made, (list, tuple)) else [made])]
            self.graph.outputs = [output for output in outputs if isinstance(output, Tensor)]
            if len(self.graph.outputs) != 1 or len(outputs) != 1:
                self.problems.append("forward: needs to return one tensor that depends on the inputs")
        elif not _has_tensors(value):
            # Sizes, and what is computed from them.
            self._made[node.name] = value
        else:
            self._made[node.name] = self._layer(node, value)

    def _input(self, name: str, value: Any) -> Tensor:
        shape = tuple(value.shape[1:])
        # Pictures have their channels last here.
        order = (1, 2, 0) if len(shape) == 3 else tuple(range(len(shape)))
        tensor = Tensor(name, shape, order)
        self.graph.inputs.append(tensor)
        return tensor

    def _layer(self, node: torch.fx.Node, value: Any) -> Any:
        who, name, module, handler = self._handler(node)
        if handler is None:
            is_other = module is not None and nn.utils.parametrize.is_parametrized(module)
            self.problems.append(f"{who}: {'a parametrization of its weights ' if is_other else ''}is not supported")
            return self._stand_in(node, value)
        is_training = self._modes.get(str(node.target), True) if module is not None else True
        args, kwargs = self._argument(node.args), self._argument(node.kwargs)
        call = Call(self.graph, name, module, args, kwargs, value, is_training, self._known)
        try:
            if not is_getitem(node):
                call.args = tuple(settled(argument) for argument in args)
            return handler(call)
        except Refused as refused:
            self.problems.append(f"{who}: {refused}")
            return self._stand_in(node, value)

    def _handler(self, node: torch.fx.Node) -> tuple[str, str, Any, Any]:
        if node.op == "call_module":
            module = self._modules[str(node.target)]
            name = str(node.target)
            return f"module `{name}` ({type(module).__name__})", name, module, made if type(module) in MODULES else None
        if node.op == "get_attr":
            return f"tensor `{node.target}`", node.name, None, None
        called = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
        return f"call of `{called}`", node.name, None, function(called)

    def _stand_in(self, node: torch.fx.Node, value: Any) -> Any:
        """A tensor of the right shape, so that the rest is read, too."""
        shape = tuple(value.shape[1:]) if isinstance(value, torch.Tensor) else ()
        return Tensor(node.name, shape, tuple(range(len(shape))))

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, torch.fx.Node):
            return self._made[argument.name]
        if isinstance(argument, slice):
            parts = (argument.start, argument.stop, argument.step)
            return slice(*(self._argument(part) for part in parts))
        if isinstance(argument, (list, tuple)):
            return type(argument)(self._argument(part) for part in argument)
        if isinstance(argument, dict):
            return {key: self._argument(part) for key, part in argument.items()}
        return argument

    def _check_weights(self) -> None:
        """A weight has one place in the engine."""
        places: dict[int, str] = {}
        for name, weight in self.graph.weights.items():
            for tensor in weight.tensors:
                if id(tensor) in places:
                    self.problems.append(f"weight `{name}`: is also that of `{places[id(tensor)]}`, which is not supported")
                places[id(tensor)] = name
                if tensor.dtype != torch.float32:
                    self.problems.append(f"weight `{name}`: needs float32, but is {tensor.dtype}")


def is_getitem(node: torch.fx.Node) -> bool:
    """Does a node take a part of a value?"""
    return node.target is operator.getitem


def _has_tensors(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return not isinstance(value, torch.Size) and any(_has_tensors(part) for part in value)
    return isinstance(value, torch.Tensor)
