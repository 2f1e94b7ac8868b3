"""Arithmetic, comparison, logic and casts. Operands take the dtype torch promotes them to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tvm import relax

from frontends.computations.integer_power import integer_power
from frontends.torch.dtypes import dtype_name
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter
from frontends.torch.sizes import product, same_shape

_UNARY = {
    "abs": relax.op.abs,
    "acos": relax.op.acos,
    "acosh": relax.op.acosh,
    "asin": relax.op.asin,
    "asinh": relax.op.asinh,
    "atan": relax.op.atan,
    "atanh": relax.op.atanh,
    "bitwise_not": relax.op.bitwise_not,
    "ceil": relax.op.ceil,
    "cos": relax.op.cos,
    "cosh": relax.op.cosh,
    "erf": relax.op.erf,
    "exp": relax.op.exp,
    "floor": relax.op.floor,
    "log": relax.op.log,
    "neg": relax.op.negative,
    "reciprocal": lambda x: relax.op.divide(relax.const(1, x.ty.dtype), x),
    "round": relax.op.round,
    "rsqrt": relax.op.rsqrt,
    "sigmoid": relax.op.sigmoid,
    "sign": relax.op.sign,
    "sin": relax.op.sin,
    "sinh": relax.op.sinh,
    "sqrt": relax.op.sqrt,
    "tan": relax.op.tan,
    "tanh": relax.op.tanh,
    "trunc": relax.op.trunc,
}

# Rounding an integer is the integer itself; Relax would go through float32 and lose bits.
_IDENTITY_ON_INTEGERS = {"ceil", "floor", "round", "trunc"}

_ARITHMETIC = {
    "mul": relax.op.multiply,
    "maximum": relax.op.maximum,
    "minimum": relax.op.minimum,
    "atan2": relax.op.atan2,
    "bitwise_and": relax.op.bitwise_and,
    "bitwise_or": relax.op.bitwise_or,
    "bitwise_xor": relax.op.bitwise_xor,
}

_LOGICAL_ON_BOOL = {
    "mul": relax.op.logical_and,
    "maximum": relax.op.logical_or,
    "minimum": relax.op.logical_and,
    "bitwise_and": relax.op.logical_and,
    "bitwise_or": relax.op.logical_or,
    "bitwise_xor": relax.op.logical_xor,
}

_COMPARISON = {
    "eq": relax.op.equal,
    "ne": relax.op.not_equal,
    "lt": relax.op.less,
    "le": relax.op.less_equal,
    "gt": relax.op.greater,
    "ge": relax.op.greater_equal,
}

_LOGICAL = {
    "logical_and": relax.op.logical_and,
    "logical_or": relax.op.logical_or,
    "logical_xor": relax.op.logical_xor,
}


def is_float(dtype: str) -> bool:
    """Return whether a TVM dtype is a floating-point one."""
    return dtype.startswith(("float", "bfloat"))


def common_dtype(left: Value, right: Value) -> str:
    """Return the dtype torch compares `left` and `right` in.

    Scalars (Python numbers and rank-0 tensors) only raise the category, never the width:
    torch's type promotion, https://pytorch.org/docs/stable/tensor_attributes.html.
    """

    def stand_in(value: Value) -> Any:
        if isinstance(value, relax.Expr):
            return torch.empty([1] * value.ty.ndim, dtype=getattr(torch, str(value.ty.dtype)))
        return value

    return dtype_name(torch.result_type(stand_in(left), stand_in(right)))


# TVM writes these with a constant -1, which no unsigned number is.
_ON_UNSIGNED: dict[str, Callable[[GraphBuilder, relax.Expr], relax.Expr]] = {
    "neg": lambda b, x: relax.op.subtract(relax.const(0, b.dtype), x),
    "sign": lambda b, x: b.cast(b.emit(relax.op.not_equal(x, relax.const(0, b.dtype))), b.dtype),
}


def _register_unary(name: str, op: Callable[[relax.Expr], relax.Expr]) -> None:
    @converter(f"aten.{name}.default")
    def convert(b: GraphBuilder, x: Value) -> relax.Expr:
        value = b.tensor(x, b.dtype)
        if name in _IDENTITY_ON_INTEGERS and not is_float(b.dtype):
            return value
        if name == "bitwise_not" and b.dtype == "bool":
            return relax.op.logical_not(value)
        if name == "sign" and b.dtype == "bool":
            return value
        if b.dtype.startswith("uint") and name in _ON_UNSIGNED:
            return _ON_UNSIGNED[name](b, value)
        if name == "sign" and is_float(b.dtype):
            return _sign(b, value)
        return op(value)


def _sign(b: GraphBuilder, x: relax.Expr) -> relax.Expr:
    """Return (x > 0) - (x < 0): 0 for NaN and -0.0, too, unlike Relax's and ONNX's sign."""
    zero = relax.const(0, b.dtype)
    above, below = (b.emit(test(x, zero)) for test in (relax.op.greater, relax.op.less))
    return relax.op.subtract(b.cast(above, b.dtype), b.cast(below, b.dtype))


def _register_arithmetic(name: str, op: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> None:
    targets = [f"aten.{name}.Tensor", f"aten.{name}.Scalar"]
    if name in ("maximum", "minimum", "atan2"):
        targets = [f"aten.{name}.default"]
    elif name.startswith("bitwise"):  # the number may come first, too
        targets.append(f"aten.{name}.Scalar_Tensor")

    @converter(*targets)
    def convert(b: GraphBuilder, x: Value, y: Value) -> relax.Expr:
        chosen = _LOGICAL_ON_BOOL.get(name, op) if b.dtype == "bool" else op
        return chosen(*b.operands(x, y))


def _register_comparison(name: str, op: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> None:
    @converter(f"aten.{name}.Tensor", f"aten.{name}.Scalar")
    def convert(b: GraphBuilder, x: Value, y: Value) -> relax.Expr:
        dtype = common_dtype(x, y)
        if dtype == "bool":  # ordering booleans: compare them as 0 and 1
            return op(b.cast(b.tensor(x, "bool"), "int8"), b.cast(b.tensor(y, "bool"), "int8"))
        return op(b.tensor(x, dtype), b.tensor(y, dtype))


def _register_logical(name: str, op: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> None:
    @converter(f"aten.{name}.default")
    def convert(b: GraphBuilder, x: Value, y: Value) -> relax.Expr:
        return op(b.tensor(x, "bool"), b.tensor(y, "bool"))


for _name, _op in _UNARY.items():
    _register_unary(_name, _op)
for _name, _op in _ARITHMETIC.items():
    _register_arithmetic(_name, _op)
for _name, _op in _COMPARISON.items():
    _register_comparison(_name, _op)
for _name, _op in _LOGICAL.items():
    _register_logical(_name, _op)


@converter("aten.logical_not.default")
def logical_not(b: GraphBuilder, x: Value) -> relax.Expr:
    """Negate truth; numbers are true where they are not zero."""
    return relax.op.logical_not(b.tensor(x, "bool"))


@converter("aten.add.Tensor", "aten.add.Scalar")
def add(b: GraphBuilder, x: Value, y: Value, alpha: float = 1) -> relax.Expr:
    """X + alpha * y; on booleans it is `or`."""
    left, right = b.operands(x, y)
    if b.dtype == "bool":
        either = relax.op.logical_or
        if not isinstance(alpha, int | float):
            return either(left, b.emit(relax.op.logical_and(right, b.tensor(alpha, "bool"))))
        return either(left, right) if alpha else left
    return relax.op.add(left, _scaled(b, right, alpha))


@converter("aten.sub.Tensor", "aten.sub.Scalar")
def sub(b: GraphBuilder, x: Value, y: Value, alpha: float = 1) -> relax.Expr:
    """X - alpha * y."""
    left, right = b.operands(x, y)
    return relax.op.subtract(left, _scaled(b, right, alpha))


@converter("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(b: GraphBuilder, x: Value, y: Value, alpha: float = 1) -> relax.Expr:
    """Y - alpha * x."""
    return sub(b, y, x, alpha)


def _scaled(b: GraphBuilder, x: relax.Expr, alpha: Value) -> relax.Expr:
    if isinstance(alpha, int | float) and alpha == 1:
        return x
    return b.emit(relax.op.multiply(x, b.tensor(alpha, str(x.ty.dtype))))


@converter("aten.div.Tensor", "aten.div.Scalar")
def div(b: GraphBuilder, x: Value, y: Value) -> relax.Expr:
    """True division: integers are divided as float32, the dtype torch gives the result."""
    return relax.op.divide(*b.operands(x, y))


@converter("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar")
def power(b: GraphBuilder, x: Value, y: Value) -> relax.Expr:
    """X ** y. Small constant exponents become products: exact for integers, cheap for floats."""
    exponent = _scalar(y)
    if exponent in (1, 2, 3):
        base = b.tensor(x, b.dtype)
        result = base
        for _ in range(int(exponent) - 1):
            result = b.emit(relax.op.multiply(result, base))
        return result
    if exponent == 0.5 and is_float(b.dtype):
        return relax.op.sqrt(b.tensor(x, b.dtype))
    if is_float(b.dtype):
        return relax.op.power(*b.operands(x, y))
    return _integer_power(b, x, y)


def _integer_power(b: GraphBuilder, x: Value, y: Value) -> relax.Expr:
    """Raise integers by squaring; Relax's power is for floats."""
    exponent = _scalar(y)
    if exponent is None or exponent < 0:
        shape = b.result_shape
        flat = [
            b.reshape(b.broadcast(operand, shape), [product(shape)]) for operand in b.operands(x, y)
        ]
        return b.reshape(b.te(integer_power, *flat, name="integer_power"), shape)
    base, left = b.tensor(x, b.dtype), int(exponent)
    result = relax.const(1, b.dtype)
    while left:
        if left & 1:
            result = b.emit(relax.op.multiply(result, base))
        base, left = b.emit(relax.op.multiply(base, base)), left >> 1
    return b.emit(relax.op.broadcast_to(result, b.result_shape))


