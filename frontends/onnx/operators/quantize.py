"""Linear quantization: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear by its function."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from tvm import relax
from tvm.relax import op as R

from frontends.onnx.dims import is_static
from frontends.onnx.op import Op, normalize_axis, numpy_dtype
from frontends.onnx.operators.elementwise import is_float
from frontends.onnx.registry import converter


def _parameter(op: Op, place: int, wide: str) -> relax.Expr:
    """Return a scale or zero point that broadcasts to input 0, as `wide`."""
    x = op.x(place)
    if op.dtype(place) != wide:
        x = op.emit(R.astype(x, wide))
    rank, given = op.ndim(), op.shape(place)
    if not given or (len(given) == 1 and given[0] == 1):
        return op.emit(R.reshape(x, relax.ShapeExpr([])))
    block = int(op.attr("block_size", 0))
    axis = normalize_axis(int(op.attr("axis", 1)), rank)
    if block:
        repeated = op.emit(R.repeat(x, block, axis))
        length = op.shape()[axis]
        if is_static(length) and repeated.ty.shape.values[axis] != length:
            repeated = op.emit(R.strided_slice(repeated, [axis], [0], [length]))
        return repeated
    column: list[Any] = [1] * rank
    column[axis] = given[0]
    return op.emit(R.reshape(x, relax.ShapeExpr(column)))


@converter("DequantizeLinear")
def dequantize(op: Op) -> relax.Expr:
    """Return (x - zero_point) * scale; scale by tensor, axis or block."""
    wide = op.dtype(1)
    if is_float(op.dtype()):
        raise op.unsupported(f"data of type {op.dtype()}")
    x = op.emit(R.astype(op.x(), "int32"))
    if op.has(2):
        x = op.emit(R.subtract(x, _parameter(op, 2, "int32")))
    return R.multiply(op.emit(R.astype(x, wide)), _parameter(op, 1, wide))


@converter("QuantizeLinear")
def quantize(op: Op) -> relax.Expr:
    """Return saturate(round_half_even(x / scale) + zero_point)."""
    from tvm import te, tirx

    kind = op.attr("output_dtype", 0)
    target = op.dtype(2) if op.has(2) else "uint8"
    if kind and not op.has(2):
        target = str(onnx.helper.tensor_dtype_to_np_dtype(kind))
    if target not in ("int8", "uint8", "int16", "uint16"):
        raise op.unsupported(f"quantization to {target}")
    ratio = op.emit(R.divide(op.x(), _parameter(op, 1, op.dtype())))

    def nearest(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: tirx.nearbyint(x(*i)), name="round")

    rounded = op.te(nearest, ratio, name="round")
    if op.has(2):
        rounded = op.emit(R.add(rounded, _parameter(op, 2, op.dtype())))
    limits = np.iinfo(numpy_dtype(target))
    clipped = op.emit(R.clip(rounded, float(limits.min), float(limits.max)))
    return R.astype(clipped, target)
