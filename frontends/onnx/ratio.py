"""Sizes that a model computes in floats: exact fractions, held while the floats agree with them.

Exporters write `int(height * 0.5)` as Cast to float, Mul, Floor, Cast to int64. A `Ratio` stands
for such a float, and rounding it gives an integer expression. A float with p bits of mantissa holds
it in one of three ways:

- exactly: the denominator is a power of two. Only these may be added and multiplied.
- rounded once, by a division by an integer d. Rounding moves n / d by at most n / d * 2^-p, while
  the next integer is 1 / d away and the next half 1 / (2 d): it crosses none.
- as the rounded product with a float f that stands for a short fraction c, such as 0.1 or 1/3:
  f = c (1 + e). With |e| <= 2^-(p+1) a product that should be an integer or a half becomes just
  that one. With |e| up to 2^-p, as of every f nearest to c, it may miss it on the side of e, so
  only what rounds to the other side gives it: the floor of n * 1.2, but no floor of n * 1.3, whose
  float is below 13 / 10. Others keep to their side as above.

So integers agree with the model's own arithmetic while numerators stay below 2^(p-2), which is 2^22
for float32. Beyond, ours are exact where the model's floats have lost the last digits. Whatever
else a model computes raises `NotARatio`, and is computed in floats when it runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from tvm import tirx

from frontends.dims import Dim, DimArithmetic, is_static

MANTISSA = {"float32": 24, "float64": 53}
# Factors of no more than these numerators and denominators leave room for sizes in the mantissa.
_SHORT = 512
_LARGEST_TERM = 1 << 20  # of a sum, and divisor of a size


class NotARatio(Exception):
    """A float that no exact fraction stands for."""


@dataclass(frozen=True, eq=False)
class Ratio:
    """A float that is computed from sizes.

    Attributes:
        numerator: An integer, or an expression of sizes.
        denominator: At least 1, in lowest terms if the numerator is an integer.
        product: The exact ratio and the float whose rounded product it is; None for a quotient.
        error: The relative error of that float as the fraction it stands for.
    """

    numerator: Dim
    denominator: int = 1
    product: tuple[Ratio, float] | None = None
    error: Fraction = Fraction(0)

    @staticmethod
    def of_float(number: float) -> Ratio:
        """Return a known number, exactly."""
        if not math.isfinite(number):
            raise NotARatio
        return Ratio(*float(number).as_integer_ratio())

    @property
    def is_static(self) -> bool:
        """Tell whether no size is in it."""
        return is_static(self.numerator)

    @property
    def is_exact(self) -> bool:
        """Tell whether the float equals the fraction."""
        return self.product is None and self.denominator & (self.denominator - 1) == 0

    @property
    def fraction(self) -> Fraction:
        """Return a static ratio as number."""
        return Fraction(self.numerator, self.denominator)

    @property
    def source(self) -> Dim:
        """Return the size that the float is computed from when the model runs."""
        return self.product[0].numerator if self.product else self.numerator

    def computed(self, source: Any, dtype: str) -> Any:
        """Return the float as TIR expression of its source, by the model's own operations."""
        if self.product is not None:
            base, factor = self.product
            return base.computed(source, dtype) * tirx.const(factor, dtype)
        number = tirx.Cast(dtype, source)
        if self.denominator == 1:
            return number
        return number / tirx.const(float(self.denominator), dtype)


