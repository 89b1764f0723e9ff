"""Modules with weights: products, convolutions, normalizations, embeddings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from .._graph import PICTURE, Settings, Tensor, Weight, axes, channels_last, of_dense, same
from .arithmetic import unequal
from .call import MODULES, Call, Refused, padded, pair_of, setting_of
from .padding import longer


def _linear(call: Call) -> Tensor:
    module, x = call.module, call.x
    is_flat = x.flat is not None
    if not is_flat:
        x = call.graph.plain(x)
    table = call.graph.table(module.weight)
    if table is not None and module.bias is None:
        # The `Embedding` gives vectors of its table, and goes the way back to a product with each of them.
        table["type"] = "ReversibleEmbedding"
        name = call.graph.reuse(str(table["name"]), [call.graph.plain(x)], reverse=True)
        return Tensor(name, call.shape, tuple(range(len(call.shape))))
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
    settings: Settings = {"kernel_size": setting_of(kernel), "strides": setting_of(strides), "use_bias": module.bias is not None}
    if module.padding_mode != "zeros":
        x = longer(call, x, module._reversed_padding_repeated_twice, module.padding_mode)
    elif module.padding == "same":
        settings["padding"] = "same"
    elif module.padding != "valid":
        padding = list(module.padding)
        # With stride 1 the engine's own padding is on both sides alike.
        if set(strides) == {1} and [2 * p for p in padding] == spread and any(padding):
            settings["padding"] = "same"
        else:
            x = padded(call, x, padding)
    if set(dilation) != {1}:
        settings["dilation_rate"] = setting_of(dilation)
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
        "kernel_size": pair_of(module.kernel_size),
        "strides": pair_of(module.stride),
        "output_padding": pair_of(module.output_padding),
        "use_bias": module.bias is not None,
    }
    if pair_of(module.dilation) != [1, 1]:
        settings["dilation_rate"] = pair_of(module.dilation)
    weights = {"kernel": Weight([module.weight], *axes(2, 3, 1, 0))}
    if module.bias is not None:
        weights["bias"] = Weight([module.bias], *same())
    name = call.weighted(settings, [x], weights)
    padding, shape = pair_of(module.padding), call.shape
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
    wants = [call.learns(parameter) for parameter in module.parameters(recurse=False)]
    if not call.is_training:
        settings |= {"fixed_statistics": True} if any(wants) else {"trainable": False}
    # The engine's own frozen layer has fixed statistics: here they move, and the weights are numbers behind it.
    is_frozen = call.is_training and bool(wants) and not any(wants)
    if is_frozen:
        settings |= {"center": False, "scale": False, "trainable": True}
    weights = {
        "moving_mean": Weight([module.running_mean], *same(), is_trained=False),
        "moving_variance": Weight([module.running_var], *same(), is_trained=False),
    }
    weights.update({} if is_frozen else _factor_and_offset(module))
    if call.is_training:
        call.graph.counters.append(module.num_batches_tracked)
    # Channels are the first axis of a row in PyTorch, and the last one here.
    rank = len(x.shape)
    order = (*range(1, rank), 0)
    x = call.graph.ordered(x, order)
    x = replace(x, name=call.weighted(settings, [x], weights), is_positive=False)
    if not is_frozen:
        return x
    factor, offset = (None if held is None else held.tolist() for held in (module.weight, module.bias))
    return call.graph.unary(f"{call.name}.frozen", {"type": "Rescaling", "scale": factor, "offset": offset or 0.0}, x)


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


def _rms_norm(call: Call) -> Tensor:
    module, x = call.module, call.graph.plain(call.x)
    count = len(module.normalized_shape)
    epsilon = torch.finfo(torch.float32).eps if module.eps is None else module.eps
    settings: Settings = {"type": "RMSNormalization", "axis": -1 if count == 1 else list(range(-count, 0)), "epsilon": epsilon}
    if module.weight is not None:
        return replace(x, name=call.weighted(settings, [x], {"scale": Weight([module.weight], *same())}), is_positive=False)
    name = call.graph.add(call.name, {**settings, "trainable": False}, [x])
    call.graph.constants[f"{name}/scale"] = np.ones(module.normalized_shape, np.float32)
    return replace(x, name=name, is_positive=False)


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


def _instance_norm(call: Call) -> Tensor:
    """A group for each channel of a row."""
    module, x = call.module, call.x
    if module.track_running_stats:
        raise Refused("needs `track_running_stats=False`: its statistics are those of each row, also in evaluation mode")
    rank = 2 if isinstance(module, nn.InstanceNorm2d) else 1
    x = call.spatial(rank)
    has_bias = module.bias is not None
    settings = {"type": "GroupNormalization", "groups": x.shape[0], "epsilon": module.eps, "center": has_bias, "scale": module.affine}
    return replace(x, name=call.weighted(settings, [x], _factor_and_offset(module)), is_positive=False)


def _embedding(call: Call) -> Tensor:
    module, ids = call.module, call.graph.plain(call.x)
    if module.padding_idx is not None and id(module.weight) in call.tied:
        raise Refused("`padding_idx` is not supported of a weight that another module reads, too, and by which padding learns")
    settings = {"type": "Embedding", "input_dim": module.num_embeddings, "output_dim": module.embedding_dim}
    name = call.weighted(settings, [ids], {"embeddings": Weight([module.weight], *same())}, module.padding_idx)
    if not ids.shape:
        # One vector a row, which the engine has as a sequence of one.
        name = call.graph.add(f"{name}.one", {"type": "Flatten"}, [replace(ids, name=name)])
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


def _prelu(call: Call) -> Tensor:
    x, count = call.x, call.module.num_parameters
    if len(x.shape) != 3 or count != x.shape[0]:
        raise Refused(f"`num_parameters` needs a slope for each channel of a picture, but is {count} for rows of shape {x.shape}")
    x = call.picture()

    def pack(arrays: list[Any]) -> Any:
        return arrays[0].reshape(1, 1, -1)

    weights = {"alpha": Weight([call.module.weight], pack, lambda values: [values.reshape(-1)])}
    return replace(x, name=call.weighted({"type": "PReLU", "shared_axes": [1, 2]}, [x], weights), is_positive=False)


MODULES.update(
    {
        nn.BatchNorm1d: _batch_norm,
        nn.BatchNorm2d: _batch_norm,
        nn.Conv1d: _conv,
        nn.Conv2d: _conv,
        nn.ConvTranspose2d: _conv_transpose2d,
        nn.Embedding: _embedding,
        nn.GroupNorm: _group_norm,
        nn.InstanceNorm1d: _instance_norm,
        nn.InstanceNorm2d: _instance_norm,
        nn.LayerNorm: _layer_norm,
        nn.Linear: _linear,
        nn.modules.linear.NonDynamicallyQuantizableLinear: _linear,
        nn.PReLU: _prelu,
        nn.RMSNorm: _rms_norm,
    }
)
