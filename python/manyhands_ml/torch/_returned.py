"""Structures of tensors: what a forward returns, and targets. Each is one tensor, or several in a tuple, list, dict or named tuple."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils import _pytree

from ..errors import DataError, explained
from ._graph import Graph, Tensor, shape_here

# What a forward returns.


def paths(structure: Any, none: bool = True) -> list[str]:
    """How a program gets at each leaf, perhaps but `None`, such as `[0]`; of one tensor alone nothing."""
    return [_pytree.keystr(path) for path, leaf in _pytree.tree_flatten_with_path(structure)[0] if none or leaf is not None]


def is_alike(one: Any, other: Any) -> bool:
    """Do two structures have tensors at the same places?"""
    places = [[leaf is None for leaf in _pytree.tree_leaves(it)] for it in (one, other)]
    return places[0] == places[1] and bool(_pytree.tree_structure(one) == _pytree.tree_structure(other))


def given(graph: Graph, flats: list[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs of a graph as PyTorch gives them, from those of the engine: these have gradients by them."""
    of = dict(zip(graph.output_names(), flats, strict=True))
    return [_as_in_pytorch(of[tensor.name], tensor) for tensor in graph.outputs]


def _as_in_pytorch(flat: torch.Tensor, tensor: Tensor) -> torch.Tensor:
    """An output of the engine in PyTorch's shape, with the logarithm that the engine leaves out."""
    values = flat.reshape(-1, *shape_here(tensor))
    back = [tensor.order.index(axis) + 1 for axis in range(len(tensor.shape))]
    shaped = (values.permute(0, *back) if back else values).reshape(-1, *tensor.shape).contiguous()
    return shaped if tensor.log_axis is None else shaped.log_softmax(tensor.log_axis + 1)


def placed(structure: Any, outputs: list[torch.Tensor]) -> Any:
    """Outputs in a structure that has the number of one at each place, or `None`."""
    return _pytree.tree_map(lambda place: None if place is None else outputs[place], structure)


def tensors(structure: Any) -> list[torch.Tensor]:
    """All tensors in a structure, without their gradients."""
    return [leaf.detach() for leaf in _pytree.tree_leaves(structure) if isinstance(leaf, torch.Tensor)]


# Targets.


def tensor_of(values: Any) -> torch.Tensor:
    """Values as PyTorch computes with them: whole numbers stay what they are, others are float32."""
    tensor = values if isinstance(values, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(values))
    return tensor.float() if tensor.is_floating_point() else tensor


def is_several(values: Any, rows: int) -> bool:
    """Are these several arrays of so many rows, and neither one array nor a list of its rows?"""
    if isinstance(values, (torch.Tensor, np.ndarray)):
        return False
    arrays = [leaf for leaf in _pytree.tree_leaves(values) if _is_array(leaf)]
    is_of_rows = isinstance(values, (list, tuple)) and len(arrays) == len(values) == rows and len({tuple(it.shape) for it in arrays}) == 1
    return isinstance(values, dict) or (bool(arrays) and not (is_of_rows and len(arrays[0]) != rows))


def first(values: Any, rows: int, count: int) -> Any:
    """The first of so many rows."""
    if not is_several(values, rows):
        return tensor_of(values[:count])
    return at(tensors_of(values, rows), slice(count))


def tensors_of(values: Any, rows: int) -> Any:
    """Targets as PyTorch computes with them, in their structure."""
    if not is_several(values, rows):
        return tensor_of(values)
    return _pytree.tree_map(lambda leaf: tensor_of(leaf) if isinstance(leaf, (torch.Tensor, np.ndarray)) else leaf, values)


def at(values: Any, places: Any) -> Any:
    """Rows of each tensor in a structure."""
    return _pytree.tree_map(lambda leaf: leaf[places] if _is_array(leaf) else leaf, values)


def moved(values: Any, device: torch.device) -> Any:
    """A structure with its tensors on a device."""
    return _pytree.tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, values)


def check_rows(values: Any, rows: int) -> None:
    """Raises `DataError` for what is no array of so many rows."""
    for path, leaf in zip(paths(values), _pytree.tree_leaves(values)):
        has = f"have shape {list(leaf.shape)}" if isinstance(leaf, torch.Tensor) else f"are `{type(leaf).__name__}`"
        if not _is_array(leaf) or len(leaf) != rows:
            who = f"targets at `{path}`" if path else "targets"
            help = "give one array, or several in a tuple, list or dict, whose first axis is the row"
            raise DataError(explained(who, f"need to be {rows} rows, as the inputs have, but {has}", help))


def _is_array(values: Any) -> bool:
    """Has it rows?"""
    return isinstance(values, (torch.Tensor, np.ndarray)) and values.ndim > 0
