"""Neutral and absorbing elements, involutions and idempotent operators."""

from __future__ import annotations

import numpy as np
from tvm import relax

from relax_passes.algebra.bounds_of_values import is_nonzero
from relax_passes.algebra.match import Match
from relax_passes.algebra.rule import Declined, Family, Ieee, Rule
from relax_passes.constant_values import constant_from
from relax_passes.lowering.rule import dtype_of, static_shape

_MAX_ZERO_BYTES = 1 << 20
_GONE = "always: one operator less"


def filled(match: Match, number: float) -> relax.Expr:
    """Return a constant of the root's type.

    Raises:
        Declined: If its shape is symbolic, or it would be large.
    """
    shape = static_shape(match.root)
    if shape is None:
        raise Declined("the shape of the constant result is symbolic")
    array = np.full(shape, number, dtype_of(match.root))
    if array.nbytes > _MAX_ZERO_BYTES:
        raise Declined("the constant result would be large")
    return constant_from(array)


_EXACT = Ieee.EXACT


def _zero_over_zero(m: Match) -> str | None:
    """Keep x / x where x may be zero: models mark zeros that way, and look for NaN afterwards."""
    return None if is_nonzero(m.scope, m["x"]) else "x may be zero, and 0 / 0 is NaN"


def _constant_rule(name: str, equation: str, value: int) -> Rule:
    """Return a rule whose right side is one boolean everywhere."""
    return Rule(name, equation, _EXACT, _GONE, "b", rewrite=lambda m: filled(m, value))


IDENTITIES = Family(
    "identities",
    "neutral and absorbing elements, involutions, idempotent operators",
    (
        Rule("subtract_zero", "x - 0 = x", _EXACT, _GONE, "fi"),
        Rule("add_negative_zero", "x + -0 = x", _EXACT, _GONE),
        Rule("add_zero", "x + 0 = x", Ieee.ZERO_SIGN, _GONE, "fi"),
        Rule("multiply_by_one", "x * 1 = x", _EXACT, _GONE, "fi"),
        Rule("divide_by_one", "x / 1 = x", _EXACT, _GONE, "fi"),
        Rule("power_one", "x ** 1 = x", _EXACT, _GONE),
        Rule(
            *("multiply_by_zero", "x * 0 = 0", Ieee.NONFINITE, _GONE, "fi"),
            rewrite=lambda m: filled(m, 0.0),
        ),
        Rule(
            *("subtract_itself", "x - x = 0", Ieee.NONFINITE, _GONE, "fi"),
            rewrite=lambda m: filled(m, 0.0),
        ),
        Rule(
            *("divide_by_itself", "x / x = 1", Ieee.NONFINITE),
            "where x is known not to be zero, such as exp(y) or abs(y) + 1",
            check=_zero_over_zero,
            rewrite=lambda m: filled(m, 1.0),
        ),
        Rule(
            *("power_zero", "x ** 0 = 1", _EXACT, _GONE, "f"),
            rewrite=lambda m: filled(m, 1.0),
        ),
        Rule("negate_twice", "-(-x) = x", _EXACT, _GONE, "fi"),
        Rule("not_twice", "not (not x) = x", _EXACT, _GONE, "b"),
        Rule("bitwise_not_twice", "bitwise_not(bitwise_not(x)) = x", _EXACT, _GONE, "i"),
        Rule("abs_twice", "abs(abs(x)) = abs(x)", _EXACT, _GONE, "fi"),
        Rule("abs_of_negative", "abs(-x) = abs(x)", _EXACT, _GONE, "fi"),
        Rule("abs_of_square", "abs(x * x) = x * x", _EXACT, _GONE, "f"),
        Rule("abs_of_exp", "abs(exp(x)) = exp(x)", _EXACT, _GONE, "f"),
        Rule("relu_twice", "relu(relu(x)) = relu(x)", _EXACT, _GONE, "fi"),
        Rule("relu_of_abs", "relu(abs(x)) = abs(x)", _EXACT, _GONE, "f"),
        Rule("relu_of_square", "relu(x * x) = x * x", _EXACT, _GONE, "f"),
        Rule("relu_of_exp", "relu(exp(x)) = exp(x)", _EXACT, _GONE, "f"),
        Rule("relu_of_sigmoid", "relu(sigmoid(x)) = sigmoid(x)", _EXACT, _GONE, "f"),
        Rule("abs_of_relu", "abs(relu(x)) = relu(x)", Ieee.ZERO_SIGN, _GONE, "f"),
        Rule("max_with_itself", "max(x, x) = x", _EXACT, _GONE, "fi"),
        Rule("min_with_itself", "min(x, x) = x", _EXACT, _GONE, "fi"),
        Rule("max_absorbs_min", "max(x, min(x, y)) = x", Ieee.NONFINITE, _GONE, "fi"),
        Rule("min_absorbs_max", "min(x, max(x, y)) = x", Ieee.NONFINITE, _GONE, "fi"),
        Rule("and_with_itself", "x and x = x", _EXACT, _GONE, "b"),
        Rule("or_with_itself", "x or x = x", _EXACT, _GONE, "b"),
        Rule("and_true", "x and 1 = x", _EXACT, _GONE, "b"),
        Rule("or_false", "x or 0 = x", _EXACT, _GONE, "b"),
        _constant_rule("and_false", "x and 0 = 0", 0),
        _constant_rule("or_true", "x or 1 = 1", 1),
        _constant_rule("xor_with_itself", "logical_xor(x, x) = 0", 0),
        Rule("xor_false", "logical_xor(x, 0) = x", _EXACT, _GONE, "b"),
        Rule("xor_true", "logical_xor(x, 1) = not x", _EXACT, "always: a constant less", "b"),
        Rule("floor_twice", "floor(floor(x)) = floor(x)", _EXACT, _GONE),
        Rule("ceil_twice", "ceil(ceil(x)) = ceil(x)", _EXACT, _GONE),
        Rule("round_twice", "round(round(x)) = round(x)", _EXACT, _GONE),
        Rule("trunc_twice", "trunc(trunc(x)) = trunc(x)", _EXACT, _GONE),
        Rule("sign_twice", "sign(sign(x)) = sign(x)", _EXACT, _GONE, "fi"),
    ),
)
