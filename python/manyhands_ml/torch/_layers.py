"""The tables of modules and functions: what those of PyTorch are in the engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from ._settings import MODULES as SETTINGS
from ._settings import refusals
from ._graph import PICTURE, Graph, Settings, Tensor, Weight, axes, channels_last, is_same, of_dense, same, shape_here


class Refused(Exception):
    """A setting or a call that the engine does not have."""


@dataclass
class Call:
    """A use of a module, or a call of a function."""

    graph: Graph
    #: Name of the module or of the node, free of signs that the engine uses itself.
    name: str
    module: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    #: What PyTorch has computed for the example.
    value: Any
    #: Are modules to behave as in training? By identity.
    modes: Mapping[int, bool]
    #: Names of the engine's layers by module, to use them again.
    known: dict[int, tuple[str, Any]]

    @property
    def is_training(self) -> bool:
        """Is the module to behave as in training?"""
        return self.modes.get(id(self.module), True)

    @property
    def x(self) -> Tensor:
        """The first argument."""
        if not self.args or not isinstance(self.args[0], Tensor):
            raise Refused("needs a tensor as its first argument")
        return self.args[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a row of what comes out."""
        return tuple(self.value.shape[1:])

    def part(self, name: str, module: nn.Module, x: Tensor, features: int | None = None) -> Tensor:
        """What a module within the module makes of a tensor, whose last axis it may make another."""
        if type(module) not in MODULES:
            raise Refused(f"its `{name}`, a `{type(module).__name__}`, is not supported")
        value = torch.empty((len(self.value), *x.shape[:-1], features or x.shape[-1]), device="meta")
        result = made(replace(self, name=f"{self.name}.{name}", module=module, args=(x,), kwargs={}, value=value))
        assert isinstance(result, Tensor)
        return result

    def trained(self, settings: Settings) -> Settings:
        """Settings of a layer with weights: frozen, if no weight of the module wants a gradient."""
        wants = {parameter.requires_grad for parameter in self.module.parameters(recurse=False)}
        if wants == {True, False}:
            raise Refused("`requires_grad` needs to be the same for all parameters of a module")
        return {**settings, "trainable": False} if wants == {False} else settings

    def weighted(self, settings: Settings, inputs: list[Tensor], weights: dict[str, Weight], key: Any = None) -> str:
        """Adds a layer with weights, or uses the one again that the module has become before."""
        if id(self.module) in self.known:
            name, before = self.known[id(self.module)]
            if before != key:
                raise Refused("is used twice, behind pictures of different sizes")
            return self.graph.reuse(name, inputs)
        name = self.graph.add(self.name, self.trained(settings), inputs)
        self.known[id(self.module)] = (name, key)
        self.graph.weights.update({f"{name}/{weight}": held for weight, held in weights.items()})
        return name

    def spatial(self, rank: int) -> Tensor:
        """The first argument as a sequence or a picture, its channels last."""
        if len(self.x.shape) != rank + 1:
            what = "a picture of shape (C, H, W)" if rank == 2 else "a sequence of shape (C, L)"
            raise Refused(f"needs {what} a row, but gets rows of shape {self.x.shape}")
        return self.graph.ordered(self.x, channels_last(rank))

    def picture(self) -> Tensor:
        """The first argument as a picture, its channels last."""
        return self.spatial(2)


Handler = Callable[[Call], Any]


def _sizes(value: Any, rank: int) -> list[int]:
    """A setting of windows as one number for each axis."""
    return [int(value)] * rank if isinstance(value, int) else [int(part) for part in value]


def _pair(value: Any) -> list[int]:
    return _sizes(value, 2)


def _setting(sizes: list[int]) -> Any:
    """One number for each axis as the engine reads it: along a sequence the number alone."""
    return sizes if len(sizes) > 1 else sizes[0]


def argument(call: Call, at: int, name: str, default: Any) -> Any:
    """An argument of a call, by its place or its name."""
    return call.args[at] if len(call.args) > at else call.kwargs.get(name, default)


def _padded(call: Call, x: Tensor, padding: list[int]) -> Tensor:
    if not any(padding):
        return x
    settings = {"type": f"ZeroPadding{len(padding)}D", "padding": _setting(padding)}
    name = call.graph.add(f"{call.name}.padding", settings, [x])
    channels, *sizes = x.shape
    return replace(x, name=name, shape=(channels, *(size + 2 * p for size, p in zip(sizes, padding))))


# Modules with weights.


def _linear(call: Call) -> Tensor:
    module, x = call.module, call.x
    is_flat = x.flat is not None
    if not is_flat:
        x = call.graph.plain(x)
    settings = {"type": "Dense", "units": module.out_features, "use_bias": module.bias is not None}
    weights = {"kernel": Weight([module.weight], *of_dense(x.flat))}
    if module.bias is not None:
        weights["bias"] = Weight([module.bias], *same())
    name = call.weighted(settings, [x], weights, x.flat)
    return Tensor(name, call.shape, tuple(range(len(call.shape))))


