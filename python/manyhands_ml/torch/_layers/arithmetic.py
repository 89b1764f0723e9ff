"""Numbers of one tensor or of several: sums, products, means, comparisons."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import torch

from .._graph import Settings, Tensor
from .call import Call, Handler, Refused, argument


OF_TWO = {"add": "Add", "iadd": "Add", "mul": "Multiply", "imul": "Multiply", "sub": "Subtract", "isub": "Subtract"}
OF_TWO |= {"maximum": "Maximum", "minimum": "Minimum"}


def of_two(call: Call, kind: str) -> Tensor:
    """An operation on two tensors, or on a tensor and a number."""
    if call.kwargs or len(call.args) != 2:
        raise Refused("needs two arguments, by position")
    a, b = call.args
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return _merged(call, kind, a, b)
    x, number = (a, b) if isinstance(a, Tensor) else (b, a)
    if not isinstance(x, Tensor) or not isinstance(number, (int, float)) or kind in ("Maximum", "Minimum"):
        raise Refused("needs tensors of the graph and numbers")
    scale, offset = {
        "Add": (1.0, number),
        "Multiply": (number, 0.0),
        "Subtract": (1.0, -number) if x is a else (-1.0, number),
    }[kind]
    settings = {"type": "Rescaling", "scale": float(scale), "offset": float(offset)}
    return call.graph.unary(call.name, settings, x, x.is_positive and scale >= 0 and offset >= 0)


def _merged(call: Call, kind: str, a: Tensor, b: Tensor) -> Tensor:
    if len(a.shape) != len(b.shape):
        raise Refused(f"needs tensors of as many axes, but gets rows of shape {a.shape} and {b.shape}")
    if a.flat != b.flat:
        a, b = call.graph.plain(a), call.graph.plain(b)
    elif a.flat is None:
        b = call.graph.ordered(b, a.order)
    positive = a.is_positive and b.is_positive and kind != "Subtract"
    name = call.graph.add(call.name, {"type": kind}, [a, b])
    return replace(a, name=name, shape=call.shape, is_positive=positive)


def divided(call: Call) -> Tensor:
    x, number = call.args
    if isinstance(number, Tensor):
        # The product with the reciprocal.
        inverse = function_of("reciprocal")(replace(call, name=f"{call.name}.inverse", args=(number,)))
        return of_two(replace(call, args=(inverse, x)), "Multiply")
    if not isinstance(x, Tensor) or not isinstance(number, (int, float)) or not number:
        raise Refused("needs a tensor divided by a tensor or a number")
    return call.graph.unary(call.name, {"type": "Rescaling", "scale": 1.0 / number, "offset": 0.0}, x)


def function_of(*activations: str, is_positive: bool = False) -> Handler:
    """Functions of each number, one after the other."""

    def handler(call: Call) -> Tensor:
        x = call.x
        for activation in activations:
            x = call.graph.unary(call.name, {"type": "Activation", "activation": activation}, x, is_positive)
        return x

    return handler


#: Functions for powers that are no products.
_ROOTS = {0.5: ("sqrt",), -0.5: ("sqrt", "reciprocal"), -1: ("reciprocal",)}


def square(call: Call) -> Tensor:
    return power(replace(call, args=(*call.args, 2)))


def power(call: Call) -> Tensor:
    """A small whole power, as a product of the tensor with itself, or a root."""
    x, exponent = call.args
    if isinstance(exponent, (int, float)) and exponent in _ROOTS:
        root: Tensor = function_of(*_ROOTS[exponent])(call)
        return root
    if not isinstance(x, Tensor) or exponent not in range(1, 9):
        raise Refused("needs a tensor, and as exponent a whole number from 1 to 8, -1, 0.5 or -0.5")
    if exponent == 1:
        return x
    name = call.graph.add(call.name, {"type": "Multiply"}, [x] * int(exponent))
    return replace(x, name=name, is_positive=x.is_positive or exponent % 2 == 0)


def unequal_to(call: Call) -> Tensor:
    x, number = call.args
    if not isinstance(x, Tensor) or not isinstance(number, (int, float)):
        raise Refused("needs a tensor and a number")
    return unequal(call, call.graph.plain(x), float(number))


def unequal(call: Call, x: Tensor, number: float) -> Tensor:
    """1 where a number of a tensor is another than this one, else 0."""
    name = call.name
    each = call.graph.add(f"{name}.each", {"type": "Reshape", "target_shape": [math.prod(x.shape), 1]}, [x])
    found = call.graph.add(f"{name}.found", {"type": "ComputeMask", "mask_value": number}, [replace(x, name=each)])
    settings = {"type": "Reshape", "target_shape": list(x.shape)}
    return call.graph.unary(name, settings, replace(x, name=found), is_positive=True)


def equal_to(call: Call) -> Tensor:
    return inverted(replace(call, name=f"{call.name}.equal"), unequal_to(call))


def inverted_truth(call: Call) -> Tensor:
    if not call.x.is_bool:
        raise Refused("needs a tensor of true and false")
    return inverted(call, call.x)


def inverted(call: Call, x: Tensor) -> Tensor:
    """0 where a tensor is 1, and 1 where it is 0."""
    return call.graph.unary(call.name, {"type": "Rescaling", "scale": -1.0, "offset": 1.0}, x, is_positive=True)


def concatenated(call: Call) -> Tensor:
    tensors: list[Tensor] = list(call.args[0] if call.args else call.kwargs["tensors"])
    dim = argument(call, 1, "dim", 0)
    rank = len(tensors[0].shape)
    axis = (dim if dim >= 0 else dim + rank + 1) - 1
    if axis < 0:
        raise Refused("`dim` needs to be another than the first, along which batches are split")
    first = tensors[0]
    if len(tensors) == 1:
        # Such as the first of the features that DenseNet joins.
        return first
    tensors = [call.graph.ordered(x, first.order) if x.flat is None else call.graph.plain(x) for x in tensors]
    if any(tensor.order != tensors[0].order for tensor in tensors):
        tensors = [call.graph.plain(tensor) for tensor in tensors]
    first = tensors[0]
    settings = {"type": "Concatenate", "axis": first.order.index(axis) + 1}
    name = call.graph.add(call.name, settings, tensors)
    return replace(first, name=name, shape=call.shape, flat=None, is_positive=all(tensor.is_positive for tensor in tensors))


def clamped(call: Call) -> Tensor:
    low, high = (argument(call, at, name, None) for at, name in enumerate(("min", "max"), 1))
    if not all(bound is None or isinstance(bound, (int, float)) for bound in (low, high)):
        raise Refused("needs numbers as bounds, but gets a tensor")
    slope = _slope_of_clamp()
    x = call.x if low is None else above(call, call.x, float(low), slope)
    return x if high is None else below(call, x, float(high), slope)


@cache
def _slope_of_clamp() -> int:
    """The slope of `clamp` where a number is the bound: 0 in PyTorch 2.15, and 1 in older versions."""
    x = torch.zeros(1, requires_grad=True)
    torch.clamp(x, min=0).sum().backward()
    return int(x.grad)


def at_least(call: Call) -> Tensor:
    return clamped(replace(call, args=(call.x, argument(call, 1, "min", None)), kwargs={}))


def at_most(call: Call) -> Tensor:
    return clamped(replace(call, args=(call.x, None, argument(call, 1, "max", None)), kwargs={}))


def above(call: Call, x: Tensor, bound: float, slope_at: int) -> Tensor:
    """The numbers of a tensor, and the bound for those below it. At the bound itself the slope is 0 or 1."""
    graph, name = call.graph, call.name
    if bound == -math.inf:
        return x
    if not math.isfinite(bound):
        raise Refused(f"needs a bound that is a number, but gets {bound}")
    relu: Settings = {"type": "Activation", "activation": "relu"}
    if bound == 0 and not slope_at:
        return graph.unary(name, relu, x, is_positive=True)
    # Where numbers count they are taken as they are: a bound added and taken away again would cost digits of the small ones.
    scale = -1.0 if slope_at else 1.0
    beyond = graph.unary(f"{name}.beyond", {"type": "Rescaling", "scale": scale, "offset": -scale * bound}, x)
    found = unequal(replace(call, name=f"{name}.found"), graph.plain(graph.unary(f"{name}.beyond", relu, beyond)), 0.0)
    others = inverted(replace(call, name=f"{name}.others"), found)
    kept, lost = (others, found) if slope_at else (found, others)
    plain = graph.plain(x)
    numbers = replace(plain, name=graph.add(f"{name}.kept", {"type": "Multiply"}, [plain, kept]))
    bounds = graph.unary(f"{name}.bound", {"type": "Rescaling", "scale": bound, "offset": 0.0}, lost)
    return replace(plain, name=graph.add(name, {"type": "Add"}, [numbers, bounds]), is_positive=x.is_positive or bound >= 0)


def below(call: Call, x: Tensor, bound: float, slope_at: int) -> Tensor:
    """As `above`, for the numbers above a bound."""
    if bound == math.inf:
        return x
    turned = above(call, negative(replace(call, args=(x,))), -bound, slope_at)
    return replace(negative(replace(call, args=(turned,))), is_positive=x.is_positive and bound >= 0)


def negative(call: Call) -> Tensor:
    return call.graph.unary(call.name, {"type": "Rescaling", "scale": -1.0, "offset": 0.0}, call.x)


def absolute(call: Call) -> Tensor:
    """The positive part of a tensor, and that of its negative: at 0 the slope is 0, as in PyTorch."""
    settings = {"type": "Activation", "activation": "relu"}
    sides = [call.graph.unary(f"{call.name}.side", settings, x) for x in (call.x, negative(call))]
    return replace(call.x, name=call.graph.add(call.name, {"type": "Add"}, sides), is_positive=True)
