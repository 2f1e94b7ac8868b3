"""Attention: one Relax operator, of which a target makes one kernel or several."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from tvm import relax, tirx

from frontends.torch.graph_builder import GraphBuilder, Size, Value
from frontends.torch.operators.random_numbers import drop
from frontends.torch.registry import converter


@converter("aten.scaled_dot_product_attention.default")
def attention(
    b: GraphBuilder,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> relax.Expr:
    """softmax(scale * Q K^T + mask) V over the last two axes: [..., L, E] gives [..., L, Ev].

    A row whose scores are all masked gives zeros, as in torch, not NaN. With `enable_gqa` the
    heads, axis -3, of key and value may be fewer: groups of query heads share them.
    """
    operands = [b.tensor(each) for each in (query, key, value)]
    shapes = [b.shape(each) for each in operands]
    length, total = shapes[0][-2], shapes[1][-2]
    grouped = enable_gqa and len(shapes[0]) == 4
    leading = _joint([shape[: -3 if grouped else -2] for shape in shapes])
    own = 3 if grouped else 2
    wide = [
        _broadcast(b, each, [*leading, *shape[len(shape) - own :]])
        for each, shape in zip(operands, shapes, strict=True)
    ]
    if dropout_p > 0 and grouped:
        raise b.unsupported("dropout with heads that share keys")
    if dropout_p > 0:
        return _with_dropout(b, wide, attn_mask, dropout_p, is_causal, scale)
    rows = [_heads_last(b, each) for each in wide]
    bias = []
    if attn_mask is not None:
        outer = [*leading, shapes[0][-3]] if grouped else leading
        bias = [_bias(b, attn_mask, outer, length, total)]
    factor = None if scale is None else tirx.FloatImm("float32", scale)
    mask = "TopLeft" if is_causal else None
    out = b.emit(relax.op.nn.attention(*rows, *bias, scale=factor, causal_mask=mask))
    if len(leading) + own == 4:
        return relax.op.permute_dims(out, [0, 2, 1, 3])
    return relax.op.reshape(out, [*leading, length, shapes[2][-1]])


def _with_dropout(
    b: GraphBuilder,
    operands: Sequence[relax.Expr],
    mask: Value,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> relax.Expr:
    """Attention whose weights are zeroed with a probability and else scaled, by its definition."""
    shapes = [b.shape(each) for each in operands]
    *leading, length, depth = shapes[0]
    total = shapes[1][-2]
    outer = leading if len(leading) == 2 else [_count(leading), 1]
    query, key, value = (
        b.reshape(x, [*outer, *shape[-2:]]) for x, shape in zip(operands, shapes, strict=True)
    )
    factor = relax.const(1 / math.sqrt(b.static(depth)) if scale is None else scale, b.dtype)
    query = b.emit(relax.op.multiply(query, factor))
    scores = b.emit(relax.op.matmul(query, b.permute(key, [0, 1, 3, 2])))
    if mask is not None:
        scores = b.emit(relax.op.add(scores, _bias(b, mask, leading, length, total)))
    if is_causal:
        shown = torch.ones(b.static(length), b.static(total), dtype=torch.bool).tril()
        scores = b.emit(relax.op.add(scores, _bias(b, shown, leading, length, total)))
    weights = b.emit(relax.op.nn.softmax(scores, axis=-1))
    highest = b.emit(relax.op.max(scores, axis=-1, keepdims=True))
    hidden = b.emit(relax.op.equal(highest, relax.const(-math.inf, b.dtype)))
    dropped = b.emit(relax.op.where(hidden, relax.const(0, b.dtype), weights))
    dropped = drop(b, dropped, dropout_p)
    return b.reshape(b.emit(relax.op.matmul(dropped, value)), [*leading, length, shapes[2][-1]])


def _joint(shapes: Sequence[Sequence[Size]]) -> list[Size]:
    """Return the shape that shapes broadcast to, aligned at their ends."""
    rank = max(len(shape) for shape in shapes)
    wide = [[1] * (rank - len(shape)) + list(shape) for shape in shapes]
    return [next((d for d in sizes if not _is_one(d)), 1) for sizes in zip(*wide, strict=True)]


def _heads_last(b: GraphBuilder, x: relax.Expr) -> relax.Expr:
    """Return [..., L, E] as [batch, L, heads, E]: axis -3 are heads where there are four axes."""
    shape = b.shape(x)
    if len(shape) == 4:
        return b.permute(x, [0, 2, 1, 3])
    return b.reshape(x, [_count(shape[:-2]), shape[-2], 1, shape[-1]])


def _bias(
    b: GraphBuilder, mask: Value, leading: Sequence[Size], length: Size, total: Size
) -> relax.Expr:
    """Return a mask as what is added to the scores: [batch, heads, L, S] or what broadcasts so."""
    if isinstance(mask, torch.Tensor) and mask.dtype == torch.bool:
        zeros = torch.zeros(mask.shape, dtype=getattr(torch, b.dtype))
        mask = zeros.masked_fill(~mask, -math.inf)
    bias = b.tensor(mask)
    if bias.ty.dtype == "bool":
        shown, hidden = (relax.const(value, b.dtype) for value in (0.0, -math.inf))
        bias = b.emit(relax.op.where(bias, shown, hidden))
    bias = b.tensor(bias, b.dtype)
    shape = b.shape(bias)
    shape = [1] * (2 - len(shape)) + shape
    if len(leading) == 2 or len(shape) == 2:
        shape = [1] * (4 - len(shape)) + shape
        return _broadcast(b, b.reshape(bias, shape), [*shape[:-1], total])
    bias = _broadcast(b, bias, [*leading, length, total])
    return b.reshape(bias, [_count(leading), 1, length, total])


def _broadcast(b: GraphBuilder, x: relax.Expr, shape: Sequence[Size]) -> relax.Expr:
    have = b.shape(x)
    if len(have) == len(shape):
        grown = [_is_one(d) and not _is_one(w) for d, w in zip(have, shape, strict=True)]
        if not any(grown):
            return x
    return b.emit(relax.op.broadcast_to(x, list(shape)))


def _count(sizes: Sequence[Size]) -> Size:
    return math.prod(sizes)


def _is_one(size: Size) -> bool:
    return isinstance(size, int) and size == 1
