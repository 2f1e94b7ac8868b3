"""Search for offsets that fit a given capacity: depth first, with proofs that a branch is futile.

Buffers are placed in the order of their offsets, each as low as those below it allow; every
solution can be pushed down into this form. At a node of the search, `floor` is the height below
which nothing more will be placed, at each step of the program. A branch ends when some step's floor
and the buffers still to be placed over it exceed the capacity. Buffers that would leave room for
another one entirely below them need not be tried, equal buffers are interchangeable, and buffers
that share no step with the rest are solved on their own (Moffitt, "MiniMalloc: A Lightweight Memory
Allocator for Hardware-Accelerated Machine Learning", ASPLOS 2023).

Among the buffers that may go lowest, the one that covers most of the arena goes first. A search
that went wrong early would stay wrong for ages, so it is cut short and begun anew with the order
disturbed (Gomes, Selman, Kautz, "Boosting Combinatorial Search Through Randomization", AAAI 1998).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_NODES_PER_START = 2000
_DISTURBANCE = 0.3  # standard deviations of the logarithm of the area
_NOTHING = 1 << 62


class _OutOfNodes(Exception):
    """The current start has visited as many nodes as it may."""


def fit_capacity(
    buffers: Sequence[tuple[int, int, int]], capacity: int, nodes: int
) -> list[int] | None:
    """Return offsets whose peak is at most `capacity`, or None if none is found or none exists.

    Args:
        buffers: (lower, upper, size): first step, step after the last, bytes; sizes above zero.
        capacity: Bytes of the arena.
        nodes: Nodes to visit before giving up. A node takes time proportional to the buffers times
            the steps, some 0.2 ms for 200 of each. Equal arguments give equal results.
    """
    if not buffers:
        return []
    problem = _Problem(buffers, capacity)
    area = np.log(problem.size * (problem.end - problem.start).astype(float))
    spread = float(area.std()) or 1.0
    choice = np.random.default_rng(0)
    priority = area
    while nodes > 0:
        allowed = min(nodes, _NODES_PER_START)
        nodes -= allowed
        try:
            found = problem.search(priority, allowed)
        except _OutOfNodes:
            priority = area + choice.normal(0, _DISTURBANCE * spread, len(area))
            continue
        return [int(offset) for offset in problem.offsets] if found else None
    return None


class _Problem:
    """The buffers as arrays over slots, the stretches of time between two starts or ends."""

    def __init__(self, buffers: Sequence[tuple[int, int, int]], capacity: int) -> None:
        times = sorted({time for lower, upper, _ in buffers for time in (lower, upper)})
        slot = {time: number for number, time in enumerate(times)}
        self.capacity = capacity
        self.size = np.array([size for _, _, size in buffers], np.int64)
        self.start = np.array([slot[lower] for lower, _, _ in buffers])
        self.end = np.array([slot[upper] for _, upper, _ in buffers])
        self.slots = len(times) - 1
        steps = np.arange(self.slots)
        self.covers = (steps >= self.start[:, None]) & (steps < self.end[:, None])
        self.offsets = np.zeros(len(buffers), np.int64)
        # The buffer before this one that equals it: it goes first.
        seen: dict[tuple[int, int, int], int] = {}
        self.twin = np.full(len(buffers), -1)
        for number, buffer in enumerate(buffers):
            self.twin[number] = seen.get(buffer, -1)
            seen[buffer] = number

    def search(self, priority: np.ndarray, nodes: int) -> bool:
        """Fill `offsets`; return whether that is possible. Raise _OutOfNodes when cut short."""
        self.rank = np.empty(len(priority), np.int64)
        self.rank[np.argsort(-priority, kind="stable")] = np.arange(len(priority))
        self.nodes = nodes
        everything = np.arange(len(priority))
        return self._place_all(everything, np.zeros(self.slots, np.int64), (-1, -1))

    def _place_all(self, left: np.ndarray, floor: np.ndarray, last: tuple[int, int]) -> bool:
        """Place the buffers `left` above `floor`, after the one of offset and rank `last`."""
        if not len(left):
            return True
        parts = self._independent(left)
        if len(parts) > 1:
            return all(self._place_all(part, floor, (-1, -1)) for part in parts)
        if not self.nodes:
            raise _OutOfNodes
        self.nodes -= 1
        first, stop = self.start[left].min(), self.end[left].max()
        covers, size = self.covers[left, first:stop], self.size[left]
        here = floor[first:stop]
        lowest = np.where(covers, here, 0).max(1)
        waits = np.where(covers, lowest[:, None], _NOTHING).min(0)
        here = np.where(waits == _NOTHING, here, waits)
        if (here + size @ covers > self.capacity).any() or (lowest + size).max() > self.capacity:
            return False
        for place in self._candidates(left, lowest, last):
            buffer, offset = left[place], lowest[place]
            raised = floor.copy()
            raised[first:stop] = np.maximum(here, offset)
            raised[self.start[buffer] : self.end[buffer]] = offset + self.size[buffer]
            self.offsets[buffer] = offset
            placed = (int(offset), int(self.rank[buffer]))
            if self._place_all(np.delete(left, place), raised, placed):
                return True
        return False

    def _independent(self, left: np.ndarray) -> list[np.ndarray]:
        """Split the buffers where no buffer lives on; the smallest part comes first."""
        order = left[np.argsort(self.start[left], kind="stable")]
        reach = np.maximum.accumulate(self.end[order])
        cuts = np.nonzero(self.start[order][1:] >= reach[:-1])[0]
        return sorted(np.split(order, cuts + 1), key=len) if len(cuts) else [left]

    def _candidates(
        self, left: np.ndarray, lowest: np.ndarray, last: tuple[int, int]
    ) -> np.ndarray:
        """Return which of `left` may be next, the lowest first, then the one of best rank."""
        rank = self.rank[left]
        may = lowest < (lowest + self.size[left]).min()
        may &= (lowest > last[0]) | ((lowest == last[0]) & (rank > last[1]))
        may &= ~np.isin(self.twin[left], left)
        places = np.nonzero(may)[0]
        return places[np.lexsort((rank[places], lowest[places]))]
