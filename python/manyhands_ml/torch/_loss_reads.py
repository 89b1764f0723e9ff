"""Tensors that a loss must not read: what steps change on the adapters alone, and what a forward leaves on the module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree

from ..errors import ModelError, explained

#: Attributes of `nn.Module` itself that hold tensors.
_OF_MODULES = ("_parameters", "_buffers", "_modules")


class Watched(TorchFunctionMode):  # type: ignore[misc]
    """Raises `ModelError` where a function of PyTorch reads one of these tensors. They are named, by identity."""

    def __init__(self, names: dict[int, str]) -> None:
        super().__init__()
        self._names = names

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for part in _pytree.tree_leaves((args, kwargs)):
            if id(part) in self._names:
                problem = f"needs to be a function of outputs and targets, but reads {self._names[id(part)]}: its gradient would be lost"
                help = (
                    "a penalty of weights is `weight_decay` of the optimizer, twice the factor of the squares in `SGD` and `Adam`; "
                    "return from forward what else the loss reads, beside its output; or train it with PyTorch itself"
                )
                raise ModelError(explained("the loss", problem, help))
        return func(*args, **kwargs)


class Left:
    """Tensors that a forward puts on a module beside its parameters and buffers: those that were there before are none of them."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        # The tensors stay, so that no other gets the identity of one.
        self._before = {name: (tensor, tensor._version) for name, tensor in _attributes(module)}
        self._names = frozenset[str]()

    def note(self) -> None:
        """Notes what a forward has left since."""
        for name, tensor in _attributes(self._module):
            before, version = self._before.get(name, (None, 0))
            if before is not tensor or version != tensor._version:
                self._names |= {name}

    def names(self) -> dict[int, str]:
        """The tensors that are there now, by identity."""
        found = [(name, tensor) for name, tensor in _attributes(self._module) if name in self._names]
        return {id(tensor): f"`{name}`, which forward leaves on the module" for name, tensor in found}


def _attributes(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors in attributes of a module and those within, also in lists, tuples and dicts."""
    for name, part in module.named_modules():
        for key, value in vars(part).items():
            if key in _OF_MODULES:
                continue
            leaves = [leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
            for at, leaf in enumerate(leaves):
                yield f"{name}.{key}".lstrip(".") + (f"[{at}]" if at else ""), leaf
