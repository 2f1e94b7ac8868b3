"""Place live ranges one after another, in a fixed order, each into a gap that its strategy picks.

`first_fit`, `best_fit` and `buddy` (Knowlton, "A Fast Storage Allocator", CACM 8, 1965) allocate in
the order the program does; `greedy_by_size` and `greedy_by_breadth` are those of Pisarchyk and Lee,
"Efficient Memory Management for Deep Neural Net Inference" (2020).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

GREEDY_STRATEGIES = ("greedy_by_size", "greedy_by_breadth", "first_fit", "best_fit", "buddy")
Fit = Callable[[list[tuple[int, int]], int], int]


@dataclass(frozen=True)
class Buffer:
    """A buffer that lives over the steps [lower, upper) and takes `size` bytes."""

    lower: int
    upper: int
    size: int


def place_greedily(items: Sequence[Buffer], strategy: str) -> list[int]:
    """Return an offset for each buffer, by one of `GREEDY_STRATEGIES`."""
    fit: Fit = _best_fit if strategy == "best_fit" else first_fit
    # Buddies: a block is a power of two, and starts at a multiple of itself.
    block = [_power_of_two(b.size) if strategy == "buddy" else b.size for b in items]
    if strategy == "buddy":
        fit = _first_multiple
    neighbours = _neighbours(items)
    offsets = [-1] * len(items)
    for i in _order(items, strategy):
        taken = sorted(
            (offsets[j], offsets[j] + block[j]) for j in neighbours[i] if offsets[j] >= 0
        )
        offsets[i] = fit(taken, block[i])
    return offsets


def _neighbours(items: Sequence[Buffer]) -> list[list[int]]:
    """Return for each buffer those alive at some common step, by a sweep over the starts."""
    result: list[list[int]] = [[] for _ in items]
    alive: list[int] = []
    for i in sorted(range(len(items)), key=lambda k: items[k].lower):
        alive = [j for j in alive if items[j].upper > items[i].lower]
        for j in alive:
            result[i].append(j)
            result[j].append(i)
        alive.append(i)
    return result


def _order(items: Sequence[Buffer], strategy: str) -> list[int]:
    indices = list(range(len(items)))
    if strategy in ("first_fit", "best_fit", "buddy"):  # in the order the program allocates
        return sorted(indices, key=lambda i: (items[i].lower, -items[i].size))
    if strategy == "greedy_by_breadth":  # the fullest steps first
        breadth = greatest_load(items)
        return sorted(indices, key=lambda i: (-breadth[i], -items[i].size, items[i].lower))
    return sorted(indices, key=lambda i: (-items[i].size, items[i].lower - items[i].upper))


def greatest_load(items: Sequence[Buffer]) -> list[int]:
    """Return for each buffer the most bytes alive at a step that it lives over."""
    change: dict[int, int] = {}
    for b in items:
        change[b.lower] = change.get(b.lower, 0) + b.size
        change[b.upper] = change.get(b.upper, 0) - b.size
    steps = sorted(change)
    place = {step: number for number, step in enumerate(steps)}
    # Row k holds the greatest of each 2^k loads in a row (Bender and Farach-Colton, 2000).
    greatest = [list(accumulate(change[step] for step in steps))]
    while 2 << len(greatest) - 1 <= len(steps):
        row, half = greatest[-1], 1 << len(greatest) - 1
        greatest.append(list(map(max, row, row[half:])))

    def most(first: int, last: int) -> int:
        rank = (last - first).bit_length() - 1
        return max(greatest[rank][first], greatest[rank][last - (1 << rank)])

    return [most(place[b.lower], place[b.upper]) for b in items]


def first_fit(taken: list[tuple[int, int]], size: int) -> int:
    """Return the lowest gap that holds `size`; `taken` is sorted (offset, end) pairs."""
    offset = 0
    for start, end in taken:
        if start - offset >= size:
            return offset
        offset = max(offset, end)
    return offset


def _best_fit(taken: list[tuple[int, int]], size: int) -> int:
    """Return the smallest gap that holds `size`, the top of the arena if none does."""
    best: tuple[int, int] | None = None
    offset = 0
    for start, end in taken:
        gap = start - offset
        if gap >= size and (best is None or gap < best[0]):
            best = (gap, offset)
        offset = max(offset, end)
    return offset if best is None else best[1]


def _first_multiple(taken: list[tuple[int, int]], size: int) -> int:
    """Return the lowest multiple of `size` at which `size` bytes are free."""
    offset = 0
    for start, end in taken:
        if start - offset >= size:
            return offset
        offset = max(offset, -(-end // max(size, 1)) * size)
    return offset


def _power_of_two(size: int) -> int:
    return 1 << (size - 1).bit_length() if size else 0
