"""Shifts, remainders, and the bits of a type read as another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
from tvm import relax, te, tirx

from frontends.computations.broadcast import combined
from frontends.computations.remainder import remainder, shift
from frontends.errors import InvalidModel
from frontends.onnx.op import Op, numpy_dtype
from frontends.onnx.operators.elementwise import operands
from frontends.onnx.registry import converter
from frontends.onnx.value import Value
from frontends.storage_types import container


def _broadcast(op: Op, combine: Callable[[Any, Any], Any]) -> relax.Expr:
    """Emit `combine` of two inputs that broadcast."""
    return op.te(lambda a, b: combined(combine, a, b, (a + b).shape), *operands(op))


@converter("Mod")
def mod(op: Op) -> relax.Expr:
    """Take the remainder: the divisor's sign, or the dividend's with `fmod`."""
    of_dividend = bool(op.attr("fmod", 0))
    return _broadcast(op, lambda a, b: remainder(a, b, of_dividend=of_dividend))


@converter("BitShift")
def bit_shift(op: Op) -> relax.Expr:
    """Shift bits, by any number of places."""
    left = op.attr("direction") == "LEFT"
    return _broadcast(op, lambda a, b: shift(a, b, left=left))


@converter("BitCast")
def bit_cast(op: Op) -> Value | relax.Expr:
    """Read the bits of each element as a type of the same width."""
    wanted = str(onnx.helper.tensor_dtype_to_np_dtype(op.attr("to")))
    have, want = container(op.dtype()), container(wanted)
    if numpy_dtype(have).itemsize != numpy_dtype(want).itemsize:
        raise InvalidModel(f"the bits of {op.dtype()} are no {wanted}: their widths differ")

    def element(value: Any) -> Any:
        bits = value.astype("uint8") if have == "bool" else value
        if want == "bool":
            return tirx.reinterpret("uint8", bits) != tirx.const(0, "uint8")
        return tirx.reinterpret(want, bits)

    def compute(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: element(x(*i)), name="bit_cast")

    for dtype in (op.dtype(), wanted):
        if dtype in ("int2", "int4", "uint2", "uint4") or dtype.startswith(("float4_", "float6_")):
            raise op.unsupported(f"{op.dtype()} to {wanted}")
    expr = op.x() if have == want else op.te(compute, op.x())
    return op.stored(expr, wanted)