def _scalar(value: Value) -> float | None:
    if isinstance(value, torch.Tensor) and value.ndim == 0:
        return value.item()
    return value if isinstance(value, bool | int | float) else None


@converter("aten.log2.default")
def log2(b: GraphBuilder, x: Value) -> relax.Expr:
    """Logarithm to base 2."""
    return _log_to_base(b, x, 1.4426950408889634)


@converter("aten.log10.default")
def log10(b: GraphBuilder, x: Value) -> relax.Expr:
    """Logarithm to base 10."""
    return _log_to_base(b, x, 0.4342944819032518)


def _log_to_base(b: GraphBuilder, x: Value, factor: float) -> relax.Expr:
    natural = b.emit(relax.op.log(b.tensor(x, b.dtype)))
    return relax.op.multiply(natural, relax.const(factor, b.dtype))


@converter("aten.log1p.default")
def log1p(b: GraphBuilder, x: Value) -> relax.Expr:
    """log(1 + x), accurate for small x: with u = 1 + x rounded, x * log(u) / (u - 1).

    W. Kahan's correction, from HP's 15C manual; D. Goldberg, "What every computer scientist should
    know about floating-point arithmetic", theorem 4.
    """
    value, one = b.tensor(x, b.dtype), relax.const(1, b.dtype)
    u = b.emit(relax.op.add(value, one))
    log_u = b.emit(relax.op.log(u))
    corrected = b.emit(relax.op.divide(value, b.emit(relax.op.subtract(u, one))))
    small = b.emit(relax.op.multiply(log_u, corrected))
    return _near_zero(b, value, b.emit(relax.op.equal(u, one)), small, log_u)


