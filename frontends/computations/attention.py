"""Scaled dot-product attention in Relax operators, and the additive masks it takes.

It is one operator, unless the model asks for the scores or for steps between that the operator does
not have. Then products and softmax are standard operators, which passes know; what masks say is one
tensor expression, which fuses into the addition that reads it. Heads of a group share keys and
values by stacking their queries as rows: nothing is repeated in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import tvm_ffi
from tvm import relax, te, tirx
from tvm.relax import op as R

Emit = Callable[[relax.Expr], relax.Expr]
NARROW = ("float16", "bfloat16")
_LOWEST = {
    "float16": -65504.0,
    "bfloat16": -3.3895313892515355e38,
    "float32": float(np.finfo("float32").min),
    "float64": float(np.finfo("float64").min),
}


@dataclass(frozen=True)
class Attended:
    """The result of attention and the scores on the way to it.

    Attributes:
        output: (batch, heads, queries, value size).
        raw: Scaled products of queries and keys, (batch, heads, queries, keys), as all below.
        capped: The same after the soft cap.
        biased: The same plus the bias.
        probabilities: After softmax.
    """

    output: relax.Expr
    raw: relax.Expr
    capped: relax.Expr
    biased: relax.Expr
    probabilities: relax.Expr

    def rounded(self, emit: Emit, dtype: str) -> Attended:
        """Return the same in another dtype."""
        return Attended(*(_cast(emit, getattr(self, field.name), dtype) for field in fields(self)))


def attend(
    emit: Emit,
    q: relax.Expr,
    k: relax.Expr,
    v: relax.Expr,
    *,
    scale: float,
    softcap: float = 0.0,
    bias: relax.Expr | None = None,
    may_be_masked: bool = False,
    sink: relax.Expr | None = None,
    precision: str = "",
    narrow_softmax: Callable[[relax.Expr], relax.Expr] | None = None,
) -> Attended:
    """Return softmax(softcap(scale * q k') + bias) v.

    float16 is computed in float32 and rounded once: within one unit in the last place of what any
    choice of roundings between the steps gives.

    Args:
        emit: Binds an intermediate result.
        q: Queries (batch, heads, queries, head size), a float dtype.
        k: Keys (batch, key heads, keys, head size); key heads divide heads.
        v: Values (batch, key heads, keys, value size).
        scale: What products of queries and keys are multiplied by.
        softcap: Limit c of the scores, c * tanh(scores / c); 0 for none.
        bias: Added to the scores; broadcasts to (batch, heads, queries, keys).
        may_be_masked: Whether a row of the bias may be -inf everywhere; its result is then zero.
        sink: One more score a row, (1 or batch, heads, 1, 1), that takes a share and gives nothing.
        precision: A wish for the dtype of the softmax, which is float32 or wider in any case.
        narrow_softmax: Takes the place of the softmax, and is given the scores as they are.
    """
    dtype = _dtype(q)
    if dtype == "float16":
        found = attend(
            emit, *(_cast(emit, x, "float32") for x in (q, k, v)),
            scale=scale, softcap=softcap, may_be_masked=may_be_masked, precision=precision,
            bias=None if bias is None else _cast(emit, bias, "float32"),
            sink=None if sink is None else _cast(emit, sink, "float32"),
        )  # fmt: skip
        return found.rounded(emit, dtype)
    batch, heads, queries, size = _shape(q)
    groups, keys, width = _shape(k)[1], _shape(k)[2], _shape(v)[3]
    stacked = groups != heads
    if stacked:
        rows = heads // groups * queries
        q = emit(R.reshape(q, relax.ShapeExpr([batch, groups, rows, size])))
    # Narrow floats are summed in float32 and rounded where the specification rounds them.
    inner = "float32" if dtype in NARROW else dtype
    if dtype in NARROW:
        # Half of the scale on each side: the products do not overflow.
        k = emit(R.multiply(k, _number(abs(scale) ** 0.5, dtype)))
        scale = math.copysign(abs(scale) ** 0.5, scale)
    q = emit(R.multiply(q, _number(scale, dtype)))
    raw = emit(R.matmul(q, emit(R.permute_dims(k, [0, 1, 3, 2])), out_dtype=inner))
    raw = _cast(emit, raw, dtype)
    if stacked:
        raw = emit(R.reshape(raw, relax.ShapeExpr([batch, heads, queries, keys])))
    capped = raw
    if softcap:
        bounded = emit(R.tanh(emit(R.divide(raw, _number(softcap, dtype)))))
        capped = emit(R.multiply(bounded, _number(softcap, dtype)))
    biased = capped if bias is None else emit(R.add(capped, bias))
    wide = "float64" if "float64" in (precision, dtype) else "float32"
    scores = _cast(emit, biased, wide)
    if narrow_softmax is not None:
        probabilities = _cast(emit, narrow_softmax(biased), wide)
    elif sink is None:
        probabilities = emit(R.nn.softmax(scores, -1))
    else:
        probabilities = _softmax_with_sink(emit, scores, _cast(emit, sink, wide))
    if may_be_masked and bias is not None:
        seen = emit(R.greater(bias, _number(-np.inf, dtype)))
        some = emit(R.max(emit(R.astype(seen, "int32")), [-1], True))
        some = emit(R.greater(some, _number(0, "int32")))
        probabilities = emit(R.where(some, probabilities, _number(0, wide)))
    weights = probabilities = _cast(emit, probabilities, dtype)
    if stacked:
        weights = emit(R.reshape(weights, relax.ShapeExpr([batch, groups, rows, keys])))
    output = _cast(emit, emit(R.matmul(weights, v, out_dtype=inner)), dtype)
    if stacked:
        output = emit(R.reshape(output, relax.ShapeExpr([batch, heads, queries, width])))
    return Attended(output, raw, capped, biased, probabilities)


def is_whole(dtype: str, softcap: float = 0.0, precision: str = "") -> bool:
    """Tell whether `attend_whole` computes what `attend` does, but for the scores.

    Narrow floats are not: the specification rounds them between the steps.
    """
    return dtype not in NARROW and not softcap and precision in ("", "float32", dtype)


def attend_whole(
    emit: Emit,
    q: relax.Expr,
    k: relax.Expr,
    v: relax.Expr,
    *,
    scale: float,
    bias: relax.Expr | None = None,
    causal_mask: str | None = None,
) -> relax.Expr:
    """Return softmax(scale * q k' + bias) v as one operator; a row of -inf gives zeros.

    Args:
        emit: Binds an intermediate result.
        q: As in `attend`.
        k: As in `attend`.
        v: As in `attend`.
        scale: What products of queries and keys are multiplied by.
        bias: Added to the scores; broadcasts to (batch, heads, queries, keys).
        causal_mask: "TopLeft" or "BottomRight", as R.nn.attention has it.
    """
    operands = [emit(R.permute_dims(x, [0, 2, 1, 3])) for x in (q, k, v)]
    if bias is not None:
        shape, keys = _shape(bias), _shape(k)[2]
        if len(shape) < 4:
            shape = [1] * (4 - len(shape)) + shape
            bias = emit(R.reshape(bias, relax.ShapeExpr(shape)))
        if not _same(shape[-1], keys):
            bias = emit(R.broadcast_to(bias, relax.ShapeExpr([*shape[:-1], keys])))
        operands.append(bias)
    factor = tirx.FloatImm("float32", scale)
    out = emit(R.nn.attention(*operands, scale=factor, causal_mask=causal_mask))
    return emit(R.permute_dims(out, [0, 2, 1, 3]))


def _cast(emit: Emit, x: relax.Expr, dtype: str) -> relax.Expr:
    return x if _dtype(x) == dtype else emit(R.astype(x, dtype))


def rounded_softmax(scores: te.Tensor, dtype: str) -> te.Tensor:
    """Return the softmax along the last axis as a processor of the narrow float `dtype` has it.

    The exponentials, their sum and the quotients are rounded to `dtype` (Attention-23: the
    `softmax_precision` is by default that of the query); terms are summed in float32.

    Args:
        scores: (..., keys), `dtype`.
        dtype: float16 or bfloat16.
    """
    *lead, keys = scores.shape
    best_key, key = (te.reduce_axis((0, keys), name=name) for name in ("best_key", "key"))
    best = te.compute(lead, lambda *i: te.max(scores(*i, best_key), axis=best_key), name="best")
    shares = te.compute(
        scores.shape,
        lambda *i: tirx.exp(_wide(scores(*i)) - _wide(best(*i[:-1]))).astype(dtype),
        name="shares",
    )
    total = te.compute(lead, lambda *i: te.sum(_wide(shares(*i, key)), axis=key), name="total")
    return te.compute(
        scores.shape,
        lambda *i: (_wide(shares(*i)) / _wide(total(*i[:-1]).astype(dtype))).astype(dtype),
        name="softmax",
    )


def _wide(value: Any) -> Any:
    return value.astype("float32")


def _softmax_with_sink(emit: Emit, scores: relax.Expr, sink: relax.Expr) -> relax.Expr:
    """Return the softmax of the scores and one more, without the share of that one."""
    best = emit(R.maximum(emit(R.max(scores, [-1], True)), sink))
    shares = emit(R.exp(emit(R.subtract(scores, best))))
    lost = emit(R.exp(emit(R.subtract(sink, best))))
    return emit(R.divide(shares, emit(R.add(emit(R.sum(shares, [-1], True)), lost))))


def split_heads(emit: Emit, x: relax.Expr, heads: int) -> relax.Expr:
    """Return (batch, length, heads * size) as (batch, heads, length, size)."""
    batch, length, hidden = _shape(x)
    parts = emit(R.reshape(x, relax.ShapeExpr([batch, length, heads, hidden // heads])))
    return emit(R.permute_dims(parts, [0, 2, 1, 3]))


def merge_heads(emit: Emit, x: relax.Expr) -> relax.Expr:
    """Return (batch, heads, length, size) as (batch, length, heads * size)."""
    batch, heads, length, size = _shape(x)
    parts = emit(R.permute_dims(x, [0, 2, 1, 3]))
    return R.reshape(parts, relax.ShapeExpr([batch, length, heads * size]))


def visibility(
    sizes: Sequence[Any],
    dtype: str,
    *,
    causal: bool = False,
    left: int = -1,
    right: int = -1,
    offset: Any = 0,
    lengths: te.Tensor | None = None,
) -> te.Tensor:
    """Return 0 where a query sees a key and -inf elsewhere: (1 or batch, 1, queries, keys).

    A query's position is its index plus an offset. ONNX's Attention-25 defines the rules.

    Args:
        sizes: Batch, queries, keys.
        dtype: Of the result.
        causal: Hide keys after the query's position.
        left: Hide keys more than this before the position; -1 hides none.
        right: Hide keys more than this after the position; -1 hides none.
        offset: Of all queries; unused where `lengths` are given.
        lengths: Number of valid keys of each sample, (batch,): later keys are hidden, and the
            queries are the last ones before the end.
    """
    batch, queries, keys = sizes

    def element(b: Any, _: Any, i: Any, j: Any) -> Any:
        seen = []
        position = i + offset
        if lengths is not None:
            length = lengths(b).astype("int64")
            position = i + length - queries
            seen.append(j < length)
        if causal:
            seen.append(j <= position)
        if left >= 0:
            seen.append(position - j <= left)
        if right >= 0:
            seen.append(j - position <= right)
        return _choose(tirx.all(*seen), 0.0, -np.inf, dtype)

    return te.compute(
        (batch if lengths is not None else 1, 1, queries, keys), element, name="visibility"
    )


def additive(mask: te.Tensor, keys: Any, dtype: str) -> te.Tensor:
    """Return a boolean or float mask as bias; keys beyond the mask's last axis are hidden.

    Args:
        mask: (..., length): where a boolean is true, or what is added; length at most `keys`.
        keys: The length of the result's last axis.
        dtype: Of the result.
    """
    length = mask.shape[-1]

    def element(*i: Any) -> Any:
        value = mask(*i)
        if str(mask.dtype) == "bool":
            value = _choose(value, 0.0, -np.inf, dtype)
        if _same(length, keys):
            return value
        return tirx.if_then_else(i[-1] < length, value, tirx.const(-np.inf, dtype))

    return te.compute((*mask.shape[:-1], keys), element, name="mask")


def padding_bias(
    mask: te.Tensor | None,
    sizes: Sequence[Any],
    dtype: str,
    *,
    hidden: float,
    causal: bool,
    past: Any = 0,
    starts: bool = False,
) -> te.Tensor:
    """Return the bias of com.microsoft's integer masks: (1 or batch, 1, 1 or queries, keys).

    Args:
        mask: 1 at keys to see: (batch, keys) or (batch, queries, keys); or the end of the valid
            keys (batch,), or their ends followed by their starts (2 * batch,). None for no mask.
        sizes: Batch, queries, keys.
        dtype: Of the result.
        hidden: What is added to the scores of masked keys.
        causal: Hide keys after a query's position by the lowest number.
        past: The position of the first query.
        starts: Whether the mask's second half has the starts.
    """
    batch, queries, keys = sizes
    lowest = _LOWEST[dtype]
    by_query = causal or (mask is not None and len(mask.shape) == 3)

    def element(b: Any, _: Any, i: Any, j: Any) -> Any:
        value: Any = tirx.const(0.0, dtype)
        if mask is not None:
            if len(mask.shape) == 1:
                kept = j < mask(b)
                if starts:
                    kept = tirx.all(kept, j >= mask(b + batch))
            else:
                kept = (mask(b, i, j) if len(mask.shape) == 3 else mask(b, j)) > 0
            value = _choose(kept, 0.0, hidden, dtype)
        if causal:
            value = tirx.Select(j <= i + past, value, tirx.const(lowest, dtype))
        return value

    shape = (batch if mask is not None else 1, 1, queries if by_query else 1, keys)
    return te.compute(shape, element, name="padding_bias")


def _choose(condition: Any, true: float, false: float, dtype: str) -> Any:
    return tirx.Select(condition, tirx.const(true, dtype), tirx.const(false, dtype))


def _same(left: Any, right: Any) -> bool:
    """Tell whether two sizes are surely equal."""
    return bool(tvm_ffi.structural_equal(_prim(left), _prim(right)))


def _prim(size: Any) -> Any:
    return tirx.IntImm("int64", int(size)) if isinstance(size, int | tirx.IntImm) else size


def _number(value: float, dtype: str) -> relax.Expr:
    return relax.const(value, dtype)


def _dtype(x: relax.Expr) -> str:
    return str(x.ty.dtype.dtype)


def _shape(x: relax.Expr) -> list[Any]:
    return [int(d) if isinstance(d, tirx.IntImm) else d for d in x.ty.shape.values]
