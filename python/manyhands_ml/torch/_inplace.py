"""Calls that change their argument in place: what reads it later would see other numbers than here, where each call makes a new tensor."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx

from ._nodes import name_of, out_of_place, storage_of

#: Operators such as `+=`.
_OPERATORS = frozenset(
    (operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow)
)


def take_over(traced: torch.fx.GraphModule) -> None:
    """What reads later what a call changes in place reads the call's result: they are one tensor."""
    places = {node: place for place, node in enumerate(traced.graph.nodes)}
    for node in places:
        first = node.args[0] if node.args else None
        if not isinstance(first, torch.fx.Node) or not changes_argument(node, traced):
            continue
        for user in [user for user in first.users if places[user] > places[node]]:
            user.replace_input_with(first, node)


def unused(traced: torch.fx.GraphModule) -> Iterator[str]:
    """Calls that change their argument and whose result nobody reads: `torch.fx` takes them for dead code."""
    for node in traced.graph.nodes:
        if not node.users and changes_argument(node, traced):
            yield f"{_who(node)}: changes its argument in place, but its result is not used: write `x = ...`, and leave out `inplace`"


def read_after(traced: torch.fx.GraphModule, values: dict[str, Any]) -> Iterator[str]:
    """Calls that change in place what is read later under another name."""
    places = {node: place for place, node in enumerate(traced.graph.nodes)}
    storages = {node: storage_of(values.get(node.name)) for node in traced.graph.nodes}
    for node, place in places.items():
        if not changes_argument(node, traced) or _storage_of_first(node, storages) is None:
            continue
        shared = [other for other in places if places[other] < place and storages[other] == _storage_of_first(node, storages)]
        later = [user for other in shared for user in other.users if places[user] > place]
        if later:
            yield f"{_who(node)}: changes its argument in place, which {_who(later[0])} reads later: leave out `inplace`"


def _who(node: torch.fx.Node) -> str:
    if node.op == "output":
        return "the output"
    if node.op == "call_module":
        return f"module `{node.target}`"
    return f"call of `{name_of(node)}`"


def changes_argument(node: torch.fx.Node, traced: torch.fx.GraphModule) -> bool:
    """Does a call change its first argument in place?"""
    if node.op == "call_module":
        return bool(getattr(traced.get_submodule(str(node.target)), "inplace", False))
    if node.op not in ("call_method", "call_function"):
        return False
    is_named = node.target is not getattr and out_of_place(name_of(node)) != name_of(node)
    return is_named or (node.op == "call_function" and (node.target in _OPERATORS or _is_told(node)))


def _is_told(node: torch.fx.Node) -> bool:
    """Does the call say `inplace=True`?"""
    try:
        bound = inspect.signature(node.target).bind(*node.args, **node.kwargs)
    except (TypeError, ValueError):
        return bool(node.kwargs.get("inplace"))
    return bool(bound.arguments.get("inplace"))


def _storage_of_first(node: torch.fx.Node, storages: dict[torch.fx.Node, int | None]) -> int | None:
    first = node.args[0] if node.args else next(iter(node.kwargs.values()), None)
    return storages.get(first) if isinstance(first, torch.fx.Node) else None
