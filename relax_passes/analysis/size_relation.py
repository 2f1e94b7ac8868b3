"""How a size of a model gives a dimension: d = (n + shift) // divisor * factor + offset.

Strides, poolings and patches divide a size, one after the other: the widths of a network's feature
maps are w, (w - 1) // 2 + 1, (w - 1) // 4 + 1, ... As (n // a + b) // c is (n + a * b) // (a * c),
each is one division of w. Upsampling multiplies it again: (w - 1) // 4 * 2 + 2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm import tirx


@dataclass(frozen=True)
class SizeRelation:
    """The expression (size + shift) // divisor * factor + offset; the divisor is positive."""

    shift: int = 0
    divisor: int = 1
    factor: int = 1
    offset: int = 0

    def of(self, size: int) -> int:
        """Return the expression's value for a size."""
        return (size + self.shift) // self.divisor * self.factor + self.offset


def size_relation(dim: tirx.Expr, size: tirx.Var) -> SizeRelation | None:
    """Return how `dim` follows from `size`, None when it is no chain of sums and divisions of it.

    Args:
        dim: An integer expression.
        size: The variable it may depend on.
    """
    if isinstance(dim, tirx.Var):
        return SizeRelation() if dim.same_as(size) else None
    if not isinstance(dim, _STEPS):
        return None
    operand, known = dim.a, dim.b
    if isinstance(dim, tirx.Add | tirx.Mul) and isinstance(operand, tirx.IntImm):
        operand, known = known, operand
    if not isinstance(known, tirx.IntImm):
        return None
    inner, number = size_relation(operand, size), int(known)
    if inner is None:
        return None
    if isinstance(dim, tirx.Add):
        return replace(inner, offset=inner.offset + number)
    if isinstance(dim, tirx.Sub):
        return replace(inner, offset=inner.offset - number)
    if isinstance(dim, tirx.Mul):
        return replace(inner, factor=inner.factor * number, offset=inner.offset * number)
    if number <= 0 or inner.factor != 1:
        return None
    shift = inner.shift + inner.divisor * inner.offset
    return SizeRelation(shift, inner.divisor * number)


_STEPS = (tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv)