def _conv(call: Call) -> Tensor:
    module = call.module
    rank = len(module.kernel_size)
    x = call.spatial(rank)
    kernel, strides, dilation = list(module.kernel_size), list(module.stride), list(module.dilation)
    spread = [d * (k - 1) for d, k in zip(dilation, kernel)]
    settings: Settings = {"kernel_size": _setting(kernel), "strides": _setting(strides), "use_bias": module.bias is not None}
    if module.padding == "same":
        settings["padding"] = "same"
    elif module.padding != "valid":
        padding = list(module.padding)
        # With stride 1 the engine's own padding is on both sides alike.
        if set(strides) == {1} and [2 * p for p in padding] == spread and any(padding):
            settings["padding"] = "same"
        else:
            x = _padded(call, x, padding)
    if set(dilation) != {1}:
        settings["dilation_rate"] = _setting(dilation)
    n_in, n_out, groups = module.in_channels, module.out_channels, module.groups
    if rank == 2 and groups == n_in and groups > 1:
        settings.update(type="DepthwiseConv2D", depth_multiplier=n_out // n_in)
        layout = _depthwise(n_in, n_out // n_in, kernel)
    else:
        settings.update(type=f"Conv{rank}D", filters=n_out, groups=groups)
        layout = axes(*range(2, rank + 2), 1, 0)
    weights = {"kernel": Weight([module.weight], *layout)}
    if module.bias is not None:
        weights["bias"] = Weight([module.bias], *same())
    return Tensor(call.weighted(settings, [x], weights), call.shape, channels_last(rank))


def _depthwise(channels: int, multiplier: int, kernel: list[int]) -> Any:
    height, width = kernel

    def pack(arrays: list[Any]) -> Any:
        return arrays[0].reshape(channels, multiplier, height, width).transpose(2, 3, 0, 1)

    def unpack(values: Any) -> list[Any]:
        return [values.reshape(height, width, channels, multiplier).transpose(2, 3, 0, 1).reshape(-1, 1, height, width)]

    return pack, unpack


def _conv_transpose2d(call: Call) -> Tensor:
    module, x = call.module, call.picture()
    if module.groups != 1:
        raise Refused(f"`groups` needs 1, but is {module.groups}")
    if len(call.args) > 1 or call.kwargs:
        raise Refused("`output_size` of its call is not supported")
    settings: Settings = {
        "type": "Conv2DTranspose",
        "filters": module.out_channels,
        "kernel_size": _pair(module.kernel_size),
        "strides": _pair(module.stride),
        "output_padding": _pair(module.output_padding),
        "use_bias": module.bias is not None,
    }
    if _pair(module.dilation) != [1, 1]:
        settings["dilation_rate"] = _pair(module.dilation)
    weights = {"kernel": Weight([module.weight], *axes(2, 3, 1, 0))}
    if module.bias is not None:
        weights["bias"] = Weight([module.bias], *same())
    name = call.weighted(settings, [x], weights)
    padding, shape = _pair(module.padding), call.shape
    whole = (shape[0], shape[1] + 2 * padding[0], shape[2] + 2 * padding[1])
    if padding != [0, 0]:
        # PyTorch's padding is what it leaves out of the result.
        name = call.graph.add(f"{name}.cropped", {"type": "Cropping2D", "cropping": padding}, [Tensor(name, whole, PICTURE)])
    return Tensor(name, shape, PICTURE)


def _batch_norm(call: Call) -> Tensor:
    module, x = call.module, call.x
    if module.running_mean is None or not module.track_running_stats:
        raise Refused("needs `track_running_stats=True`: without running statistics it has none to predict with")
    if module.momentum is None:
        raise Refused("`momentum=None`, an average over all batches, is not supported")
    settings: Settings = {
        "type": "BatchNormalization",
        "momentum": 1.0 - module.momentum,
        "epsilon": module.eps,
        "center": module.bias is not None,
        "scale": module.affine,
        # PyTorch's running variance follows the unbiased variance of a batch.
        "correction": 1,
    }
    wants = [parameter.requires_grad for parameter in module.parameters(recurse=False)]
    if not call.is_training:
        if any(wants):
            raise Refused("is in evaluation mode, but its weights want gradients: set `requires_grad` to False for them")
        settings["trainable"] = False
    elif wants and not any(wants):
        raise Refused("has frozen weights, but is in training mode, in which its statistics move: call its `eval()`, too")
    weights = {
        "moving_mean": Weight([module.running_mean], *same(), is_trained=False),
        "moving_variance": Weight([module.running_var], *same(), is_trained=False),
    }
    weights.update(_factor_and_offset(module))
    if call.is_training:
        call.graph.counters.append(module.num_batches_tracked)
    # Channels are the first axis of a row in PyTorch, and the last one here.
    rank = len(x.shape)
    order = (*range(1, rank), 0)
    x = call.graph.ordered(x, order)
    return replace(x, name=call.weighted(settings, [x], weights), is_positive=False)


def _factor_and_offset(module: Any) -> dict[str, Weight]:
    """Weights of a normalization, of which PyTorch may leave out one or both."""
    held = {"gamma": module.weight, "beta": module.bias}
    return {name: Weight([tensor], *same()) for name, tensor in held.items() if tensor is not None}


def _layer_norm(call: Call) -> Tensor:
    module, x = call.module, call.x
    count = len(module.normalized_shape)
    if count == len(x.shape) and x.flat is None:
        # Over the whole row the axes may have any order, if the weights have it, too.
        layout = axes(*x.order)
    else:
        x, layout = call.graph.plain(x), same()
    has_bias = module.bias is not None
    settings: Settings = {
        "type": "LayerNormalization",
        "axis": -1 if count == 1 else list(range(-count, 0)),
        "epsilon": module.eps,
        "center": has_bias,
        "scale": module.elementwise_affine,
    }
    weights = {}
    if module.elementwise_affine:
        weights["gamma"] = Weight([module.weight], *layout)
    if has_bias:
        weights["beta"] = Weight([module.bias], *layout)
    return replace(x, name=call.weighted(settings, [x], weights, x.order), is_positive=False)


def _group_norm(call: Call) -> Tensor:
    module, x = call.module, call.x
    x = call.graph.ordered(x, (*range(1, len(x.shape)), 0))
    settings = {
        "type": "GroupNormalization",
        "groups": module.num_groups,
        "epsilon": module.eps,
        "center": module.bias is not None,
        "scale": module.affine,
    }
    return replace(x, name=call.weighted(settings, [x], _factor_and_offset(module)), is_positive=False)


def _embedding(call: Call) -> Tensor:
    module, ids = call.module, call.graph.plain(call.x)
    settings = {"type": "Embedding", "input_dim": module.num_embeddings, "output_dim": module.embedding_dim}
    name = call.weighted(settings, [ids], {"embeddings": Weight([module.weight], *same())})
    x = Tensor(name, call.shape, tuple(range(len(call.shape))))
    padding = module.padding_idx
    if padding is None:
        return x
    if module.weight[padding].detach().any():
        raise Refused(f"`padding_idx` needs a vector of zeros, which does not learn, but that of {padding} is another")
    # What is 0, and stays so: its gradient is 0.
    found = unequal(replace(call, name=f"{name}.padding"), ids, float(padding))
    column = call.graph.add(f"{name}.counts", {"type": "Reshape", "target_shape": [*found.shape, 1]}, [found])
    return replace(x, name=call.graph.add(f"{name}.padded", {"type": "Multiply"}, [x, replace(found, name=column)]))


@dataclass(frozen=True)
class Sequences:
    """What a recurrent module gives: the states of all steps, of which a program may take the last."""

    #: Adds the last layer, with all its steps or the last one.
    last: Callable[[bool], Tensor]


def _recurrent(call: Call) -> Sequences:
    module, graph = call.module, call.graph
    if not module.batch_first:
        raise Refused("needs `batch_first=True`: batches are split over adapters along the first axis")
    if getattr(module, "proj_size", 0):
        raise Refused("`proj_size` is not supported")
    if module.dropout and module.num_layers > 1:
        raise Refused("`dropout` between its layers is not supported")
    if len(call.args) > 1 and call.args[1] is not None or call.kwargs.get("hx") is not None:
        raise Refused("needs to begin with zeros: an initial state is not supported")
    if id(module) in call.known:
        raise Refused("needs to be used once")
    call.known[id(module)] = (call.name, None)
    x = graph.plain(call.x)
    for layer in range(module.num_layers - 1):
        x = _recurrent_layer(call, x, layer, is_sequence=True)
    made: dict[bool, Tensor] = {}

    def last(is_sequence: bool) -> Tensor:
        if module.bidirectional and not is_sequence:
            raise Refused("is bidirectional: a program needs to use all its steps, but uses the last one alone")
        if made and is_sequence not in made:
            raise Refused("needs either all its steps or the last one to be used, but a program uses both")
        if not made:
            made[is_sequence] = _recurrent_layer(call, x, module.num_layers - 1, is_sequence)
        return made[is_sequence]

    return Sequences(last)


def _recurrent_layer(call: Call, x: Tensor, layer: int, is_sequence: bool) -> Tensor:
    module, graph = call.module, call.graph
    kind = "LSTM" if isinstance(module, nn.LSTM) else "GRU"
    settings: Settings = {"type": kind, "units": module.hidden_size, "use_bias": module.bias, "return_sequences": is_sequence}
    if kind == "GRU":
        settings["reset_after"] = True
    elif module.bias:
        x = _with_one(call, x, layer)
    weights, units = _direction(module, kind, f"l{layer}"), module.hidden_size
    if module.bidirectional:
        weights = {f"forward_{name}": weight for name, weight in weights.items()}
        backward = _direction(module, kind, f"l{layer}_reverse")
        weights |= {f"backward_{name}": weight for name, weight in backward.items()}
        settings, units = {"type": "Bidirectional", "layer": settings}, 2 * units
    name = graph.add(f"{call.name}.l{layer}", call.trained(settings), [x])
    graph.weights.update({f"{name}/{weight}": held for weight, held in weights.items()})
    shape = (x.shape[0], units) if is_sequence else (units,)
    return Tensor(name, shape, tuple(range(len(shape))))


def _with_one(call: Call, x: Tensor, layer: int) -> Tensor:
    """PyTorch adds two biases, and both learn. The engine adds one: the other belongs to an input that is always 1."""
    graph, (length, features) = call.graph, x.shape
    one = graph.add(f"{call.name}.one_{layer}", {"type": "Dense", "units": 1, "trainable": False}, [x])
    graph.constants[f"{one}/kernel"] = np.zeros((features, 1), np.float32)
    graph.constants[f"{one}/bias"] = np.ones(1, np.float32)
    wider = graph.add(f"{call.name}.with_one_{layer}", {"type": "Concatenate"}, [x, Tensor(one, (length, 1), (0, 1))])
    return Tensor(wider, (length, features + 1), (0, 1))


def _direction(module: Any, kind: str, suffix: str) -> dict[str, Weight]:
    """Weights of a recurrent layer in one direction."""
    names = ["weight_ih", "weight_hh"] + (["bias_ih", "bias_hh"] if module.bias else [])
    parts = [getattr(module, f"{name}_{suffix}") for name in names]
    swapped = 3 if kind == "GRU" else 0
    weights = {"kernel": Weight([parts[0]], *_gates(swapped)), "recurrent_kernel": Weight([parts[1]], *_gates(swapped))}
    if module.bias and kind == "GRU":
        weights["bias"] = Weight(parts[2:], *_two_biases(swapped))
    elif module.bias:
        weights["kernel"] = Weight(
            [parts[0], parts[2]],
            lambda arrays: np.concatenate([arrays[0].T, arrays[1][None]]),
            lambda values: [values[:-1].T, values[-1]],
        )
        weights["bias"] = Weight([parts[3]], *same())
    return weights


def _swap(values: Any, gates: int) -> Any:
    """A `GRU` has reset and update gate first, and the engine, as Keras, in the other order."""
    if not gates:
        return values
    reset, update, new = np.split(values, gates, axis=0)
    return np.concatenate([update, reset, new], axis=0)


def _gates(gates: int) -> Any:
    return lambda arrays: _swap(arrays[0], gates).T, lambda values: [_swap(values.T, gates)]


def _two_biases(gates: int) -> Any:
    def pack(arrays: list[Any]) -> Any:
        return np.stack([_swap(array, gates) for array in arrays])

    return pack, lambda values: [_swap(part, gates) for part in values]


# Modules without weights.


def _function(activation: str, is_positive: bool = False) -> Handler:
    settings = {"type": "Activation", "activation": activation}
    return lambda call: call.graph.unary(call.name, settings, call.x, is_positive)


def _gelu(call: Call) -> Tensor:
    return call.graph.unary(call.name, {"type": "GELU", "approximate": call.module.approximate == "tanh"}, call.x)


def _hardtanh(call: Call) -> Tensor:
    bounds = (call.module.min_val, call.module.max_val)
    if bounds[0] != 0 or bounds[1] <= 0:
        raise Refused(f"`min_val` needs to be 0 and `max_val` above it, but they are {bounds}")
    return call.graph.unary(call.name, {"type": "ReLU", "max_value": float(bounds[1])}, call.x, is_positive=True)


def _with_setting(kind: str, key: str, attribute: str) -> Handler:
    """The handler of a layer with one setting."""
    return lambda call: call.graph.unary(call.name, {"type": kind, key: getattr(call.module, attribute)}, call.x)


def _softmax(call: Call) -> Tensor:
    dim, rank = call.module.dim, len(call.x.shape)
    if dim not in (-1, rank):
        raise Refused(f"`dim` needs to be the last axis, but is {dim}")
    x = call.graph.plain(call.x)
    return call.graph.unary(call.name, {"type": "Softmax"}, x, is_positive=True)


def _log_softmax(call: Call) -> Tensor:
    """The numbers as they are: PyTorch takes the logarithm, or a loss that contains it."""
    dim, rank = call.module.dim, len(call.x.shape)
    if dim is None or dim % (rank + 1) == 0:
        raise Refused(f"`dim` needs an axis of a row, but is {dim}")
    x = call.graph.unary(call.name, {"type": "Activation", "activation": "linear"}, call.x)
    return replace(x, log_axis=dim % (rank + 1) - 1)


def _upsample(call: Call) -> Tensor:
    module, rank = call.module, len(call.x.shape) - 1
    kinds = {(1, "nearest"): "nearest", (2, "nearest"): "nearest", (2, "bilinear"): "bilinear"}
    if (rank, module.mode) not in kinds:
        raise Refused(f'`mode` needs "nearest", or "bilinear" for pictures, but is "{module.mode}" for rows of shape {call.x.shape}')
    if module.align_corners:
        raise Refused("`align_corners` needs False, but is True")
    x = call.spatial(rank)
    factors = [to // of for of, to in zip(x.shape[1:], call.shape[1:])]
    if [of * factor for of, factor in zip(x.shape[1:], factors)] != list(call.shape[1:]):
        name = "size" if module.size is not None else "scale_factor"
        raise Refused(f"`{name}` needs whole factors, but makes {list(call.shape[1:])} of {list(x.shape[1:])}")
    settings: Settings = {"type": f"UpSampling{rank}D", "size": _setting(factors)}
    if rank == 2:
        settings["interpolation"] = kinds[rank, module.mode]
    return Tensor(call.graph.add(call.name, settings, [x]), call.shape, channels_last(rank), is_positive=x.is_positive)


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


def _prelu(call: Call) -> Tensor:
    x, count = call.x, call.module.num_parameters
    if len(x.shape) != 3 or count != x.shape[0]:
        raise Refused(f"`num_parameters` needs a slope for each channel of a picture, but is {count} for rows of shape {x.shape}")
    x = call.picture()

    def pack(arrays: list[Any]) -> Any:
        return arrays[0].reshape(1, 1, -1)

    weights = {"alpha": Weight([call.module.weight], pack, lambda values: [values.reshape(-1)])}
    return replace(x, name=call.weighted({"type": "PReLU", "shared_axes": [1, 2]}, [x], weights), is_positive=False)


def _max_pool(rank: int) -> Handler:
    def handler(call: Call) -> Tensor:
        module, x = call.module, call.spatial(rank)
        window, strides, padding = (_sizes(value, rank) for value in (module.kernel_size, module.stride, module.padding))
        if set(_sizes(module.dilation, rank)) != {1}:
            raise Refused(f"`dilation` needs 1, but is {module.dilation}")
        settings: Settings = {"type": f"MaxPooling{rank}D", "pool_size": _setting(window), "strides": _setting(strides)}
        _check_ceil(call, x, window, strides, padding)
        if any(padding):
            if _is_padding_same(x, window, strides, padding):
                settings["padding"] = "same"
            elif x.is_positive:
                # Above numbers that are not below 0, zeros are as good as minus infinity.
                x = _padded(call, x, padding)
            else:
                raise Refused(
                    f"`padding={padding}` is supported behind a ReLU alone: elsewhere the border has to be minus infinity"
                )
        name = call.graph.add(call.name, settings, [x])
        return Tensor(name, call.shape, channels_last(rank), is_positive=x.is_positive)

    return handler


def _avg_pool(rank: int) -> Handler:
    def handler(call: Call) -> Tensor:
        module, x = call.module, call.spatial(rank)
        window, strides, padding = (_sizes(value, rank) for value in (module.kernel_size, module.stride, module.padding))
        _check_ceil(call, x, window, strides, padding)
        if any(padding) and not module.count_include_pad:
            raise Refused("`count_include_pad=False` is supported without padding alone")
        positive, x = x.is_positive, _padded(call, x, padding)
        settings = {"type": f"AveragePooling{rank}D", "pool_size": _setting(window), "strides": _setting(strides)}
        return Tensor(call.graph.add(call.name, settings, [x]), call.shape, channels_last(rank), is_positive=positive)

    return handler


def _check_ceil(call: Call, x: Tensor, window: list[int], strides: list[int], padding: list[int]) -> None:
    ends = [(size + 2 * p - w) % s for size, w, s, p in zip(x.shape[1:], window, strides, padding)]
    if call.module.ceil_mode and any(ends):
        raise Refused(f"`ceil_mode=True` is supported where windows end at the border, but {ends} pixels are left")


def _is_padding_same(x: Tensor, window: list[int], strides: list[int], padding: list[int]) -> bool:
    """Is the engine's padding `same` this one?"""
    for size, w, s, p in zip(x.shape[1:], window, strides, padding):
        total = max((math.ceil(size / s) - 1) * s + w - size, 0)
        if total // 2 != p or (size + 2 * p - w) // s + 1 != math.ceil(size / s):
            return False
    return True


def _adaptive_avg_pool(rank: int) -> Handler:
    def handler(call: Call) -> Tensor:
        x = call.spatial(rank)
        wanted = call.module.output_size
        have = list(x.shape[1:])
        target = [h if w is None else w for w, h in zip([wanted] * rank if isinstance(wanted, int) else wanted, have)]
        if target == have:
            return x
        if set(target) == {1}:
            settings: Settings = {"type": f"GlobalAveragePooling{rank}D", "keepdims": True}
        elif all(h % t == 0 for h, t in zip(have, target)):
            settings = {"type": f"AveragePooling{rank}D", "pool_size": _setting([h // t for h, t in zip(have, target)])}
        else:
            raise Refused(f"`output_size` needs to divide the input's, but {target} does not divide {have}")
        return Tensor(call.graph.add(call.name, settings, [x]), call.shape, channels_last(rank), is_positive=x.is_positive)

    return handler


def _flatten_module(call: Call) -> Tensor:
    return _flatten(call, call.module.start_dim, call.module.end_dim)


def _flatten(call: Call, start: int, end: int) -> Tensor:
    rank = len(call.x.shape)
    end = end % (rank + 1)
    if start == 1 and end == rank:
        return _flat(call)
    return _reshaped(call)


def _flat(call: Call) -> Tensor:
    """All axes of a row as one."""
    x = call.x
    if len(x.shape) == 1:
        return x
    name = call.graph.add(call.name, {"type": "Flatten"}, [x])
    flat = None if is_same(x.shape, x.order) else (x.shape, x.order)
    return Tensor(name, call.shape, (0,), flat, x.is_positive)


def _reshaped(call: Call) -> Tensor:
    """Rows in another shape."""
    x, shape = call.x, call.shape
    if call.value.shape[0] * math.prod(shape) == 0 or math.prod(shape) != math.prod(x.shape):
        raise Refused("needs to keep the first axis, along which batches are split")
    if shape == x.shape:
        return x
    if len(shape) == 1:
        return _flat(call)
    x = call.graph.plain(x)
    if not shape:
        return replace(x, shape=(), order=())
    name = call.graph.add(call.name, {"type": "Reshape", "target_shape": list(shape)}, [x])
    return Tensor(name, shape, tuple(range(len(shape))), is_positive=x.is_positive)


def _identity(call: Call) -> Tensor:
    return call.x


#: Modules, by class.
MODULES: dict[type, Handler] = {
    nn.AdaptiveAvgPool1d: _adaptive_avg_pool(1),
    nn.AdaptiveAvgPool2d: _adaptive_avg_pool(2),
    nn.AvgPool1d: _avg_pool(1),
    nn.AvgPool2d: _avg_pool(2),
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
    nn.Conv1d: _conv,
    nn.Conv2d: _conv,
    nn.ConvTranspose2d: _conv_transpose2d,
    nn.Dropout: _dropout,
    nn.Dropout1d: _dropout_of_channels(1),
    nn.Dropout2d: _dropout_of_channels(2),
    nn.ELU: _with_setting("ELU", "alpha", "alpha"),
    nn.Embedding: _embedding,
    nn.Flatten: _flatten_module,
    nn.GELU: _gelu,
    nn.GRU: _recurrent,
    nn.GroupNorm: _group_norm,
    nn.Hardsigmoid: _function("hard_sigmoid", is_positive=True),
    nn.Hardswish: _function("hard_silu"),
    nn.Hardtanh: _hardtanh,
    nn.Identity: _identity,
    nn.LSTM: _recurrent,
    nn.LayerNorm: _layer_norm,
    nn.LeakyReLU: _with_setting("LeakyReLU", "negative_slope", "negative_slope"),
    nn.Linear: _linear,
    nn.LogSoftmax: _log_softmax,
    nn.modules.linear.NonDynamicallyQuantizableLinear: _linear,
    nn.MaxPool1d: _max_pool(1),
    nn.MaxPool2d: _max_pool(2),
    nn.Mish: _function("mish"),
    nn.PReLU: _prelu,
    nn.ReLU: _function("relu", is_positive=True),
    nn.ReLU6: _function("relu6", is_positive=True),
    nn.SELU: _function("selu"),
    nn.SiLU: _function("silu"),
    nn.Sigmoid: _function("sigmoid", is_positive=True),
    nn.Softmax: _softmax,
    nn.Softplus: _function("softplus"),
    nn.Softsign: _function("softsign"),
    nn.Tanh: _function("tanh"),
    nn.Unflatten: _reshaped,
    nn.Upsample: _upsample,
}


def made(call: Call) -> Any:
    """What a module is in the engine, if it has all its settings.

    Raises:
        Refused: If not: with each of them.
    """
    check_settings(call.module)
    return MODULES[type(call.module)](call)


def check_settings(module: nn.Module) -> None:
    """Raises `Refused` with each setting of a module that is not supported."""
    refused = list(refusals(module, SETTINGS[type(module)]))
    if refused:
        raise Refused("; ".join(refused))


def _max_pool_module(kind: Callable[..., Any]) -> Callable[..., Any]:
    """A function has its last two arguments in another order than the module."""

    def make(
        kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: Any = False, return_indices: Any = False
    ) -> Any:
        return kind(kernel_size, stride, padding, dilation, return_indices, ceil_mode)

    return make


def _softmax_module(kind: Callable[..., Any]) -> Callable[..., Any]:
    def make(dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
        if dtype not in (None, torch.float32):
            raise Refused(f"`dtype` needs torch.float32, but is {dtype}")
        return kind(dim)

    return make


def _upsample_module(
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    if antialias:
        raise Refused("`antialias` needs False, but is True")
    return nn.Upsample(size, scale_factor, mode, align_corners, recompute_scale_factor)


#: Functions and methods that do what a module without weights does, whose arguments follow the tensor.
AS_MODULES: dict[str, Callable[..., Any]] = {
    "adaptive_avg_pool1d": nn.AdaptiveAvgPool1d,
    "adaptive_avg_pool2d": nn.AdaptiveAvgPool2d,
    "avg_pool1d": nn.AvgPool1d,
    "avg_pool2d": nn.AvgPool2d,
    "elu": lambda alpha=1.0, inplace=False: nn.ELU(alpha),
    "gelu": nn.GELU,
    "hardsigmoid": nn.Hardsigmoid,
    "hardswish": nn.Hardswish,
    "hardtanh": nn.Hardtanh,
    "interpolate": _upsample_module,
    "leaky_relu": nn.LeakyReLU,
    "log_softmax": _softmax_module(nn.LogSoftmax),
    "max_pool1d": _max_pool_module(nn.MaxPool1d),
    "max_pool2d": _max_pool_module(nn.MaxPool2d),
    "mish": nn.Mish,
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "relu_": nn.ReLU,
    "selu": nn.SELU,
    "sigmoid": nn.Sigmoid,
    "silu": nn.SiLU,
    "softmax": _softmax_module(nn.Softmax),
    "softplus": nn.Softplus,
    "softsign": nn.Softsign,
    "tanh": nn.Tanh,
}


# Functions.


def _dropout_function(call: Call) -> Tensor:
    # `torch.dropout` calls it `train`.
    p, training = argument(call, 1, "p", 0.5), argument(call, 2, "training", call.kwargs.get("train", True))
    if not training or not p:
        return call.x
    return call.graph.unary(call.name, {"type": "Dropout", "rate": p}, call.x, call.x.is_positive)


def _flatten_function(call: Call) -> Tensor:
    return _flatten(call, argument(call, 1, "start_dim", 0), argument(call, 2, "end_dim", -1))


_OF_TWO = {"add": "Add", "iadd": "Add", "mul": "Multiply", "imul": "Multiply", "sub": "Subtract", "isub": "Subtract"}
_OF_TWO |= {"add_": "Add", "mul_": "Multiply", "sub_": "Subtract", "maximum": "Maximum", "minimum": "Minimum"}


def _of_two(call: Call, kind: str) -> Tensor:
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


def _divided(call: Call) -> Tensor:
    x, number = call.args
    if not isinstance(x, Tensor) or not isinstance(number, (int, float)) or not number:
        raise Refused("needs a tensor divided by a number")
    return call.graph.unary(call.name, {"type": "Rescaling", "scale": 1.0 / number, "offset": 0.0}, x)


def _unequal(call: Call) -> Tensor:
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


def _equal(call: Call) -> Tensor:
    return inverted(replace(call, name=f"{call.name}.equal"), _unequal(call))


def _inverted(call: Call) -> Tensor:
    if not call.x.is_bool:
        raise Refused("needs a tensor of true and false")
    return inverted(call, call.x)


def inverted(call: Call, x: Tensor) -> Tensor:
    """0 where a tensor is 1, and 1 where it is 0."""
    return call.graph.unary(call.name, {"type": "Rescaling", "scale": -1.0, "offset": 1.0}, x, is_positive=True)


def _cat(call: Call) -> Tensor:
    tensors: list[Tensor] = list(call.args[0] if call.args else call.kwargs["tensors"])
    dim = argument(call, 1, "dim", 0)
    rank = len(tensors[0].shape)
    axis = (dim if dim >= 0 else dim + rank + 1) - 1
    if axis < 0:
        raise Refused("`dim` needs to be another than the first, along which batches are split")
    first = tensors[0]
    tensors = [call.graph.ordered(x, first.order) if x.flat is None else call.graph.plain(x) for x in tensors]
    if any(tensor.order != tensors[0].order for tensor in tensors):
        tensors = [call.graph.plain(tensor) for tensor in tensors]
    first = tensors[0]
    settings = {"type": "Concatenate", "axis": first.order.index(axis) + 1}
    name = call.graph.add(call.name, settings, tensors)
    return replace(first, name=name, shape=call.shape, flat=None, is_positive=all(tensor.is_positive for tensor in tensors))


def _mean(call: Call) -> Tensor:
    dims, keepdim = argument(call, 1, "dim", None), bool(argument(call, 2, "keepdim", False))
    x = call.x
    rank = len(x.shape) + 1
    wanted = sorted(dim % rank for dim in ([dims] if isinstance(dims, int) else dims or []))
    if len(x.shape) == 3 and wanted == [2, 3]:
        x = call.picture()
        name = call.graph.add(call.name, {"type": "GlobalAveragePooling2D", "keepdims": keepdim}, [x])
        order = PICTURE if keepdim else (0,)
        return Tensor(name, call.shape, order, is_positive=x.is_positive)
    if len(x.shape) == 2 and len(wanted) == 1 and wanted != [0]:
        # Over either of the two axes: what the mean goes along is the first one here.
        order = (wanted[0] - 1, 2 - wanted[0])
        x = call.graph.ordered(x, order)
        name = call.graph.add(call.name, {"type": "GlobalAveragePooling1D", "keepdims": keepdim}, [x])
        return Tensor(name, call.shape, order if keepdim else (0,), is_positive=x.is_positive)
    raise Refused(f"needs a mean over height and width, or over one axis of a sequence, but `dim` is {dims}")


def _permute(call: Call) -> Tensor:
    dims = call.kwargs.get("dims", call.args[1:])
    dims = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
    return _permuted(call, [int(dim) for dim in dims])


def _transpose(call: Call) -> Tensor:
    rank = len(call.x.shape) + 1
    dims = list(range(rank))
    first, second = (call.kwargs.get(f"dim{at}", call.kwargs.get(f"axis{at}")) for at in (0, 1))
    a, b = argument(call, 1, "dim0", first) % rank, argument(call, 2, "dim1", second) % rank
    dims[a], dims[b] = b, a
    return _permuted(call, dims)


def _permuted(call: Call, dims: list[int]) -> Tensor:
    """The axes in another order. The numbers stay where they are: what reads them says where it wants them."""
    rank = len(call.x.shape) + 1
    dims = [dim % rank for dim in dims]
    x = call.x if call.x.flat is None else call.graph.plain(call.x)
    rows = [dim - (dim > x.batch) for dim in dims if dim != x.batch]
    moved = [rows.index(axis) for axis in x.order]
    return replace(x, shape=tuple(x.shape[axis] for axis in rows), order=tuple(moved), batch=dims.index(x.batch))


def cropped(call: Call, x: Tensor, axis: int, begin: int, end: int) -> Tensor:
    """The places from `begin` up to `end` of an axis of a row."""
    x = call.graph.plain(x)
    before, size, behind = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
    if (begin, end) == (0, size):
        return x
    shape = (*x.shape[:axis], end - begin, *x.shape[axis + 1 :])
    whole = call.graph.add(f"{call.name}.whole", {"type": "Reshape", "target_shape": [before, size, behind]}, [x])
    sides = {"type": "Cropping2D", "cropping": [[0, 0], [begin, size - end]]}
    part = call.graph.add(f"{call.name}.part", sides, [replace(x, name=whole)])
    name = call.graph.add(call.name, {"type": "Reshape", "target_shape": list(shape)}, [replace(x, name=part)])
    return Tensor(name, shape, tuple(range(len(shape))), is_positive=x.is_positive)


def _row_axis(call: Call, dim: int) -> int:
    axis = (dim if dim >= 0 else dim + len(call.x.shape) + 1) - 1
    if axis < 0:
        raise Refused("`dim` needs to be another than the first, along which batches are split")
    return axis


def _split(call: Call) -> list[Tensor]:
    """Parts of a tensor along an axis, as long as PyTorch has made them: `chunk` and `split`."""
    axis = _row_axis(call, int(argument(call, 2, "dim", 0)))
    ends = np.cumsum([part.shape[axis + 1] for part in call.value])
    return [cropped(call, call.x, axis, int(begin), int(end)) for begin, end in zip([0, *ends], ends)]


def _sliced(call: Call, x: Tensor, index: Any) -> Tensor:
    """`x[:, 0]`, `x[..., 1:3]` and the like."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if not all(part is None or part is Ellipsis or isinstance(part, (int, slice)) for part in parts):
        raise Refused(f"an index {index} into a tensor is not supported: take places and slices")
    given = sum(part is not None and part is not Ellipsis for part in parts)
    at = parts.index(Ellipsis) if Ellipsis in parts else len(parts)
    parts[at : at + 1] = [slice(None)] * (len(x.shape) + 1 - given)
    if parts[0] != slice(None):
        raise Refused("needs to keep the first axis, along which batches are split: begin with `:`")
    axis = 0
    for part in parts[1:]:
        if part is None:
            continue
        begin, end, step = (part % x.shape[axis], part % x.shape[axis] + 1, 1) if isinstance(part, int) else part.indices(x.shape[axis])
        if step != 1 or end <= begin:
            raise Refused("needs slices without a step that hold something")
        x, axis = cropped(call, x, axis, begin, end), axis + 1
    return _reshaped(replace(call, args=(x,)))


def _selected(call: Call) -> Tensor:
    """The place `index` of an axis."""
    axis, place = _row_axis(call, int(argument(call, 1, "dim", 0))), int(argument(call, 2, "index", 0))
    place %= call.x.shape[axis]
    return _reshaped(replace(call, args=(cropped(call, call.x, axis, place, place + 1),)))


def _slice(call: Call) -> Tensor:
    """The places of an axis from one up to another, as the operation below `x[:, 1:3]` has them."""
    dim, start, end, step = (argument(call, at, name, None) for at, name in enumerate(("dim", "start", "end", "step"), 1))
    places = slice(start, end, step)
    if not dim and places.indices(len(call.value)) == (0, len(call.value), 1):
        return call.x
    return _sliced(call, call.x, (slice(None),) * _row_axis(call, dim or 0) + (slice(None), places))


def _converted(call: Call) -> Tensor:
    """The tensor, where it has the type already in which the engine computes."""
    if call.value.dtype not in (torch.float32, torch.int64, torch.bool):
        raise Refused(f"needs torch.float32, but is {call.value.dtype}")
    return call.x


def _getitem(call: Call) -> Any:
    """Parts of a tensor, of several, or of what a recurrent module gives."""
    source, index = call.args
    if isinstance(source, list):
        if source[index] is None:
            raise Refused("reads weights of attention, which the engine does not give: leave them out by `need_weights=False`")
        return source[index]
    if isinstance(source, Tensor):
        return _sliced(call, source, index)
    if isinstance(source, Sequences):
        if index == 0:
            return _Steps(source)
        return _States(source)
    if isinstance(source, _States):
        # The state behind the last step: h of (h, c), or of a GRU the last of its layers.
        is_lstm = isinstance(call.value, torch.Tensor) and call.value.dim() == 3
        if is_lstm and index == 0:
            return source
        if not is_lstm and index == -1:
            return source.source.last(False)
        raise Refused("needs the state of its last layer: `h[-1]`")
    if isinstance(source, _Steps):
        whole = slice(None)
        parts = index if isinstance(index, tuple) else (index,)
        if parts[:2] == (whole, -1) and all(part == whole for part in parts[2:]):
            return source.source.last(False)
        raise Refused("needs all steps of a recurrent module, or the last one: `[:, -1]`")
    raise Refused(f"an index {index} into a tensor is not supported")


@dataclass(frozen=True)
class _Steps:
    """The first part of what a recurrent module gives: all its steps."""

    source: Sequences


@dataclass(frozen=True)
class _States:
    """The second part: its last states."""

    source: Sequences


#: What stands for tensors that depend on an input.
OF_INPUTS = (Tensor, Sequences, _Steps, _States)


def settled(value: Any) -> Any:
    """An argument as functions take it: a tensor where a recurrent module's steps are meant."""
    if isinstance(value, _Steps):
        return value.source.last(True)
    return value


#: Functions and methods, by name.
FUNCTIONS: dict[str, Handler] = {
    "_to_copy": _converted,
    "alias": _identity,
    "cat": _cat,
    "chunk": _split,
    "clone": _identity,
    "concat": _cat,
    "contiguous": _identity,
    "dropout": _dropout_function,
    "eq": _equal,
    "flatten": _flatten_function,
    "getitem": _getitem,
    "invert": _inverted,
    "logical_not": _inverted,
    "mean": _mean,
    "ne": _unequal,
    "permute": _permute,
    "reshape": _reshaped,
    "select": _selected,
    "slice": _slice,
    "split": _split,
    "split_with_sizes": _split,
    "squeeze": _reshaped,
    "swapaxes": _transpose,
    "to": _converted,
    "transpose": _transpose,
    "truediv": _divided,
    "div": _divided,
    "unflatten": _reshaped,
    "unsqueeze": _reshaped,
    "view": _reshaped,
}


#: Arguments by name of functions and methods that do not make a module: others are refused.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "_to_copy": ("dtype",),
    "alias": (),
    "cat": ("tensors", "dim"),
    "chunk": ("chunks", "dim"),
    "clone": ("memory_format",),
    "concat": ("tensors", "dim"),
    "contiguous": ("memory_format",),
    "dropout": ("p", "training", "train", "inplace"),
    "eq": (),
    "flatten": ("start_dim", "end_dim"),
    "getitem": (),
    "invert": (),
    "logical_not": (),
    "mean": ("dim", "keepdim"),
    "ne": (),
    "permute": ("dims",),
    "reshape": ("shape",),
    "select": ("dim", "index"),
    "slice": ("dim", "start", "end", "step"),
    "split": ("split_size", "split_size_or_sections", "dim"),
    "split_with_sizes": ("split_sizes", "dim"),
    "squeeze": ("dim",),
    "swapaxes": ("dim0", "dim1", "axis0", "axis1"),
    "to": ("dtype", "copy"),
    "transpose": ("dim0", "dim1"),
    "truediv": (),
    "div": (),
    "unflatten": ("dim", "sizes"),
    "unsqueeze": ("dim",),
    "view": ("size",),
}


def function(name: str) -> Handler | None:
    """What a function or method of this name is in the engine."""
    if name in _OF_TWO:
        return lambda call: _of_two(call, _OF_TWO[name])
    if name in AS_MODULES:

        def as_module(call: Call) -> Any:
            module = AS_MODULES[name](*call.args[1:], **call.kwargs)
            return made(replace(call, module=module, args=call.args[:1], kwargs={}))

        return as_module
    handler = FUNCTIONS.get(name)
    if handler is None:
        return None

    def checked(call: Call) -> Any:
        other = [f"`{key}`" for key in call.kwargs if key not in ARGUMENTS[name]]
        if other:
            raise Refused(f"the argument {other[0]} of its call is not supported")
        return handler(call)

    return checked


__all__ = ["AS_MODULES", "FUNCTIONS", "MODULES", "OF_INPUTS", "Call", "Refused", "Sequences", "function", "made", "settled", "shape_here"]
