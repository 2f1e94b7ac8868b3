"""Determinants."""

from __future__ import annotations

from tvm import relax
from tvm.relax import op as R

from frontends.computations.determinant import determinant
from frontends.onnx.op import Op
from frontends.onnx.registry import converter


@converter("Det")
def det(op: Op) -> relax.Expr:
    """Return the determinant of each matrix of the last two axes."""
    *batch, rows, columns = op.shape()
    shape = relax.ShapeExpr([op.arithmetic.product(batch), rows, columns])
    found = op.te(determinant, op.emit(R.reshape(op.x(), shape)), name="determinant")
    return R.reshape(found, relax.ShapeExpr(batch))
