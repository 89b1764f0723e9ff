"""Windows and sizes: pooling and upsampling."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from .._graph import Settings, Tensor, channels_last
from .call import MODULES, Call, Handler, Refused, padded, setting_of, sizes_of
from .padding import longer


def _upsample(call: Call) -> Tensor:
    module, rank = call.module, len(call.x.shape) - 1
    if rank not in (1, 2):
        raise Refused(f"needs sequences or pictures, but gets rows of shape {call.x.shape}")
    sizes = list(zip(call.x.shape[1:], call.shape[1:]))
    factors = [to // of for of, to in sizes]
    kinds = {(1, "nearest"): "nearest", (2, "nearest"): "nearest", (2, "bilinear"): "bilinear"}
    told = factors if module.scale_factor is None or module.recompute_scale_factor else module.scale_factor
    is_whole = all(of * factor == to for factor, (of, to) in zip(factors, sizes)) and list(_each(told, rank)) == factors
    if (rank, module.mode) not in kinds or module.align_corners or not is_whole:
        return _by_weights(call, [_weights_of_upsample(module, axis, rank, of) for axis, (of, _) in enumerate(sizes)])
    x = call.spatial(rank)
    settings: Settings = {"type": f"UpSampling{rank}D", "size": setting_of(factors)}
    if rank == 2:
        settings["interpolation"] = kinds[rank, module.mode]
    return Tensor(call.graph.add(call.name, settings, [x]), call.shape, channels_last(rank), is_positive=x.is_positive)


def _weights_of_upsample(module: Any, axis: int, rank: int, size: int) -> torch.Tensor:
    """Of each place before, by how much it counts at each place behind: what PyTorch makes of pictures with one pixel that is not 0."""
    # The other axis is one of a single place.
    def along(value: Any) -> Any:
        return tuple(_each(value, rank)[axis] if at == axis else 1 for at in range(rank)) if value is not None else None

    settings = (module.mode, module.align_corners, module.recompute_scale_factor)
    pixels = torch.eye(size).reshape(size, 1, *along(size))
    return nn.functional.interpolate(pixels, along(module.size), along(module.scale_factor), *settings).reshape(size, -1)


def _each(value: Any, rank: int) -> Any:
    """A setting for each axis."""
    return value if isinstance(value, (list, tuple)) else [value] * rank


def _by_weights(call: Call, weights: list[torch.Tensor]) -> Tensor:
    """A sequence or a picture whose places are sums of those along each axis, by weights of shape (places before, places behind)."""
    x = call.x if call.x.flat is None else call.graph.plain(call.x)
    for axis, matrix in enumerate(weights, 1):
        if torch.equal(matrix, torch.eye(len(matrix))):
            continue
        x = call.graph.ordered(x, (*(at for at in x.order if at != axis), axis))
        settings = {"type": "Dense", "units": matrix.shape[1], "use_bias": False, "trainable": False}
        name = call.graph.add(f"{call.name}.axis{axis}", settings, [x])
        call.graph.constants[f"{name}/kernel"] = matrix.numpy()
        shape = (*x.shape[:axis], matrix.shape[1], *x.shape[axis + 1 :])
        x = replace(x, name=name, shape=shape, is_positive=x.is_positive and bool((matrix >= 0).all()))
    return x


def _max_pool(rank: int) -> Handler:
    def handler(call: Call) -> Tensor:
        module, x = call.module, call.spatial(rank)
        window, strides, padding = (sizes_of(value, rank) for value in (module.kernel_size, module.stride, module.padding))
        if set(sizes_of(module.dilation, rank)) != {1}:
            raise Refused(f"`dilation` needs 1, but is {module.dilation}")
        settings: Settings = {"type": f"MaxPooling{rank}D", "pool_size": setting_of(window), "strides": setting_of(strides)}
        # How far the last window reaches behind the padding, by `ceil_mode`.
        ends = [max((n - 1) * s + w - size - 2 * p, 0) for n, s, w, size, p in zip(call.shape[1:], strides, window, x.shape[1:], padding)]
        if any(padding) and not any(ends) and _is_padding_same(call, x, window, strides, padding):
            settings["padding"] = "same"
        elif not any(ends) and x.is_positive:
            # Above numbers that are not below 0, zeros are as good as minus infinity.
            x = padded(call, x, padding)
        else:
            # Each window that reaches over the border has the number at the border in it: copies of that change no largest one.
            x = longer(call, x, [size for p, end in zip(padding[::-1], ends[::-1]) for size in (p, p + end)], "replicate")
        name = call.graph.add(call.name, settings, [x])
        return Tensor(name, call.shape, channels_last(rank), is_positive=x.is_positive)

    return handler


def _avg_pool(rank: int) -> Handler:
    def handler(call: Call) -> Tensor:
        module, x = call.module, call.spatial(rank)
        window, strides, padding = (sizes_of(value, rank) for value in (module.kernel_size, module.stride, module.padding))
        settings: Settings = {"type": f"AveragePooling{rank}D", "pool_size": setting_of(window), "strides": setting_of(strides)}
        left = [(size + 2 * p - w) % s for size, w, s, p in zip(x.shape[1:], window, strides, padding)]
        is_over, is_without = bool(module.ceil_mode and any(left)), any(padding) and not module.count_include_pad
        positive = x.is_positive
        if not is_over and not is_without:
            x = padded(call, x, padding)
        elif (is_without or not any(padding)) and _is_padding_same(call, x, window, strides, padding):
            # A mean is one of the numbers of the input that its window has.
            settings["padding"] = "same"
        else:
            name = "ceil_mode=True" if is_over else "count_include_pad=False"
            raise Refused(f"`{name}` is supported where windows reach over both borders alike, or by one more over the second, and padding does not count")
        return Tensor(call.graph.add(call.name, settings, [x]), call.shape, channels_last(rank), is_positive=positive)

    return handler


def _is_padding_same(call: Call, x: Tensor, window: list[int], strides: list[int], padding: list[int]) -> bool:
    """Is the engine's padding `same` this one?"""
    for size, count, w, s, p in zip(x.shape[1:], call.shape[1:], window, strides, padding):
        total = max((count - 1) * s + w - size, 0)
        if total // 2 != p or count != math.ceil(size / s):
            return False
    return True


