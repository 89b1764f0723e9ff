"""Parameters and buffers that a forward reads itself, in functions such as `linear(x, weight)` or as tensors, as in `x + position`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree

from ._attention import attention as _attention
from ._attention import hides_later
from ._by_hand import HIDDEN, Bias, Scores, product, summed, together, with_last_turned
from ._graph import Floats, Held, Merged, Sum, Tensor, Weight, same
from ._layers import ARGUMENTS, FUNCTIONS, Call, Refused, argument, cropped, made
from ._layers.arithmetic import of_two
from ._layers.reductions import expanded
from ._settings import MODULES as SETTINGS
from ._settings import refusals

#: Functions that change neither the numbers of a tensor nor their order.
_VIEWS = frozenset("alias clone contiguous detach expand flatten reshape slice squeeze unsqueeze view".split())


def without_inputs(name: str, args: tuple[Any, ...], value: Any) -> Any:
    """What a function gives that reads no input.

    Raises:
        Refused: If it computes with a parameter, which would not learn.
    """
    parts = _pytree.tree_leaves(args)
    held = [part for part in parts if isinstance(part, Held)]
    trained = [part for part in held if part.is_trained]
    sums = [part for part in parts if isinstance(part, Sum)]
    if name == "add" and (trained or sums) and len(held) + len(sums) == len(parts) == 2:
        return Sum(tuple(held) + tuple(part for each in sums for part in each.parts))
    if sums:
        raise Refused("computes with a sum of parameters, which scores of attention alone may read")
    if not trained:
        return _pytree.tree_map(lambda part: Held(part, tuple(part.shape)) if isinstance(part, torch.Tensor) else part, value)
    if name == "embedding" and len(held) == 2 and trained == held[:1]:
        return Held(trained[0].tensor, tuple(value.shape), trained[0].name, places=held[1].tensor)
    first = trained[0]
    moved = _moved(name, first, args, held[1:])
    if moved is not None:
        return replace(moved, shape=tuple(value.shape))
    is_plain = first == Held(first.tensor, tuple(first.tensor.shape), first.name)
    strides = first.tensor.stride()[:: -1 if first.is_turned else 1]
    if len(first.shape) == 2 and (is_plain or first.is_turned) and (*value.shape, *value.stride()) == (*first.shape[::-1], *strides[::-1]):
        return replace(first, shape=tuple(value.shape), is_turned=not first.is_turned)
    if name in ("getitem", "slice") and is_plain and (part := _part(name, first, args)):
        return replace(first, shape=tuple(value.shape), part=part)
    is_less = first.places is not None or bool(first.part)
    size = math.prod(first.shape) if is_less else first.tensor.numel()
    if not first.is_turned and len(trained) == 1 and name in _VIEWS and size in (value.numel(), math.prod(value.shape[1:])):
        return replace(first, shape=tuple(value.shape))
    counts = [count for part in args[1:] for count in (part if isinstance(part, (list, tuple)) else [part])]
    is_of_rows = name == "repeat" and set(counts[1:]) <= {1} and (len(counts) > len(first.shape) or first.shape[0] == 1)
    if is_of_rows and not first.is_turned and size == math.prod(value.shape[1:]):
        # Copies for each row.
        return replace(first, shape=tuple(value.shape))
    raise Refused(f"computes with the parameter `{trained[0].name}` alone, which is not supported: begin with a tensor")


def _moved(name: str, held: Held, args: tuple[Any, ...], others: list[Held]) -> Held | None:
    """A parameter at known places of its rows, with its axes in another order, or with new axes of 1."""
    rank, index = len(held.shape), args[1] if len(args) > 1 else None
    # The operation below it has a list.
    index = index[0] if name == "index" and isinstance(index, list) and len(index) == 1 else index
    parts = index if isinstance(index, tuple) else (index,)
    is_first = not held.part and not held.is_turned and held.moved is None
    if name in ("getitem", "index") and all(part is None or part is Ellipsis or part == slice(None) for part in parts if not isinstance(part, Held)):
        if not others:
            return held
        [places] = others
        is_table = is_first and held.places is None and held.shape == tuple(held.tensor.shape) and rank == 2
        if is_table and index is places and places.tensor.dtype == torch.int64 and not (places.tensor < 0).any():
            return replace(held, places=places.tensor)
    if name == "permute" and is_first and not others and rank > 2:
        dims = args[1] if isinstance(args[1], (tuple, list)) else args[1:]
        return replace(held, moved=(tuple(int(dim) % rank for dim in dims), held.shape))
    return None


def _part(name: str, held: Held, args: tuple[Any, ...]) -> tuple[slice, ...]:
    """The part of each axis of a parameter that an index takes; nothing if it takes no slices alone, and without a step."""
    if name == "slice" and len(args) < 5:
        axis, *ends = [*args[1:], *(0, None, None)[len(args) - 1 :]][:3]
        index: Any = (*[slice(None)] * (int(axis) % len(held.shape)), slice(*ends))
    elif name == "slice":
        return ()
    else:
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
    if Ellipsis in index:
        at = index.index(Ellipsis)
        index = (*index[:at], *[slice(None)] * (len(held.shape) + 1 - len(index)), *index[at + 1 :])
    if not all(isinstance(part, slice) and part.step in (None, 1) for part in index):
        return ()
    index = (*index, *[slice(None)] * (len(held.shape) - len(index)))
    return tuple(slice(*part.indices(size)) for part, size in zip(index, held.shape))


def at_known_places(call: Call) -> Held:
    """An `Embedding` at places that no input decides, such as those of `torch.arange(length)`.

    Raises:
        Refused: If it has settings beside its sizes.
    """
    module, [places] = call.module, call.args
    if module.padding_idx is not None or list(refusals(module, SETTINGS[nn.Embedding])):
        raise Refused("needs no settings beside its sizes where its places don't depend on an input")
    return Held(module.weight, tuple(call.value.shape), f"{call.name}.weight", places=places.tensor)


def as_tensor(call: Call, held: Held, near: Tensor, rank: int) -> Tensor:
    """A parameter or a buffer as a tensor whose rows have so many axes. `near` is one whose numbers don't matter."""
    if held.moved is not None:
        return _with_axes_moved(call, held, near, rank)
    if held.places is not None and math.prod(held.shape[:-1]) == held.places.numel() and held.shape[:-1] != tuple(held.places.shape):
        # Its axes were others when it was looked up.
        whole = as_tensor(call, replace(held, shape=(*held.places.shape, held.shape[-1])), near, held.places.dim() + 1)
        return call.graph.shaped(f"{whole.name}.row", whole, held.row(rank))
    if held.places is not None:
        return _looked_up(call, held, near, rank)
    if held.is_turned:
        raise Refused(f"reads `{held.name}` with its axes in other places, which a product alone may do")
    shape, graph = held.row(rank), call.graph
    known = graph.held.get(id(held.tensor))
    if known is None:
        known = _table(call, replace(held, shape=(held.tensor.numel(),)) if held.is_trained else held, near, rank)
        if held.is_trained:
            graph.held[id(held.tensor)] = known
    if held.part:
        known = _cut(call, held, known)
    name = graph.add(f"{known.name}.row", {"type": "Reshape", "target_shape": list(shape)}, [known])
    return Tensor(name, shape, tuple(range(len(shape))))


