"""Attention and MultiHeadAttention of the com.microsoft domain."""

from __future__ import annotations

import math
from typing import Any

from tvm import relax, te
from tvm.relax import op as R

from frontends.computations import attention as computation
from frontends.dims import Dim, dims_of, is_static
from frontends.errors import InvalidModel
from frontends.onnx.broadcasting import known_one
from frontends.onnx.op import Op
from frontends.onnx.operators.attention import (
    causal_alignment,
    rotary,
    shape_of,
    wants,
)
from frontends.onnx.operators.matmul import product
from frontends.onnx.operators.microsoft import MICROSOFT
from frontends.onnx.registry import converter


@converter("Attention", domain=MICROSOFT)
def attention(op: Op) -> Any:
    """Project the input to queries, keys and values by one weight, and attend with a cache."""
    refuse_rotation_and_shared_buffer(op)
    heads = _heads(op)
    total = op.shape(1)[1]
    if not is_static(total):
        raise op.unsupported("a weight of symbolic size")
    sizes = [int(size) for size in op.attr("qkv_hidden_sizes") or [total // 3] * 3]
    if sum(sizes) != total or any(size % heads for size in sizes):
        raise InvalidModel(f"a weight of {total} columns for sizes {sizes} and {heads} heads")
    projected = op.emit(product(op, op.x(0), op.x(1)))
    if op.has(2):
        projected = op.emit(R.add(projected, op.fitted(op.x(2), dims_of(projected))))
    q, k, v = (
        computation.split_heads(op.emit, part, heads) for part in _split(op, projected, sizes)
    )
    past: Dim = 0
    if op.has(4):
        past = op.shape(4)[3]
        old = [
            op.emit(R.squeeze(op.emit(R.strided_slice(op.x(4), [0], [place], [place + 1])), [0]))
            for place in range(2)
        ]
        k, v = (_append(op, before, now) for before, now in zip(old, (k, v), strict=True))
    output = _attend(op, q, k, v, mask=3, added=5, past=past)[0]
    if len(op.node.output) < 2:
        return output
    return output, R.stack([k, v], 0)


@converter("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(op: Op) -> Any:
    """Attend with queries, keys and values that are given apart or packed, and a cache."""
    if op.has(8) or op.has(9):
        raise op.unsupported("a cache buffer that is shared")
    heads = _heads(op)
    q, k, v = _inputs(op, heads)
    past: Dim = 0
    if op.has(6) != op.has(7):
        raise InvalidModel("past_key and past_value come together")
    if op.has(6):
        past = op.shape(6)[2]
        k, v = _append(op, op.x(6), k), _append(op, op.x(7), v)
    output, scores = _attend(op, q, k, v, mask=4, added=5, past=past, with_scores=wants(op, 3))
    return (output, k, v, scores)[: len(op.node.output)]


@converter("DecoderMaskedMultiHeadAttention", domain=MICROSOFT)
def decoder_attention(op: Op) -> Any:
    """Attend with one new token, whose key and value are appended to a cache, or to an encoder."""
    if op.attr("past_present_share_buffer", 0) or op.has(7) or op.has(9):
        raise op.unsupported("a cache buffer that is shared, or beams")
    if len(op.node.output) > 3 and op.node.output[3]:
        raise op.unsupported("its scores as output")
    heads = _heads(op)
    if not op.has(1):
        raise op.unsupported("packed queries, keys and values")
    q, k, v = _inputs(op, heads, bias=10)
    if op.has(5):
        k, v = _append(op, op.x(5), k), _append(op, op.x(6), v)
    output, _ = _attend(op, q, k, v, mask=3, added=4, past=0)
    return (output, k, v)[: len(op.node.output)]


@converter("GatedRelativePositionBias", domain=MICROSOFT)
def gated_relative_position_bias(op: Op) -> relax.Expr:
    """Scale a bias of relative positions by gates that the queries open.

    Z. Chi et al., "XLM-E: Cross-lingual Language Model Pre-training via ELECTRA" (2022), as
    WavLM uses it: bias * (u * (r * a - 1) + 2), where u and r are sigmoids of summed projections.
    """
    if op.has(6):
        raise op.unsupported("packed tokens")
    heads, width = _heads(op), op.shape(3)[1]
    if op.ndim(0) != 3 or not is_static(width) or width % 2:
        raise op.unsupported("queries without a batch axis, or an odd number of gate columns")
    queries = op.emit(R.add(op.x(0), op.x(1)))
    queries = computation.split_heads(op.emit, queries, heads)
    batch, _, length, _ = shape_of(queries)
    gates = op.emit(R.add(op.emit(product(op, queries, op.x(3))), op.x(4)))
    pairs = relax.ShapeExpr([batch, heads, length, 2, int(width) // 2])
    gates = op.emit(R.sum(op.emit(R.reshape(gates, pairs)), [-1]))
    gates = op.emit(R.sigmoid(gates))
    update, reset = (
        op.emit(R.strided_slice(gates, [3], [place], [place + 1])) for place in range(2)
    )
    inner = op.emit(R.subtract(op.emit(R.multiply(reset, op.x(5))), op.const(1)))
    gate = op.emit(R.add(op.emit(R.multiply(update, inner)), op.const(2)))
    return R.multiply(gate, op.x(2))


def refuse_rotation_and_shared_buffer(op: Op) -> None:
    """Refuse what only kernels of one GPU do, whose angles the specification does not say."""
    if op.attr("do_rotary", 0):
        raise op.unsupported(
            "do_rotary: the operator does not say which angles; write RotaryEmbedding before it"
        )
    if op.attr("past_present_share_buffer", 0):
        raise op.unsupported("past_present_share_buffer: past and present are tensors of their own")


def _heads(op: Op) -> int:
    return op.count("num_heads")


def _inputs(op: Op, heads: int, bias: int = 3) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """Return queries, keys and values of MultiHeadAttention as (batch, heads, length, size)."""
    if op.ndim(0) == 5:
        if op.has(bias):
            raise op.unsupported("a bias of packed queries, keys and values")
        q, k, v = _unpack(op, 0, 3)
        return q, k, v
    hidden = op.shape(0)[2]
    biases: list[relax.Expr | None] = [None] * 3
    if op.has(bias):
        total = op.shape(bias)[0]
        if not is_static(hidden) or not is_static(total):
            raise op.unsupported("a bias of symbolic size")
        width = int(total) - 2 * int(hidden)
        biases = [
            op.emit(R.strided_slice(op.x(bias), [0], [start], [end]))
            for start, end in ((0, hidden), (hidden, 2 * hidden), (2 * hidden, 2 * hidden + width))
        ]

    def with_heads(place: int) -> relax.Expr:
        x, added = op.x(place), biases[place]
        if added is not None:
            x = op.emit(R.add(x, added))
        return computation.split_heads(op.emit, x, heads)

    q = with_heads(0)
    if not op.has(1):
        raise InvalidModel("a query of rank 3 needs a key")
    if op.ndim(1) == 5:
        if op.has(bias):
            raise op.unsupported("a bias of packed keys and values")
        k, v = _unpack(op, 1, 2)
        return q, k, v
    if op.ndim(1) == 4:
        # Keys and values of the encoder, which are projected already.
        return q, op.x(1), op.x(2)
    return q, with_heads(1), with_heads(2)


def _unpack(op: Op, place: int, count: int) -> list[relax.Expr]:
    """Return the parts of (batch, length, heads, count, size) as (batch, heads, length, size)."""
    parts = []
    for part in range(count):
        one = op.emit(R.strided_slice(op.x(place), [3], [part], [part + 1]))
        one = op.emit(R.squeeze(one, [3]))
        parts.append(op.emit(R.permute_dims(one, [0, 2, 1, 3])))
    return parts


def _split(op: Op, x: relax.Expr, sizes: list[int]) -> list[relax.Expr]:
    """Cut the last axis into parts."""
    axis, start, parts = len(shape_of(x)) - 1, 0, []
    for size in sizes:
        parts.append(op.emit(R.strided_slice(x, [axis], [start], [start + size])))
        start += size
    return parts


def _append(op: Op, past: relax.Expr, new: relax.Expr) -> relax.Expr:
    """Return past and new keys or values as one tensor."""
    before, now = shape_of(past), shape_of(new)
    new = op.as_shape(new, [before[0], before[1], now[2], before[3]])
    return op.emit(R.concat([past, new], 2))


def _attend(
    op: Op,
    q: relax.Expr,
    k: relax.Expr,
    v: relax.Expr,
    *,
    mask: int,
    added: int,
    past: Dim,
    with_scores: bool = False,
) -> tuple[relax.Expr, relax.Expr | None]:
    """Return (batch, length, hidden), and the scores if wanted.

    `mask` and `added` are input places.
    """
    batch, heads, queries, size = shape_of(q)
    groups, keys, width = shape_of(k)[1], shape_of(k)[2], shape_of(v)[3]
    size = known_one([size, shape_of(k)[3]])
    q = op.as_shape(q, [batch, heads, queries, size])
    k = op.as_shape(k, [batch, groups, keys, size])
    v = op.as_shape(v, [batch, groups, keys, width])
    whole = not with_scores and computation.is_whole(op.dtype())
    causal = None
    if whole and op.attr("unidirectional", 0) and not op.has(mask):
        causal = causal_alignment(op, queries, keys, past)
    bias = None if causal else _padding_bias(op, mask, [batch, queries, keys], past)
    if op.has(added):
        extra = op.x(added)
        extra = op.fitted(extra, [batch, heads, queries, keys])
        bias = extra if bias is None else op.emit(R.add(bias, extra))
    scale = float(op.attr("scale", 0.0)) or 1 / math.sqrt(_known_size(op, size))
    if whole:
        output = computation.attend_whole(
            op.emit, q, k, v, scale=scale, bias=bias, causal_mask=causal
        )
        return op.emit(computation.merge_heads(op.emit, output)), None
    result = computation.attend(op.emit, q, k, v, scale=scale, bias=bias)
    return op.emit(computation.merge_heads(op.emit, result.output)), result.biased


def _known_size(op: Op, size: Dim) -> int:
    """Return the size of a head, whose root is the default scale."""
    if not is_static(size):
        raise op.unsupported("a symbolic size of each head without the attribute scale")
    return int(size)


def _padding_bias(op: Op, place: int, sizes: list[Dim], past: Dim) -> relax.Expr | None:
    """Return what the integer mask input and `unidirectional` add to the scores."""
    causal = bool(op.attr("unidirectional", 0))
    if not causal and not op.has(place):
        return None
    batch, queries, keys = sizes
    dtype, tensors, two = op.dtype(), [], False
    if op.has(place):
        shape = op.shape(place)
        if len(shape) == 1:
            known = is_static(shape[0]) and is_static(batch)
            two = known and shape[0] == 2 * batch
            if not two and known and shape[0] != batch:
                raise op.unsupported("a mask of packed sequence lengths")
            wanted = list(shape) if two else [batch]
        elif len(shape) == 2:
            wanted = [batch, keys]
        elif len(shape) == 3:
            wanted = [batch, queries, keys]
        else:
            raise op.unsupported(f"a mask of rank {len(shape)}")
        tensors.append(op.as_shape(op.x(place), wanted))
    hidden = float(op.attr("mask_filter_value", -10000.0))

    def compute(*given: Any) -> te.Tensor:
        dims = given[-1]
        return computation.padding_bias(
            given[0] if len(given) > 1 else None, dims[:3], dtype,
            hidden=hidden, causal=causal, past=dims[3], starts=two,
        )  # fmt: skip

    return op.te(compute, *tensors, name="padding_bias", dims=[batch, queries, keys, past])


@converter("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(op: Op) -> relax.Expr:
    """Rotate the elements of each head by their position, or by the first position and on.

    Two attributes change no number, as in ONNX Runtime: `scale` has been applied to the tables,
    and `is_packed_batching` allows more tokens than the tables have rows; each position is checked
    against them.
    """
    pairs = op.shape(2)[1]
    heads, partial = int(op.attr("num_heads", 0)), int(op.attr("rotary_embedding_dim", 0))
    if op.ndim() == 4:
        head_size: Any = op.shape()[3]
    elif heads:
        head_size = op.shape()[2] // heads
    elif partial:
        raise InvalidModel("rotary_embedding_dim needs num_heads")
    else:
        head_size = 2 * pairs
    return rotary(op, op.x(0), op.x(2), op.x(3), op.x(1), head_size, partial or head_size)
