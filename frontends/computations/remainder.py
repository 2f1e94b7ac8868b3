"""Remainders and shifts, with the cases that C leaves undefined."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from frontends.computations.kernel import as_dtype


def remainder(a: Any, b: Any, *, of_dividend: bool, sign_of_zero: bool = True) -> Any:
    """Return the remainder of a / b, with the divisor's or the dividend's sign; like NumPy's.

    An integer's remainder by 0 is 0. float16 and bfloat16 are computed in float32. A zero has the
    divisor's sign too if `sign_of_zero`, else the dividend's, as in torch.
    """
    dtype = str(a.ty)
    if "float" not in dtype:
        # By 1 instead of 0 or -1: that gives 0, too, and processors trap 1 % 0 and lowest % -1.
        trap = b == as_dtype(0, dtype)
        if not dtype.startswith("u"):
            trap = tirx.any(trap, b == as_dtype(-1, dtype))
        divisor = tirx.Select(trap, as_dtype(1, dtype), b)
        return tirx.truncmod(a, divisor) if of_dividend else tirx.floormod(a, divisor)
    wide = "float32" if dtype in ("float16", "bfloat16") else dtype
    a, b = as_dtype(a, wide), as_dtype(b, wide)
    rest = tirx.Mod(a, b)  # for floats this is fmod; the intrinsic of that name has no code
    if of_dividend:
        return as_dtype(rest, dtype)
    zero = as_dtype(0.0, wide)
    differs = tirx.any(tirx.all(rest < zero, b > zero), tirx.all(rest > zero, b < zero))
    if sign_of_zero:
        exact = tirx.all(rest == zero, b != zero)
        signed_zero = tirx.Select(b < zero, as_dtype(-0.0, wide), zero)
        return as_dtype(
            tirx.Select(differs, rest + b, tirx.Select(exact, signed_zero, rest)), dtype
        )
    return as_dtype(tirx.Select(differs, rest + b, rest), dtype)


def shift(a: Any, amount: Any, *, left: bool) -> Any:
    """Return `a` shifted by a number of bits; a negative number counts as the whole width.

    A shift to the right keeps the sign of signed integers, so that what is left is 0 or -1.
    """
    dtype = str(a.ty)
    bits = int(dtype.lstrip("uint"))
    unsigned, is_signed = f"uint{bits}", not dtype.startswith("u")
    places = amount.astype(unsigned)  # a negative number becomes a great one
    # Written with masks: TVM's simplifier refuses comparisons that it turns into 0 - n, unsigned.
    beyond = (places >> as_dtype(bits.bit_length() - 1, unsigned)) != as_dtype(0, unsigned)
    limited = (places & as_dtype(bits - 1, unsigned)).astype(dtype)
    if is_signed and not left:
        return a >> tirx.Select(beyond, as_dtype(bits - 1, dtype), limited)
    return tirx.Select(beyond, as_dtype(0, dtype), a << limited if left else a >> limited)
