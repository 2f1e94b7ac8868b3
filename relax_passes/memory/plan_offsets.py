"""Pack live ranges into one arena: the offset problem, free of any graph.

Each buffer is a rectangle: its time [lower, upper) is fixed, its height is its size, and its offset
is to be found so that no two rectangles overlap and the top of the highest is low (dynamic storage
allocation, NP-hard: Garey and Johnson, problem SR2). The strategies are in `greedy_offsets.py`;
`search` tries all of them, then looks for a plan that meets the lower bound (`search_offsets.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Literal, get_args

from relax_passes.memory.greedy_offsets import Buffer, place_greedily
from relax_passes.memory.search_offsets import search_offsets

Strategy = Literal[
    "search", "greedy_by_size", "greedy_by_breadth", "first_fit", "best_fit", "buddy"
]
STRATEGIES: tuple[str, ...] = get_args(Strategy)

_MOST = 1 << 60  # the search adds sizes, in units of the alignment, over all steps in 64 bits


@dataclass(frozen=True)
class Plan:
    """Byte offsets, one a buffer; `peak` is the arena's size, `lower_bound` no plan can beat."""

    offsets: tuple[int, ...]
    peak: int
    lower_bound: int

    @property
    def ratio(self) -> float:
        """The peak over the lower bound; 1 where nothing is to be placed."""
        return self.peak / self.lower_bound if self.lower_bound else 1.0


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
        TypeError: If a number is no integer; those of NumPy are.
        ValueError: If a triple is malformed, the alignment is not positive, the strategy is
            unknown, or the buffers are too many and too large for 64-bit sums.
    """
    alignment = index(alignment)
    capacity = None if capacity is None else index(capacity)
    if strategy not in STRATEGIES:
        raise ValueError(f"unknown strategy {strategy!r}, expected one of {STRATEGIES}")
    if alignment < 1:
        raise ValueError(f"alignment must be a positive number of bytes, got {alignment}")
    items = []
    for number, buffer in enumerate(buffers):
        if len(buffer) != 3:
            raise ValueError(f"buffer {number}: needs lower, upper and size, has {len(buffer)}")
        lower, upper, size = map(index, buffer)
        if lower >= upper or size < 0:
            raise ValueError(f"buffer {number}: needs lower < upper and size >= 0")
        items.append(Buffer(lower, upper, -(-size // alignment)))  # in units of the alignment
    if sum(item.size for item in items) * len(items) > _MOST:
        raise ValueError("sizes add up to too much: times the number of buffers, over 2^60")
    bound = max_live_bytes(items)
    if strategy == "search":
        offsets = search_offsets(items, bound, None if capacity is None else capacity // alignment)
    else:
        offsets = place_greedily(items, strategy)
    peak = max((o + b.size for o, b in zip(offsets, items, strict=True)), default=0)
    return Plan(tuple(o * alignment for o in offsets), peak * alignment, bound * alignment)


def max_live_bytes(items: Sequence[Buffer]) -> int:
    """Return the greatest number of bytes alive at one step: no plan has a lower peak."""
    return fullest_step(items)[1]


def fullest_step(items: Sequence[Buffer]) -> tuple[int, int]:
    """Return the first step at which the most bytes are alive, and how many; 0 where none are."""
    events: dict[int, int] = {}
    for b in items:
        events[b.lower] = events.get(b.lower, 0) + b.size
        events[b.upper] = events.get(b.upper, 0) - b.size
    live = peak = fullest = 0
    for step in sorted(events):
        live += events[step]
        if live > peak:
            peak, fullest = live, step
    return fullest, peak
