"""Range: numbers between bounds that are known, symbolic, or read at run time."""

from __future__ import annotations

from typing import Any

from tvm import relax, te
from tvm.relax import op as R

from frontends.computations.arange import arange, arange_length
from frontends.dims import Dim, is_static
from frontends.errors import InvalidModel
from frontends.onnx.op import Op
from frontends.onnx.operators.run_time_size import counted, refusing
from frontends.onnx.ratio import MANTISSA, NotARatio, RatioArithmetic
from frontends.onnx.registry import converter


@converter("Range")
def number_range(op: Op) -> relax.Expr:
    """Count from start to limit."""
    if op.dtype() in MANTISSA:
        return _float_range(op)
    bounds = [op.dims(place) for place in range(3)]
    start, limit, step = (None if found is None else found[0] for found in bounds)
    if start is None or limit is None or not is_static(step) or step is None:
        return _run_time_range(op)
    if step == 0:
        raise InvalidModel("a step of zero never arrives")
    if step > 0:
        length: Dim = op.arithmetic.truncdiv(limit - start + (step - 1), step)
    else:
        length = op.arithmetic.truncdiv(start - limit + (-step - 1), -step)
    length = op.arithmetic.maximum(length, 0)
    dtype = op.dtype()

    def compute(dims: list[Any]) -> te.Tensor:
        return te.compute(
            [dims[1]], lambda i: (dims[0] + i * int(step)).astype(dtype), name="arange"
        )

    return op.te(compute, name="arange", dims=[start, length])


def _float_range(op: Op) -> relax.Expr:
    """Count in floats; the length stays symbolic where the bounds are computed from sizes."""
    arithmetic = RatioArithmetic(op.arithmetic, op.dtype())
    try:
        start, limit, step = (
            None if (found := op.value(place).ratios()) is None else found.reshape(-1)[0]
            for place in range(3)
        )
        if start is None or limit is None or step is None:
            return _run_time_range(op)
        steps = arithmetic.ceil(arithmetic.divide(arithmetic.subtract(limit, start), step))
    except NotARatio:
        return _run_time_range(op)
    return _run_time_range(op, op.arithmetic.maximum(steps, 0))


def _run_time_range(op: Op, length: Dim | None = None) -> relax.Expr:
    start, limit, step = (
        op.emit(R.reshape(op.x(place), relax.ShapeExpr([1]))) for place in range(3)
    )
    known = op.constant(2)
    if known is None:
        step = refusing(op, step, 0, "a step of zero never arrives")
    elif not known.any():
        raise InvalidModel("a step of zero never arrives")
    if length is None:
        length = counted(op, op.te(arange_length, start, limit, step, name="arange_length"))
    return op.te(
        lambda a, b, sizes: arange(a, b, sizes[0]), start, step, name="arange", dims=[length]
    )
