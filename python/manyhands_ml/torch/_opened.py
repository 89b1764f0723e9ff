"""Functions that `torch.fx` takes as one call, such as those of torchvision, and numbers that a forward writes part by part: opened, or settled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch
import torch.fx
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree

from ._inplace import changes_argument
from ._nodes import Values, has_tensors, is_getitem, name_of, storage_of
from ._noise import BEGIN, DRAW

#: Functions of a tensor's shape alone.
OF_SHAPE = frozenset("full_like new_full new_ones new_zeros ones_like zeros_like".split())
#: Functions that draw, or make room for what is drawn.
_DRAW = frozenset(BEGIN) | DRAW | frozenset("rand_like randint randperm uniform_".split())


def open_functions(traced: torch.fx.GraphModule, examples: list[torch.Tensor], is_known: Callable[[str], bool]) -> None:
    """Puts the operations of functions that are not PyTorch's own, and not known here, in their places."""
    closed = [node for node in traced.graph.nodes if _is_closed(node) and not is_known(name_of(node))]
    if not closed:
        return
    values = Values(traced)
    values.run(*examples)
    for node in closed:
        value = values.values[node.name]
        # Several tensors at once are no argument of an operation: each has to be taken by its place.
        takes = isinstance(value, torch.Tensor) or all(is_getitem(user) for user in node.users)
        given = (values.values[part.name] for part in node.all_input_nodes)
        if takes and has_tensors(value) and all(isinstance(part, torch.Tensor) or not has_tensors(part) for part in given):
            _open(traced, node, values.values)
    traced.graph.lint()
    traced.recompile()


def _is_closed(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and isinstance(node.target, FunctionType) and not f"{node.target.__module__}.".startswith("torch.")


def _open(traced: torch.fx.GraphModule, node: torch.fx.Node, values: dict[str, Any]) -> None:
    """Puts what a function does in the place of its call; leaves it where that can't be read."""
    leaves, structure = _pytree.tree_flatten((node.args, node.kwargs))
    given = [values[leaf.name] if isinstance(leaf, torch.fx.Node) else leaf for leaf in leaves]
    places = [place for place, value in enumerate(given) if isinstance(value, torch.Tensor)]

    def call(*tensors: torch.Tensor) -> Any:
        parts = list(given)
        for place, tensor in zip(places, tensors):
            parts[place] = tensor
        args, kwargs = _pytree.tree_unflatten(parts, structure)
        return node.target(*args, **kwargs)

    try:
        inner = make_fx(call, pre_dispatch=True)(*(given[place] for place in places))
    except Exception:
        # Its name says what is refused.
        return
    settle(inner, [given[place] for place in places])
    known: dict[torch.fx.Node, torch.fx.Node] = {}
    outer = iter(leaves[place] for place in places)
    with traced.graph.inserting_before(node):
        for part in inner.graph.nodes:
            if part.op == "placeholder":
                known[part] = next(outer)
            elif part.op == "get_attr":
                known[part] = traced.graph.get_attr(_hold(traced, _attribute(inner, str(part.target))))
            elif part.op == "output":
                result = _pytree.tree_map(lambda value: known.get(value, value), part.args[0])
                for made, value in zip(_pytree.tree_leaves(result), _pytree.tree_leaves(values[node.name])):
                    values.update({made.name: value} if isinstance(made, torch.fx.Node) else {})
                _replace(traced, node, result)
            else:
                known[part] = traced.graph.node_copy(part, lambda each: known[each])
    traced.graph.erase_node(node)


def _replace(traced: torch.fx.GraphModule, node: torch.fx.Node, result: Any) -> None:
    """Puts what a function gives, one tensor or several, in the place of its call."""
    if isinstance(result, torch.fx.Node):
        node.replace_all_uses_with(result)
        return
    for user in list(node.users):
        user.replace_all_uses_with(result[user.args[1]])
        traced.graph.erase_node(user)


def _hold(traced: torch.fx.GraphModule, value: Any) -> str:
    """Name of an attribute that a graph has now."""
    name = next(name for number in range(len(traced.graph.nodes) + 1) if not hasattr(traced, name := f"_fixed_{number}"))
    traced.register_buffer(name, value)
    return name


def settle(traced: torch.fx.GraphModule, examples: list[torch.Tensor]) -> None:
    """Puts the numbers of tensors that depend on no input and no weight in their places, where calls change them in place.

    Such is a mask that a forward fills part by part.
    """
    fixed = set(_fixed(traced))
    changing = [node for node in fixed if node.op != "get_attr" and changes_argument(node, traced)]
    if not changing:
        return
    read = _Read(traced, fixed)
    read.run(*examples)
    held = {storage_of(buffer) for buffer in (*traced.buffers(), *examples)}
    if held & {storage_of(read.values.get(node.args[0].name)) for node in changing if isinstance(node.args[0], torch.fx.Node)}:
        # A buffer, or an input.
        return
    for (reader, node), value in read.copies.items():
        with traced.graph.inserting_before(reader):
            reader.replace_input_with(node, traced.graph.get_attr(_hold(traced, value)))
    for node in reversed(list(traced.graph.nodes)):
        if node in fixed and not node.users:
            traced.graph.erase_node(node)
    traced.recompile()


class _Read(Values):
    """Keeps copies of fixed tensors as they are where others read them."""

    def __init__(self, traced: torch.fx.GraphModule, fixed: set[torch.fx.Node]) -> None:
        super().__init__(traced)
        self.fixed = fixed
        self.copies: dict[tuple[torch.fx.Node, torch.fx.Node], torch.Tensor] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        for node in n.all_input_nodes if n not in self.fixed else ():
            value = self.values.get(node.name)
            if node in self.fixed and node.op != "get_attr" and isinstance(value, torch.Tensor):
                self.copies[n, node] = value.clone()
        return super().run_node(n)


def _fixed(traced: torch.fx.GraphModule) -> Iterator[torch.fx.Node]:
    """Nodes whose numbers depend on no input, no weight and no draw."""
    found = set[torch.fx.Node]()
    for node in traced.graph.nodes:
        if node.op == "get_attr":
            is_fixed = not isinstance(_attribute(traced, str(node.target)), nn.Parameter)
        else:
            of_shape = name_of(node) in OF_SHAPE
            is_fixed = node.op in ("call_function", "call_method") and (of_shape or found.issuperset(node.all_input_nodes))
            is_fixed = is_fixed and name_of(node) not in _DRAW
        if is_fixed:
            found.add(node)
            yield node


def _attribute(traced: torch.fx.GraphModule, path: str) -> Any:
    value: Any = traced
    for name in path.split("."):
        value = getattr(value, name)
    return value
