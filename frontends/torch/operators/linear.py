"""Matrix products and attention."""

from __future__ import annotations

import math

import torch
from tvm import relax

from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter


@converter("aten.linear.default")
def linear(b: GraphBuilder, x: Value, weight: Value, bias: Value = None) -> relax.Expr:
    """X @ weight.T + bias; x is [..., K], weight [N, K] (or [K], which gives [...])."""
    matrix = b.tensor(weight)
    if matrix.ty.ndim == 2:
        matrix = b.emit(relax.op.permute_dims(matrix, [1, 0]))
    return _plus(b, relax.op.matmul(b.tensor(x), matrix), bias)


@converter("aten.addmm.default", "aten.baddbmm.default")
def addmm(
    b: GraphBuilder, bias: Value, x: Value, y: Value, *, beta: float = 1, alpha: float = 1
) -> relax.Expr:
    """Beta * bias + alpha * x @ y."""
    product = b.emit(relax.op.matmul(b.tensor(x), b.tensor(y)))
    if alpha != 1:
        product = b.emit(relax.op.multiply(product, relax.const(alpha, b.dtype)))
    if beta == 0:  # by the specification, even where the bias is NaN
        return product
    addend = b.tensor(bias)
    if beta != 1:
        addend = b.emit(relax.op.multiply(addend, relax.const(beta, b.dtype)))
    return relax.op.add(product, addend)


@converter(
    "aten.mm.default",
    "aten.bmm.default",
    "aten.matmul.default",
    "aten.mv.default",
    "aten.dot.default",
)
def matmul(b: GraphBuilder, x: Value, y: Value) -> relax.Expr:
    """X @ y with NumPy's rules for leading and missing dimensions."""
    return relax.op.matmul(b.tensor(x), b.tensor(y))


def _plus(b: GraphBuilder, product: relax.Expr, bias: Value) -> relax.Expr:
    return product if bias is None else relax.op.add(b.emit(product), b.tensor(bias))


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

    Written out, as an ONNX export has it; the `raise` phase finds it in both. A row whose scores
    are all masked gives zeros, as in torch, not NaN.
    """
    q, k, v = b.tensor(query), b.tensor(key), b.tensor(value)
    rank = q.ty.ndim
    if enable_gqa:
        heads = b.static(b.shape(q)[-3])
        k, v = (_repeat_heads(b, t, heads) for t in (k, v))
    factor = 1 / math.sqrt(b.static(b.shape(q)[-1])) if scale is None else scale
    swapped = b.permute(k, [*range(rank - 2), rank - 1, rank - 2])
    scores = b.emit(relax.op.matmul(q, swapped))
    scores = b.emit(relax.op.multiply(scores, relax.const(factor, b.dtype)))
    if is_causal:
        length, total = (b.static(b.shape(t)[-2]) for t in (q, k))
        attn_mask = torch.ones(length, total, dtype=torch.bool).tril()
    weights = _masked_softmax(b, scores, attn_mask)
    return relax.op.matmul(weights, v)


def _repeat_heads(b: GraphBuilder, x: relax.Expr, heads: int) -> relax.Expr:
    own = b.static(b.shape(x)[-3])
    if own == heads:
        return x
    return b.emit(relax.op.repeat(x, heads // own, axis=x.ty.ndim - 3))


def _masked_softmax(b: GraphBuilder, scores: relax.Expr, mask: Value) -> relax.Expr:
    if mask is None:
        return b.emit(relax.op.nn.softmax(scores, axis=-1))
    known = mask if isinstance(mask, torch.Tensor) else None
    if known is not None:
        if known.dtype == torch.bool:
            zeros = torch.zeros(known.shape, dtype=getattr(torch, b.dtype))
            known = zeros.masked_fill(~known, -math.inf)
        scores = b.emit(relax.op.add(scores, b.tensor(known, b.dtype)))
        if not bool((known == -math.inf).all(dim=-1).any()):
            return b.emit(relax.op.nn.softmax(scores, axis=-1))
        hidden = b.emit(relax.op.equal(scores, relax.const(-math.inf, b.dtype)))
    elif mask.ty.dtype == "bool":
        hidden = b.emit(relax.op.logical_not(mask))
    else:
        scores = b.emit(relax.op.add(scores, b.tensor(mask, b.dtype)))
        hidden = b.emit(relax.op.equal(scores, relax.const(-math.inf, b.dtype)))
    # A finite floor keeps a fully masked row from becoming NaN; its weights are then cleared.
    floor = relax.const(torch.finfo(getattr(torch, b.dtype)).min, b.dtype)
    lowered = b.emit(relax.op.where(hidden, floor, scores))
    weights = b.emit(relax.op.nn.softmax(lowered, axis=-1))
    return b.emit(relax.op.where(hidden, relax.const(0, b.dtype), weights))
