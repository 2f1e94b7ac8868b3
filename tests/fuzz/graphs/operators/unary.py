"""Elementwise operators of one operand, and conversions between dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from tests.fuzz.graphs.draw import BOUNDS, Draw
from tests.fuzz.graphs.operator import Operator, Sizes, add, float_array, is_tensor
from tests.fuzz.graphs.recipe import Attributes, TensorType

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int32", "int64")
_erf = np.vectorize(math.erf, otypes=["float64"])


@dataclass(frozen=True)
class _Unary:
    relax: Callable[[Any], Any]
    numpy: Callable[[np.ndarray], np.ndarray]
    onnx: str | None
    domain: tuple[float, float] = (-math.inf, math.inf)
    exact: bool = False  # keeps exact values exact
    steps: bool = False  # has jumps, so it needs an exact operand
    dtypes: tuple[str, ...] = FLOATS


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(x / 2))


op, nn = relax.op, relax.op.nn
_UNARY = {
    "relu": _Unary(nn.relu, lambda x: np.maximum(x, 0), "Relu", exact=True),
    "negative": _Unary(
        op.negative, np.negative, "Neg", exact=True, dtypes=(*FLOATS, "int32", "int64")
    ),
    "abs": _Unary(op.abs, np.abs, "Abs", exact=True, dtypes=(*FLOATS, "int32", "int64")),
    "exp": _Unary(op.exp, np.exp, "Exp", domain=(-80, 4)),
    "log": _Unary(op.log, np.log, "Log", domain=(0.1, 1e3)),
    "sqrt": _Unary(op.sqrt, np.sqrt, "Sqrt", domain=(0.1, 1e3)),
    "rsqrt": _Unary(op.rsqrt, lambda x: 1 / np.sqrt(x), None, domain=(0.1, 1e3)),
    "tanh": _Unary(op.tanh, np.tanh, "Tanh"),
    "sigmoid": _Unary(op.sigmoid, _sigmoid, "Sigmoid"),
    "erf": _Unary(op.erf, _erf, "Erf", dtypes=("float32", "float64")),
    "sin": _Unary(op.sin, np.sin, "Sin", domain=(-20, 20), dtypes=("float32",)),
    "cos": _Unary(op.cos, np.cos, "Cos", domain=(-20, 20), dtypes=("float32",)),
    "gelu": _Unary(nn.gelu, lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))), "Gelu",
                   dtypes=("float32",)),
    "silu": _Unary(nn.silu, lambda x: x * _sigmoid(x), None),
    "square": _Unary(op.square, np.square, "Mul"),
    "floor": _Unary(op.floor, np.floor, "Floor", exact=True, steps=True),
    "ceil": _Unary(op.ceil, np.ceil, "Ceil", exact=True, steps=True),
    "round": _Unary(op.round, np.round, "Round", exact=True, steps=True),
    "sign": _Unary(op.sign, np.sign, "Sign", exact=True, steps=True),
    "logical_not": _Unary(op.logical_not, np.logical_not, "Not", dtypes=("bool",)),
}  # fmt: skip


def _range(one: _Unary, kind: TensorType) -> tuple[float, float]:
    """Return bounds of the result: these functions have no extremum but at an end, or at 0."""
    points = np.array([kind.low, kind.high, *([0.0] if kind.low < 0 < kind.high else [])])
    values = one.numpy(points)
    slack = 0.5 if one.onnx in ("Sin", "Cos", "Gelu", "Mul", None) else 0.0
    if one.onnx in ("Sin", "Cos"):
        return -1.0, 1.0
    return float(values.min()) - slack, float(values.max()) + slack


def _operands(one: _Unary, names: list[str]) -> list[str]:
    """Return what the ONNX node reads: ONNX has no square, so that one is multiplied by itself."""
    return names * 2 if one.onnx == "Mul" else names


def _add(name: str, one: _Unary) -> None:
    def infer(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
        (kind,) = types
        if not is_tensor(kind, *one.dtypes) or (one.steps and not kind.exact):
            return None
        if kind.low < one.domain[0] or kind.high > one.domain[1]:
            return None
        if kind.dtype == "bool":
            return kind
        low, high = _range(one, kind)
        if name in ("rsqrt", "sqrt"):  # strictly positive, so that they can be divided by
            low, high = (float(v) for v in sorted(one.numpy(np.array([kind.low, kind.high]))))
        exact = (one.exact and kind.exact) or not kind.is_float
        return kind.like(low=low, high=high, exact=exact)

    def propose(draw: Draw) -> tuple[Sequence[int], dict[str, Any]] | None:
        x = draw.pick(lambda t: infer([t], {}) is not None)
        return None if x is None else ([x], {})

    add(
        name,
        Operator(
            infer,
            lambda sizes, args, attrs: one.relax(args[0]),
            lambda sizes, args, attrs: one.numpy(args[0]),
            propose,
            one.onnx and (lambda g, names, step, types: g.node(one.onnx, _operands(one, names))),
            weight=0.8,
        ),
    )


for _name, _one in _UNARY.items():
    _add(_name, _one)


# clip, leaky_relu: numbers as attributes ----------------------------------------------------------


def _infer_clip(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
    (kind,) = types
    if not is_tensor(kind, "float32", "float64"):
        return None
    low, high = (min(max(v, attrs["low"]), attrs["high"]) for v in (kind.low, kind.high))
    return kind.like(low=low, high=high, exact=kind.exact)


def _propose_clip(draw: Draw) -> tuple[Sequence[int], dict[str, Any]] | None:
    x = draw.pick(lambda t: is_tensor(t, "float32", "float64"))
    low = draw.rng.choice([-1.0, 0.0, 0.25])
    return None if x is None else ([x], {"low": low, "high": low + draw.rng.choice([0.5, 6.0])})


add(
    "clip",
    Operator(
        _infer_clip,
        lambda sizes, args, attrs: op.clip(args[0], attrs["low"], attrs["high"]),
        lambda sizes, args, attrs: np.clip(args[0], attrs["low"], attrs["high"]),
        _propose_clip,
        lambda g, names, step, types: g.node(
            "Clip",
            [
                *names,
                *(g.constant(np.array(step.attrs[b], types[0].dtype)) for b in ("low", "high")),
            ],
        ),
    ),
)


def _infer_leaky(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
    return types[0].like() if is_tensor(types[0], "float32", "float64") else None


def _propose_leaky(draw: Draw) -> tuple[Sequence[int], dict[str, Any]] | None:
    x = draw.pick(lambda t: is_tensor(t, "float32", "float64"))
    # An attribute of ONNX is a float32: both are exact in it, for float64 operands.
    return None if x is None else ([x], {"alpha": draw.rng.choice([0.015625, 0.25])})


add(
    "leaky_relu",
    Operator(
        _infer_leaky,
        lambda sizes, args, attrs: nn.leakyrelu(args[0], attrs["alpha"]),
        lambda sizes, args, attrs: np.where(args[0] > 0, args[0], args[0] * attrs["alpha"]),
        _propose_leaky,
        lambda g, names, step, types: g.node("LeakyRelu", names, alpha=step.attrs["alpha"]),
        weight=0.5,
    ),
)


# Conversion of the dtype --------------------------------------------------------------------------


def _infer_cast(types: Sequence[Any], attrs: Attributes) -> TensorType | None:
    (kind,), to = types, attrs["dtype"]
    if not is_tensor(kind):
        return None
    if kind.is_float and not to.startswith("float") and (to == "uint8" or not kind.exact):
        return None
    if kind.bound > BOUNDS.get(to, 1e3) or (to == "uint8" and kind.low < 0):
        return None
    if to == "bool":
        return kind.like(dtype=to, low=0.0, high=1.0, exact=True)
    return kind.like(dtype=to, exact=kind.exact)


def _propose_cast(draw: Draw) -> tuple[Sequence[int], dict[str, Any]] | None:
    x = draw.pick()
    dtypes = ["float32", "float32", "float64", "float16", "int32", "int64", "int8", "bool"]
    return None if x is None else ([x], {"dtype": draw.rng.choice(dtypes)})


def _numpy_cast(sizes: Sizes, args: Sequence[Any], attrs: Attributes) -> np.ndarray:
    to = np.dtype(attrs["dtype"])
    return float_array(args[0].astype(to)) if to.kind != "f" else args[0].astype("float64")


add(
    "cast",
    Operator(
        _infer_cast,
        lambda sizes, args, attrs: op.astype(args[0], attrs["dtype"]),
        _numpy_cast,
        _propose_cast,
        lambda g, names, step, types: g.node("Cast", names, to=g.element_type(step.attrs["dtype"])),
        weight=2.0,
    ),
)