@converter("aten.expm1.default")
def expm1(b: GraphBuilder, x: Value) -> relax.Expr:
    """exp(x) - 1, accurate for small x: with u = exp(x) rounded, x * (u - 1) / log(u)."""
    value, one = b.tensor(x, b.dtype), relax.const(1, b.dtype)
    u = b.emit(relax.op.exp(value))
    minus_one = b.emit(relax.op.subtract(u, one))
    corrected = b.emit(relax.op.divide(value, b.emit(relax.op.log(u))))
    small = b.emit(relax.op.multiply(minus_one, corrected))
    return _near_zero(b, value, b.emit(relax.op.equal(u, one)), small, minus_one)


def _near_zero(
    b: GraphBuilder, x: relax.Expr, lost: relax.Expr, small: relax.Expr, large: relax.Expr
) -> relax.Expr:
    """X where rounding lost it, `small` for |x| < 1/2, `large` elsewhere."""
    near = b.emit(relax.op.less(b.emit(relax.op.abs(x)), relax.const(0.5, b.dtype)))
    return relax.op.where(lost, x, b.emit(relax.op.where(near, small, large)))


@converter("aten.round.decimals")
def round_decimals(b: GraphBuilder, x: Value, *, decimals: int) -> relax.Expr:
    """Round to so many decimals, halves to even; negative ones count before the point."""
    value = b.tensor(x, b.dtype)
    if not is_float(b.dtype):
        return value
    factor = relax.const(10.0 ** abs(decimals), b.dtype)
    grow, shrink = relax.op.multiply, relax.op.divide
    if decimals < 0:
        grow, shrink = shrink, grow
    return shrink(b.emit(relax.op.round(b.emit(grow(value, factor)))), factor)


