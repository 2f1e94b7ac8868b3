"""What a mask says of a block of (query, key) pairs: shown nowhere, everywhere, or in part.

The conditions come from interval arithmetic on the mask itself, so that a causal mask, a window, a
length or any composition of them skips the blocks it hides and costs nothing where it hides none.
They are exact for comparisons of one query position with one key position, and err towards "in
part" for what they cannot see through, such as a mask that is read from memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tvm_ffi
from tvm import tirx
from tvm.tirx import Expr, IntImm, Var


@dataclass(frozen=True)
class Range:
    """The least and the greatest value of an integer, both included."""

    low: Expr
    high: Expr


Ranges = Mapping[Var, Range]


def shown_somewhere(mask: Expr, ranges: Ranges) -> Expr:
    """Return a condition that holds wherever `mask` holds at some point of the ranges."""
    return _bound(mask, ranges, everywhere=False)


def shown_everywhere(mask: Expr, ranges: Ranges) -> Expr:
    """Return a condition under which `mask` holds at every point of the ranges."""
    return _bound(mask, ranges, everywhere=True)


def _bound(mask: Expr, ranges: Ranges, *, everywhere: bool) -> Expr:
    if isinstance(mask, tirx.And | tirx.Or):
        join = tirx.all if isinstance(mask, tirx.And) else tirx.any
        return join(*(_bound(m, ranges, everywhere=everywhere) for m in (mask.a, mask.b)))
    if isinstance(mask, tirx.Not):
        return tirx.Not(_bound(mask.a, ranges, everywhere=not everywhere))
    if not _depends(mask, ranges):
        return mask
    sides = _sides(mask, ranges)
    if sides is None:  # not seen through: perhaps somewhere, surely not everywhere
        return tirx.const(not everywhere, "bool")
    a, b, or_equal = sides
    left, right = (a.high, b.low) if everywhere else (a.low, b.high)
    return left <= right if or_equal else left < right


def _sides(mask: Expr, ranges: Ranges) -> tuple[Range, Range, bool] | None:
    """Return a comparison as left <= right, or left < right where the flag is false."""
    if isinstance(mask, tirx.LT | tirx.LE):
        left, right = mask.a, mask.b
    elif isinstance(mask, tirx.GT | tirx.GE):
        left, right = mask.b, mask.a
    else:
        return None
    a, b = range_of(left, ranges), range_of(right, ranges)
    return None if a is None or b is None else (a, b, isinstance(mask, tirx.LE | tirx.GE))


def range_of(value: Expr, ranges: Ranges) -> Range | None:
    """Return the range of an integer expression, None where it is not seen through."""
    if not str(value.ty).startswith("int"):
        return None
    if not _depends(value, ranges):
        return Range(value, value)
    if isinstance(value, Var):
        return ranges[value]
    if isinstance(value, tirx.Cast):
        inner = range_of(value.value, ranges)
        dtype = str(value.ty)
        return inner and Range(inner.low.astype(dtype), inner.high.astype(dtype))
    if not isinstance(value, tirx.Add | tirx.Sub | tirx.Mul | tirx.Min | tirx.Max):
        return None
    a, b = range_of(value.a, ranges), range_of(value.b, ranges)
    if a is None or b is None:
        return None
    if isinstance(value, tirx.Add):
        return Range(a.low + b.low, a.high + b.high)
    if isinstance(value, tirx.Sub):
        return Range(a.low - b.high, a.high - b.low)
    if isinstance(value, tirx.Mul):
        return _product(a, value.b) if isinstance(value.b, IntImm) else None
    join = tirx.min if isinstance(value, tirx.Min) else tirx.max
    return Range(join(a.low, b.low), join(a.high, b.high))


def _product(a: Range, factor: IntImm) -> Range:
    low, high = a.low * factor, a.high * factor
    return Range(low, high) if int(factor.value) >= 0 else Range(high, low)


def _depends(value: Expr, ranges: Ranges) -> bool:
    found: list[Var] = []
    tvm_ffi.structural_walk(value, (Var, lambda v: found.append(v) if v in ranges else None))
    return bool(found)
