"""Attention that a forward writes out: products of queries and keys, their scale, a mask, softmax, dropout, the product with values.

Each of these calls is read by itself. The engine computes them as one layer, once the last one has come.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree

from ._attention import attended, hides_later
from ._graph import Held, Merged, Tensor
from ._layers import Call, Refused, argument, inverted
from ._layers.arithmetic import concatenated, of_two
from ._layers.shapes import permuted

#: The score of a key that is not seen is this at most: its probability is exactly 0, unless other scores are as low.
HIDDEN = -1e9


@dataclass(frozen=True)
class Bias:
    """Numbers that are added to scores of attention, such as those of distances, which learn."""

    #: A number for each query and key, of shape (heads, queries, keys) or (queries, keys).
    numbers: Tensor
    #: 1 at the place of each query, of shape (heads, queries, queries) or (queries, queries).
    places: Tensor


@dataclass(frozen=True)
class Scores:
    """A number for each query and key, `query · keyᵀ` at first, which exists only within a layer of attention."""

    #: Rows of shape (heads, time, dim) or (time, dim). Windows, each with its heads, are so many more heads.
    query: Tensor
    key: Tensor
    scale: float = 1.0
    #: Do queries see no later key?
    is_causal: bool = False
    #: 1 for each key that counts in a row; all count without it.
    keys: Tensor | None = None
    #: The score of keys that are not seen.
    hidden: float | None = None
    #: What is added to scores, after their scale.
    bias: Bias | None = None
    #: Has softmax made probabilities of them?
    is_softmax: bool = False
    dropout: float = 0.0
    #: Products with values so far, of what dropout has left.
    products: list[str] = field(default_factory=list)


def product(call: Call) -> Any:
    """The product of two tensors: scores, or what attention gives.

    Raises:
        Refused: If it is no product of attention.
    """
    a, b = (argument(call, 0, "input", None), argument(call, 1, "mat2" if "mat2" in call.kwargs else "other", None))
    if isinstance(a, Scores) and isinstance(b, (Merged, Tensor)):
        return _attended(call, a, b)
    query, key = (part.rows if isinstance(part, Merged) else part for part in (a, b))
    if type(a) is not type(b) or not isinstance(query, Tensor) or not isinstance(key, Tensor) or query.flat or key.flat:
        raise Refused("needs a matrix that is a parameter of the module, or queries and keys")
    if len(query.shape) < 2 or query.shape[:-2] != key.shape[:-2]:
        raise Refused(f"needs rows of shape (heads, time, dim) or (time, dim), and as many heads, but gets {query.shape} and {key.shape}")
    return Scores(_joined(call, query), _joined(call, with_last_turned(key)))


def with_last_turned(x: Tensor) -> Tensor:
    """A tensor with its last two axes in each other's place."""
    rank = len(x.shape)
    turned = (*range(rank - 2), rank - 1, rank - 2)
    return replace(x, shape=tuple(x.shape[axis] for axis in turned), order=tuple(turned[axis] for axis in x.order))


def _joined(call: Call, x: Tensor) -> Tensor:
    """Rows of shape (..., heads, time, dim) with all that stands before the time as heads."""
    *front, time, dim = x.shape
    rank = len(x.shape)
    if rank <= 3:
        return x
    x = call.graph.ordered(x, (rank - 2, *range(rank - 2), rank - 1))
    name = call.graph.add(f"{call.name}.heads", {"type": "Reshape", "target_shape": [time, math.prod(front), dim]}, [x])
    return Tensor(name, (math.prod(front), time, dim), (1, 0, 2))


