"""Check offsets against live ranges: no two buffers alive together share bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class OverlapError(ValueError):
    """Two buffers that are alive together share bytes."""


def verify_offsets(
    buffers: Iterable[tuple[int, int, int]],
    offsets: Sequence[int],
    arena_bytes: int,
    alignment: int = 64,
) -> None:
    """Check offsets against live ranges, (lower, upper, size) triples with `upper` exclusive.

    Raises:
        OverlapError: If two buffers alive together share bytes, or one leaves the arena or is
            not aligned.
    """
    given = list(buffers)
    if len(given) != len(offsets):
        raise OverlapError(f"{len(given)} buffers but {len(offsets)} offsets")
    for i, ((_, _, size), offset) in enumerate(zip(given, offsets, strict=True)):
        if offset < 0 or offset % alignment or offset + size > arena_bytes:
            raise OverlapError(f"buffer {i} at {offset} is misaligned or outside {arena_bytes}")
    alive: list[int] = []
    for i in sorted(range(len(given)), key=lambda k: given[k][0]):
        lower, _, size = given[i]
        alive = [j for j in alive if given[j][1] > lower]
        for j in alive:
            if offsets[i] < offsets[j] + given[j][2] and offsets[j] < offsets[i] + size:
                raise OverlapError(f"buffers {j} and {i} share bytes while both are live")
        alive.append(i)
