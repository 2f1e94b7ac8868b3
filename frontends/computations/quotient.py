"""Quotients rounded down or towards zero, with the cases that processors trap."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from frontends.computations.kernel import as_dtype


def integer_quotient(a: Any, b: Any, *, down: bool) -> Any:
    """Return a / b of integers, rounded down or towards zero; by 0 it is `a`.

    Processors trap 1 / 0 and lowest / -1, which wraps around here.
    """
    dtype = str(a.ty)
    one = as_dtype(1, dtype)
    trap = b == as_dtype(0, dtype)
    negated = None
    if not dtype.startswith("u"):
        negated = b == as_dtype(-1, dtype)
        trap = tirx.any(trap, negated)
    divisor = tirx.Select(trap, one, b)
    quotient = tirx.floordiv(a, divisor) if down else tirx.truncdiv(a, divisor)
    return quotient if negated is None else tirx.Select(negated, as_dtype(0, dtype) - a, quotient)


def floor_quotient(a: Any, b: Any) -> Any:
    """Return a / b of floats rounded down, of the exact quotient rather than the rounded one.

    As torch and Python's `//`: the remainder is exact, so that 1.0 by 0.1 is 9, as 0.1 is a little
    more than a tenth. By 0 it is a / b. float16 and bfloat16 are computed in float32.
    """
    dtype = str(a.ty)
    wide = "float32" if dtype in ("float16", "bfloat16") else dtype
    a, b = as_dtype(a, wide), as_dtype(b, wide)
    zero, one = as_dtype(0.0, wide), as_dtype(1.0, wide)
    rest = tirx.Mod(a, b)  # for floats this is fmod
    differs = tirx.any(tirx.all(rest < zero, b > zero), tirx.all(rest > zero, b < zero))
    quotient = (a - rest) / b
    quotient = tirx.Select(differs, quotient - one, quotient)  # whole but for its rounding
    down = tirx.floor(quotient)
    nearest = tirx.Select(quotient - down > as_dtype(0.5, wide), down + one, down)
    # A zero has the sign of a / b, which is then less than 1.
    signed = tirx.Select(quotient == zero, tirx.trunc(a / b), nearest)
    return as_dtype(tirx.Select(b == zero, a / b, signed), dtype)
