"""Settings of modules and losses of PyTorch, each named once: read by the tables, needed to have a value, or without a part in the result."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Named:
    """The settings of a module or a loss. One that is not named here is refused, unless it has its default."""

    #: Settings that the handler of the module reads: it has them, or refuses a value by name.
    read: tuple[str, ...] = ()
    #: Settings that need this value.
    need: Mapping[str, Any] = field(default_factory=dict)
    #: Settings that change no result, and why.
    free: Mapping[str, str] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.read or name in self.need or name in self.free


def _named(read: str = "", need: Mapping[str, Any] | None = None, free: Mapping[str, str] | None = None) -> Named:
    return Named(tuple(read.split()), need or {}, free or {})


_PLACE = {
    "device": "weights are read from any device, and written back to it",
    "dtype": "the trace refuses weights of another one than float32",
}
_INPLACE = {"inplace": "the result is the same; the trace refuses tensors that are read after they were changed"}
_CONV = "in_channels out_channels kernel_size stride padding dilation groups bias"
_RECURRENT = "input_size hidden_size num_layers bias batch_first dropout bidirectional proj_size"
_POOL = "kernel_size stride padding ceil_mode"
_OF_RECURRENT = {**_PLACE, "mode": "the classes fill it in themselves", "nonlinearity": "of `nn.RNN` alone"}
#: `Identity` and activations without a setting take any arguments, and ignore them.
_ANY = {"args": "PyTorch ignores them", "kwargs": "PyTorch ignores them"}
_BATCH_NORM = _named("num_features eps momentum affine bias track_running_stats", free=_PLACE)
_INSTANCE_NORM = _named(
    "num_features eps affine track_running_stats bias", free={**_PLACE, "momentum": "of running statistics, which are refused"}
)

#: Settings of modules, by class.
MODULES: dict[type, Named] = {
    nn.AdaptiveAvgPool1d: _named("output_size"),
    nn.AdaptiveAvgPool2d: _named("output_size"),
    nn.AdaptiveMaxPool1d: _named("output_size", {"return_indices": False}),
    nn.AdaptiveMaxPool2d: _named("output_size", {"return_indices": False}),
    nn.AvgPool1d: _named(f"{_POOL} count_include_pad"),
    nn.AvgPool2d: _named(f"{_POOL} count_include_pad", {"divisor_override": None}),
    nn.BatchNorm1d: _BATCH_NORM,
    nn.BatchNorm2d: _BATCH_NORM,
    nn.CircularPad1d: _named("padding"),
    nn.CircularPad2d: _named("padding"),
    nn.ConstantPad1d: _named("padding", {"value": 0}),
    nn.ConstantPad2d: _named("padding", {"value": 0}),
    nn.Conv1d: _named(f"{_CONV} padding_mode", free=_PLACE),
    nn.Conv2d: _named(f"{_CONV} padding_mode", free=_PLACE),
    nn.ConvTranspose2d: _named(f"{_CONV} output_padding", {"padding_mode": "zeros"}, _PLACE),
    nn.CosineSimilarity: _named("dim eps"),
    nn.Dropout: _named("p", free=_INPLACE),
    nn.Dropout1d: _named("p", free=_INPLACE),
    nn.Dropout2d: _named("p", free=_INPLACE),
    nn.ELU: _named("alpha", free=_INPLACE),
    nn.Embedding: _named(
        "num_embeddings embedding_dim padding_idx",
        {"max_norm": None, "scale_grad_by_freq": False, "sparse": False},
        {
            **_PLACE,
            "norm_type": "the norm of `max_norm`, which is refused",
            "_weight": "an initial value",
            "_freeze": "sets `requires_grad`, which is read",
        },
    ),
    nn.Flatten: _named("start_dim end_dim"),
    nn.GELU: _named("approximate"),
    nn.GLU: _named("dim"),
    nn.GRU: _named(_RECURRENT, free=_OF_RECURRENT),
    nn.GroupNorm: _named("num_groups num_channels eps affine bias", free=_PLACE),
    nn.Hardsigmoid: _named(free=_INPLACE),
    nn.Hardswish: _named(free=_INPLACE),
    nn.Hardtanh: _named(
        "min_val max_val", free={**_INPLACE, "min_value": "an old name of `min_val`", "max_value": "an old name of `max_val`"}
    ),
    nn.Identity: _named(free=_ANY),
    nn.InstanceNorm1d: _INSTANCE_NORM,
    nn.InstanceNorm2d: _INSTANCE_NORM,
    nn.LSTM: _named(_RECURRENT, free=_OF_RECURRENT),
    nn.LayerNorm: _named("normalized_shape eps elementwise_affine bias", free=_PLACE),
    nn.LeakyReLU: _named("negative_slope", free=_INPLACE),
    nn.Linear: _named("in_features out_features bias", free=_PLACE),
    nn.LogSigmoid: _named(free=_ANY),
    nn.LogSoftmax: _named("dim"),
    nn.MaxPool1d: _named(f"{_POOL} dilation", {"return_indices": False}),
    nn.MaxPool2d: _named(f"{_POOL} dilation", {"return_indices": False}),
    nn.Mish: _named(free=_INPLACE),
    nn.modules.linear.NonDynamicallyQuantizableLinear: _named("in_features out_features bias", free=_PLACE),
    nn.MultiheadAttention: _named(
        "embed_dim num_heads dropout bias add_bias_kv kdim vdim batch_first", {"add_zero_attn": False}, _PLACE
    ),
    nn.PReLU: _named("num_parameters", free={**_PLACE, "init": "an initial value"}),
    nn.PixelShuffle: _named("upscale_factor"),
    nn.PixelUnshuffle: _named("downscale_factor"),
    nn.ReflectionPad1d: _named("padding"),
    nn.ReflectionPad2d: _named("padding"),
    nn.ReplicationPad1d: _named("padding"),
    nn.ReplicationPad2d: _named("padding"),
    nn.RMSNorm: _named("normalized_shape eps elementwise_affine", free=_PLACE),
    nn.RNN: _named(f"{_RECURRENT} nonlinearity", free={**_PLACE, "mode": _OF_RECURRENT["mode"]}),
    nn.ReLU: _named(free=_INPLACE),
    nn.ReLU6: _named(free=_INPLACE),
    nn.SELU: _named(free=_INPLACE),
    nn.SiLU: _named(free=_INPLACE),
    nn.Sigmoid: _named(free=_ANY),
    nn.Softmax: _named("dim"),
    nn.Softplus: _named(need={"beta": 1, "threshold": 20}),
    nn.Softsign: _named(free=_ANY),
    nn.Tanh: _named(free=_ANY),
    nn.TransformerEncoder: _named("encoder_layer num_layers norm enable_nested_tensor", free={"mask_check": "of PyTorch's own fast path"}),
    nn.TransformerEncoderLayer: _named(
        "d_model nhead dim_feedforward dropout activation layer_norm_eps batch_first norm_first bias", free=_PLACE
    ),
    nn.Unflatten: _named("dim unflattened_size"),
    nn.Upsample: _named("size scale_factor mode align_corners recompute_scale_factor"),
    nn.ZeroPad1d: _named("padding"),
    nn.ZeroPad2d: _named("padding"),
}

_OLD = {"size_average": "PyTorch makes `reduction` of it", "reduce": "PyTorch makes `reduction` of it"}

#: Settings of losses, by class.
LOSSES: dict[type, Named] = {
    nn.BCEWithLogitsLoss: _named("reduction", {"weight": None, "pos_weight": None}, _OLD),
    nn.CrossEntropyLoss: _named("weight ignore_index reduction label_smoothing", free=_OLD),
    nn.HuberLoss: _named("reduction delta"),
    nn.L1Loss: _named("reduction", free=_OLD),
    nn.MSELoss: _named("reduction", free=_OLD),
    nn.NLLLoss: _named("weight ignore_index reduction", free=_OLD),
    nn.SmoothL1Loss: _named("reduction beta", free=_OLD),
}


def refusals(module: Any, named: Named) -> Iterator[str]:
    """What of a module's settings is not supported."""
    for name, needed in named.need.items():
        value = getattr(module, name)
        # Of a tensor there is no one truth.
        if isinstance(value, torch.Tensor) or value != needed:
            yield f"`{name}` needs {quoted(needed)}, but is {quoted(value)}"
    for name, parameter in inspect.signature(type(module).__init__).parameters.items():
        if name in named or parameter.default is inspect.Parameter.empty:
            continue
        value = getattr(module, name, parameter.default)
        if value is not parameter.default and value != parameter.default:
            yield f"`{name}` is not supported, but is {quoted(value)}"
    if "forward" in vars(module):
        yield "has a `forward` of its own in place of that of its class"


def quoted(value: Any) -> str:
    """A value as it goes into a message."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f'"{value}"' if isinstance(value, str) else repr(value)


#: Hooks of modules, by the attribute that holds them.
_HOOKS = {
    "_forward_pre_hooks": "forward pre-hook",
    "_forward_hooks": "forward hook",
    "_backward_pre_hooks": "backward pre-hook",
    "_backward_hooks": "backward hook",
}


def hooks(module: nn.Module) -> Iterator[str]:
    """Hooks in a module, one line for each: adapters would not run them."""
    for name, part in module.named_modules():
        for attribute, kind in _HOOKS.items():
            for hook in getattr(part, attribute).values():
                shown = getattr(hook, "__name__", type(hook).__name__)
                yield f"module `{name}` ({type(part).__name__}): has a {kind}, `{shown}`, which would not run; remove it"
    for name, parameter in module.named_parameters():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            yield f"parameter `{name}`: has a hook of its gradient, which would not run; remove it"
    if nn.modules.module._has_any_global_hook():
        yield "modules: have a hook for all of them, which would not run; remove it"
