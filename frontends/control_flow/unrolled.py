"""Short loops without a loop: each step stands where it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

# Beyond this many steps of one node each, a loop body is a function rather than repeated code.
MOST_NODES = 64


def unrolled(
    count: int,
    states: Sequence[T],
    body: Callable[[int, list[T]], tuple[bool | None, list[T], list[T]]],
) -> tuple[list[T], list[tuple[T, ...]]] | None:
    """Emit the steps one after the other.

    Args:
        count: Greatest number of steps, at least 1.
        states: What the first step is given.
        body: Emits a step; returns whether another one may follow (None: only the run tells), the
            states and the rows.

    Returns:
        The last states and, for each scan output, its rows; None if only the run tells how many
        steps there are.
    """
    columns: list[list[T]] = []
    current = list(states)
    for index in range(count):
        goes_on, current, rows = body(index, current)
        columns.append(rows)
        if index == count - 1 or goes_on is False:
            break
        if goes_on is None:
            return None
    return current, list(zip(*columns, strict=True))
