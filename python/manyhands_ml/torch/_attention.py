"""Attention and layers of transformers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ._graph import Held, Settings, Tensor, Weight, axes, same
from ._layers import AS_MODULES, MODULES, Call, Refused, argument, check_settings, cropped, inverted


def _multihead_attention(call: Call) -> list[Tensor | None]:
    """Output and no weights of attention."""
    module = call.module
    query, key, value = (argument(call, at, name, None) for at, name in enumerate(("query", "key", "value")))
    if any(not isinstance(part, Tensor) or len(part.shape) != 2 for part in (query, key, value)):
        raise Refused("needs query, key and value of shape (time, features) a row")
    if not module._qkv_same_embed_dim or module.bias_k is not None:
        raise Refused("`kdim` and `vdim` need to be `embed_dim`, and `add_bias_kv` False")
    if not argument(call, 6, "average_attn_weights", True) and argument(call, 4, "need_weights", True):
        raise Refused("`average_attn_weights` needs True, but is False: the engine gives no weights of attention")
    is_causal = hides_later(argument(call, 5, "attn_mask", None), query.shape[0], key.shape[0])
    keys = argument(call, 3, "key_padding_mask", None)
    return [_attended(call, (query, key, value), keys, is_causal), None]


def hides_later(mask: Any, queries: int, keys: int, sees: bool = False) -> bool:
    """Does a mask of attention hide what comes later, or nothing? Where it is true, a position is hidden, or seen."""
    if mask is None:
        return False
    if isinstance(mask, Held) and mask.shape[-2:] == (queries, keys):
        values = mask.tensor.detach().cpu().expand(mask.shape)
        hidden = values if values.dtype == torch.bool else values < torch.finfo(torch.float32).min / 2
        is_added = values.dtype != torch.bool and bool((values[~hidden] != 0).any())
        hidden = ~hidden if sees and values.dtype == torch.bool else hidden
        if not is_added and (hidden == torch.ones(queries, keys, dtype=torch.bool).triu(1)).all():
            return True
        if not is_added and not hidden.any():
            return False
    raise Refused("the mask of positions needs to be None, or a buffer that `nn.Transformer.generate_square_subsequent_mask` has made")


def _attended(call: Call, inputs: tuple[Tensor, Tensor, Tensor], ignored: Any, is_causal: bool) -> Tensor:
    """Projections, attention in each head, and the projection of what comes out."""
    module, graph, size = call.module, call.graph, call.module.embed_dim
    projected: dict[str, Tensor] = {}
    for x in inputs:
        if x.name not in projected:
            projected[x.name] = _projected(call, graph.plain(x))
    heads = []
    for place, x in enumerate(inputs):
        part = cropped(call, projected[x.name], 1, place * size, (place + 1) * size)
        each = (x.shape[0], module.num_heads, module.head_dim)
        name = graph.add(f"{call.name}.heads", {"type": "Reshape", "target_shape": list(each)}, [part])
        heads.append(Tensor(name, each, (0, 1, 2)))
    if ignored is not None:
        heads.append(_counted(call, ignored))
    settings: Settings = {"type": "DotProductAttention", "use_causal_mask": is_causal}
    if module.dropout and call.is_training:
        settings["dropout"] = module.dropout
    name, shape = graph.add(f"{call.name}.attention", settings, heads), (inputs[0].shape[0], size)
    name = graph.add(f"{call.name}.joined", {"type": "Reshape", "target_shape": list(shape)}, [replace(heads[0], name=name)])
    return call.part("out_proj", module.out_proj, Tensor(name, shape, (0, 1)))


def _projected(call: Call, x: Tensor) -> Tensor:
    """Queries, keys and values of a sequence, one behind the other. A further sequence is projected by the same weights."""
    module = call.module
    settings = {"type": "Dense", "units": 3 * module.embed_dim, "use_bias": module.in_proj_bias is not None}
    weights = {"kernel": Weight([module.in_proj_weight], *axes(1, 0))}
    if module.in_proj_bias is not None:
        weights["bias"] = Weight([module.in_proj_bias], *same())
    name = replace(call, name=f"{call.name}.in_proj").weighted(settings, [x], weights)
    return Tensor(name, (x.shape[0], 3 * module.embed_dim), (0, 1))


def _counted(call: Call, ignored: Any) -> Tensor:
    """1 for each key that counts, of a tensor that is true where one does not."""
    if not isinstance(ignored, Tensor) or not ignored.is_bool or len(ignored.shape) != 1:
        raise Refused("`key_padding_mask` needs a tensor of shape (batch, keys) that is true or false: an input, or `ids == padding`")
    return inverted(replace(call, name=f"{call.name}.counted"), ignored)


def _encoder_layer(call: Call) -> Tensor:
    mask, ignored = argument(call, 1, "src_mask", None), argument(call, 2, "src_key_padding_mask", None)
    return _encoded(call, call.module, call.x, mask, ignored)


def _encoder(call: Call) -> Tensor:
    """Layers of a transformer, one after the other."""
    module, x = call.module, call.x
    mask, ignored = argument(call, 1, "mask", None), argument(call, 2, "src_key_padding_mask", None)
    if ignored is not None and module.use_nested_tensor:
        raise Refused("`enable_nested_tensor` needs False beside `src_key_padding_mask`: in evaluation it makes zeros of padding")
    for number, layer in enumerate(module.layers):
        if type(layer) is not nn.TransformerEncoderLayer:
            raise Refused(f"its layer {number}, a `{type(layer).__name__}`, is not supported")
        check_settings(layer)
        x = _encoded(replace(call, name=f"{call.name}.layers.{number}"), layer, x, mask, ignored)
    return x if module.norm is None else call.part("norm", module.norm, x)


def _encoded(call: Call, layer: Any, x: Tensor, mask: Any, ignored: Any) -> Tensor:
    """What a layer of a transformer makes of a sequence."""
    if len(x.shape) != 2:
        raise Refused(f"needs rows of shape (time, features), but gets {x.shape}")
    x, is_causal = call.graph.plain(x), hides_later(mask, x.shape[0], x.shape[0])
    check_settings(layer.self_attn)

    def attend(x: Tensor) -> Tensor:
        attention = replace(call, name=f"{call.name}.self_attn", module=layer.self_attn)
        return call.part("dropout1", layer.dropout1, _attended(attention, (x, x, x), ignored, is_causal))

    def feed(x: Tensor) -> Tensor:
        x = call.part("linear1", layer.linear1, x, layer.linear1.out_features)
        x = call.part("dropout", layer.dropout, _activated(call, layer.activation, x))
        return call.part("dropout2", layer.dropout2, call.part("linear2", layer.linear2, x, layer.linear2.out_features))

    for place, (norm, change) in enumerate(((layer.norm1, attend), (layer.norm2, feed)), 1):
        read = call.part(f"norm{place}", norm, x) if layer.norm_first else x
        name = call.graph.add(f"{call.name}.sum{place}", {"type": "Add"}, [x, change(read)])
        x = Tensor(name, x.shape, (0, 1))
        x = x if layer.norm_first else call.part(f"norm{place}", norm, x)
    return x


def _activated(call: Call, activation: Any, x: Tensor) -> Tensor:
    if isinstance(activation, nn.Module):
        return call.part("activation", activation, x)
    name = getattr(activation, "__name__", str(activation))
    if name not in AS_MODULES:
        raise Refused(f"`activation` is not supported, but is `{name}`")
    return call.part("activation", AS_MODULES[name](), x)


def attention(call: Call) -> Tensor:
    """`softmax(q kᵀ scale) v` of rows (heads, time, dim)."""
    query, key, value = (argument(call, at, name, None) for at, name in enumerate(("query", "key", "value")))
    if any(not isinstance(part, Tensor) or len(part.shape) != 3 for part in (query, key, value)):
        raise Refused("needs query, key and value of shape (heads, time, dim) a row")
    dropout, is_causal, scale = (argument(call, at, name, None) for at, name in ((4, "dropout_p"), (5, "is_causal"), (6, "scale")))
    is_causal = bool(is_causal) or hides_later(argument(call, 3, "attn_mask", None), query.shape[1], key.shape[1], sees=True)
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    return attended(call, (query, key, value), factor, is_causal, float(dropout or 0.0))


def attended(call: Call, inputs: tuple[Tensor, Tensor, Tensor], scale: float, is_causal: bool, dropout: float, keys: Tensor | None = None) -> Tensor:
    """What queries of rows (heads, time, dim) see of values by keys, of which some may not count."""
    query, key, value = inputs
    factor = scale * math.sqrt(query.shape[-1])
    # Not where it is the usual one, up to rounding.
    if abs(factor - 1.0) > 1e-7:
        query = call.graph.unary(f"{call.name}.scaled", {"type": "Rescaling", "scale": factor, "offset": 0.0}, query)
    settings = {"type": "DotProductAttention", "use_causal_mask": is_causal, "dropout": dropout}
    ordered = [call.graph.ordered(part, (1, 0, 2)) for part in (query, key, value)] + ([] if keys is None else [keys])
    return Tensor(call.graph.add(call.name, settings, ordered), call.shape, (1, 0, 2))


MODULES.update(
    {
        nn.MultiheadAttention: _multihead_attention,
        nn.TransformerEncoder: _encoder,
        nn.TransformerEncoderLayer: _encoder_layer,
    }
)
