"""Masks that code makes for attention, read by what they are for some rows: keys that count, and no later key than the query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras.src.backend import KerasTensor

from ._nodes import Unsupported

_OTHER = "has a mask of another kind than keys that count and a causal one"
#: Rows for which a mask is computed, beside one in which all keys count.
_ROWS = 7


@dataclass(frozen=True)
class Mask:
    """What a mask of attention says."""

    #: The tensor `[batch, keys]` that is at least 0.5 where a key counts; `None` if all count.
    keys: Any
    #: Does a query see no later key?
    is_causal: bool


def stands_for(tensor: Any, outside: Any) -> None:
    """Notes that an input of traced code is a tensor outside it."""
    tensor._manyhands_outside = outside


def outside_of(tensor: Any) -> Any:
    """The tensor outside traced code that an input of it is."""
    return tensor._manyhands_outside


def outermost(tensor: Any) -> Any:
    """The tensor that an input of code within code stands for in the end."""
    while hasattr(tensor, "_manyhands_outside"):
        tensor = tensor._manyhands_outside
    return tensor


def read(mask: Any, queries: int, keys: int) -> Mask:
    """What a mask says, `[batch, queries, keys]` or with an axis of heads.

    It is computed for rows in which any keys count, and compared with what it would be.

    Raises:
        Unsupported: If it is another mask, or of other tensors.
    """
    sources = _sources(mask)
    if not sources:
        pairs = _pairs(_value(mask, {}), queries, keys)[0]
        return Mask(None, _is_causal(pairs))
    source = sources[0]
    if len(sources) > 1 or len(source.shape) != 2 or source.shape[1] != keys:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in sources)
        raise Unsupported(f"has a mask that is made of {shapes}; it needs one tensor [batch, {keys}] of keys that count")
    rows = np.random.default_rng(0).integers(0, 2, (_ROWS, keys))
    rows = np.concatenate([np.ones((1, keys), rows.dtype), rows]).astype(source.dtype)
    pairs = _pairs(_value(mask, {id(source): rows}), queries, keys)
    if not np.array_equal(pairs, pairs[:1] & (rows >= 0.5)[:, None, :]):
        raise Unsupported(_OTHER)
    return Mask(source, _is_causal(pairs[0]))


def _is_causal(pairs: Any) -> bool:
    """Does a query see no later key? Else it sees all."""
    if pairs.all():
        return False
    if not np.array_equal(pairs, np.tri(*pairs.shape, dtype=bool)):
        raise Unsupported(_OTHER)
    return True


def _pairs(value: Any, queries: int, keys: int) -> Any:
    """A mask as true and false, `[rows, queries, keys]`."""
    value = np.asarray(value)
    if value.ndim == 4 and value.shape[1] == 1:
        value = value[:, 0]
    if value.ndim not in (2, 3):
        raise Unsupported(f"has a mask of shape {value.shape}; it needs one for all heads, [batch, queries, keys]")
    value = value if value.ndim == 3 else value[None]
    return np.broadcast_to(value.astype(bool), (len(value), queries, keys))


def _made_by(tensor: Any) -> Any:
    operation, number, _ = tensor._keras_history
    return operation._inbound_nodes[number]


def _sources(mask: Any) -> list[Any]:
    """The tensors that a mask is made of, which no operation makes."""
    found, waiting = dict[int, Any](), [mask]
    seen = set[int]()
    while waiting:
        tensor = waiting.pop()
        if not isinstance(tensor, KerasTensor) or id(tensor) in seen:
            continue
        seen.add(id(tensor))
        outside = outermost(tensor)
        node = _made_by(outside)
        if outside is not tensor:
            waiting.append(outside)
        elif node.is_input:
            found[id(tensor)] = tensor
        else:
            waiting += keras.tree.flatten([node.arguments.args, node.arguments.kwargs])
    return list(found.values())


def _value(tensor: Any, given: dict[int, Any]) -> Any:
    """What a tensor is where others are given."""
    if not isinstance(tensor, KerasTensor):
        return tensor if tensor is None else keras.ops.convert_to_numpy(tensor)
    outside = outermost(tensor)
    if id(outside) not in given:
        node = _made_by(outside)
        if isinstance(node.operation, keras.Layer) and node.operation.weights:
            raise Unsupported("has a mask that is computed by weights")

        def settled(value: Any) -> Any:
            return _value(value, given) if isinstance(value, KerasTensor) else value

        args, kwargs = keras.tree.map_structure(settled, (node.arguments.args, node.arguments.kwargs))
        outputs = keras.tree.flatten(node.operation(*args, **kwargs))
        given.update((id(output), keras.ops.convert_to_numpy(value)) for output, value in zip(node.outputs, outputs))
    return given[id(outside)]


class Attended(keras.Operation):  # type: ignore[misc]
    """Attention of heads `[batch, time, heads, dim]`, as code within Keras computes it: `softmax(query · keyᵀ · scale) · value`."""

    def __init__(self, scale: float, dropout: float, is_causal: bool) -> None:
        super().__init__()
        self.scale, self.dropout, self.is_causal = scale, dropout, is_causal

    def call(self, query: Any, key: Any, value: Any, mask: Any = None) -> Any:
        """It stands in traces alone."""
        raise NotImplementedError

    def compute_output_spec(self, query: Any, key: Any, value: Any, mask: Any = None) -> Any:
        """Shape and type of what comes out."""
        return KerasTensor((*query.shape[:-1], value.shape[-1]), dtype=query.dtype)


def attended(
    layer: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any = None,
    training: Any = None,
    return_attention_scores: bool = False,
    use_causal_mask: bool = False,
) -> tuple[Any, None]:
    """Stands for `MultiHeadAttention._compute_attention` while code is traced."""
    if return_attention_scores:
        raise Unsupported("gives scores of attention, which the engine never has")
    operation = Attended(float(layer._inverse_sqrt_key_dim), float(layer._dropout) if training else 0.0, use_causal_mask)
    return operation(query, key, value, mask=attention_mask), None
