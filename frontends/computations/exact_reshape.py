"""Reshape where 0 is a size."""

from __future__ import annotations

from tvm import relax, tirx


def exact_reshape(x: relax.Expr, shape: relax.ShapeExpr) -> relax.Expr:
    """Return `x` in a new shape, whose zeros are sizes.

    `relax.op.reshape` reads a 0 as "the size that x has on this axis", as ONNX's operator does, and
    refuses shapes that are right or has a wrong one. A tensor with a size of 0 has no elements to
    take from `x`.

    Args:
        x: A bound tensor, any dtype.
        shape: As many elements as `x` has; the caller states that where it is not known.
    """
    if any(isinstance(size, tirx.IntImm) and int(size) == 0 for size in shape.values):
        return relax.op.zeros(shape, str(x.ty.dtype))
    return relax.op.reshape(x, shape)
