"""Operands of integer products: zero points taken off, scales combined, sums rounded to 8 bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax, te
from tvm.relax import op as R

from frontends.computations.quantization import round_and_saturate
from frontends.dims import Dim, dims_of, is_static
from frontends.errors import InvalidModel
from frontends.onnx.op import Op
from frontends.onnx.value import Value, relax_constant


def centered(op: Op, place: int, zero: int, column: Sequence[Dim] | None = None) -> relax.Expr:
    """Return input `place` less its zero point, exactly.

    The difference of two 8-bit numbers fits int16, whose products sum up in int32; that of wider
    ones is int32.

    Args:
        op: The node.
        place: An integer input.
        zero: The input that is its zero point; 0 where it is left out.
        column: The shape that a vector of zero points takes to broadcast; None to leave it.
    """
    wide = "int16" if op.dtype(place) in ("int8", "uint8") else "int32"
    known, known_zero = op.constant(place), op.constant(zero)
    has_zero = op.has(zero) and not (known_zero is not None and not known_zero.any())
    if has_zero and op.dtype(zero) != op.dtype(place):
        raise InvalidModel(f"the zero point of {op.dtype(place)} data is {op.dtype(zero)}")
    if known is not None and (not has_zero or known_zero is not None):
        offset = known_zero if has_zero and known_zero is not None else np.zeros((), known.dtype)
        if column is not None and offset.size > 1 and offset.ndim == 1:
            offset = offset.reshape([int(dim) for dim in column])
        elif offset.size == 1:
            offset = offset.reshape(())
        return relax_constant(known.astype(wide) - offset.astype(wide))
    x = op.emit(R.astype(op.x(place), wide))
    if not has_zero:
        return x
    offset = op.fitted(broadcastable(op, zero, column), dims_of(x))
    return op.emit(R.subtract(x, op.emit(R.astype(offset, wide))))


def broadcastable(op: Op, place: int, column: Sequence[Dim] | None = None) -> relax.Expr:
    """Return a scale or zero point: one number as a scalar, a vector reshaped to `column`."""
    given, x = op.shape(place), op.x(place)
    if all(is_static(dim) and dim == 1 for dim in given):
        return op.emit(R.reshape(x, relax.ShapeExpr([]))) if given else x
    if column is not None and len(given) == 1:
        return op.emit(R.reshape(x, relax.ShapeExpr(list(column))))
    return x


def scale(op: Op, place: int, column: Sequence[Dim] | None = None) -> relax.Expr:
    """Return a scale as `broadcastable` does, in float32."""
    x = broadcastable(op, place, column)
    return x if op.dtype(place) == "float32" else op.emit(R.astype(x, "float32"))


def requantize(
    op: Op, total: relax.Expr, ratio: relax.Expr, zero: relax.Expr | None, target: str
) -> Value:
    """Return saturate(round(total * ratio) + zero): int32 sums as `target`, in float32.

    Args:
        op: The node.
        total: An int32 tensor.
        ratio: float32, broadcasts to `total`: the operands' scales over the result's.
        zero: The result's zero points, which broadcast to `total`; None for 0.
        target: An integer dtype of at most 16 bits.
    """
    dims = dims_of(total)
    exact = op.emit(R.multiply(op.emit(R.astype(total, "float32")), op.fitted(ratio, dims)))
    tensors = [exact] if zero is None else [exact, op.fitted(zero, dims)]

    def compute(x: te.Tensor, offset: te.Tensor | None = None) -> te.Tensor:
        return round_and_saturate(x, offset, target)

    return op.stored(op.te(compute, *tensors, name="requantize"), target)
