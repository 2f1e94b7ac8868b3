"""Arithmetic on shapes and orders of axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm.sym import Analyzer

from frontends.torch.symbolic_shapes import Size


def product(sizes: Sequence[Size]) -> Size:
    """Return the number of elements of a shape."""
    total: Size = 1
    for size in sizes:
        total = total * size
    return total


def spread(value: Any, rank: int) -> tuple[int, ...]:
    """Return a per-axis argument in full: torch lets one number stand for all axes."""
    values = [value] if isinstance(value, int) else list(value)
    return tuple(values * rank if len(values) == 1 else values)


def inverse(order: Sequence[int]) -> list[int]:
    """Return the permutation that undoes one."""
    return [order.index(axis) for axis in range(len(order))]


def same_shape(left: list[Size], right: list[Size]) -> bool:
    """Return whether two shapes are equal for certain."""
    return len(left) == len(right) and all(
        a == b if isinstance(a, int) and isinstance(b, int) else _equal(a, b)
        for a, b in zip(left, right, strict=True)
    )


def _equal(left: Size, right: Size) -> bool:
    return Analyzer().can_prove_equal(left, right)
