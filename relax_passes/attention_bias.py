"""The masks of attention as R.nn.attention takes them: one bias of rank 4, or a causal flag."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op as R

from relax_passes.analysis.attention_operands import NotAttentionError, Sizes
from relax_passes.analysis.attention_pattern import HIDDEN, Mask
from relax_passes.analysis.definitions import dimensions, equal_shapes, equal_sizes
from relax_passes.constant_values import array_of, constant_from
from relax_passes.lowering.rule import dtype_of

Emit = Callable[[relax.Expr], relax.Expr]
_ONE = tvm.tirx.IntImm("int64", 1)


def bias_and_causality(
    masks: list[Mask], sizes: Sizes, emit: Emit, renamed: Callable[[relax.Expr], relax.Expr]
) -> tuple[relax.Expr | None, str | None]:
    """Return the sum of the masks, shaped (1 or batch, 1 or heads, 1 or rows, keys), and causality.

    Constant masks are added up here; what is left of them is None where they hide nothing, or
    hide what "TopLeft" or "BottomRight" hides, the second result.

    Args:
        masks: The masks, in the names of the old graph.
        sizes: Batch, heads, rows, keys.
        emit: Binds an intermediate result in the new graph.
        renamed: Gives the new name of a value.

    Raises:
        NotAttentionError: If a mask does not broadcast to the scores.
    """
    shapes = [_four(mask, sizes) for mask in masks]
    fixed: np.ndarray = np.zeros((1, 1, 1, 1), "float32")
    bias: relax.Expr | None = None
    for mask, shape in zip(masks, shapes, strict=True):
        if isinstance(mask.value, tvm.ir.GenericConst):
            known = [int(size) for size in shape]
            fixed = fixed + _constant(mask).reshape(known)
        else:
            if not equal_sizes(shape[3], sizes[3]):
                raise NotAttentionError("its mask is one value for all keys")
            added = _variable(mask, shape, emit, renamed)
            bias = added if bias is None else emit(R.add(bias, added))
    fixed = _shrunk(fixed)
    causal = causality(fixed)
    if causal is None and np.any(fixed):
        if _is_static(sizes[3]):
            fixed = np.broadcast_to(fixed, (*fixed.shape[:3], int(sizes[3])))
        elif bias is None and fixed.shape[3] == 1:
            raise NotAttentionError("its mask is one value for all keys")
        constant = constant_from(fixed)
        bias = constant if bias is None else emit(R.add(bias, constant))
    return bias, causal


def causality(mask: np.ndarray) -> str | None:
    """Return which causal rule a mask of shape (1, 1, rows, keys) is, None if it is none."""
    if mask.shape[:2] != (1, 1) or mask.shape[2] < 2:
        return None
    rows, keys = mask.shape[2:]
    seen = mask[0, 0] == 0
    if not np.all(seen | (mask[0, 0] <= HIDDEN)):
        return None
    for name, offset in (("TopLeft", 0), ("BottomRight", keys - rows)):
        if offset >= 0 and np.array_equal(seen, np.tri(rows, keys, offset, dtype=bool)):
            return name
    return None


def _four(mask: Mask, sizes: Sizes) -> Sizes:
    """Return the shape of rank 4 in which a mask meets the scores."""
    own, stage = dimensions(mask.value), mask.stage
    if own is None or len(own) > len(stage):
        raise NotAttentionError("the shape of its mask is unknown")
    own = [_ONE] * (len(stage) - len(own)) + own
    if len(stage) == 3:
        lead = [_ONE, _ONE] if _is_one(own[0]) else sizes[:2]
        if not _is_one(own[0]) and not equal_sizes(own[0], stage[0]):
            raise NotAttentionError(_shaped(own))
        four = [*lead, *own[1:]]
    elif len(stage) == 4:
        four = own
    else:
        # Axes before the heads, such as the windows of an image, are one batch.
        before = own[: len(stage) - 3]
        if all(_is_one(size) for size in before):
            batch = _ONE
        elif all(equal_sizes(a, b) for a, b in zip(before, stage, strict=False)):
            batch = sizes[0]
        else:
            raise NotAttentionError(_shaped(own))
        four = [batch, *own[-3:]]
    if not all(_is_one(a) or equal_sizes(a, b) for a, b in zip(four, sizes, strict=True)):
        raise NotAttentionError(_shaped(own))
    return four


def _shaped(own: Sizes) -> str:
    shape = ", ".join(str(size) for size in own)
    return f"its mask of shape ({shape}) does not broadcast to (batch, heads, queries, keys)"


def _constant(mask: Mask) -> np.ndarray:
    values = array_of(mask.value)
    if mask.hides is None:
        return values.astype("float32") * np.float32(mask.amount)
    return np.where(values == mask.hides, mask.amount, 0).astype("float32")


def _variable(
    mask: Mask, shape: Sizes, emit: Emit, renamed: Callable[[relax.Expr], relax.Expr]
) -> relax.Expr:
    value = renamed(mask.value)
    own = dimensions(value)
    if not equal_shapes(own, shape):
        value = emit(R.reshape(value, relax.ShapeExpr(shape)))
    if mask.hides is None:
        if dtype_of(value) != "float32":
            value = emit(R.astype(value, "float32"))
        if mask.amount != 1.0:
            value = emit(R.multiply(value, relax.const(mask.amount, "float32")))
        return value
    there, elsewhere = (mask.amount, 0.0) if mask.hides else (0.0, mask.amount)
    amounts = [relax.const(np.float32(amount)) for amount in (there, elsewhere)]
    return emit(R.where(value, *amounts))


def _shrunk(mask: np.ndarray) -> np.ndarray:
    """Return a mask with each axis on which it does not depend as 1, but for the keys."""
    for axis in range(3):
        first = mask.take([0], axis) if mask.shape[axis] else mask
        if mask.shape[axis] > 1 and np.array_equal(mask, np.broadcast_to(first, mask.shape)):
            mask = first
    return mask


def _is_static(size: object) -> bool:
    return isinstance(size, int | tvm.tirx.IntImm)


def _is_one(size: object) -> bool:
    return _is_static(size) and int(size) == 1  # type: ignore[call-overload]