def _with_axes_moved(call: Call, held: Held, near: Tensor, rank: int) -> Tensor:
    assert held.moved is not None
    axes, before = held.moved
    x = as_tensor(call, replace(held, shape=before, moved=None), near, len(before))
    x = call.graph.plain(replace(x, shape=tuple(before[axis] for axis in axes), order=tuple(axes.index(axis) for axis in x.order)))
    return call.graph.shaped(f"{x.name}.row", x, held.row(rank))


def _cut(call: Call, held: Held, whole: Tensor) -> Tensor:
    """A part of a parameter whose numbers stand one after the other."""
    shape = tuple(held.tensor.shape)
    name = call.graph.add(f"{whole.name}.whole", {"type": "Reshape", "target_shape": list(shape)}, [whole])
    x = Tensor(name, shape, tuple(range(len(shape))))
    for axis, part in enumerate(held.part):
        x = cropped(replace(call, name=f"{whole.name}.cut"), x, axis, part.start, part.stop)
    return x


#: Functions that divide by a number, which a buffer may hold.
_DIVISIONS = frozenset("div truediv".split())
#: Functions that take parameters as they take tensors.
_OF_TENSORS = frozenset("add cat concat iadd isub maximum minimum mul imul stack sub".split()) | _DIVISIONS


def with_tensors(call: Call, name: str) -> Call:
    """The call of a function, in which parameters and buffers are tensors where it treats all alike."""
    parts = _pytree.tree_leaves(call.args)
    scores = next((part for part in parts if isinstance(part, Scores)), None)
    if scores is not None and name in ("add", "iadd"):
        args = [_bias(call, part, scores) if isinstance(part, (Held, Sum)) else part for part in call.args]
        return replace(call, args=tuple(args))
    near = next((part for part in parts if isinstance(part, Tensor)), None)
    if name not in _OF_TENSORS or near is None:
        return call

    def tensor(part: Any) -> Any:
        if not isinstance(part, Held):
            return part
        is_number = not part.is_trained and (not part.shape or (name in _DIVISIONS and part.tensor.numel() == 1))
        return part.tensor.item() if is_number else as_tensor(call, part, near, len(near.shape))

    return replace(call, args=_pytree.tree_map(tensor, call.args))


