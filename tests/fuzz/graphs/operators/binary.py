"""Elementwise operators of two or three operands, with broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from tvm import relax

from tests.fuzz.graphs.draw import Draw
from tests.fuzz.graphs.operator import Operator, add, is_tensor
from tests.fuzz.graphs.operators.unary import FLOATS
from tests.fuzz.graphs.recipe import Attributes, TensorType
from tests.fuzz.graphs.sizes import broadcast

_ARITHMETIC = (*FLOATS, "int32", "int64")
op = relax.op


@dataclass(frozen=True)
class _Binary:
    relax: Callable[[Any, Any], Any]
    numpy: Callable[..., np.ndarray]
    onnx: str | None
    dtypes: tuple[str, ...] = _ARITHMETIC
    exact: bool = False  # keeps exact values exact
    compares: bool = False  # gives booleans and needs exact operands
    weight: float = 1.5


_BINARY = {
    "add": _Binary(op.add, np.add, "Add", weight=4),
    "subtract": _Binary(op.subtract, np.subtract, "Sub", weight=2),
    "multiply": _Binary(op.multiply, np.multiply, "Mul", weight=4),
    "divide": _Binary(op.divide, np.divide, "Div", dtypes=FLOATS),
    "maximum": _Binary(op.maximum, np.maximum, "Max", exact=True, weight=1),
    "minimum": _Binary(op.minimum, np.minimum, "Min", exact=True, weight=1),
    "greater": _Binary(op.greater, np.greater, "Greater", compares=True, weight=0.5),
    "less_equal": _Binary(op.less_equal, np.less_equal, "LessOrEqual", compares=True, weight=0.5),
    "equal": _Binary(op.equal, np.equal, "Equal", compares=True, weight=0.5),
    "logical_and": _Binary(op.logical_and, np.logical_and, "And", ("bool",)),
    "logical_or": _Binary(op.logical_or, np.logical_or, "Or", ("bool",)),
    "logical_xor": _Binary(op.logical_xor, np.logical_xor, "Xor", ("bool",)),
}


def _range(name: str, one: _Binary, a: TensorType, b: TensorType) -> tuple[float, float] | None:
    if one.compares or a.dtype == "bool":
        return 0.0, 1.0
    if name == "divide" and b.low < 0.1 and b.high > -0.1:
        return None
    corners = [float(one.numpy(x, y)) for x, y in product((a.low, a.high), (b.low, b.high))]
    return min(corners), max(corners)


def _add(name: str, one: _Binary) -> None:
    def infer(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
        a, b = types
        if not is_tensor(a, *one.dtypes) or not is_tensor(b, a.dtype):
            return None
        shape = broadcast(a.shape, b.shape)
        bounds = _range(name, one, a, b)
        if shape is None or bounds is None or (one.compares and not (a.exact and b.exact)):
            return None
        dtype = "bool" if one.compares else a.dtype
        exact = dtype == "bool" or not a.is_float or (one.exact and a.exact and b.exact)
        return TensorType(shape, dtype, *bounds, exact)

    def propose(draw: Draw) -> tuple[Sequence[int], dict[str, Any]] | None:
        a = draw.pick(lambda t: t.dtype in one.dtypes and (t.exact or not one.compares))
        if a is None:
            return None
        first = draw.type(a)
        b = partner(draw, first, lambda t: infer([first, t], {}) is not None)
        return ([a, b] if draw.rng.random() < 0.7 else [b, a]), {}

    add(
        name,
        Operator(
            infer,
            lambda sizes, args, attrs: one.relax(*args),
            lambda sizes, args, attrs: one.numpy(*args),
            propose,
            one.onnx and (lambda g, names, step, types: g.node(one.onnx, names)),
            one.weight,
        ),
    )


def partner(draw: Draw, kind: TensorType, accept: Callable[[TensorType], bool]) -> int:
    """Return a second operand: another tensor, a constant to broadcast, or 0, 1 as a scalar."""
    way = draw.rng.random()
    if way < 0.6:
        other = draw.pick(lambda t: t.dtype == kind.dtype and accept(t))
        if other is not None:
            return other
    if way < 0.75 or kind.dtype == "bool":
        return draw.scalar(draw.rng.choice([0, 1] if kind.dtype == "bool" else [0, 1, 1, 2, -1]),
                           kind.dtype)  # fmt: skip
    keep = [isinstance(s, int) and draw.rng.random() < 0.6 for s in kind.shape]
    shape = [s if k else 1 for s, k in zip(kind.shape, keep, strict=True)]
    while shape and shape[0] == 1 and draw.rng.random() < 0.5:
        shape.pop(0)
    low = 0.5 if draw.rng.random() < 0.4 else -2.0
    if not kind.is_float:
        low = 1.0
    return draw.constant(tuple(int(s) for s in shape), kind.dtype, low, 2.0)  # type: ignore


for _name, _one in _BINARY.items():
    _add(_name, _one)


# where, power -------------------------------------------------------------------------------------


def _infer_where(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
    condition, a, b = types
    if not is_tensor(condition, "bool") or not is_tensor(a) or not is_tensor(b, a.dtype):
        return None
    pair = broadcast(a.shape, b.shape)
    shape = None if pair is None else broadcast(condition.shape, pair)
    if shape is None or a.dtype == "bool":
        return None
    low, high = min(a.low, b.low), max(a.high, b.high)
    return TensorType(shape, a.dtype, low, high, a.exact and b.exact)


def _propose_where(draw: Draw) -> tuple[Sequence[int], dict[str, Any]] | None:
    condition = draw.pick(lambda t: t.dtype == "bool")
    a = draw.pick(lambda t: t.dtype != "bool")
    if condition is None or a is None:
        return None
    b = partner(draw, draw.type(a), lambda t: broadcast(draw.type(a).shape, t.shape) is not None)
    return [condition, a, b], {}


add(
    "where",
    Operator(
        _infer_where,
        lambda sizes, args, attrs: op.where(*args),
        lambda sizes, args, attrs: np.where(*args),
        _propose_where,
        lambda g, names, step, types: g.node("Where", names),
        weight=2.0,
    ),
)


def _infer_power(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
    base, exponent = types
    if not is_tensor(base, "float32") or exponent.shape != () or base.low < 0.1:
        return None
    ends = [base.low**exponent.low, base.high**exponent.low]
    return base.like(low=min(ends), high=max(ends))


def _propose_power(draw: Draw) -> tuple[Sequence[int], dict[str, Any]] | None:
    base = draw.pick(lambda t: t.dtype == "float32" and t.low >= 0.1)
    if base is None:
        return None
    return [base, draw.scalar(draw.rng.choice([2.0, 3.0, 0.5, -1.0, 1.0]), "float32")], {}


add(
    "power",
    Operator(
        _infer_power,
        lambda sizes, args, attrs: op.power(*args),
        lambda sizes, args, attrs: np.power(*args),
        _propose_power,
        lambda g, names, step, types: g.node("Pow", names),
        weight=0.5,
    ),
)


# integers that overflow ---------------------------------------------------------------------------


def _beyond(args: Sequence[Any], attrs: Attributes, m: Any, const: Callable[[int], Any]) -> Any:
    """Return whether x factor + summand, wrapped around, is less than x."""
    product = m.multiply(args[0], const(attrs["factor"]))
    return m.less(m.add(product, const(attrs["summand"])), args[0])


def _propose_overflow(draw: Draw) -> tuple[Sequence[int], dict[str, Any]] | None:
    x = draw.pick(lambda t: t.dtype in ("int32", "int64"))
    if x is None:
        return None
    largest = int(np.iinfo(draw.type(x).dtype).max)
    factor = draw.rng.choice([1, -1, 2, largest // 5])
    return [x], {"factor": factor, "summand": draw.rng.choice([largest, -largest, largest // 2])}


add(
    "overflow",
    Operator(
        lambda types, attrs: types[0].like(dtype="bool", low=0.0, high=1.0, exact=True),
        lambda sizes, args, attrs: _beyond(args, attrs, op, _constant_like(args[0])),
        lambda sizes, args, attrs: _beyond(args, attrs, np, args[0].dtype.type),
        _propose_overflow,
        weight=0.7,
    ),
)


def _constant_like(x: relax.Expr) -> Callable[[int], relax.Expr]:
    dtype = str(x.ty.dtype)
    return lambda value: relax.const(np.array(value, dtype), dtype)
