"""Elementwise operators on floating-point numbers that mind NaN, signs and overflow."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx

from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.operators.elementwise import is_float
from frontends.torch.registry import converter


@converter("aten.fmax.default")
def fmax(b: GraphBuilder, x: Value, y: Value) -> relax.Expr:
    """The greater element; the other one where one is NaN (IEEE 754 maxNum)."""
    return _number_of(b, relax.op.maximum, x, y)


@converter("aten.fmin.default")
def fmin(b: GraphBuilder, x: Value, y: Value) -> relax.Expr:
    """The smaller element; the other one where one is NaN (IEEE 754 minNum)."""
    return _number_of(b, relax.op.minimum, x, y)


def _number_of(b: GraphBuilder, op: Callable[..., Any], x: Value, y: Value) -> relax.Expr:
    left, right = b.operands(x, y)
    if b.dtype == "bool":
        op = relax.op.logical_or if op is relax.op.maximum else relax.op.logical_and
    chosen = op(left, right)
    if not is_float(b.dtype):
        return chosen
    known = b.emit(relax.op.where(b.emit(relax.op.isnan(right)), left, b.emit(chosen)))
    return relax.op.where(b.emit(relax.op.isnan(left)), right, known)


@converter("aten.signbit.default")
def signbit(b: GraphBuilder, x: Value) -> relax.Expr:
    """Whether an element has a sign: -0.0 and some NaN have one, too."""
    data = b.tensor(x)
    if str(data.ty.dtype) == "bool":
        return relax.op.zeros_like(data)
    return _signs(b, data)


@converter("aten.copysign.Tensor", "aten.copysign.Scalar")
def copysign(b: GraphBuilder, x: Value, y: Value) -> relax.Expr:
    """|x| with the sign of y, of -0.0, too."""
    left, right = b.operands(x, y)
    size = b.emit(relax.op.abs(left))
    return relax.op.where(_signs(b, right), b.emit(relax.op.negative(size)), size)


def _signs(b: GraphBuilder, data: relax.Expr) -> relax.Expr:
    dtype = str(data.ty.dtype)
    if not is_float(dtype):
        return b.emit(relax.op.less(data, relax.const(0, dtype)))
    if dtype not in ("float32", "float64"):
        data, dtype = b.emit(relax.op.astype(data, "float32")), "float32"
    bits = dtype.replace("float", "int")

    def compute(t: te.Tensor) -> te.Tensor:
        def negative(*at: Any) -> Any:
            return tirx.reinterpret(bits, t(*at)) < tirx.const(0, bits)

        return te.compute(t.shape, negative, name="signbit")

    return b.te(compute, data)


@converter("aten.angle.default")
def angle(b: GraphBuilder, x: Value) -> relax.Expr:
    """The angle of a real number: pi below 0, else 0; of NaN it is NaN."""
    data = b.tensor(x, b.dtype)
    zero, half_turn = relax.const(0, b.dtype), relax.const(math.pi, b.dtype)
    turned = b.emit(relax.op.where(b.emit(relax.op.less(data, zero)), half_turn, zero))
    return relax.op.where(b.emit(relax.op.isnan(data)), data, turned)


@converter("aten.view.dtype")
def view_as(b: GraphBuilder, x: Value, dtype: Any) -> relax.Expr:
    """The bits of the elements as elements of another type; of the last axis where sizes differ.

    The first of several small elements has the low bits of a large one, as in memory.
    """
    data, wanted = b.tensor(x), b.dtype
    if str(data.ty.dtype) == "bool":
        data = b.cast(data, "uint8")
    if wanted == "bool":
        raise b.unsupported(f"elements of {data.ty.dtype} as {wanted}")
    have, want = 8 * b.operand(0).dtype.itemsize, 8 * dtype.itemsize

    def part(t: te.Tensor, at: Any) -> Any:
        """Return one of the small elements in a large one."""
        count = have // want
        large = tirx.reinterpret(f"uint{have}", t(*at[:-1], at[-1] // count))
        low = (at[-1] % count * want).astype(f"uint{have}")
        return (large >> low).astype(f"uint{want}")

    def whole(t: te.Tensor, at: Any) -> Any:
        """Return a large element, made of small ones."""
        count, bits = want // have, tirx.const(0, f"uint{want}")
        for k in range(count):
            small = tirx.reinterpret(f"uint{have}", t(*at[:-1], at[-1] * count + k))
            bits = bits | (small.astype(f"uint{want}") << tirx.const(k * have, f"uint{want}"))
        return bits

    def compute(t: te.Tensor, sizes: list[Any]) -> te.Tensor:
        def element(*at: Any) -> Any:
            if have == want:
                return tirx.reinterpret(wanted, t(*at))
            return tirx.reinterpret(wanted, (part if have > want else whole)(t, at))

        return te.compute(tuple(sizes), element, name="view")

    return b.te(compute, data, dims=b.result_shape)


@converter("aten.hypot.default")
def hypot(b: GraphBuilder, x: Value, y: Value) -> relax.Expr:
    """Length of (x, y), of no square that overflows: large * sqrt(1 + (small / large) ** 2)."""
    left, right = (b.emit(relax.op.abs(v)) for v in b.operands(x, y))
    large = b.emit(relax.op.maximum(left, right))
    small = b.emit(relax.op.minimum(left, right))
    ratio = b.emit(relax.op.divide(small, large))
    grown = b.emit(relax.op.add(b.emit(relax.op.multiply(ratio, ratio)), relax.const(1, b.dtype)))
    length = b.emit(relax.op.multiply(large, b.emit(relax.op.sqrt(grown))))
    # Zeros and infinities have no ratio; they are the result themselves, beside NaN, too (C99).
    is_zero = b.emit(relax.op.equal(large, relax.const(0, b.dtype)))
    length = b.emit(relax.op.where(is_zero, large, length))
    for operand in (left, right):
        length = b.emit(relax.op.where(b.emit(relax.op.isinf(operand)), operand, length))
    return length


@converter("aten.exp2.default")
def exp2(b: GraphBuilder, x: Value) -> relax.Expr:
    """2 ** x."""
    return relax.op.power(relax.const(2, b.dtype), b.tensor(x, b.dtype))