class RatioArithmetic:
    """Arithmetic on ratios that stand for floats of one dtype."""

    def __init__(self, dims: DimArithmetic, dtype: str) -> None:
        self._dims, self._dtype = dims, np.dtype(dtype)
        self._bits = MANTISSA[dtype]

    # Arithmetic -------------------------------------------------------------------------------

    def add(self, left: Ratio, right: Ratio) -> Ratio:
        """Return left + right."""
        return self._sum(np.add, left, right, 1)

    def subtract(self, left: Ratio, right: Ratio) -> Ratio:
        """Return left - right."""
        return self._sum(np.subtract, left, right, -1)

    def _sum(self, known: Callable[..., Any], left: Ratio, right: Ratio, sign: int) -> Ratio:
        if left.is_static and right.is_static:
            return self._known(known, left, right)
        _require_exact(left, right)
        numerator = left.numerator * right.denominator
        numerator = numerator + right.numerator * left.denominator * sign
        return self._quotient(numerator, left.denominator * right.denominator)

    def multiply(self, left: Ratio, right: Ratio) -> Ratio:
        """Return left * right."""
        if left.is_static and right.is_static:
            return self._known(np.multiply, left, right)
        if left.is_static:
            left, right = right, left
        if left.is_exact and right.is_static and not _is_short(right):
            return self._product(left, right)
        _require_short(left, right)
        return self._quotient(
            left.numerator * right.numerator, left.denominator * right.denominator
        )

    def divide(self, left: Ratio, right: Ratio) -> Ratio:
        """Return left / right, where right is known."""
        if left.is_static and right.is_static:
            return self._known(np.divide, left, right)
        _require_exact(left, right)
        if not right.is_static or right.numerator == 0:
            raise NotARatio
        sign = 1 if right.numerator > 0 else -1
        return self._quotient(
            left.numerator * (right.denominator * sign), left.denominator * abs(right.numerator)
        )

    def negate(self, item: Ratio) -> Ratio:
        """Return -item."""
        return self.subtract(Ratio(0), item)

    def absolute(self, item: Ratio) -> Ratio:
        """Return |item|."""
        if not self._dims.is_nonnegative(item.numerator):
            return self.maximum(item, self.negate(item))
        return item

    def minimum(self, left: Ratio, right: Ratio) -> Ratio:
        """Return the smaller one."""
        return self._chosen(self._dims.minimum, left, right)

    def maximum(self, left: Ratio, right: Ratio) -> Ratio:
        """Return the greater one."""
        return self._chosen(self._dims.maximum, left, right)

    def _chosen(self, choose: Callable[[Dim, Dim], Dim], left: Ratio, right: Ratio) -> Ratio:
        _require_exact(left, right)
        a, b = left.numerator * right.denominator, right.numerator * left.denominator
        return self._quotient(choose(a, b), left.denominator * right.denominator)

    def _known(self, compute: Callable[..., Any], left: Ratio, right: Ratio) -> Ratio:
        """Compute with two known numbers as the model does."""
        numbers = (self._dtype.type(float(side.fraction)) for side in (left, right))
        with np.errstate(all="ignore"):
            return Ratio.of_float(float(compute(*numbers)))

    def _quotient(self, numerator: Dim, denominator: int) -> Ratio:
        numerator = self._dims.simplify(numerator)
        if is_static(numerator):
            lowest = Fraction(int(numerator), denominator)
            return Ratio(lowest.numerator, lowest.denominator)
        if denominator > _LARGEST_TERM:
            raise NotARatio
        return Ratio(numerator, denominator)

    def _product(self, base: Ratio, factor: Ratio) -> Ratio:
        """Multiply by a float that a short fraction stands for."""
        exact = factor.fraction
        near = exact.limit_denominator(_SHORT)
        if near == 0 or not 0 < near.numerator <= _SHORT:
            raise NotARatio
        error = exact / near - 1
        if abs(error) > Fraction(1, 2**self._bits):
            raise NotARatio
        numerator = self._dims.simplify(base.numerator * near.numerator)
        denominator = base.denominator * near.denominator
        return Ratio(numerator, denominator, (base, float(exact)), error)

    # Integers ---------------------------------------------------------------------------------

    def floor(self, item: Ratio) -> Dim:
        """Return the greatest integer not above it."""
        self._require_hit(item, item.error > 0 and self._dims.is_nonnegative(item.numerator))
        return self._integer(math.floor, tirx.floordiv, item)

    def ceil(self, item: Ratio) -> Dim:
        """Return the smallest integer not below it."""
        self._require_hit(item, item.error < 0 and self._dims.is_nonnegative(item.numerator))
        return self._integer(math.ceil, lambda n, d: tirx.floordiv(n + (d - 1), d), item)

    def round(self, item: Ratio) -> Dim:
        """Return the nearest integer, the even one of two."""
        self._require_hit(item)
        return self._integer(round, _round_half_even, item)

    def truncate(self, item: Ratio) -> Dim:
        """Return the integer part, as a cast to an integer does."""
        self._require_hit(item, item.error > 0)
        return self._integer(math.trunc, self._dims.truncdiv, item)

    def _require_hit(self, item: Ratio, rounds_back: bool = False) -> None:
        """Refuse a product that may miss the integer that it should be and not round back to it."""
        if not rounds_back and abs(item.error) > Fraction(1, 2 ** (self._bits + 1)):
            raise NotARatio

    def _integer(
        self, known: Callable[[Fraction], int], divide: Callable[[Dim, int], Dim], item: Ratio
    ) -> Dim:
        """Round by `known` where no size is in it, else by dividing numerator by denominator."""
        if item.denominator == 1:
            return item.numerator
        if item.is_static:
            return known(item.fraction)
        return self._dims.simplify(divide(item.numerator, item.denominator))


def _round_half_even(numerator: Dim, denominator: int) -> Dim:
    half = (denominator - 1) // 2
    if denominator % 2 == 0:  # just below one half is added, and a bit more to odd numbers
        half = half + tirx.floormod(tirx.floordiv(numerator, denominator), 2)
    return tirx.floordiv(numerator + half, denominator)


def _is_short(item: Ratio) -> bool:
    """Tell whether products with a ratio stay exact floats: a size is always short."""
    number = abs(item.numerator) if item.is_static else 0
    return item.is_exact and number <= _SHORT and item.denominator <= _SHORT


def _require_short(*items: Ratio) -> None:
    if not all(_is_short(item) for item in items):
        raise NotARatio


def _require_exact(*items: Ratio) -> None:
    """Refuse terms whose exact sum a float may not be."""
    for item in items:
        number = abs(item.numerator) if item.is_static else 0
        if not item.is_exact or item.denominator > _SHORT or number > _LARGEST_TERM:
            raise NotARatio
