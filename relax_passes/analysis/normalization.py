"""The pieces of which exporters write normalizations: means over trailing axes, squares, scales."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax

from relax_passes.analysis.definitions import dimensions, operator_name, scalar
from relax_passes.constant_values import array_of
from relax_passes.lowering.rule import dtype_of

# Gives the expression that a variable stands for.
LookUp = Callable[[relax.Expr], relax.Expr]


def mean_axes(value: relax.Expr) -> list[int] | None:
    """Return the trailing axes over which `value` is a mean that keeps them as 1."""
    if operator_name(value) != "mean" or not value.attrs.keepdims:
        return None
    rank = value.args[0].ty.ndim
    axes = range(rank) if value.attrs.axis is None else value.attrs.axis
    axes = sorted(int(axis) % rank for axis in axes)
    return axes if axes == list(range(rank - len(axes), rank)) else None


def squared(look_up: LookUp, value: relax.Expr) -> list[relax.Expr]:
    """Return the factors of `value` if it may be a square, one where it is sure; else nothing."""
    square = look_up(value)
    name = operator_name(square)
    if name == "square" or (name == "power" and scalar(square.args[1]) == 2.0):
        return [square.args[0]]
    return list(square.args) if name == "multiply" else []


def inverse_root(look_up: LookUp, value: relax.Expr) -> relax.Expr | None:
    """Return v of 1 / sqrt(v): rsqrt(v), a reciprocal of a root, or v to the power of -1/2."""
    inverse = look_up(value)
    name = operator_name(inverse)
    if name == "rsqrt":
        return inverse.args[0]
    if name == "divide" and scalar(inverse.args[0]) == 1.0:
        return root(look_up, inverse.args[1])
    if name == "power" and scalar(inverse.args[1]) == -0.5:
        return inverse.args[0]
    if name == "power" and scalar(inverse.args[1]) == -1.0:
        return root(look_up, inverse.args[0])
    return None


def root(look_up: LookUp, value: relax.Expr) -> relax.Expr | None:
    """Return v of sqrt(v)."""
    found = look_up(value)
    if operator_name(found) == "sqrt":
        return found.args[0]
    is_half = operator_name(found) == "power" and scalar(found.args[1]) == 0.5
    return found.args[0] if is_half else None


def divided_by_root(look_up: LookUp, value: relax.Expr) -> list[tuple[relax.Expr, relax.Expr]]:
    """Return each (x, v) for which `value` is x / sqrt(v), however it is written."""
    norm = look_up(value)
    if operator_name(norm) == "divide":
        inside = root(look_up, norm.args[1])
        return [] if inside is None else [(norm.args[0], inside)]
    if operator_name(norm) != "multiply":
        return []
    a, b = norm.args
    pairs = [(x, inverse_root(look_up, factor)) for x, factor in ((a, b), (b, a))]
    return [(x, inside) for x, inside in pairs if inside is not None]


def plus_constant(look_up: LookUp, value: relax.Expr) -> tuple[relax.Expr, float] | None:
    """Return v and e of v + e, e a constant."""
    total = look_up(value)
    if operator_name(total) != "add":
        return None
    for part, offset in (total.args, list(total.args)[::-1]):
        number = scalar(offset)
        if number is not None:
            return part, number
    return None


def per_element(value: relax.Expr, x: relax.Expr, axes: list[int]) -> relax.Expr | None:
    """Return a constant as norms take it: one number for each element of `x` over `axes`."""
    dims = [(dimensions(x) or [])[axis] for axis in axes] if dimensions(x) else []
    if not isinstance(value, tvm.ir.GenericConst) or not dims:
        return None
    if not all(isinstance(d, tvm.tirx.IntImm) for d in dims):
        return None
    shape = tuple(int(d) for d in dims)
    array = array_of(value)
    if dtype_of(value) != dtype_of(x) or array.size not in (1, math.prod(shape)):
        return None
    lead = array.shape[: max(array.ndim - len(shape), 0)]
    if any(d != 1 for d in lead):
        return None
    return relax.const(np.broadcast_to(array.reshape(array.shape[len(lead) :]), shape).copy())
