"""GroupQueryAttention of the com.microsoft domain: what language models are exported to."""

from __future__ import annotations

import math
from typing import Any

from tvm import relax, te
from tvm.relax import op as R

from frontends.computations import attention as computation
from frontends.computations import key_value_cache as cache
from frontends.dims import Dim, is_static
from frontends.errors import InvalidModel
from frontends.onnx.indices import at_most
from frontends.onnx.op import Op
from frontends.onnx.operators.attention import rotary, shape_of
from frontends.onnx.operators.microsoft import MICROSOFT
from frontends.onnx.registry import converter
from frontends.onnx.value import Value

_REFUSED_INPUTS = {
    12: "a quantized cache", 13: "a quantized cache", 14: "norms of queries and keys",
    15: "norms of queries and keys", 16: "query lengths of their own",
}  # fmt: skip


@converter("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(op: Op) -> Any:
    """Rotate, write keys and values into the cache, and attend to what is valid in it.

    Where past and present are not the same buffer, what is behind the valid elements of the
    present cache is unspecified; here it is what the past one held, or 0.
    """
    _refuse(op)
    heads, groups = int(op.attr("num_heads", 0)), int(op.attr("kv_num_heads", 0))
    if heads < 1 or groups < 1 or heads % groups:
        raise InvalidModel(f"{heads} query heads for {groups} key heads")
    q, k, v, size = _queries_keys_values(op, heads, groups)
    batch, fresh = op.shape(0)[:2]
    total, past = _total_length(op), op.shape(3)[2] if op.has(3) else 0
    op.require_at_most(fresh, total, "new_tokens_are_among_all")
    op.require_at_most(total, op.arithmetic.simplify(past + fresh), "tokens_are_past_or_new")
    capacity = op.arithmetic.maximum(past, total)
    if not is_static(capacity):
        # Every index of the kernels below repeats it: with the expression they compile for 40 s.
        capacity = op.builder.name_size(capacity, f"{op.title}_capacity")
    last = at_most(op, 5, op.arithmetic.simplify(capacity - 1), "the last token of a sample")
    valid = op.as_shape(op.emit(R.reshape(last, relax.ShapeExpr([batch]))), [batch])
    before = op.te(
        lambda t, dims: cache.filled_before(t, tuple(dims)),
        valid, name="filled_before", dims=[batch, fresh, total],
    )  # fmt: skip
    if op.attr("do_rotary", 0):
        q, k = _rotated(op, q, k, before, size)
    q = computation.split_heads(op.emit, q, heads)
    new = [computation.split_heads(op.emit, x, groups) for x in (k, v)]
    present = []
    for place, x in zip((3, 4), new, strict=True):
        tensors = [x, before]
        if op.has(place):
            tensors.append(op.as_shape(op.x(place), [batch, groups, op.shape(place)[2], size]))

        def update(*given: Any) -> te.Tensor:
            fresh_tokens, start, *old = given[:-1]
            return cache.updated(old[0] if old else None, fresh_tokens, start, given[-1][0])

        present.append(op.te(update, *tensors, name="updated_cache", dims=[capacity]))
    bias = _bias(op, before, [batch, heads, fresh, capacity])
    scale = float(op.attr("scale", 0.0)) or 1 / math.sqrt(size)
    softcap, sink = float(op.attr("softcap", 0.0)), _sink(op, heads)
    if sink is None and computation.is_whole(op.dtype(), softcap):
        output = computation.attend_whole(op.emit, q, *present, scale=scale, bias=bias)
    else:
        output = computation.attend(
            op.emit, q, *present, scale=scale, softcap=softcap, bias=bias, sink=sink
        ).output
    output = computation.merge_heads(op.emit, output)
    return (output, *present)[: len(op.node.output)]


def _refuse(op: Op) -> None:
    for place, what in _REFUSED_INPUTS.items():
        if op.has(place):
            raise op.unsupported(what)
    if len(op.node.output) > 3 and op.node.output[3]:
        raise op.unsupported("its scores as output")
    if op.attr("sliding_window_cache", 0):
        raise op.unsupported("a cache that is a sliding window")
    if op.attr("kv_cache_bit_width", 0) and op.attr("k_quant_type", "NONE") != "NONE":
        raise op.unsupported("a quantized cache")
    if op.has(3) != op.has(4):
        raise InvalidModel("past_key and past_value come together")


def _queries_keys_values(
    op: Op, heads: int, groups: int
) -> tuple[relax.Expr, relax.Expr, relax.Expr, int]:
    """Return queries, keys and values, (batch, length, hidden), and the size of a head."""
    hidden = op.shape(0)[2]
    if not is_static(hidden):
        raise op.unsupported("a symbolic hidden size")
    if op.has(1):
        size = int(hidden) // heads
        wanted = [*op.shape(0)[:2], groups * size]
        return op.x(0), op.as_shape(op.x(1), wanted), op.as_shape(op.x(2), wanted), size
    size = int(hidden) // (heads + 2 * groups)
    ends = [0, heads * size, (heads + groups) * size, (heads + 2 * groups) * size]
    q, k, v = (
        op.emit(R.strided_slice(op.x(0), [2], [start], [end]))
        for start, end in zip(ends, ends[1:], strict=False)
    )
    return q, k, v, size


def _total_length(op: Op) -> Dim:
    """Return the greatest number of valid tokens, a scalar input."""
    known = op.dims(6)
    if known is not None:
        return known[0]
    vector = op.emit(R.reshape(op.x(6), relax.ShapeExpr([1])))
    return op.builder.read_dims(Value.of_expr("total_length", vector))[0]


def _rotated(
    op: Op, q: relax.Expr, k: relax.Expr, before: relax.Expr, size: int
) -> tuple[relax.Expr, relax.Expr]:
    if not op.has(7) or not op.has(8):
        raise InvalidModel("do_rotary needs the tables of sines and cosines")
    places: relax.Expr = (
        op.x(9)
        if op.has(9)
        else op.te(
            lambda t, dims: cache.positions(t, dims[0]),
            before, name="positions", dims=[shape_of(q)[1]],
        )
    )  # fmt: skip
    rotary_size = 2 * op.shape(7)[1]
    rotated = [rotary(op, x, op.x(7), op.x(8), places, size, rotary_size) for x in (q, k)]
    return rotated[0], rotated[1]


def _bias(op: Op, before: relax.Expr, sizes: list[Dim]) -> relax.Expr:
    batch, heads, fresh, capacity = sizes
    dtype, window = op.dtype(), int(op.attr("local_window_size", -1))
    causal = bool(op.attr("causal", 1))
    tensors = [before]
    if op.has(10):
        shape = [
            have if is_static(have) and have == 1 else size
            for have, size in zip(op.shape(10)[:3], [batch, heads, fresh], strict=True)
        ]
        tensors.append(op.as_shape(op.x(10), [*shape, op.shape(10)[3]]))

    def compute(*given: Any) -> te.Tensor:
        start, *added = given[:-1]
        return cache.cache_bias(
            start, added[0] if added else None, tuple(given[-1]), dtype,
            causal=causal, window=window,
        )  # fmt: skip

    return op.te(compute, *tensors, name="cache_bias", dims=[batch, fresh, capacity])


def _sink(op: Op, heads: int) -> relax.Expr | None:
    """Return the score that takes a share of the softmax and gives nothing, or None."""
    if op.has(11):
        return op.emit(R.reshape(op.x(11), relax.ShapeExpr([1, heads, 1, 1])))
    if int(op.attr("smooth_softmax", 0)) > 0:
        return op.const([[[[0.0]]]])
    return None