@converter("aten.isnan.default")
def isnan(b: GraphBuilder, x: Value) -> relax.Expr:
    """Whether each element is NaN."""
    return _tested(b, relax.op.isnan, x)


@converter("aten.isinf.default")
def isinf(b: GraphBuilder, x: Value) -> relax.Expr:
    """Whether each element is an infinity."""
    return _tested(b, relax.op.isinf, x)


def _tested(b: GraphBuilder, test: Callable[[relax.Expr], relax.Expr], x: Value) -> relax.Expr:
    """Apply a test that no integer and no boolean meets."""
    data = b.tensor(x)
    if is_float(str(data.ty.dtype)):
        return test(data)
    return relax.op.zeros(relax.ShapeExpr(b.result_shape), "bool")


@converter("aten.clamp.default", "aten.clamp.Tensor")
def clamp(b: GraphBuilder, x: Value, min: Value = None, max: Value = None) -> relax.Expr:
    """min(max(x, low), high), either bound optional; NaN stays NaN."""
    result = b.tensor(x, b.dtype)
    if min is not None:
        result = b.emit(relax.op.maximum(result, b.tensor(min, b.dtype)))
    if max is not None:
        result = b.emit(relax.op.minimum(result, b.tensor(max, b.dtype)))
    return result


@converter("aten.where.self")
def where(b: GraphBuilder, condition: Value, x: Value, y: Value) -> relax.Expr:
    """X where the condition holds, y elsewhere."""
    return relax.op.where(b.tensor(condition, "bool"), *b.operands(x, y))


@converter("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(b: GraphBuilder, x: Value, mask: Value, value: Value) -> relax.Expr:
    """`value` where the mask holds, x elsewhere."""
    return where(b, mask, value, x)


@converter("aten._to_copy.default", "prims.convert_element_type.default")
def to_copy(b: GraphBuilder, x: Value, *_dtype: Any, **_placement: Any) -> relax.Expr:
    """Cast to the result's dtype; device and memory format do not concern a compiled graph."""
    return b.tensor(x, b.dtype)


@converter(
    "aten.clone.default",
    "aten.alias.default",
    "aten.detach.default",
    "aten.lift_fresh_copy.default",
    "aten.resolve_conj.default",
    "aten.resolve_neg.default",
)
def identity(b: GraphBuilder, x: Value, **_format: Any) -> relax.Expr:
    """The operand itself: values are immutable here, so a copy is not needed."""
    return b.tensor(x)


@converter("aten._neg_view.default")
def neg_view(b: GraphBuilder, x: Value) -> relax.Expr:
    """-x: torch's name for the imaginary part of a conjugate."""
    return relax.op.negative(b.tensor(x))


@converter("aten.copy.default")
def copy(b: GraphBuilder, x: Value, src: Value, *_non_blocking: Any) -> relax.Expr:
    """Src in the shape and dtype of x: what an in-place copy leaves."""
    value = b.tensor(src, b.dtype)
    shape = b.result_shape
    return value if same_shape(b.shape(value), shape) else relax.op.broadcast_to(value, shape)
