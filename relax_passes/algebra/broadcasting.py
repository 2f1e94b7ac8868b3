"""Broadcasts: small operands meet before they meet a large one, and copies are made last.

(x + y) + z = x + (y + z) saves work where y and z are smaller than x, or where the other order
broadcasts twice. The engine tries the orders and takes one only where it costs less.
"""

from __future__ import annotations

import tvm
from tvm import relax

from relax_passes.algebra.match import Match
from relax_passes.algebra.rule import Declined, Family, Ieee, Rule

R = relax.op

_SMALL = "where y and z are smaller than x: they meet first"
_ROUNDING, _NONFINITE, _EXACT = Ieee.ROUNDING, Ieee.NONFINITE, Ieee.EXACT
_BINARY = {
    **dict.fromkeys("add subtract multiply maximum minimum".split(), "fi"),
    **dict.fromkeys("divide power".split(), "f"),
    **dict.fromkeys("less less_equal greater greater_equal equal not_equal".split(), "b"),
    "where": "fib",
}
_UNARY = tuple("exp log sqrt rsqrt tanh sigmoid abs negative relu erf logical_not".split())


def _narrow_operands(m: Match) -> relax.Expr:
    """Leave broadcasting an operand to the operator that reads it."""
    args = []
    for arg in m.root.args:
        wide = m.scope.call_of(arg)
        if wide is not None and m.scope.name_of(wide) == "broadcast_to":
            m.producer(arg, "broadcast_to")
            arg = wide.args[0]
        args.append(arg)
    if all(a.same_as(b) for a, b in zip(args, m.root.args, strict=True)):
        raise Declined("")
    return m.emit(tvm.ir.Call(m.root.op, args, m.root.attrs))


def _broadcast_later(m: Match) -> relax.Expr:
    wide = m.producer(m.root.args[0], "broadcast_to")
    if wide is None:
        raise Declined("")
    narrow = m.emit(tvm.ir.Call(m.root.op, [wide.args[0]], m.root.attrs))
    return m.emit(R.broadcast_to(narrow, m.root.ty.shape))


def _reassociated(name: str, equation: str, ieee: Ieee, kinds: str) -> Rule:
    return Rule(name, equation, ieee, _SMALL, kinds, search=True)


BROADCASTS = Family(
    "broadcasts",
    "small operands meet first, and what is broadcast is computed before",
    (
        _reassociated("small_sums_first", "(x + y) + z = x + (y + z)", _ROUNDING, "fi"),
        _reassociated("small_products_first", "(x * y) * z = x * (y * z)", _NONFINITE, "fi"),
        _reassociated("small_difference_first", "(x + y) - z = x + (y - z)", _ROUNDING, "fi"),
        _reassociated("small_shift_first", "(x - y) + z = x + (z - y)", _ROUNDING, "fi"),
        _reassociated("small_shifts_first", "(x - y) - z = x - (y + z)", _ROUNDING, "fi"),
        _reassociated("small_quotient_first", "(x * y) / z = x * (y / z)", _NONFINITE, "f"),
        _reassociated("small_factor_first", "(x / y) * z = x * (z / y)", _NONFINITE, "f"),
        _reassociated("small_divisors_first", "(x / y) / z = x / (y * z)", _NONFINITE, "f"),
        _reassociated(
            "small_maxima_first", "max(max(x, y), z) = max(x, max(y, z))", Ieee.ZERO_SIGN, "fi"
        ),
        _reassociated(
            "small_minima_first", "min(min(x, y), z) = min(x, min(y, z))", Ieee.ZERO_SIGN, "fi"
        ),
        _reassociated("small_and_first", "(x and y) and z = x and (y and z)", _EXACT, "b"),
        _reassociated("small_or_first", "(x or y) or z = x or (y or z)", _EXACT, "b"),
        *(
            Rule(
                f"{name}_broadcasts",
                f"{name}(broadcast(x), y) = {name}(x, y)",
                *(_EXACT, "always: the operator broadcasts without a copy", kinds),
                pattern=f"{name}(...)",
                rewrite=_narrow_operands,
                search=True,
            )
            for name, kinds in _BINARY.items()
        ),
        *(
            Rule(
                f"{name}_before_broadcast",
                f"{name}(broadcast(x)) = broadcast({name}(x))",
                *(_EXACT, "always: computed before it is repeated", "b" if "not" in name else "f"),
                pattern=f"{name}(broadcast(...))",
                rewrite=_broadcast_later,
            )
            for name in _UNARY
        ),
    ),
)