def _is_mask(held: Held) -> bool:
    """Does it hide keys, and adds nothing to the scores of others?"""
    values = held.tensor
    return not held.is_trained and (not values.is_floating_point() or not values.any() or bool(values.min() < HIDDEN / 2))


def _bias(call: Call, held: Held | Sum, scores: Scores) -> Held | Bias:
    """Numbers that are added to scores; a mask stays as it is."""
    parts = held.parts if isinstance(held, Sum) else (held,)
    if isinstance(held, Held) and _is_mask(held):
        return held
    *heads, times = scores.query.shape[:-1]
    shape = (*heads, times, scores.key.shape[-2])
    total, *others = [call.graph.shaped(f"{call.name}.numbers", _numbers(call, part, scores), shape) for part in parts]
    for other in others:
        total = together(call, total, other)
    if scores.bias is not None:
        return replace(scores.bias, numbers=total)
    places = as_tensor(call, Held(torch.eye(times), (times, times)), scores.query, len(heads) + 2)
    return Bias(total, _copied(call, places, (*heads, times, times)))


def _numbers(call: Call, held: Held, scores: Scores) -> Tensor:
    """Numbers for scores, of windows and heads as PyTorch has them here."""
    rows, front = len(call.value), [int(size) for size in call.value.shape[1:-2]]
    windows = math.prod(scores.query.shape[:-2]) // math.prod(front)
    if windows > 1:
        # PyTorch has them within the axis of the batch.
        front = [windows, *front]
        if len(held.shape) == call.value.dim():
            held = _of_one_batch(held, windows) if held.shape[0] == rows else replace(held, shape=held.shape[1:])
    if not held.is_trained:
        held = replace(held, tensor=_finite(held.tensor))
    shape = (*front, scores.query.shape[-2], scores.key.shape[-2])
    numbers = as_tensor(call, held, scores.query, len(shape))
    if numbers.shape[-2:] != shape[-2:] or any(count not in (1, size) for count, size in zip(numbers.shape, shape)):
        raise Refused(f"needs numbers of shape {shape} beside scores of attention, but gets {numbers.shape}")
    return _copied(call, numbers, shape)


