"""Pack live ranges into one arena: the offset problem, free of any graph.

Each buffer is a rectangle: its time [lower, upper) is fixed, its height is its size, and its offset
is to be found so that no two rectangles overlap and the top of the highest is low (dynamic storage
allocation, NP-hard: Garey and Johnson, problem SR2). Strategies follow Pisarchyk and Lee,
"Efficient Memory Management for Deep Neural Net Inference" (2020); `search` tries all of them, then
looks for a plan that meets the lower bound (`exact_search.py`), then fills the arena by skyline
(`skyline.py`) until its budget is spent.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from relax_passes.memory.exact_search import fit_capacity
from relax_passes.memory.skyline import place_by_skyline

Strategy = Literal["search", "greedy_by_size", "greedy_by_breadth", "first_fit", "best_fit"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)
# What `search` may spend: counts, not a clock, so that a build gives the same plan everywhere.
_SEARCH_ROUNDS = 150
_SEARCH_WORK = 6_000_000  # rounds times buffers squared: about two seconds
_EXACT_NODES = 8_000  # about two seconds for 200 buffers
_FIT_NODES = 150_000  # where the user states a capacity: up to a minute
_EXACT_BUFFERS = 400  # the search goes as deep as there are buffers


@dataclass(frozen=True)
class Buffer:
    """A buffer that lives over the steps [lower, upper) and takes `size` bytes."""

    lower: int
    upper: int
    size: int


@dataclass(frozen=True)
class Plan:
    """Byte offsets, one a buffer; `peak` is the arena's size, `lower_bound` no plan can beat."""

    offsets: tuple[int, ...]
    peak: int
    lower_bound: int


def plan_offsets(
    buffers: Sequence[tuple[int, int, int]],
    *,
    strategy: str = "search",
    alignment: int = 64,
    capacity: int | None = None,
) -> Plan:
    """Find an offset for each buffer so that buffers alive together do not overlap.

    Args:
        buffers: (lower, upper, size) triples: first step, step after the last, bytes.
        strategy: One of `STRATEGIES`.
        alignment: Every offset is a multiple of this many bytes.
        capacity: Bytes the arena may take: `search` then looks longer, and stops once they suffice.

    Raises:
        ValueError: If a triple is malformed, or the strategy is unknown.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"unknown strategy {strategy!r}, expected one of {STRATEGIES}")
    items = []
    for number, (lower, upper, size) in enumerate(buffers):
        if lower >= upper or size < 0:
            raise ValueError(f"buffer {number}: needs lower < upper and size >= 0")
        items.append(Buffer(lower, upper, -(-size // alignment) * alignment))
    bound = max_live_bytes(items)
    neighbours = _neighbours(items)
    if strategy == "search":
        offsets = _search(items, neighbours, bound, capacity)
    else:
        fit = _best_fit if strategy == "best_fit" else _first_fit
        offsets = _place(items, neighbours, _order(items, strategy), fit)
    peak = max((o + b.size for o, b in zip(offsets, items, strict=True)), default=0)
    return Plan(tuple(offsets), peak, bound)


def max_live_bytes(items: Sequence[Buffer]) -> int:
    """Return the greatest number of bytes alive at one step: no plan has a lower peak."""
    events: dict[int, int] = {}
    for b in items:
        events[b.lower] = events.get(b.lower, 0) + b.size
        events[b.upper] = events.get(b.upper, 0) - b.size
    live = peak = 0
    for step in sorted(events):
        live += events[step]
        peak = max(peak, live)
    return peak


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
    if strategy in ("first_fit", "best_fit"):  # in the order the program allocates
        return sorted(indices, key=lambda i: (items[i].lower, -items[i].size))
    if strategy == "greedy_by_breadth":  # the fullest steps first
        breadth = _step_loads(items)
        return sorted(indices, key=lambda i: (-max(breadth[i]), -items[i].size, items[i].lower))
    return sorted(indices, key=lambda i: (-items[i].size, items[i].lower - items[i].upper))


def _step_loads(items: Sequence[Buffer]) -> list[list[int]]:
    """Return for each buffer the live bytes at the step where it starts and each later start."""
    starts = sorted({b.lower for b in items})
    load = {s: sum(b.size for b in items if b.lower <= s < b.upper) for s in starts}
    return [[load[s] for s in starts if b.lower <= s < b.upper] for b in items]


Fit = Callable[[list[tuple[int, int]], int], int]


def _first_fit(taken: list[tuple[int, int]], size: int) -> int:
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


def _place(
    items: Sequence[Buffer], neighbours: Sequence[Sequence[int]], order: Sequence[int], fit: Fit
) -> list[int]:
    offsets = [-1] * len(items)
    for i in order:
        taken = sorted(
            (offsets[j], offsets[j] + items[j].size) for j in neighbours[i] if offsets[j] >= 0
        )
        offsets[i] = fit(taken, items[i].size)
    return offsets


def _search(
    items: Sequence[Buffer],
    neighbours: Sequence[Sequence[int]],
    bound: int,
    capacity: int | None = None,
) -> list[int]:
    """Try each greedy order, then to fit exactly, then skylines under disturbed priorities."""
    goal = max(bound, capacity or 0)

    def peak(offsets: Sequence[int]) -> int:
        return max((o + b.size for o, b in zip(offsets, items, strict=True)), default=0)

    best: list[int] = []
    for strategy in ("greedy_by_size", "greedy_by_breadth", "first_fit", "best_fit"):
        fit = _best_fit if strategy == "best_fit" else _first_fit
        offsets = _place(items, neighbours, _order(items, strategy), fit)
        if not best or peak(offsets) < peak(best):
            best = offsets
        if peak(best) <= goal:
            return best

    triples = [(b.lower, b.upper, b.size) for b in items]
    solid = [i for i, b in enumerate(items) if b.size]
    if len(solid) <= _EXACT_BUFFERS:
        nodes = _EXACT_NODES if capacity is None else _FIT_NODES
        fitted = fit_capacity([triples[i] for i in solid], goal, nodes)
        if fitted is not None:
            best = [0] * len(items)
            for i, offset in zip(solid, fitted, strict=True):
                best[i] = offset
            return best
    starts = [
        [float(b.size) for b in items],
        [float(b.upper - b.lower) for b in items],
        [math.sqrt(b.size * (b.upper - b.lower)) for b in items],
    ]
    tried = [(place_by_skyline(triples, p), p) for p in starts]
    offsets, priority = min(tried, key=lambda placed: peak(placed[0]))
    current = peak(offsets)
    best = min(best, offsets, key=peak)
    choice = random.Random(0)
    for _ in range(min(_SEARCH_ROUNDS, _SEARCH_WORK // len(items) ** 2)):
        if peak(best) <= goal:
            break
        changed = list(priority)
        for _ in range(choice.choice((1, 2, 4, 8))):
            changed[choice.randrange(len(items))] *= 2 ** choice.uniform(-4, 4)
        offsets = place_by_skyline(triples, changed)
        if peak(offsets) <= current:  # equal moves walk along a plateau
            current, priority = peak(offsets), changed
            best = min(best, offsets, key=peak)
    return best