def summed(call: Call) -> Any:
    """`einsum` of queries and keys, or of probabilities and values.

    Raises:
        Refused: If it is no product of attention.
    """
    text, *parts = call.args
    parts = list(parts[0]) if len(parts) == 1 and isinstance(parts[0], (list, tuple)) else parts
    inputs, _, out = str(text).replace(" ", "").partition("->")
    names = inputs.split(",")
    told = f"needs queries and keys, or probabilities and values, of one batch, such as `bhqd,bhkd->bhqk`, but is `{text}`"
    if len(parts) != 2 or len(names) != 2 or any(len(set(each)) != len(each) or "." in each for each in (*names, out)):
        raise Refused(told)
    if isinstance(parts[1], Scores):
        parts, names = parts[::-1], names[::-1]
    (a, b), (of_a, of_b) = parts, names
    shared = [name for name in of_a if name in of_b]
    [inner, *others] = [name for name in shared if name not in out] or [""]
    heads = [name for name in out if name in shared]
    alone = [[name for name in each if name not in shared] for each in names]
    is_one_batch = heads[:1] == [of_a[:1]] == [of_b[:1]] == [out[:1]]
    if not inner or others or not is_one_batch or [len(each) for each in alone] != [1, 1] or set(out) != {*heads, *alone[0], *alone[1]}:
        raise Refused(told)
    [[row], [column]], front = alone, heads
    if isinstance(a, Scores):
        if list(of_a) != [*front, row, inner] or not isinstance(b, Tensor):
            raise Refused(told)
        order = [*front, row, column]
        value = call.value.permute([out.index(name) for name in order])
        made = _attended(replace(call, value=value), a, _named(call, b, of_b, [*front, inner, column]))
        assert isinstance(made, Tensor)
        return _named(call, made, "".join(order), list(out))
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        raise Refused(told)
    if list(out) == [*front, column, row]:
        a, b, of_a, of_b, row, column = b, a, of_b, of_a, column, row
    if list(out) != [*front, row, column]:
        raise Refused(told)
    query, key = _named(call, a, of_a, [*front, row, inner]), _named(call, b, of_b, [*front, inner, column])
    return product(replace(call, args=(query, key), kwargs={}))


def _named(call: Call, x: Tensor, names: str, order: list[str]) -> Tensor:
    """A tensor with its axes, the batch among them, in the order of their names."""
    return permuted(call, x, [names.index(name) for name in order])


def _attended(call: Call, scores: Scores, values: Merged | Tensor) -> Merged | Tensor:
    query, key = scores.query, scores.key
    rows = values.rows if isinstance(values, Merged) else values
    value = _joined(call, rows)
    if not scores.is_softmax:
        raise Refused("multiplies scores of attention that are no probabilities yet: `softmax` comes before")
    if scores.dropout and scores.products:
        raise Refused(f"multiplies what dropout has left a second time, after `{scores.products[0]}`, and the engine would draw again")
    scores.products.append(call.name)
    if value.shape[:-1] != key.shape[:-1]:
        raise Refused(f"needs values of shape {(*key.shape[:-1], 'dim')} a row, but gets {value.shape}")
    shape = (values.steps, *call.shape) if isinstance(values, Merged) else call.shape
    if shape != (*rows.shape[:-2], query.shape[-2], rows.shape[-1]):
        raise Refused(f"needs as many heads in values as in scores, but values have rows of shape {rows.shape}")
    scale = scores.scale
    if scores.bias is not None:
        query, key, scale = *_biased(call, scores, scores.bias), 1.0
    if len(query.shape) == 2:
        query, key, value = (_with_heads(call, part) for part in (query, key, value))
    heads, time, dim = *query.shape[:2], value.shape[-1]
    one = replace(call, value=torch.empty((1, heads, time, dim), device="meta"))
    seen = attended(one, (query, key, value), scale, scores.is_causal, scores.dropout, scores.keys)
    if shape != seen.shape:
        # (time, ..., heads, dim), as it stands in the engine.
        front, behind = shape[:-2], len(shape) - 2
        name = call.graph.add(f"{call.name}.joined", {"type": "Reshape", "target_shape": [time, *front, dim]}, [seen])
        seen = Tensor(name, shape, (behind, *range(behind), behind + 1))
    return Merged(seen) if isinstance(values, Merged) else seen


