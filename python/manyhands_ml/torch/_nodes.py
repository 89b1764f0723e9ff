"""What the nodes of a trace call, and what they have given."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx
from torch.utils import _pytree


class Values(torch.fx.Interpreter):  # type: ignore[misc]
    """Keeps what each node has given."""

    def __init__(self, traced: torch.fx.GraphModule) -> None:
        super().__init__(traced, garbage_collect_values=False)
        self.values: dict[str, Any] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        self.values[n.name] = value
        return value


def name_of(node: torch.fx.Node) -> str:
    """Name of the function or method that a node calls, or of the attribute. Operations of PyTorch have the kind of their arguments behind it."""
    if node.target is getattr:
        return str(node.args[1])
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    return name.partition(".")[0] if isinstance(node.target, torch._ops.OpOverload) else name


def out_of_place(name: str) -> str:
    """Name of the function or method that gives what this one does in place."""
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def is_getitem(node: torch.fx.Node) -> bool:
    """Does a node take a part of a value?"""
    return node.target is operator.getitem


def has_tensors(value: Any) -> bool:
    """Is it a tensor, or are there some in it?"""
    return any(isinstance(part, torch.Tensor) for part in _pytree.tree_leaves(value))


def storage_of(value: Any) -> int | None:
    """Where the numbers of a tensor lie, which views of it share."""
    return value.untyped_storage().data_ptr() if isinstance(value, torch.Tensor) else None
