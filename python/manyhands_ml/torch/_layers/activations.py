"""Activations and dropout."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from .._graph import Settings, Tensor
from .arithmetic import above, below, negative, of_two
from .call import MODULES, Call, Handler, Refused
from .shapes import halves


def _function(activation: str, is_positive: bool = False) -> Handler:
    settings = {"type": "Activation", "activation": activation}
    return lambda call: call.graph.unary(call.name, settings, call.x, is_positive)


def _log_sigmoid(call: Call) -> Tensor:
    """`-softplus(-x)`."""
    turned = call.graph.unary(f"{call.name}.softplus", {"type": "Activation", "activation": "softplus"}, negative(call))
    return negative(replace(call, args=(turned,)))


def _gelu(call: Call) -> Tensor:
    return call.graph.unary(call.name, {"type": "GELU", "approximate": call.module.approximate == "tanh"}, call.x)


def _hardtanh(call: Call) -> Tensor:
    low, high = float(call.module.min_val), float(call.module.max_val)
    if low == 0:
        return call.graph.unary(call.name, {"type": "ReLU", "max_value": high}, call.x, is_positive=True)
    # At a bound the slope is 0, in all versions of PyTorch.
    return below(call, above(call, call.x, low, slope_at=0), high, slope_at=0)


def _with_setting(kind: str, key: str, attribute: str) -> Handler:
    """The handler of a layer with one setting."""
    return lambda call: call.graph.unary(call.name, {"type": kind, key: getattr(call.module, attribute)}, call.x)


def _glu(call: Call) -> Tensor:
    """One half of an axis, times the sigmoid of the other half."""
    first, second = halves(call, call.module.dim)
    gate = call.graph.unary(f"{call.name}.gate", {"type": "Activation", "activation": "sigmoid"}, second, is_positive=True)
    return of_two(replace(call, args=(first, gate), kwargs={}), "Multiply")


def _softmax(call: Call) -> Tensor:
    dim, rank = call.module.dim, len(call.x.shape)
    if dim is None or dim % (rank + 1) == 0:
        raise Refused(f"`dim` needs an axis of a row, but is {dim}")
    axis = dim % (rank + 1) - 1
    x = call.graph.plain(call.x) if axis == rank - 1 else call.x
    if x.order[-1:] != (axis,):
        x = call.graph.ordered(x, (*(other for other in range(rank) if other != axis), axis))
    return call.graph.unary(call.name, {"type": "Softmax"}, x, is_positive=True)


def _log_softmax(call: Call) -> Tensor:
    """The numbers as they are: PyTorch takes the logarithm, or a loss that contains it."""
    dim, rank = call.module.dim, len(call.x.shape)
    if dim is None or dim % (rank + 1) == 0:
        raise Refused(f"`dim` needs an axis of a row, but is {dim}")
    x = call.graph.unary(call.name, {"type": "Activation", "activation": "linear"}, call.x)
    return replace(x, log_axis=dim % (rank + 1) - 1)


def _dropout(call: Call) -> Tensor:
    p = call.module.p
    if not p or not call.is_training:
        return call.x
    return call.graph.unary(call.name, {"type": "Dropout", "rate": p}, call.x, call.x.is_positive)


def _dropout_of_channels(rank: int) -> Handler:
    def handler(call: Call) -> Tensor:
        if not call.module.p or not call.is_training:
            return call.x
        x = call.spatial(rank)
        settings: Settings = {"type": "SpatialDropout2D", "rate": call.module.p}
        if rank == 1:
            settings.update(type="Dropout", noise_shape=[1, x.shape[0]])
        return call.graph.unary(call.name, settings, x, x.is_positive)

    return handler


def identity(call: Call) -> Tensor:
    return call.x


MODULES.update(
    {
        nn.Dropout: _dropout,
        nn.Dropout1d: _dropout_of_channels(1),
        nn.Dropout2d: _dropout_of_channels(2),
        nn.ELU: _with_setting("ELU", "alpha", "alpha"),
        nn.GELU: _gelu,
        nn.GLU: _glu,
        nn.Hardsigmoid: _function("hard_sigmoid", is_positive=True),
        nn.Hardswish: _function("hard_silu"),
        nn.Hardtanh: _hardtanh,
        nn.Identity: identity,
        nn.LeakyReLU: _with_setting("LeakyReLU", "negative_slope", "negative_slope"),
        nn.LogSigmoid: _log_sigmoid,
        nn.LogSoftmax: _log_softmax,
        nn.Mish: _function("mish"),
        nn.ReLU: _function("relu", is_positive=True),
        nn.ReLU6: _function("relu6", is_positive=True),
        nn.SELU: _function("selu"),
        nn.SiLU: _function("silu"),
        nn.Sigmoid: _function("sigmoid", is_positive=True),
        nn.Softmax: _softmax,
        nn.Softplus: _function("softplus"),
        nn.Softsign: _function("softsign"),
        nn.Tanh: _function("tanh"),
    }
)
