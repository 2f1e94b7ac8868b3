"""Products of integer matrices: MatMulInteger, QLinearMatMul and their com.microsoft kin."""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.relax import op as R

from frontends.dims import dims_of
from frontends.onnx.composed import compose
from frontends.onnx.integer_operands import broadcastable, centered, requantize, scale
from frontends.onnx.op import Op
from frontends.onnx.registry import converter
from frontends.storage_types import is_stored_float

MICROSOFT = "com.microsoft"


def integer_product(op: Op, left: int, left_zero: int, right: int, right_zero: int) -> relax.Expr:
    """Return the int32 matrix product of two integer inputs less their zero points.

    A vector of zero points of the left operand holds one a row, one of the right one a column.
    """
    a = centered(op, left, left_zero, _column(op, left_zero))
    b = centered(op, right, right_zero)
    return op.emit(R.matmul(a, b, out_dtype="int32"))


def _column(op: Op, place: int) -> list[Any] | None:
    return [op.shape(place)[0], 1] if op.has(place) and op.ndim(place) == 1 else None


@converter("MatMulInteger")
def matmul_integer(op: Op) -> relax.Expr:
    """Multiply 8-bit integers into int32, zero points taken off first."""
    return integer_product(op, 0, 2, 1, 3)


@converter("MatMulInteger16", domain=MICROSOFT)
def matmul_integer16(op: Op) -> relax.Expr:
    """Multiply 16-bit integers into 32 bits."""
    signed = "int32" if "int16" in (op.dtype(0), op.dtype(1)) else "uint32"
    a, b = (op.emit(R.astype(op.x(place), signed)) for place in (0, 1))
    return R.matmul(a, b)


@converter("QLinearMatMul")
def qlinear_matmul(op: Op) -> Any:
    """Multiply quantized matrices: exact int32 sums, rescaled in float32, rounded and saturated."""
    target = op.dtype(7)
    if any(is_stored_float(op.dtype(place)) for place in (0, 3, 7)):
        raise op.unsupported("float8 operands")
    total = integer_product(op, 0, 2, 3, 5)
    rows = scale(op, 1, _column(op, 1))
    ratio = op.emit(R.divide(op.emit(R.multiply(rows, scale(op, 4))), scale(op, 6, _column(op, 6))))
    return requantize(op, total, ratio, broadcastable(op, 7, _column(op, 7)), target)


@converter("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(op: Op) -> relax.Expr:
    """Multiply 8-bit integers and scale the int32 sums to floats; an optional bias is added."""
    total = integer_product(op, 0, 4, 1, 5)
    ratio = op.emit(R.multiply(scale(op, 2, _column(op, 2)), scale(op, 3)))
    ratio = op.fitted(ratio, dims_of(total))
    result = op.emit(R.multiply(op.emit(R.astype(total, "float32")), ratio))
    if op.has(6):
        result = op.emit(R.add(result, op.fitted(scale(op, 6), dims_of(result))))
    return result if op.dtype(2) == "float32" else R.astype(result, op.dtype(2))


@converter("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(op: Op) -> Any:
    """Quantize the left operand by its own range, then multiply as MatMulIntegerToFloat does."""
    return compose(
        op,
        """(A, B, b_scale, b_zero, bias) => (Y) {
            a, a_scale, a_zero = DynamicQuantizeLinear(A)
            Y = com.microsoft.MatMulIntegerToFloat(a, B, a_scale, b_scale, a_zero, b_zero, bias)
        }""",
    )


@converter("QGemm", domain=MICROSOFT)
def qgemm(op: Op) -> Any:
    """Return alpha * (A' B' + C) times the scales, as floats or quantized.

    C is int32 in units of the product of the operands' scales.
    """
    a, b = centered(op, 0, 2), _per_column(op, 3, 5)
    if op.attr("transA", 0):
        a = op.emit(R.permute_dims(a, [1, 0]))
    if op.attr("transB", 0):
        b = op.emit(R.permute_dims(b, [1, 0]))
    total = op.emit(R.matmul(a, b, out_dtype="int32"))
    if op.has(6):
        total = op.emit(R.add(total, op.fitted(op.x(6), dims_of(total))))
    ratio = op.emit(R.multiply(scale(op, 1), scale(op, 4)))
    alpha = float(op.attr("alpha", 1.0))
    if alpha != 1.0:
        ratio = op.emit(R.multiply(ratio, op.const(alpha, "float32")))
    if not op.has(7):
        return R.multiply(op.emit(R.astype(total, "float32")), ratio)
    ratio = op.emit(R.divide(ratio, scale(op, 7)))
    zero = broadcastable(op, 8) if op.has(8) else None
    return requantize(op, total, ratio, zero, op.dtype(8) if op.has(8) else op.dtype(0))


def _per_column(op: Op, place: int, zero: int) -> relax.Expr:
    """Return B less its zero points, one a column of the product: a row of a transposed B."""
    column = None
    if op.attr("transB", 0) and op.has(zero) and op.ndim(zero) == 1:
        column = [op.shape(zero)[0], 1]
    return centered(op, place, zero, column)