def _biased(call: Call, scores: Scores, bias: Bias) -> tuple[Tensor, Tensor]:
    """Queries and keys whose products have the scale and the numbers already: a query also has 1 at its own place, a key a number for each."""
    query = call.graph.unary(f"{call.name}.scaled", {"type": "Rescaling", "scale": scores.scale, "offset": 0.0}, scores.query)
    rank = len(query.shape)

    def beside(a: Tensor, b: Tensor) -> Tensor:
        shape = (*a.shape[:-1], a.shape[-1] + b.shape[-1])
        return concatenated(replace(call, args=([a, b], rank), kwargs={}, value=torch.empty((1, *shape), device="meta")))

    return beside(query, bias.places), beside(scores.key, with_last_turned(bias.numbers))


def _with_heads(call: Call, x: Tensor) -> Tensor:
    """A sequence as that of one head."""
    time, dim = x.shape
    name = call.graph.add(f"{call.name}.heads", {"type": "Reshape", "target_shape": [time, 1, dim]}, [call.graph.plain(x)])
    return Tensor(name, (1, time, dim), (1, 0, 2))


# Calls on scores.


def _number(part: Any) -> float:
    if isinstance(part, Held) and not part.is_trained and part.tensor.numel() == 1:
        return float(part.tensor.item())
    if isinstance(part, (int, float)):
        return float(part)
    raise Refused("needs a number beside scores of attention")


def _scaled(call: Call, scores: Scores) -> Scores:
    a, b = call.args
    factor = _number(b if isinstance(a, Scores) else a)
    if scores.bias is not None:
        raise Refused("needs the scale of scores before numbers are added to them")
    hidden = None if scores.hidden is None else scores.hidden * factor
    return replace(_before_softmax(scores), scale=scores.scale * factor, hidden=hidden)


def _divided(call: Call, scores: Scores) -> Scores:
    if call.args[0] is not scores or not _number(call.args[1]):
        raise Refused("needs scores of attention divided by a number")
    return _scaled(replace(call, args=(scores, 1.0 / _number(call.args[1]))), scores)


def _filled(call: Call, scores: Scores) -> Scores:
    """Scores with one number for keys that are not seen."""
    hidden, number = argument(call, 1, "mask", None), _number(argument(call, 2, "value", None))
    if isinstance(hidden, Tensor) and hidden.is_bool:
        return _without_keys(call, _before_softmax(scores), hidden, number)
    if not isinstance(hidden, Held) or hidden.tensor.dtype != torch.bool:
        raise Refused("needs a mask that is true or false")
    return _masked(scores, hidden, number)


def _without_keys(call: Call, scores: Scores, hidden: Tensor, number: float) -> Scores:
    """Scores of which rows hide keys, such as those of padding."""
    count = scores.key.shape[-2]
    ones = [1] * (call.value.dim() - 2)
    if hidden.shape != (*ones, count) or scores.keys is not None:
        shape = ("batch", *ones, count)
        raise Refused(f"needs one mask of keys, of shape {shape}, or a buffer; that of its rows is {hidden.shape}")
    flat = call.graph.add(f"{call.name}.keys", {"type": "Reshape", "target_shape": [count]}, [hidden])
    keys = inverted(replace(call, name=f"{call.name}.counted"), Tensor(flat, (count,), (0,), is_bool=True))
    return replace(scores, keys=keys, hidden=_one(number, scores.hidden))


def _one(number: float, hidden: float | None) -> float:
    """The score of all keys that are not seen: a query that sees none weighs them by their scores in PyTorch, and alike here."""
    if hidden not in (None, number):
        raise Refused(f"needs one score for all keys that are not seen, but they have {hidden:g} and {number:g}")
    return number


def _added(call: Call, scores: Scores) -> Scores:
    """Scores with a mask that is 0 where a key is seen."""
    mask = call.args[1] if call.args[0] is scores else call.args[0]
    if isinstance(mask, Bias):
        if scores.bias is not None:
            mask = replace(mask, numbers=together(call, scores.bias.numbers, mask.numbers))
        return replace(_before_softmax(scores), bias=mask)
    if not isinstance(mask, Held) or mask.is_trained or not mask.tensor.is_floating_point():
        raise Refused("needs a mask of 0 and `-inf` that is the same for all rows, such as a buffer")
    return _masked(scores, mask, float(mask.tensor.min()))


