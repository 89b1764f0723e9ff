"""Reads a module by `torch.fx`: a run on an example gives the shapes, the tables give the layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass, replace
from typing import Any

import torch
import torch.fx
from torch import nn
from torch.utils import _pytree
from torch.nn.modules.lazy import LazyModuleMixin

from ..errors import ModelError, explained, raise_problems
from . import _attention as _attention
from ._batch_axis import called
from ._by_hand import Scores, of_scores
from ._graph import Graph, Held, Merged, Tensor
from ._held import as_function, at_known_places, with_tensors, without_inputs
from ._inplace import read_after, take_over, unused
from ._layers import MODULES, OF_INPUTS, Call, Refused, function, made, settled
from ._merged import of_merged
from ._nodes import Values, has_tensors, is_getitem, name_of, out_of_place
from ._noise import WHOLE, Noise, drawn_by, of_noise
from ._observed import Observed, kept, observe, returned, told_of_draws
from ._opened import OF_SHAPE, open_functions, settle
from ._returned import paths
from ._settings import hooks


#: Calls that `torch.export` makes of `with`.
_WITH = {
    "wrap_with_autocast": "`torch.autocast` ",
    "wrap_with_set_grad_enabled": "`torch.no_grad()` or the like in a module that `torch.fx` can't trace ",
}


def trace(
    module: nn.Module, examples: list[torch.Tensor], seen: dict[Any, Observed] | None, unread: Callable[[Any], frozenset[int]]
) -> tuple[Graph, list[str]]:
    """The graph of a module for inputs like these examples, and all that is wrong with it, one line a problem.

    To train it, a call in training is observed, too: `seen` holds what was observed before. `unread` says which leaves of what forward
    returns the loss does not read.

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
    with kept(module):
        with in_modes(module, modes), torch.enable_grad():
            traced = _traced(module, examples)
        with in_modes(module, dict.fromkeys(modes, False)), torch.no_grad():
            open_functions(traced, examples, lambda name: name in WHOLE or function(name) is not None)
            settle(traced, examples)
            problems = _tidied(traced)
            values = Values(traced)
            given = values.run(*examples)
    hooked, learning, draws = list(hooks(module)), None, Counter[str]()
    # A call would run hooks. A trace has types of its own in place of others' tuples and dicts.
    if not hooked and not isinstance(given, torch.Tensor):
        given = returned(module, examples, modes)
    if seen is not None and not hooked:
        observed = _observed(module, examples, modes, seen, unread(given))
        problems += observed.problems
        learning, draws = observed.learning, observed.draws
    reader = _Reader(traced, values.values, modes, module, learning, given)
    if learning is not None:
        reader.freeze(learning)
    problems += told_of_draws(draws - reader.drawn)
    return reader.graph, [*hooked, *problems, *read_after(traced, values.values), *reader.problems]


def _observed(
    module: nn.Module, examples: list[torch.Tensor], modes: dict[str, bool], seen: dict[Any, Observed], unread: frozenset[int]
) -> Observed:
    """Findings of a call, which are those of before where modules, modes, frozen parameters and what the loss reads are the same."""
    frozen = tuple((id(it), it.requires_grad) for it in module.parameters())
    key = (tuple(id(part) for part in module.modules()), tuple(modes.items()), frozen, unread)
    if key not in seen:
        seen.clear()
        seen[key] = observe(module, examples, modes, unread)
    return seen[key]


def _traced(module: nn.Module, examples: list[torch.Tensor]) -> torch.fx.GraphModule:
    """What `torch.fx` reads, with calls of modules, or else what `torch.export` does: operations.

    Raises:
        ModelError: If neither can.
    """
    try:
        return _symbolic(module)
    except Exception as error:
        exported = _exported(module, examples)
        if exported is not None:
            return exported
        raise ModelError(
            explained(
                f"module `{type(module).__name__}`",
                f"needs a forward that `torch.fx` can trace, but it says: {error}",
                "leave out of forward what depends on values, such as `if x.sum() > 0`",
            )
        ) from error


