"""Sizes of dimensions: numbers, or `scale * symbol + offset`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Affine:
    """The size `scale * symbol + offset`."""

    symbol: str
    scale: int = 1
    offset: int = 0


Size = int | Affine
Shape = tuple[Size, ...]


def plus(size: Size, other: Size) -> Size | None:
    """Return the sum, None if it has two symbols."""
    if isinstance(size, int) and isinstance(other, int):
        return size + other
    if isinstance(size, int):
        return plus(other, size)
    if isinstance(other, int):
        return Affine(size.symbol, size.scale, size.offset + other)
    if size.symbol != other.symbol:
        return None
    return Affine(size.symbol, size.scale + other.scale, size.offset + other.offset)


def times(size: Size, factor: int) -> Size:
    """Return the product."""
    if isinstance(size, int):
        return size * factor
    return Affine(size.symbol, size.scale * factor, size.offset * factor)


def product(shape: Sequence[Size]) -> Size | None:
    """Return the number of elements, None if two sizes are symbolic."""
    known, symbolic = 1, [s for s in shape if isinstance(s, Affine)]
    for size in shape:
        known *= size if isinstance(size, int) else 1
    if len(symbolic) > 1:
        return None
    return times(symbolic[0], known) if symbolic else known


def concrete(shape: Sequence[Size], values: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape where the symbols have the given values."""
    return tuple(s if isinstance(s, int) else s.scale * values[s.symbol] + s.offset for s in shape)


def broadcast(left: Shape, right: Shape) -> Shape | None:
    """Return the shape NumPy's broadcasting gives, None if the shapes do not fit provably."""
    rank = max(len(left), len(right))
    pairs = zip((1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right, strict=True)
    result: list[Size] = []
    for a, b in pairs:
        if a != b and a != 1 and b != 1:
            return None
        result.append(b if a == 1 else a)
    return tuple(result)