def _adaptive_avg_pool(rank: int) -> Handler:
    def handler(call: Call) -> Tensor:
        x = call.spatial(rank)
        wanted = call.module.output_size
        have = list(x.shape[1:])
        target = [h if w is None else w for w, h in zip(_each(wanted, rank), have)]
        if target == have:
            return x
        if any(h % t for h, t in zip(have, target)):
            # Windows of several sizes, some of which have places in common.
            return _by_weights(call, [nn.functional.adaptive_avg_pool1d(torch.eye(h).unsqueeze(1), t).squeeze(1) for h, t in zip(have, target)])
        if set(target) == {1}:
            settings: Settings = {"type": f"GlobalAveragePooling{rank}D", "keepdims": True}
        else:
            settings = {"type": f"AveragePooling{rank}D", "pool_size": setting_of([h // t for h, t in zip(have, target)])}
        return Tensor(call.graph.add(call.name, settings, [x]), call.shape, channels_last(rank), is_positive=x.is_positive)

    return handler


MODULES.update(
    {
        nn.AdaptiveAvgPool1d: _adaptive_avg_pool(1),
        nn.AdaptiveAvgPool2d: _adaptive_avg_pool(2),
        nn.AvgPool1d: _avg_pool(1),
        nn.AvgPool2d: _avg_pool(2),
        nn.MaxPool1d: _max_pool(1),
        nn.MaxPool2d: _max_pool(2),
        nn.Upsample: _upsample,
    }
)
