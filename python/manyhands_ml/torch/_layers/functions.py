"""The tables of functions and methods, and those that no other file has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from .._graph import Tensor
from .._nodes import out_of_place
from .activations import identity
from .arithmetic import OF_TWO, absolute, at_least, at_most, clamped, concatenated, divided, equal_to, function_of, inverted_truth
from .arithmetic import negative, of_two, power, square, unequal_to
from .call import Call, Handler, Refused, argument, made
from .padding import padding
from .recurrent import Sequences, States, Steps
from .reductions import expanded, largest, largest_and_place, mean_over, norm, norm_of_linalg, normalized, repeated, similarity, stacked
from .reductions import sum_over, values_of
from .shapes import flattened, permute, reshaped, rolled, selected, slice_axis, sliced, split_axis, taken, transpose_axes, turned
from .shapes import unbound


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


def _upsampled(mode: str, has_corners: bool = True) -> Callable[..., Any]:
    """Of the operation below `interpolate`."""

    def make(size: Any, *rest: Any) -> Any:
        corners, factors = (rest[0] if has_corners else None), rest[-1]
        return nn.Upsample(None if size is None else tuple(size), None if size is not None else tuple(factors), mode, corners)

    return make


#: Functions and methods that do what a module without weights does, whose arguments follow the tensor.
AS_MODULES: dict[str, Callable[..., Any]] = {
    "_upsample_nearest_exact1d": _upsampled("nearest-exact", False),
    "_upsample_nearest_exact2d": _upsampled("nearest-exact", False),
    "adaptive_avg_pool1d": nn.AdaptiveAvgPool1d,
    "adaptive_avg_pool2d": nn.AdaptiveAvgPool2d,
    "adaptive_max_pool1d": nn.AdaptiveMaxPool1d,
    "adaptive_max_pool2d": nn.AdaptiveMaxPool2d,
    "avg_pool1d": nn.AvgPool1d,
    "avg_pool2d": nn.AvgPool2d,
    "elu": lambda alpha=1.0, inplace=False: nn.ELU(alpha),
    "gelu": nn.GELU,
    "glu": nn.GLU,
    "hardsigmoid": nn.Hardsigmoid,
    "hardswish": nn.Hardswish,
    "hardtanh": nn.Hardtanh,
    "interpolate": _upsample_module,
    "leaky_relu": nn.LeakyReLU,
    "log_sigmoid": nn.LogSigmoid,
    "logsigmoid": nn.LogSigmoid,
    "log_softmax": _softmax_module(nn.LogSoftmax),
    "max_pool1d": _max_pool_module(nn.MaxPool1d),
    "max_pool2d": _max_pool_module(nn.MaxPool2d),
    "mish": nn.Mish,
    "pixel_shuffle": nn.PixelShuffle,
    "pixel_unshuffle": nn.PixelUnshuffle,
    "reflection_pad1d": nn.ReflectionPad1d,
    "reflection_pad2d": nn.ReflectionPad2d,
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "replication_pad1d": nn.ReplicationPad1d,
    "replication_pad2d": nn.ReplicationPad2d,
    "selu": nn.SELU,
    "sigmoid": nn.Sigmoid,
    "silu": nn.SiLU,
    "softmax": _softmax_module(nn.Softmax),
    "softplus": nn.Softplus,
    "softsign": nn.Softsign,
    "tanh": nn.Tanh,
    "upsample_bicubic2d": _upsampled("bicubic"),
    "upsample_bilinear2d": _upsampled("bilinear"),
    "upsample_linear1d": _upsampled("linear"),
    "upsample_nearest1d": _upsampled("nearest", False),
    "upsample_nearest2d": _upsampled("nearest", False),
}


def _dropout_function(call: Call) -> Tensor:
    # `torch.dropout` calls it `train`.
    p, training = argument(call, 1, "p", 0.5), argument(call, 2, "training", call.kwargs.get("train", True))
    if not training or not p:
        return call.x
    return call.graph.unary(call.name, {"type": "Dropout", "rate": p}, call.x, call.x.is_positive)


def _flatten_function(call: Call) -> Tensor:
    return flattened(call, argument(call, 1, "start_dim", 0), argument(call, 2, "end_dim", -1))


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
            if call.value is not None and call.value.dtype == torch.int64:
                raise Refused("reads places of the largest numbers, which is not supported")
            raise Refused("reads weights of attention, which the engine does not give: leave them out by `need_weights=False`")
        return source[index]
    if isinstance(source, Tensor) and source.batch:
        return taken(call, source, 0, index)
    if isinstance(source, Tensor):
        return sliced(call, source, index)
    if isinstance(source, Sequences):
        if index == 0:
            return Steps(source)
        return States(source)
    if isinstance(source, States):
        # h of (h, c), or states of the last step.
        is_lstm = isinstance(call.value, torch.Tensor) and call.value.dim() == 3
        if is_lstm and index == 0:
            return source
        place = index[0] if isinstance(index, tuple) and all(part in (slice(None), ...) for part in index[1:]) else index
        if not is_lstm and isinstance(place, int):
            return source.source.state(place)
        raise Refused("needs the state of its last layer: `h[-1]`")
    if isinstance(source, Steps):
        whole = slice(None)
        parts = index if isinstance(index, tuple) else (index,)
        if parts[:2] == (whole, -1) and all(part == whole for part in parts[2:]):
            return source.source.last(False)
        raise Refused("needs all steps of a recurrent module, or the last one: `[:, -1]`")
    raise Refused(f"an index {index} into a tensor is not supported")


def _squeezed(call: Call) -> Tensor:
    """Without axes of 1; of the state of a recurrent module, that of its only layer."""
    source = call.args[0]
    if isinstance(source, States) and isinstance(call.value, torch.Tensor) and argument(call, 1, "dim", None) == 0 and call.value.dim() == 2:
        return source.source.state(0)
    return reshaped(call)


#: Functions and methods, by name.
FUNCTIONS: dict[str, Handler] = {
    "_to_copy": _converted,
    "abs": absolute,
    "alias": identity,
    "amax": largest,
    "cat": concatenated,
    "chunk": split_axis,
    "clamp": clamped,
    "clamp_max": at_most,
    "clamp_min": at_least,
    "clip": clamped,
    "clone": identity,
    "concat": concatenated,
    "contiguous": identity,
    "cosine_similarity": similarity,
    "div": divided,
    "dropout": _dropout_function,
    "eq": equal_to,
    "exp": function_of("exponential", is_positive=True),
    "expand": expanded,
    "expand_as": expanded,
    "flatten": _flatten_function,
    "float": _converted,
    "getitem": _getitem,
    "invert": inverted_truth,
    "linalg_norm": norm_of_linalg,
    "linalg_vector_norm": norm,
    "log": function_of("log"),
    "logical_not": inverted_truth,
    "mT": turned,
    "max": largest_and_place,
    "mean": mean_over,
    "ne": unequal_to,
    "neg": negative,
    "norm": norm,
    "normalize": normalized,
    "pad": padding,
    "permute": permute,
    "pow": power,
    "reciprocal": function_of("reciprocal"),
    "repeat": repeated,
    "reshape": reshaped,
    "roll": rolled,
    "rsqrt": function_of("sqrt", "reciprocal", is_positive=True),
    "select": selected,
    "slice": slice_axis,
    "split": split_axis,
    "split_with_sizes": split_axis,
    "sqrt": function_of("sqrt", is_positive=True),
    "square": square,
    "squeeze": _squeezed,
    "stack": stacked,
    "sum": sum_over,
    "swapaxes": transpose_axes,
    "to": _converted,
    "transpose": transpose_axes,
    "truediv": divided,
    "type_as": _converted,
    "unbind": unbound,
    "unflatten": reshaped,
    "unsqueeze": reshaped,
    "values": values_of,
    "view": reshaped,
}


#: Arguments by name of functions and methods that do not make a module: others are refused.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "_to_copy": ("dtype",),
    "abs": (),
    "alias": (),
    "amax": ("dim", "keepdim"),
    "cat": ("tensors", "dim"),
    "chunk": ("chunks", "dim"),
    "clamp": ("min", "max"),
    "clamp_max": ("max",),
    "clamp_min": ("min",),
    "clip": ("min", "max"),
    "clone": ("memory_format",),
    "concat": ("tensors", "dim"),
    "contiguous": ("memory_format",),
    "cosine_similarity": ("x2", "dim", "eps"),
    "div": (),
    "dropout": ("p", "training", "train", "inplace"),
    "eq": (),
    "exp": (),
    "expand": (),
    "expand_as": (),
    "flatten": ("start_dim", "end_dim"),
    "float": (),
    "getitem": (),
    "invert": (),
    "linalg_norm": ("ord", "dim", "keepdim", "dtype", "out"),
    "linalg_vector_norm": ("ord", "dim", "keepdim", "dtype", "out"),
    "log": (),
    "logical_not": (),
    "mT": (),
    "max": ("dim", "keepdim", "other"),
    "mean": ("dim", "keepdim"),
    "ne": (),
    "neg": (),
    "norm": ("p", "dim", "keepdim", "dtype", "out"),
    "normalize": ("p", "dim", "eps", "out"),
    "pad": ("pad", "mode", "value"),
    "permute": ("dims",),
    "pow": (),
    "reciprocal": (),
    "repeat": (),
    "reshape": ("shape",),
    "roll": ("shifts", "dims"),
    "rsqrt": (),
    "select": ("dim", "index"),
    "slice": ("dim", "start", "end", "step"),
    "split": ("split_size", "split_size_or_sections", "dim"),
    "split_with_sizes": ("split_sizes", "dim"),
    "sqrt": (),
    "square": (),
    "squeeze": ("dim",),
    "stack": ("tensors", "dim"),
    "sum": ("dim", "keepdim", "dtype"),
    "swapaxes": ("dim0", "dim1", "axis0", "axis1"),
    "to": ("dtype", "copy"),
    "transpose": ("dim0", "dim1"),
    "truediv": (),
    "type_as": (),
    "unbind": ("dim",),
    "unflatten": ("dim", "sizes"),
    "unsqueeze": ("dim",),
    "values": (),
    "view": ("size",),
}


def function(name: str) -> Handler | None:
    """What a function or method of this name is in the engine."""
    name = out_of_place(name)
    if name in OF_TWO:
        return lambda call: of_two(call, OF_TWO[name])
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
