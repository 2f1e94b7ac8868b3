"""Fill an arena from below: always place at the lowest stretch of the skyline.

The skyline is the height reached so far at each step of the program. The lowest stretch takes, of
the buffers that live wholly within it, one that touches its ends, then the one of greatest
priority; a stretch that fits no buffer is raised to its lower neighbour and lost. This is the
best-fit heuristic for strip packing (Burke, Kendall and Whitwell, Operations Research 52, 2004),
with the horizontal position of each rectangle fixed.
"""

from __future__ import annotations

from collections.abc import Sequence

_NEVER = 1 << 62  # the height of a step at which no buffer is left to place


def place_by_skyline(
    buffers: Sequence[tuple[int, int, int]], priority: Sequence[float]
) -> list[int]:
    """Return an offset for each (lower, upper, size) buffer; equal inputs give equal offsets.

    Args:
        buffers: Live ranges, `upper` exclusive, and sizes in bytes.
        priority: Which of several buffers that fit a stretch goes first: the greatest.
    """
    times = sorted({time for lower, upper, _ in buffers for time in (lower, upper)})
    slot = {time: index for index, time in enumerate(times)}
    spans = [(slot[lower], slot[upper]) for lower, upper, _ in buffers]
    count = max(len(times) - 1, 0)
    waiting = [0] * count  # buffers still to be placed over each slot
    for start, end in spans:
        for k in range(start, end):
            waiting[k] += 1
    height = [0 if n else _NEVER for n in waiting]
    offsets = [0] * len(buffers)
    left = list(range(len(buffers)))
    while left:
        low = min(height)
        start = height.index(low)
        end = start
        while end < count and height[end] == low:
            end += 1
        chosen = _fitting(left, spans, priority, start, end)
        if chosen is None:
            before = height[start - 1] if start else _NEVER
            after = height[end] if end < count else _NEVER
            height[start:end] = [min(before, after)] * (end - start)
            continue
        left.remove(chosen)
        offsets[chosen] = low
        top = low + buffers[chosen][2]
        for k in range(*spans[chosen]):
            waiting[k] -= 1
            height[k] = top if waiting[k] else _NEVER
    return offsets


def _fitting(
    left: Sequence[int],
    spans: Sequence[tuple[int, int]],
    priority: Sequence[float],
    start: int,
    end: int,
) -> int | None:
    """Return the best buffer within the slots [start, end), None if none lives within them."""
    best: int | None = None
    best_key = (-1, 0.0)
    for i in left:
        first, last = spans[i]
        if first >= start and last <= end:
            key = ((first == start) + (last == end), priority[i])
            if best is None or key > best_key:
                best, best_key = i, key
    return best
