"""Matrix products."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op as R

from frontends.dims import dims_of, dtype_of
from frontends.onnx.op import Op
from frontends.onnx.registry import converter


@converter("MatMul")
def matmul(op: Op) -> relax.Expr:
    """Multiply as numpy.matmul does; float16 and bfloat16 are summed in float32."""
    return product(op, op.x(0), op.x(1))


def product(op: Op, a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """Return a matrix product of the dtype of `a`; narrow floats are summed in float32."""
    dtype = dtype_of(a)
    if dtype not in ("float16", "bfloat16"):
        return R.matmul(a, b)
    return R.astype(op.emit(R.matmul(a, b, out_dtype="float32")), dtype)


@converter("Gemm")
def gemm(op: Op) -> relax.Expr:
    """Return alpha * A' B' + beta * C; a constant B is transposed and scaled here."""
    alpha, beta = float(op.attr("alpha", 1.0)), float(op.attr("beta", 1.0))
    a = op.x(0)
    if op.attr("transA", 0):
        a = op.emit(R.permute_dims(a, [1, 0]))
    b = transposed(op, 1, [1, 0]) if op.attr("transB", 0) else op.x(1)
    # A constant B is scaled at compile time, so any other is scaled too: the results are equal.
    scales_b = alpha != 1.0 and op.dtype() in ("float32", "float64")
    if scales_b:
        b = op.emit(R.multiply(b, op.const(alpha)))
    result = op.emit(product(op, a, b))
    if alpha != 1.0 and not scales_b:
        result = op.emit(R.multiply(result, op.const(alpha)))
    if not op.has(2) or beta == 0.0:
        return result
    known = op.constant(2)
    if beta == 1.0:
        c = op.x(2)
    elif known is not None:
        c = op.const(known * np.asarray(beta, known.dtype))
    else:
        c = op.emit(R.multiply(op.x(2), op.const(beta)))
    return R.add(result, op.fitted(c, dims_of(result)))


def transposed(op: Op, place: int, axes: list[int]) -> relax.Expr:
    """Return an input with permuted axes; a constant is permuted now, once for all its readers."""
    known = op.constant(place)
    if known is not None:
        return op.const(np.ascontiguousarray(known.transpose(axes)), str(known.dtype))
    return op.emit(R.permute_dims(op.x(place), axes))