def together(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """The sum of numbers beside scores."""
    return of_two(replace(call, args=(a, b), kwargs={}, value=torch.empty((1, *a.shape), device="meta")), "Add")


def _where(call: Call, scores: Scores) -> Scores:
    """Scores where keys are seen, else a number."""
    condition, a, b = call.args
    if not isinstance(condition, Held) or condition.tensor.dtype != torch.bool:
        raise Refused("needs a mask that is the same for all rows, such as a buffer")
    hidden = replace(condition, tensor=~condition.tensor) if a is scores else condition
    return _masked(scores, hidden, _number(b if a is scores else a))


def _masked(scores: Scores, mask: Held, number: float) -> Scores:
    scores, shape = _before_softmax(scores), (scores.query.shape[-2], scores.key.shape[-2])
    if not hides_later(mask, *shape):
        return scores
    return replace(scores, is_causal=True, hidden=_one(number, scores.hidden))


def _before_softmax(scores: Scores) -> Scores:
    if scores.is_softmax:
        raise Refused("changes probabilities of attention, which needs to be done to scores, before `softmax`")
    return scores


def _softmax(call: Call, scores: Scores) -> Scores:
    dim = argument(call, 1, "dim", None) if call.module is None else call.module.dim
    dtype = argument(call, 2, "dtype", None) if call.module is None else None
    if dim not in (-1, call.value.dim() - 1) or dtype not in (None, torch.float32):
        raise Refused(f"`dim` needs to be the last axis, and `dtype` torch.float32, but they are {dim} and {dtype}")
    if scores.hidden is not None and not scores.hidden <= HIDDEN:
        raise Refused(f"needs `-inf` or at most {HIDDEN:g} as the score of keys that are not seen, but it is {scores.hidden:g}")
    return replace(_before_softmax(scores), is_softmax=True)


def _dropped(call: Call, scores: Scores) -> Scores:
    if call.module is None:
        p, training = argument(call, 1, "p", 0.5), argument(call, 2, "training", call.kwargs.get("train", True))
    else:
        p, training = call.module.p, call.is_training
    if not p or not training:
        return scores
    if not scores.is_softmax or scores.dropout:
        raise Refused("needs to drop probabilities of attention, behind `softmax`, and once")
    return replace(scores, dropout=float(p), products=[])


def _viewed(call: Call, scores: Scores) -> Scores:
    """Scores whose windows and heads PyTorch has as other axes: here they are heads."""
    if tuple(call.value.shape[-2:]) != (scores.query.shape[-2], scores.key.shape[-2]):
        raise Refused("needs to keep the last two axes of scores of attention")
    return scores


def _same(call: Call, scores: Scores) -> Scores:
    if call.value.dtype != torch.float32:
        raise Refused(f"needs torch.float32, but is {call.value.dtype}")
    return scores


_CALLS: dict[Any, Callable[[Call, Scores], Scores]] = {
    **dict.fromkeys(("mul", "imul"), _scaled),
    **dict.fromkeys(("div", "truediv", "itruediv"), _divided),
    **dict.fromkeys(("add", "iadd"), _added),
    "masked_fill": _filled,
    "where": _where,
    **dict.fromkeys(("softmax", nn.Softmax), _softmax),
    **dict.fromkeys(("dropout", nn.Dropout), _dropped),
    **dict.fromkeys(("flatten", "reshape", "unflatten", "view"), _viewed),
    **dict.fromkeys(("alias", "clone", "contiguous", "float", "to", "type_as", "_to_copy", nn.Identity), _same),
}


def of_scores(call: Call, kind: Any) -> Callable[[Call], Any] | None:
    """What a module of a class, or a function of a name, makes of scores; `None` where it reads none.

    Raises:
        Refused: If it is no part of attention.
    """
    found = [part for part in _pytree.tree_leaves((call.args, call.kwargs)) if isinstance(part, Scores)]
    if not found:
        return None
    if kind in ("matmul", "bmm", "einsum"):
        return summed if kind == "einsum" else product
    if kind not in _CALLS or len(found) > 1:
        raise Refused("reads the product of two tensors, which is computed in attention alone: scale, mask, `softmax`, dropout, product")
    return lambda call: _CALLS[kind](call, found[0])
