"""Determinants."""

from __future__ import annotations

from tvm import relax

from frontends.computations.determinant import determinant
from frontends.computations.exact_reshape import exact_reshape
from frontends.onnx.op import Op
from frontends.onnx.registry import converter


@converter("Det")
def det(op: Op) -> relax.Expr:
    """Return the determinant of each matrix of the last two axes."""
    *batch, rows, columns = op.shape()
    shape = relax.ShapeExpr([op.arithmetic.product(batch), rows, columns])
    found = op.te(determinant, op.emit(exact_reshape(op.x(), shape)), name="determinant")
    return exact_reshape(found, relax.ShapeExpr(batch))