def _tidied(traced: torch.fx.GraphModule) -> list[str]:
    """Leaves out of a trace what nothing reads; what is wrong with its calls that change their arguments."""
    take_over(traced)
    problems = list(unused(traced))
    traced.graph.eliminate_dead_code()
    traced.recompile()
    return problems


class _WithBuffers(torch.fx.Tracer):  # type: ignore[misc]
    """Reads buffers as it reads parameters: a forward may cut them by the length of its input, as `self.positions[:, : x.size(1)]`."""

    proxy_buffer_attributes = True


def _symbolic(module: nn.Module) -> torch.fx.GraphModule:
    try:
        return torch.fx.symbolic_trace(module)
    except Exception:
        return torch.fx.GraphModule(module, _WithBuffers().trace(module))


def _exported(module: nn.Module, examples: list[torch.Tensor]) -> torch.fx.GraphModule | None:
    """The operations of a module for inputs of these shapes; `None` if `torch.export` refuses it, too."""
    try:
        traced = torch.export.export(module, tuple(examples), strict=False).module()
    except Exception:
        return None
    counters = {name for name, _ in traced.named_buffers() if name.endswith("num_batches_tracked")}
    for node in list(traced.graph.nodes):
        # Guards compare shapes. Counters of batch normalization are the engine's.
        is_guard = node.op == "call_module" and str(node.target) == "_guards_fn"
        if is_guard or (name_of(node) == "add_" and str(getattr(node.args[0], "target", "")) in counters):
            traced.graph.erase_node(node)
    return traced


def _check_types(module: nn.Module) -> None:
    """Raises for modules that no trace reads, and for parameters of another type: rows are float32, and PyTorch would not multiply them."""
    held = {name: parameter.dtype for name, parameter in module.named_parameters() if parameter.dtype != torch.float32}
    problems = [f"parameter `{name}`: `dtype` needs torch.float32, but is {dtype}" for name, dtype in held.items()]
    tensors = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
    for name, _ in (*module.named_children(), *tensors):
        if isinstance(getattr(torch.fx.GraphModule, name, None), property):
            problems.append(f"`{name}`: `torch.fx` has an attribute of this name for what it reads: name it otherwise")
    if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
        problems.append("modules of `torch.jit`: can't be read; give those that they were made of")
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


