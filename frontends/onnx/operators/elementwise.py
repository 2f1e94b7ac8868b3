"""Unary and binary elementwise operators, comparisons, logic."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op as R

from frontends.errors import InvalidModel
from frontends.onnx.op import Op
from frontends.onnx.registry import converter


def is_float(dtype: str) -> bool:
    """Tell whether a dtype is a floating-point one."""
    return dtype.startswith(("float", "bfloat"))


_UNARY = {
    "Abs": R.abs, "Acos": R.acos, "Acosh": R.acosh, "Asin": R.asin, "Asinh": R.asinh,
    "Atan": R.atan, "Atanh": R.atanh, "Ceil": R.ceil, "Cos": R.cos, "Cosh": R.cosh, "Erf": R.erf,
    "Exp": R.exp, "Floor": R.floor, "IsNaN": R.isnan, "Log": R.log, "Neg": R.negative,
    "Sigmoid": R.sigmoid, "Sin": R.sin, "Sinh": R.sinh, "Sqrt": R.sqrt, "Tan": R.tan,
    "Tanh": R.tanh, "Not": R.logical_not, "BitwiseNot": R.bitwise_not,
}  # fmt: skip

_BINARY = {
    "Add": R.add, "Sub": R.subtract, "Mul": R.multiply, "And": R.logical_and,
    "Or": R.logical_or, "Xor": R.logical_xor, "Equal": R.equal, "Greater": R.greater,
    "GreaterOrEqual": R.greater_equal, "Less": R.less, "LessOrEqual": R.less_equal,
    "BitwiseAnd": R.bitwise_and, "BitwiseOr": R.bitwise_or, "BitwiseXor": R.bitwise_xor,
}  # fmt: skip


@converter(*_UNARY)
def unary(op: Op) -> relax.Expr:
    """Convert operators that are one Relax operator of one tensor."""
    return _UNARY[op.node.op_type](op.x())


def broadcast_legacy(op: Op) -> relax.Expr:
    """Return the second input, aligned by the `broadcast` and `axis` attributes of opset < 7."""
    right = op.x(1)
    if op.opset < 7 and op.attr("broadcast", 0) and op.has_attr("axis"):
        axis = op.axis(-1)
        trailing = op.ndim(0) - axis - op.ndim(1)
        if trailing > 0:
            return op.emit(R.reshape(right, relax.ShapeExpr([*op.shape(1), *([1] * trailing)])))
    return right


def operands(op: Op) -> list[relax.Expr]:
    """Return both inputs of a broadcasting operator."""
    if op.opset < 7:
        return [op.x(0), broadcast_legacy(op)]
    return op.aligned([0, 1])


@converter(*_BINARY)
def binary(op: Op) -> relax.Expr:
    """Convert operators that are one broadcasting Relax operator of two tensors."""
    return _BINARY[op.node.op_type](*operands(op))


@converter("Div")
def div(op: Op) -> relax.Expr:
    """Divide; integers are rounded toward zero, and an integer divided by 0 is 0, as in NumPy.

    Processors trap 1 / 0 and lowest / -1 of integers: the process would end.
    """
    left, right = operands(op)
    known = op.constant(1)
    if is_float(op.dtype()) or (known is not None and not np.isin(known, [0, -1]).any()):
        return R.divide(left, right)
    by_zero = op.emit(R.equal(right, op.const(0)))
    trap, other = by_zero, op.const(0)
    if not op.dtype().startswith("uint"):
        by_minus_one = op.emit(R.equal(right, op.const(-1)))
        trap = op.emit(R.logical_or(by_zero, by_minus_one))
        other = op.emit(R.where(by_minus_one, op.emit(R.subtract(other, left)), other))
    divisor = op.emit(R.where(trap, op.const(1), right))
    return R.where(trap, other, op.emit(R.divide(left, divisor)))


@converter("Pow")
def power(op: Op) -> relax.Expr:
    """Raise to a power; the result has the base's dtype, whatever the exponent's is."""
    base, exponent = operands(op)
    dtype = op.dtype(0)
    known = op.constant(1)
    if known is not None and known.size == 1 and is_float(dtype) and known.ndim <= op.ndim(0):
        value = float(known.reshape(-1)[0])
        if value == 2.0:
            return R.multiply(base, base)
        if value == 1.0:
            return base
    if is_float(dtype):
        if op.dtype(1) != dtype:
            exponent = op.emit(R.astype(exponent, dtype))
        return R.power(base, exponent)
    wide = "float64"
    result = op.emit(R.power(op.emit(R.astype(base, wide)), op.emit(R.astype(exponent, wide))))
    return R.astype(result, dtype)


@converter("Round")
def round_half_even(op: Op) -> relax.Expr:
    """Round to the nearest integer, halves to even (Relax rounds them away from zero)."""

    def compute(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: tirx.nearbyint(x(*i)), name="round")

    return op.te(compute, op.x(), name="round")


@converter("Sign")
def sign(op: Op) -> relax.Expr:
    """Return -1, 0 or 1; NaN stays NaN."""
    x = op.x()
    if op.dtype().startswith("uint"):
        return R.astype(op.emit(R.not_equal(x, op.const(0))), op.dtype())
    if not is_float(op.dtype()):
        return R.sign(x)
    return R.where(op.emit(R.isnan(x)), x, op.emit(R.sign(x)))


@converter("Reciprocal")
def reciprocal(op: Op) -> relax.Expr:
    """Return 1 / x."""
    return R.divide(op.const(1), op.x())


@converter("IsInf")
def is_inf(op: Op) -> relax.Expr:
    """Tell infinite elements, of the signs that the attributes select."""
    positive, negative = op.attr("detect_positive", 1), op.attr("detect_negative", 1)
    x = op.x()
    if positive and negative:
        return R.isinf(x)
    if not positive and not negative:
        return R.full_like(x, op.const(False, "bool"), "bool")
    return R.equal(x, op.const(np.inf if positive else -np.inf))


@converter("Min", "Max")
def extremum(op: Op) -> relax.Expr:
    """Fold any number of tensors; NaN propagates."""
    combine = R.minimum if op.node.op_type == "Min" else R.maximum
    return fold_inputs(op, combine)


def fold_inputs(op: Op, combine: Any) -> relax.Expr:
    """Combine all inputs from the left."""
    total, *others = op.aligned(range(len(op.inputs)))
    for other in others:
        total = op.emit(combine(total, other))
    return total


@converter("Sum")
def total(op: Op) -> relax.Expr:
    """Add any number of tensors."""
    return fold_inputs(op, R.add)


@converter("Mean")
def mean(op: Op) -> relax.Expr:
    """Average any number of tensors, element by element."""
    return R.divide(fold_inputs(op, R.add), op.const(len(op.inputs)))


@converter("Where")
def where(op: Op) -> relax.Expr:
    """Choose by a condition."""
    return R.where(*op.aligned([0, 1, 2]))


@converter("Identity")
def identity(op: Op) -> Any:
    """Rename a value."""
    return op.value(0)


@converter("Constant")
def constant(op: Op) -> np.ndarray:
    """Return the tensor that an attribute holds."""
    given = [a.name for a in op.node.attribute if a.name.startswith(("value", "sparse_value"))]
    if len(given) > 1:
        raise InvalidModel(f"several attributes hold the constant: {', '.join(given)}")
    for name, dtype in (
        ("value_float", "float32"), ("value_floats", "float32"),
        ("value_int", "int64"), ("value_ints", "int64"),
    ):  # fmt: skip
        if op.has_attr(name):
            return np.asarray(op.attr(name), dtype=dtype)
    if not op.node.attribute:
        raise InvalidModel("no attribute holds the constant")
    value = op.attr("sparse_value" if op.has_attr("sparse_value") else "value")
    if not isinstance(value, np.ndarray):
        raise op.unsupported("constants that are strings")
    return value