def _copied(call: Call, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Copies along axes of 1."""
    return expanded(replace(call, args=(x,), kwargs={}, value=torch.empty((1, *shape), device="meta")))


def _of_one_batch(held: Held, windows: int) -> Held:
    """Numbers for the windows of one row, of those that are copied for each row of the batch."""
    values = held.tensor.detach().cpu().unflatten(0, (-1, windows))
    if held.is_trained or not (values == values[:1]).all():
        raise Refused("needs numbers beside scores that are the same for all rows")
    return replace(held, tensor=values[0], shape=tuple(values.shape[1:]))


def _finite(values: torch.Tensor) -> torch.Tensor:
    """Numbers beside scores, with a very low one for minus infinity."""
    hidden = values == -math.inf
    if hidden.all(-1).any() or (values == math.inf).any():
        raise Refused("needs numbers beside scores, and minus infinity not for all keys of a query")
    return values.masked_fill(hidden, -1e30) if hidden.any() else values


def _scaled_dot_product_attention(call: Call) -> Any:
    """Attention with numbers beside scores as `attn_mask`, or as it is elsewhere."""
    query, key, value, mask = (argument(call, at, name, None) for at, name in enumerate(("query", "key", "value", "attn_mask")))
    is_numbers = isinstance(mask, Sum) or (isinstance(mask, Held) and not _is_mask(mask))
    if not isinstance(key, Merged) and not is_numbers and not (isinstance(key, Tensor) and len(key.shape) > 3):
        return _attention(call)
    turned = Merged(with_last_turned(key.rows)) if isinstance(key, Merged) else with_last_turned(key)
    scores = product(replace(call, args=(query, turned), kwargs={}))
    bias = _bias(call, mask, scores) if is_numbers else None
    dropout, is_causal, scale = (argument(call, at, name, None) for at, name in ((4, "dropout_p"), (5, "is_causal"), (6, "scale")))
    hides = bias is None and hides_later(mask, scores.query.shape[-2], scores.key.shape[-2], sees=True)
    factor = 1.0 / math.sqrt(scores.query.shape[-1]) if scale is None else float(scale)
    seen = replace(scores, scale=factor, is_causal=bool(is_causal) or hides, bias=bias, is_softmax=True, dropout=float(dropout or 0.0))
    return product(replace(call, args=(seen, value), kwargs={}))


def _table(call: Call, held: Held, near: Tensor, rank: int) -> Tensor:
    """The numbers, one after the other, in each row."""
    graph, name = call.graph, held.name or f"{call.name}.held"
    size = math.prod(held.row(rank))
    flat = graph.add(f"{name}.all", {"type": "Reshape", "target_shape": [math.prod(near.shape), 1]}, [near])
    first = graph.add(f"{name}.first", {"type": "Cropping1D", "cropping": [0, math.prod(near.shape) - 1]}, [replace(near, name=flat)])
    one = graph.add(f"{name}.one", {"type": "Reshape", "target_shape": [1]}, [replace(near, name=first)])
    places = graph.add(f"{name}.places", {"type": "RepeatVector", "n": size}, [replace(near, name=one)])
    settings = {"type": "PositionEmbedding", "sequence_length": size, "trainable": held.is_trained and held.tensor.requires_grad}
    table = graph.add(name, settings, [replace(near, name=places)])
    if held.is_trained:
        shape = held.tensor.shape
        graph.weights[f"{table}/embeddings"] = Weight(
            [held.tensor], lambda arrays: arrays[0].reshape(-1, 1), lambda values: [values.reshape(shape)]
        )
    else:
        graph.constants[f"{table}/embeddings"] = _of_one_row(held, rank).reshape(-1, 1)
    return Tensor(table, (size, 1), (0, 1))


def _of_one_row(held: Held, rank: int) -> Floats:
    """The numbers of a tensor that is the same for all rows."""
    values: Floats = held.tensor.detach().cpu().numpy().astype(np.float32)
    if len(held.shape) == rank + 1:
        if not (values == values[:1]).all():
            raise Refused(f"reads a tensor of shape {tuple(held.shape)} that differs from row to row, and is no input")
        values = values[0]
    return np.ascontiguousarray(values)


def _looked_up(call: Call, held: Held, near: Tensor, rank: int) -> Tensor:
    """Rows of a table at places that are the same for all rows."""
    assert held.places is not None
    ids = as_tensor(call, Held(held.places, tuple(held.places.shape)), near, rank - 1)
    value = torch.empty((len(call.value), *ids.shape, held.tensor.shape[1]), device="meta")
    table = Held(held.tensor, tuple(held.tensor.shape), held.name)
    result = _embedding(replace(call, name=f"{call.name}.table", args=(table, ids), kwargs={}, value=value))
    assert isinstance(result, Tensor)
    return result


# Functions with weights, as the modules that hold them.


def _stood_for(call: Call, kind: Callable[..., nn.Module], x: Tensor, **weights: Held | None) -> Any:
    """What a module with these weights makes of a tensor."""
    given = {name: held for name, held in weights.items() if held is not None}
    if any(not isinstance(held, Held) or not held.is_trained or held.is_turned or held.moved or held.shape != tuple(held.tensor.shape) for held in given.values()):
        raise Refused("needs parameters of the module as its weights")
    first = next(iter(given.values()), None)
    module = kind(device="meta")
    for name in weights:
        setattr(module, name, given[name].tensor if name in given else None)
    name = first.name.rpartition(".")[0] if first else ""
    return made(replace(call, name=name or call.name, module=module, args=(x,), kwargs={}))


def _shape(held: Any, axis: int) -> int:
    if not isinstance(held, Held):
        raise Refused("needs a parameter of the module as its weight")
    return int(held.tensor.shape[axis])


def _linear(call: Call) -> Any:
    weight, bias = argument(call, 1, "weight", None), argument(call, 2, "bias", None)
    if isinstance(weight, Held) and weight.is_turned and bias is None:
        return _matmul(replace(call, args=(call.x, _turned(weight)), kwargs={}))
    sizes = (_shape(weight, 1), _shape(weight, 0))
    if isinstance(bias, Held) and {id(weight.tensor), id(bias.tensor)} & call.tied:
        # Another layer has one of them without the other.
        product = _stood_for(call, partial(nn.Linear, *sizes, False), call.x, weight=weight)
        offset = as_tensor(call, bias, product, len(product.shape))
        return of_two(replace(call, args=(product, offset), kwargs={}), "Add")
    return _stood_for(call, partial(nn.Linear, *sizes, bias is not None), call.x, weight=weight, bias=bias)


def _turned(weight: Held) -> Held:
    return replace(weight, shape=weight.shape[::-1], is_turned=not weight.is_turned)


def as_function(call: Call) -> Call:
    """The call of a `Linear` as that of `linear`."""
    module = call.module
    held = {name: Held(it, tuple(it.shape), f"{call.name}.{name}") for name, it in module.named_parameters()}
    return replace(call, module=None, args=(*call.args, held["weight"], held["bias"]))


def _matmul(call: Call) -> Any:
    """The product of a tensor's last axis and a matrix, or of two tensors."""
    weight = argument(call, 1, "other", None)
    if not isinstance(weight, Held) or not weight.is_trained or len(weight.shape) != 2:
        return product(call)
    if weight.is_turned:
        return _linear(replace(call, args=(call.x, _turned(weight)), kwargs={}))
    if weight.part or weight.places is not None or weight.moved:
        raise Refused(f"needs a whole matrix, but `{weight.name}` is cut, or its rows are taken by places")
    settings = {"type": "Dense", "units": weight.shape[1], "use_bias": False}
    held = replace(call, name=weight.name, module=nn.ParameterList([weight.tensor]))
    name = held.weighted(settings, [call.graph.plain(call.x)], {"kernel": Weight([weight.tensor], *same())})
    return Tensor(name, call.shape, tuple(range(len(call.shape))))


def _addmm(call: Call) -> Any:
    """An offset, and the product of a tensor and a matrix, as in the `Conv1D` of GPT-2."""
    if len(call.args) != 3 or not isinstance(call.args[0], Held):
        raise Refused("needs a parameter of the module, a tensor and a matrix")
    made = _matmul(replace(call, args=call.args[1:]))
    offset = as_tensor(call, call.args[0], made, len(made.shape))
    return of_two(replace(call, args=(made, offset), kwargs={}), "Add")


def _layer_norm(call: Call) -> Any:
    shape, weight, bias = (argument(call, at, name, None) for at, name in enumerate(("normalized_shape", "weight", "bias"), 1))
    settings = {"eps": argument(call, 4, "eps", 1e-5), "elementwise_affine": weight is not None, "bias": bias is not None}
    return _stood_for(call, partial(nn.LayerNorm, shape, **settings), call.x, weight=weight, bias=bias)


def _group_norm(call: Call) -> Any:
    named = (("num_groups", 1), ("weight", None), ("bias", None), ("eps", 1e-5))
    groups, weight, bias, eps = (argument(call, at, name, default) for at, (name, default) in enumerate(named, 1))
    kind = partial(nn.GroupNorm, groups, call.x.shape[0], eps, weight is not None)
    return _stood_for(call, kind, call.x, weight=weight, bias=bias)


def _instance_norm(call: Call) -> Any:
    names = ("weight", "bias", "running_mean", "running_var", "use_input_stats", "momentum", "eps")
    # Of the operation below it all are there, in another order than those of the function.
    if len(call.args) not in (1, len(names) + 2):
        raise Refused("needs its arguments behind the first one by name")
    weight, bias, mean, variance, by_input, _, eps = (
        argument(call, at, name, default) for at, (name, default) in enumerate(zip(names, (None, None, None, None, True, 0.1, 1e-5)), 1)
    )
    if mean is not None or variance is not None or not by_input:
        raise Refused("needs the statistics of each row, and no running ones")
    channels, *sizes = call.x.shape
    kind = nn.InstanceNorm2d if len(sizes) == 2 else nn.InstanceNorm1d
    return _stood_for(call, partial(kind, channels, eps, affine=weight is not None), call.x, weight=weight, bias=bias)


def _rms_norm(call: Call) -> Any:
    shape, weight, eps = (argument(call, at, name, None) for at, name in enumerate(("normalized_shape", "weight", "eps"), 1))
    settings = {"eps": eps, "elementwise_affine": weight is not None}
    return _stood_for(call, partial(nn.RMSNorm, shape, **settings), call.x, weight=weight)


def _embedding(call: Call) -> Any:
    # `functional.embedding` has ids first, and the operation below it the table.
    ids, table = sorted(call.args[:2], key=lambda part: isinstance(part, Held))
    if not isinstance(ids, Tensor):
        raise Refused("needs ids that depend on an input")
    padding, other = argument(call, 2, "padding_idx", None), [*call.args[3:], *(call.kwargs.get(name) for name in ("max_norm", "sparse"))]
    if any(other):
        raise Refused("needs neither `max_norm` nor `scale_grad_by_freq` nor `sparse`")
    padding = None if padding is None or padding < 0 else padding
    sizes = (_shape(table, 0), _shape(table, 1), padding)
    return _stood_for(call, partial(nn.Embedding, *sizes), ids, weight=table)


def _convolution(kind: Callable[..., nn.Module]) -> Callable[[Call], Any]:
    def handler(call: Call) -> Any:
        weight, bias = argument(call, 1, "weight", None), argument(call, 2, "bias", None)
        named = (("stride", 1), ("padding", 0), ("dilation", 1), ("groups", 1))
        settings = {name: argument(call, at, name, default) for at, (name, default) in enumerate(named, 3)}
        settings = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
        sizes = (_shape(weight, 1) * settings["groups"], _shape(weight, 0), tuple(weight.tensor.shape[2:]))
        return _stood_for(call, partial(kind, *sizes, bias=bias is not None, **settings), call.x, weight=weight, bias=bias)

    return handler


_TABLE: dict[str, tuple[Callable[[Call], Any], str]] = {
    "addmm": (_addmm, ""),
    "bmm": (product, "input mat2"),
    "conv1d": (_convolution(nn.Conv1d), "weight bias stride padding dilation groups"),
    "conv2d": (_convolution(nn.Conv2d), "weight bias stride padding dilation groups"),
    "einsum": (summed, ""),
    "embedding": (_embedding, "padding_idx max_norm norm_type scale_grad_by_freq sparse"),
    "group_norm": (_group_norm, "num_groups weight bias eps"),
    "instance_norm": (_instance_norm, "weight bias running_mean running_var use_input_stats momentum eps"),
    "layer_norm": (_layer_norm, "normalized_shape weight bias eps"),
    "linear": (_linear, "weight bias"),
    "matmul": (_matmul, "other"),
    "rms_norm": (_rms_norm, "normalized_shape weight eps"),
    "scaled_dot_product_attention": (_scaled_dot_product_attention, "query key value attn_mask dropout_p is_causal scale enable_gqa"),
}
FUNCTIONS.update({name: handler for name, (handler, _) in _TABLE.items()})
ARGUMENTS.update({name: tuple(names.split()) for name, (_, names) in _TABLE.items()})