class _Reader:
    """Turns the nodes of a trace into layers, one after the other."""

    def __init__(
        self,
        traced: torch.fx.GraphModule,
        values: dict[str, Any],
        modes: dict[str, bool],
        module: nn.Module,
        learning: frozenset[int] | None,
        given: Any,
    ) -> None:
        self.graph, self.problems = Graph(), list[str]()
        self._values = values
        self._modules = dict(module.named_modules())
        self._tensors = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers(remove_duplicate=False))}
        self._modes = {id(part): modes[name] for name, part in self._modules.items()}
        self._made: dict[str, Any] = {}
        self._known: dict[Any, tuple[str, Any]] = {}
        # Names of tensors that are not what the module computes, but of its shape.
        self._stood = set[str]()
        self._learning = learning
        # Draws of random numbers that became layers.
        self.drawn = Counter[str]()
        self._given = given
        self._tied = _tied(traced.graph, self._modules, self._tensors)
        for node in traced.graph.nodes:
            self._read(node)
        self._check_weights()

    def _read(self, node: torch.fx.Node) -> None:
        value = self._values.get(node.name)
        if node.op == "placeholder":
            self._made[node.name] = self._input(node.name, value)
        elif node.op == "get_attr":
            # A trace may hold copies, and parts of a forward as graphs of their own.
            held = self._tensors.get(str(node.target), value)
            self._made[node.name] = Held(held, tuple(held.shape), str(node.target)) if isinstance(held, torch.Tensor) else held
        elif node.op == "output":
            self._end(_pytree.tree_leaves(self._argument(node.args[0])))
        elif _is_record(node.target):
            self._made[node.name] = [*self._argument(node.args), *(part for part in self._argument(node.kwargs).values() if part is not None)]
        elif not has_tensors(value):
            # Sizes, and what is computed from them.
            self._made[node.name] = value
        else:
            self._made[node.name] = self._layer(node, value)

    def _end(self, leaves: list[Any]) -> None:
        """Notes what forward returns, each tensor by its number among the outputs."""
        real, structure = _pytree.tree_flatten(self._given)
        if len(leaves) != len(real) or all(leaf is None for leaf in leaves):
            told = f"one or several in a tuple, list, dict or named tuple, but gives `{type(self._given).__name__}`"
            told += f", with {len(real)} parts where its trace has {len(leaves)}" if len(leaves) != len(real) else ""
            self.problems.append(f"forward: needs to return tensors that depend on the inputs, {told}")
            return
        places: list[int | None] = []
        for path, leaf, value in zip(paths(self._given), leaves, real):
            try:
                leaf = settled(leaf)
                # Such as logits, and no loss where no targets are given.
                places.append(None if leaf is None else len(self.graph.outputs))
                self.graph.outputs += [] if leaf is None else [_output(leaf, value)]
            except Refused as refused:
                self.problems.append(f"forward: {refused}" + (f", at `{path}` of what it returns" if path else ""))
        if len(places) == len(real):
            self.graph.returned = _pytree.tree_unflatten(places, structure)

    def _input(self, name: str, value: Any) -> Tensor:
        shape = tuple(value.shape[1:])
        # Pictures have their channels last here.
        order = (1, 2, 0) if len(shape) == 3 else tuple(range(len(shape)))
        tensor = Tensor(name, shape, order, is_bool=value.dtype == torch.bool)
        self.graph.inputs.append(tensor)
        return tensor

    def _layer(self, node: torch.fx.Node, value: Any) -> Any:
        who, name, module, handler = self._handler(node)
        args, kwargs = self._argument(node.args), self._argument(node.kwargs)
        call = Call(self.graph, name, module, args, kwargs, value, self._modes, self._known, self._tied, self._learning)
        try:
            if module is None and (drawn := of_noise(call, name_of(node))):
                self.drawn += drawn_by(call, name_of(node))
                return drawn(call)
            if module is None and (name_of(node) in OF_SHAPE or not _read_inputs((args, kwargs))):
                return without_inputs(name_of(node), args, value)
            if type(module) is nn.Embedding and not _read_inputs((args, kwargs)):
                return at_known_places(call)
            if type(module) is nn.Linear and module.bias is not None and {id(module.weight), id(module.bias)} & self._tied:
                call, handler = as_function(call), function("linear")
            if not is_getitem(node):
                call.args = _pytree.tree_map(settled, call.args)
            if name_of(node) == "batch_norm" and (norm := self._norm(call)):
                name, module = norm
                call, handler = replace(call, name=name, module=module, args=args[:1], kwargs={}), made
            kind = type(module) if module is not None else out_of_place(name_of(node))
            handler = of_scores(call, kind) or of_merged(call, kind, handler)
            if handler is None:
                is_other = module is not None and nn.utils.parametrize.is_parametrized(module)
                what = "a parametrization of its weights " if is_other else _WITH.get(name_of(node), "")
                raise Refused(f"{what}is not supported")
            call = with_tensors(call, str(kind)) if module is None else call
            made_here = called(handler, call, kind)
        except Refused as refused:
            self.problems.append(f"{who}: {refused}")
            return self._stand_in(node, value)
        if any(isinstance(part, Tensor) and part.name in self._stood for part in _pytree.tree_leaves((args, kwargs))):
            return self._stand_in(node, value)
        is_bool = isinstance(value, torch.Tensor) and value.dtype == torch.bool
        return replace(made_here, is_bool=is_bool) if isinstance(made_here, Tensor) else made_here

    def _handler(self, node: torch.fx.Node) -> tuple[str, str, Any, Any]:
        if node.op == "call_module":
            module = self._modules[str(node.target)]
            name = str(node.target)
            return f"module `{name}` ({type(module).__name__})", name, module, made if type(module) in MODULES else None
        return f"call of `{name_of(node)}`", node.name, None, function(name_of(node))

    def _norm(self, call: Call) -> tuple[str, nn.Module] | None:
        """The module that has made an operation of batch normalization, and its name."""
        held = [part.tensor if isinstance(part, Held) else part for part in call.args]
        for name, module in self._modules.items():
            if type(module) in (nn.BatchNorm1d, nn.BatchNorm2d) and any(part is module.running_mean for part in held[3:4]):
                mine = [module.weight, module.bias, module.running_mean, module.running_var]
                told = [self._modes[id(module)], module.momentum, module.eps]
                return (name, module) if all(a is b for a, b in zip(held[1:5], mine)) and held[5:8] == told else None
        return None

    def _stand_in(self, node: torch.fx.Node, value: Any) -> Any:
        """A tensor of the right shape, or several, so that the rest is read, too."""
        if isinstance(value, (list, tuple)):
            return [self._stand_in(node, part) for part in value]
        shape = tuple(value.shape[1:]) if isinstance(value, torch.Tensor) else ()
        self._stood.add(node.name)
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

    def freeze(self, learning: frozenset[int]) -> None:
        """Freezes layers whose weights ask for a gradient but get none in PyTorch, such as those under `torch.no_grad()`."""
        asking: dict[str, dict[str, bool]] = {}
        for name, weight in self.graph.weights.items():
            wants = [tensor for tensor in weight.tensors if weight.is_trained and tensor.requires_grad]
            if wants:
                asking.setdefault(name.rpartition("/")[0], {})[name] = any(id(tensor) in learning for tensor in wants)
        for layer in self.graph.layers:
            of = asking.get(str(layer.get("name")), {})
            if all(of.values()):
                continue
            name = next(name for name, learns in of.items() if not learns)
            if any(of.values()):
                self.problems.append(f"weight `{name}`: gets no gradient in PyTorch, but other weights of its layer do")
            layer["trainable"] = False
            for name in of:
                self.graph.weights[name] = replace(self.graph.weights[name], is_trained=False)

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


