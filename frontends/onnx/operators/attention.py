"""Attention, rotary embedding and cache update of the ai.onnx domain (opset 23 on)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
from tvm import relax, te, tirx
from tvm.relax import op as R

from frontends.computations import attention as computation
from frontends.computations.rotary import rotate
from frontends.dims import Dim, all_static, dtype_of, is_static
from frontends.errors import InvalidModel
from frontends.onnx.indices import at_most, checked
from frontends.onnx.op import Op, normalize_axis
from frontends.onnx.registry import converter


@converter("Attention", since=23)
def attention(op: Op) -> Any:
    """Attend, with masks, a key-value cache and grouped heads (Attention-23, -24 and -25)."""
    q = _with_heads(op, 0, "q_num_heads")
    k, v = _with_heads(op, 1, "kv_num_heads"), _with_heads(op, 2, "kv_num_heads")
    batch, heads, queries, size = shape_of(q)
    fresh = shape_of(k)[2]
    if op.has(4) != op.has(5):
        raise InvalidModel("past_key and past_value come together")
    past: Dim = 0
    if op.has(4):
        past = op.shape(4)[2]
        k = op.emit(R.concat([op.x(4), op.as_shape(k, [*op.shape(4)[:2], fresh, size])], 2))
        width = shape_of(v)[3]
        v = op.emit(R.concat([op.x(5), op.as_shape(v, [*op.shape(5)[:2], fresh, width])], 2))
    groups, keys, width = shape_of(k)[1], shape_of(k)[2], shape_of(v)[3]
    if not all_static([heads, groups, size]):
        raise op.unsupported("a symbolic number or size of heads")
    if not groups or heads % groups:
        raise InvalidModel(f"{heads} query heads are no multiple of {groups} key heads")
    k = op.as_shape(k, [batch, groups, keys, size])
    v = op.as_shape(v, [batch, groups, keys, width])
    sizes, scale = [batch, heads, queries, keys], float(op.attr("scale", 1 / math.sqrt(size)))
    chosen = op.attr("softmax_precision")
    precision = str(onnx.helper.tensor_dtype_to_np_dtype(chosen)) if chosen else op.dtype()
    softcap = float(op.attr("softcap", 0.0))
    scores: relax.Expr | None = None
    if not wants(op, 3) and computation.is_whole(op.dtype(), softcap, precision):
        causal = _alignment(op, queries, keys, past)
        bias, _ = _bias(op, sizes, past, fresh, with_causal=causal is None)
        output = computation.attend_whole(
            op.emit, q, k, v, scale=scale, bias=bias, causal_mask=causal
        )
    else:
        output, scores = _by_steps(op, (q, k, v), sizes, past, fresh, precision)
    if op.ndim() == 3:
        output = computation.merge_heads(op.emit, output)
    return (output, k, v, scores)[: len(op.node.output)]


def _by_steps(
    op: Op,
    operands: tuple[relax.Expr, relax.Expr, relax.Expr],
    sizes: list[Dim],
    past: Dim,
    fresh: Dim,
    precision: str,
) -> tuple[relax.Expr, relax.Expr]:
    """Return the result, and the scores of the step that the node asks for."""
    bias, may_be_masked = _bias(op, sizes, past, fresh)
    size = shape_of(operands[0])[3]

    def narrow_softmax(scores: relax.Expr) -> relax.Expr:
        given = scores if dtype_of(scores) == precision else op.emit(R.astype(scores, precision))
        return op.te(
            lambda x: computation.rounded_softmax(x, precision), given, name="rounded_softmax"
        )

    result = computation.attend(
        op.emit, *operands,
        scale=float(op.attr("scale", 1 / math.sqrt(size))),
        softcap=float(op.attr("softcap", 0.0)),
        bias=bias, may_be_masked=may_be_masked,
        precision=precision,
        narrow_softmax=narrow_softmax if precision == "bfloat16" else None,
    )  # fmt: skip
    stages = (result.raw, result.capped, result.biased, result.probabilities)
    return result.output, stages[int(op.attr("qk_matmul_output_mode", 0))]


def wants(op: Op, place: int) -> bool:
    """Tell whether an output is asked for."""
    return len(op.node.output) > place and bool(op.node.output[place])


def _alignment(op: Op, queries: Dim, keys: Dim, past: Dim) -> str | None:
    """Return how the causal mask lies if it is all that hides keys by position, else None."""
    windows = [int(op.attr(f"{side}_window_size", -1)) for side in ("left", "right")]
    if not op.attr("is_causal", 0) or max(windows) >= 0 or op.has(6):
        return None
    return causal_alignment(op, queries, keys, past)


def causal_alignment(op: Op, queries: Dim, keys: Dim, past: Dim) -> str | None:
    """Return the causal mask of R.nn.attention whose first query is at `past`, None for neither."""
    if op.arithmetic.equal(past, 0):
        return "TopLeft"
    return "BottomRight" if op.arithmetic.equal(past, keys - queries) else None


def _with_heads(op: Op, place: int, attribute: str) -> relax.Expr:
    """Return an input as (batch, heads, length, size)."""
    if op.ndim(place) == 4:
        return op.x(place)
    heads = op.attr(attribute)
    if op.ndim(place) != 3 or not heads:
        raise InvalidModel(f"a query of rank 4 is needed, or one of rank 3 and {attribute}")
    return computation.split_heads(op.emit, op.x(place), int(heads))


def _bias(
    op: Op, sizes: list[Dim], past: Dim, fresh: Dim, with_causal: bool = True
) -> tuple[relax.Expr | None, bool]:
    """Return what is added to the scores, and whether it may hide all keys of a query."""
    batch, _, queries, keys = sizes
    dtype = op.dtype()
    causal = with_causal and bool(op.attr("is_causal", 0))
    left, right = int(op.attr("left_window_size", -1)), int(op.attr("right_window_size", -1))
    terms: list[relax.Expr] = []
    masked = op.has(6)
    if op.has(3):
        terms.append(_mask(op, sizes))
        masked = masked or not _shows_some_key(op.constant(3), keys)
    if causal or left >= 0 or right >= 0 or op.has(6):
        masked = masked or (left >= 0 and not op.arithmetic.equal(queries, fresh))

        def compute(*given: Any) -> te.Tensor:
            dims = given[-1]
            return computation.visibility(
                dims[:3], dtype, causal=causal, left=left, right=right, offset=dims[3],
                lengths=given[0] if len(given) > 1 else None,
            )  # fmt: skip

        lengths = []
        if op.has(6):
            op.state(6, [batch])
            lengths = [at_most(op, 6, keys, "the number of valid keys")]
        terms.append(op.te(compute, *lengths, name="visibility", dims=[batch, queries, keys, past]))
    if not terms:
        return None, False
    total = terms[0]
    for term in terms[1:]:
        total = op.emit(R.add(total, term))
    return total, masked


def _mask(op: Op, sizes: list[Dim]) -> relax.Expr:
    """Return the mask input as additive bias; from opset 24 on it may end before the keys do."""
    dtype, keys, length = op.dtype(), sizes[-1], op.shape(3)[-1]
    may_end_before = op.opset >= 24 and not op.arithmetic.equal(length, keys)
    if may_end_before:
        op.require_at_most(length, keys, "mask_ends_before_the_keys")
    mask = op.fitted(op.x(3), [*sizes[:-1], length if may_end_before else keys])
    if op.dtype(3) != "bool" and not may_end_before:
        return mask if op.dtype(3) == dtype else op.emit(R.astype(mask, dtype))
    if not may_end_before:
        hidden = op.const(-np.inf, dtype)
        return op.emit(R.where(mask, op.const(0, dtype), hidden))
    return op.te(
        lambda m, dims: computation.additive(m, dims[0], dtype), mask, name="mask", dims=[keys]
    )


def _shows_some_key(mask: np.ndarray | None, keys: Dim) -> bool:
    """Tell whether a known mask leaves a key to every query."""
    if mask is None or not is_static(keys) or mask.shape[-1] != keys:
        return False
    seen = mask if mask.dtype == bool else mask.astype("float32") > -np.inf
    return bool(seen.any(-1).all())


def shape_of(x: relax.Expr) -> list[Dim]:
    """Return the shape of a bound tensor."""
    return [int(d) if isinstance(d, tirx.IntImm) else d for d in x.ty.shape.values]


@converter("RotaryEmbedding", since=23)
def rotary_embedding(op: Op) -> relax.Expr:
    """Rotate the elements of each head by their position (RotaryEmbedding-23)."""
    if op.ndim() == 4:
        head_size = op.shape()[3]
    else:
        heads = int(op.attr("num_heads", 0))
        if not heads:
            raise InvalidModel("an input of rank 3 needs num_heads")
        head_size = op.shape()[2] // heads
    return rotary(
        op, op.x(0), op.x(1), op.x(2), op.x(3) if op.has(3) else None, head_size,
        int(op.attr("rotary_embedding_dim", 0)) or head_size,
    )  # fmt: skip


def rotary(
    op: Op,
    x: relax.Expr,
    cosine: relax.Expr,
    sine: relax.Expr,
    positions: relax.Expr | None,
    head_size: Any,
    rotary_size: Any,
) -> relax.Var:
    """Emit a rotary embedding; the attribute `interleaved` selects the pairs."""
    if not is_static(head_size) or not is_static(rotary_size):
        raise op.unsupported("heads of symbolic size")
    if shape_of(cosine)[-1] != rotary_size // 2 or shape_of(sine)[-1] != rotary_size // 2:
        raise InvalidModel(f"tables of {shape_of(cosine)[-1]} angles for {rotary_size // 2} pairs")
    op.require_equal(shape_of(cosine)[0], shape_of(sine)[0], "tables_of_one_length")
    interleaved = bool(op.attr("interleaved", op.attr("rotary_interleaved", 0)))
    batch = shape_of(x)[0]
    length = shape_of(x)[1 if len(shape_of(x)) == 3 else 2]
    if positions is None:
        cosine = op.as_shape(cosine, [batch, length, rotary_size // 2])
        sine = op.as_shape(sine, [batch, length, rotary_size // 2])
    elif len(shape_of(positions)) == 2:
        positions = op.as_shape(positions, [batch, length])
        positions = checked(op, positions, [shape_of(cosine)[0]], "positions", from_back=False)

    def compute(
        data: te.Tensor, cosines: te.Tensor, sines: te.Tensor, places: te.Tensor | None = None
    ) -> te.Tensor:
        return rotate(
            data, cosines, sines, places,
            head_size=int(head_size), rotary_size=int(rotary_size), interleaved=interleaved,
        )  # fmt: skip

    tensors = [x, cosine, sine] + ([positions] if positions is not None else [])
    return op.te(compute, *tensors, name="rotate")


@converter("TensorScatter", since=24)
def tensor_scatter(op: Op) -> relax.Expr:
    """Write new elements of a sequence into a cache of fixed length (TensorScatter-24)."""
    axis = normalize_axis(int(op.attr("axis", -2)), op.ndim())
    if axis == 0:
        raise InvalidModel("the batch axis cannot be the sequence axis")
    mode = op.attr("mode", "linear")
    wanted = list(op.shape())
    wanted[axis] = op.shape(1)[axis]
    op.state(1, wanted)
    tensors, room = [op.x(0), op.x(1)], op.shape()[axis] - wanted[axis]
    if mode == "linear" or not op.has(2):
        op.require_at_most(wanted[axis], op.shape()[axis], "what_is_written")
    if op.has(2):
        op.state(2, [op.shape()[0]])
        room = op.arithmetic.simplify(room)
        starts = at_most(op, 2, room, "the first place written") if mode == "linear" else op.x(2)
        tensors.append(starts)

    def compute(cache: te.Tensor, new: te.Tensor, starts: te.Tensor | None = None) -> te.Tensor:
        length, count = cache.shape[axis], new.shape[axis]

        def element(*i: Any) -> Any:
            step = i[axis].astype("int64")
            if starts is not None:
                step = step - starts(i[0]).astype("int64")
            if mode == "circular":
                step = tirx.floormod(step, length)
            inside = tirx.all(step >= 0, step < count)
            fresh = new(*i[:axis], step, *i[axis + 1 :])
            return tirx.if_then_else(inside, fresh, cache(*i))

        return te.compute(cache.shape, element, name="tensor_scatter")

    return op.te(compute, *tensors, name="tensor_scatter")
