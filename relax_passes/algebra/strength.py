"""Strength reduction: powers, divisions and compositions become operators that take less time."""

from __future__ import annotations

import numpy as np
from tvm import relax

from relax_passes.algebra.match import Match
from relax_passes.algebra.rule import Declined, Family, Ieee, Rule
from relax_passes.constant_values import constant_from


def _is_power_of_two(m: Match) -> str | None:
    """Refuse a divisor whose reciprocal is not exact."""
    values = m.array("a")
    mantissa, exponent = np.frexp(values)
    info = np.finfo(values.dtype)
    # Within the normal numbers, so that the reciprocal is one too.
    normal = (exponent > info.minexp + 2) & (exponent < info.maxexp - 2)
    return None if np.all((np.abs(mantissa) == 0.5) & normal) else ""


def _has_reciprocal(m: Match) -> str | None:
    values = m.array("a")
    if not np.all(np.isfinite(values)) or np.any(values == 0):
        return "the divisor is zero or not finite"
    return None


def _integer_power_of_two(m: Match) -> str | None:
    value = m.number("k")
    return None if value and value > 0 and not int(value) & (int(value) - 1) else ""


def _shift(m: Match) -> relax.Expr:
    places = int(m.number("k") or 1).bit_length() - 1
    return m.emit(relax.op.right_shift(m["x"], _like(m, places)))


def _mask(m: Match) -> relax.Expr:
    return m.emit(relax.op.bitwise_and(m["x"], _like(m, int(m.number("k") or 1) - 1)))


def _one_axis(m: Match) -> int:
    """Return the axis of the matched reductions.

    Raises:
        Declined: If it is not one axis, the same of all, or is not kept.
    """
    named = [m.call_named(name) for name in ("max", "sum")]
    reductions = [call for call in named if call is not None]
    axes = {tuple(int(a) % m.root.ty.ndim for a in call.attrs.axis or ()) for call in reductions}
    if not all(call.attrs.keepdims for call in reductions):
        raise Declined("a reduction drops its axis")
    if len(axes) != 1 or len(axis := axes.pop()) != 1:
        raise Declined("the reductions are not along one axis")
    return axis[0]


def _softmax(m: Match) -> relax.Expr:
    return m.emit(relax.op.nn.softmax(m["x"], _one_axis(m)))


def _like(m: Match, value: int) -> relax.Expr:
    known = m.array("k")
    return constant_from(np.full(known.shape, value, known.dtype))


_ROUNDING, _NONFINITE, _EXACT = Ieee.ROUNDING, Ieee.NONFINITE, Ieee.EXACT
_DIVISION = "always: a product takes a quarter of the time of a division"
_POWER = "always: products and roots take a hundredth of the time of a power"
_FEWER = "always: fewer operations"

STRENGTH = Family(
    "strength reduction",
    "an operator that takes less time gives the same value",
    (
        Rule(
            *("divide_by_power_of_two", "x / a = x * (1 / a)", _EXACT, _DIVISION),
            check=_is_power_of_two,
        ),
        Rule(
            *("divide_by_constant", "x / a = x * (1 / a)", _ROUNDING, _DIVISION),
            check=_has_reciprocal,
        ),
        Rule("square", "x ** 2 = x * x", _ROUNDING, _POWER),
        Rule("cube", "x ** 3 = (x * x) * x", _ROUNDING, _POWER),
        Rule("power_four", "x ** 4 = square(x * x)", _ROUNDING, _POWER),
        Rule("power_three_halves", "x ** 1.5 = x * sqrt(x)", _NONFINITE, _POWER),
        Rule("power_half", "x ** 0.5 = sqrt(x)", _NONFINITE, _POWER),
        Rule("power_minus_half", "x ** -0.5 = rsqrt(x)", _NONFINITE, _POWER),
        Rule("power_minus_one", "x ** -1 = 1 / x", _ROUNDING, _POWER),
        Rule("power_minus_two", "x ** -2 = 1 / (x * x)", _ROUNDING, _POWER),
        Rule("root_of_inverse", "sqrt(1 / x) = rsqrt(x)", _NONFINITE, _FEWER),
        Rule("inverse_of_root", "1 / sqrt(x) = rsqrt(x)", _ROUNDING, _FEWER),
        Rule("divide_by_root", "x / sqrt(y) = x * rsqrt(y)", _ROUNDING, _DIVISION),
        Rule("divide_by_exp", "x / exp(y) = x * exp(-y)", _NONFINITE, "where y is smaller than x"),
        Rule("log_of_exp", "log(exp(x)) = x", _NONFINITE, _FEWER),
        Rule("exp_of_log", "exp(log(x)) = x", _NONFINITE, _FEWER),
        Rule("root_of_square", "sqrt(x * x) = abs(x)", _ROUNDING, _FEWER),
        Rule("root_of_squared", "sqrt(square(x)) = abs(x)", _ROUNDING, _FEWER),
        Rule("squared_root", "square(sqrt(x)) = x", _NONFINITE, _FEWER),
        Rule("squared_absolute", "square(abs(x)) = square(x)", _EXACT, _FEWER, "fi"),
        Rule("squared_negative", "square(-x) = square(x)", _EXACT, _FEWER, "fi"),
        Rule("absolute_times_itself", "abs(x) * abs(x) = x * x", _EXACT, _FEWER, "fi"),
        Rule("cosine_of_negative", "cos(-x) = cos(x)", _EXACT, _FEWER),
        Rule(
            *("logistic", "1 / (1 + exp(-x)) = sigmoid(x)"),
            *(_ROUNDING, "always: one operator instead of four"),
        ),
        Rule(
            *("softplus", "log(1 + exp(x)) = softplus(x)", _NONFINITE, _FEWER),
            rewrite=lambda m: m.emit(relax.op.nn.softplus(m["x"])),
        ),
        Rule(
            *("softmax", "exp(x - amax(x)) / sum(exp(x - amax(x))) = softmax(x)", _NONFINITE),
            "always: one operator instead of five",
            rewrite=_softmax,
        ),
        Rule(
            *("softmax_unshifted", "exp(x) / sum(exp(x)) = softmax(x)", _NONFINITE),
            "always: one operator instead of three, and no overflow",
            rewrite=_softmax,
        ),
        Rule(
            *("log_softmax", "log(softmax(x)) = log_softmax(x)"),
            *(_NONFINITE, "always: one operator less, and no logarithm of zero"),
        ),
        Rule(
            *("floor_divide_by_power_of_two", "x // k = right_shift(x, log2(k))", _EXACT),
            *("always: a shift takes a sixteenth of the time of a division", "i"),
            check=_integer_power_of_two,
            rewrite=_shift,
        ),
        Rule(
            *("floor_mod_by_power_of_two", "x % k = bitwise_and(x, k - 1)", _EXACT),
            *("always: a mask takes a sixteenth of the time of a division", "i"),
            check=_integer_power_of_two,
            rewrite=_mask,
        ),
    ),
)