def _output(leaf: Any, value: Any) -> Tensor:
    """A leaf of what forward returns, as an output."""
    if isinstance(leaf, Merged):
        told = "of which a loss has none apart: leave out the last `view`. `CrossEntropyLoss` takes (batch, classes, time) and (batch, time)"
        raise Refused(f"returns batch and time as one axis, {told}")
    if not isinstance(leaf, Tensor) or not isinstance(value, torch.Tensor):
        kind = "a tensor that does not, or is none of the engine's" if isinstance(value, torch.Tensor) else f"`{type(value).__name__}`"
        raise Refused(f"needs to return tensors that depend on the inputs, or `None`, but gives {kind}")
    if leaf.batch:
        raise Refused("needs to return the batch as its first axis: `transpose` it back")
    if value.dtype != torch.float32:
        raise Refused(f"needs to return tensors of torch.float32, but gives {value.dtype}")
    return leaf


def _tied(graph: torch.fx.Graph, modules: dict[str, nn.Module], tensors: dict[str, torch.Tensor]) -> frozenset[int]:
    """Tensors, by identity, that belong to several modules or calls which differ in their kind or in the other tensors that they read."""
    readers: dict[int, set[Any]] = {}
    for node in graph.nodes:
        if node.op == "call_module":
            module = modules[str(node.target)]
            kind, held = type(module).__name__, list(module.parameters())
        else:
            named = [str(part.target) for part in node.all_input_nodes if part.op == "get_attr"]
            kind, held = name_of(node), [tensors[name] for name in named if name in tensors]
        parts = frozenset(map(id, held))
        for part in parts:
            readers.setdefault(part, set()).add((kind.lower(), parts))
    return frozenset(part for part, of in readers.items() if len(of) > 1)


def _read_inputs(arguments: Any) -> bool:
    """Does anything among arguments depend on an input?"""
    return any(isinstance(part, (*OF_INPUTS, Merged, Noise, Scores)) for part in _pytree.tree_leaves(arguments))


def _is_record(target: Any) -> bool:
    """Does a node make a named tuple, or a dataclass, such as those of `transformers`, which leave `None` out?"""
    return isinstance(target, type) and (is_dataclass(target) or (issubclass(target, tuple) and hasattr(target, "_fields")))
