"""Operators in terms of others, where torch itself ships no decomposition to the core ATen set."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from frontends.torch.counting import frexp, histc, mode

_ATEN = torch.ops.aten


def trilinear(
    x: torch.Tensor,
    y: torch.Tensor,
    z: torch.Tensor,
    expand_x: list[int],
    expand_y: list[int],
    expand_z: list[int],
    summed: list[int],
    unroll: int = 1,
) -> torch.Tensor:
    """Multiply three tensors, each with new axes at `expand_…`, and add up over `summed`.

    What nn.Bilinear is made of. As matrix products: the tensor of all products may be large.
    """
    rank = x.ndim + len(expand_x)
    axes = string.ascii_letters[:rank]
    operands = [
        "".join(name for axis, name in enumerate(axes) if axis not in expanded)
        for expanded in (expand_x, expand_y, expand_z)
    ]
    kept = "".join(name for axis, name in enumerate(axes) if axis not in summed)
    return torch.einsum(f"{','.join(operands)}->{kept}", x, y, z)


def transformer_encoder_layer(
    src: torch.Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: torch.Tensor,
    norm_bias_1: torch.Tensor,
    norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor,
    ffn_weight_1: torch.Tensor,
    ffn_bias_1: torch.Tensor,
    ffn_weight_2: torch.Tensor,
    ffn_bias_2: torch.Tensor,
    mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> torch.Tensor:
    """What `nn.TransformerEncoderLayer` calls for inference (batch, length, features).

    `mask` holds True where a key does not count; `mask_type` says of what it is: 0 of queries and
    keys, 1 of batch and keys, 2 of batch, heads, queries and keys.
    """
    batch, length = src.shape[0], src.shape[1]
    seen = None if mask is None else ~mask.to(torch.bool)
    if seen is not None and mask_type == 1:
        seen = seen.view(batch, 1, 1, length)

    def attend(x: torch.Tensor) -> torch.Tensor:
        qkv = functional.linear(x, qkv_weight, qkv_bias)
        heads = qkv.view(batch, length, 3, num_heads, embed_dim // num_heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind()
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        joined = mixed.transpose(1, 2).reshape(batch, length, embed_dim)
        return functional.linear(joined, proj_weight, proj_bias)

    def feed_forward(x: torch.Tensor) -> torch.Tensor:
        hidden = functional.linear(x, ffn_weight_1, ffn_bias_1)
        active = functional.gelu(hidden) if use_gelu else functional.relu(hidden)
        return functional.linear(active, ffn_weight_2, ffn_bias_2)

    def norm_1(x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, [embed_dim], norm_weight_1, norm_bias_1, eps)

    def norm_2(x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, [embed_dim], norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = src + attend(norm_1(src))
        return x + feed_forward(norm_2(x))
    x = norm_1(src + attend(src))
    return norm_2(x + feed_forward(x))


def index_reduce(
    x: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> torch.Tensor:
    """Reduce the slices of `source` into those of x that `index` names."""
    if not x.ndim:
        x, source = x.view(1), source.reshape(1)
        return index_reduce(x, 0, index, source, reduce, include_self=include_self).view(())
    shape = [1] * source.ndim
    shape[dim] = -1
    places = index.to(torch.int64).view(shape).expand(source.shape)
    return torch.scatter_reduce(x, dim, places, source, reduce, include_self=include_self)


def put(
    x: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    """Write elements at places counted over all axes."""
    flat, values = x.reshape(-1), source.reshape(-1)
    return torch.index_put(flat, (index.reshape(-1),), values, accumulate).view(x.shape)


def addbmm(
    bias: torch.Tensor, x: torch.Tensor, y: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """Beta * bias + alpha * the sum of the products of (batch, n, k) and (batch, k, m)."""
    rows = x.transpose(0, 1).reshape(x.shape[1], -1)
    return torch.addmm(bias, rows, y.reshape(-1, y.shape[2]), beta=beta, alpha=alpha)


def ldexp(x: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    """X * 2 ** exponent."""
    return x * torch.pow(2.0, exponent)


def dist(x: torch.Tensor, y: torch.Tensor, p: float = 2) -> torch.Tensor:
    """The norm of x - y."""
    return torch.linalg.vector_norm(x - y, p)


OWN_DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    _ATEN._trilinear.default: trilinear,
    _ATEN._transformer_encoder_layer_fwd.default: transformer_encoder_layer,
    _ATEN.addbmm.default: addbmm,
    _ATEN.dist.default: dist,
    _ATEN.frexp.Tensor: frexp,
    _ATEN.histc.default: histc,
    _ATEN.index_reduce.default: index_reduce,
    _ATEN.ldexp.Tensor: ldexp,
    _ATEN.mode.default: mode,
    _ATEN.put.default: put,
}
