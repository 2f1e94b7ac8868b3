"""Order steps so that the most bytes alive at once are few: the order problem, free of any graph.

A step reads buffers and writes buffers, which live until their last reader has run. With no more
than `states` sets of executed steps to look at, the best order is found by a shortest path over
these sets, whose length is the peak (for the problem, NP-hard in general, see Sethi, "Complete
Register Allocation Problems", 1975); otherwise the step that frees most for what it allocates goes
first.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

_STATES = 4_000
_WORK = 1_000_000  # states times steps: large graphs see fewer states


@dataclass(frozen=True)
class Step:
    """Buffers read and written by number; steps that must come before, by position."""

    reads: frozenset[int]
    writes: frozenset[int]
    after: frozenset[int]


@dataclass(frozen=True)
class Order:
    """Positions in the new order, its peak in bytes, and a bound that no order can beat.

    `exact` says that no order has a lower peak.
    """

    steps: tuple[int, ...]
    peak: int
    bound: int
    exact: bool


def order_for_peak(
    steps: Sequence[Step], sizes: Sequence[int], kept: frozenset[int], states: int = _STATES
) -> Order:
    """Return an order of low peak, never above that of the order given.

    Args:
        steps: In an order that is valid.
        sizes: Bytes of each buffer.
        kept: Buffers that live on after the last step.
        states: How many sets of executed steps the exact search may look at.
    """
    problem = _Problem(steps, sizes, kept)
    bound = max((sum(sizes[b] for b in s.reads | s.writes) for s in steps), default=0)
    given = tuple(range(len(steps)))
    best, peak = given, problem.peak(given)
    if peak > bound:
        greedy = problem.greedy()
        if (found := problem.peak(greedy)) < peak:
            best, peak = greedy, found
    if peak > bound:
        exact = problem.exact(min(states, _WORK // len(steps)), peak)
        if exact is not None:
            best = exact if (found := problem.peak(exact)) < peak else best
            return Order(best, min(peak, found), bound, True)
    return Order(best, peak, bound, peak == bound)


class _Problem:
    """Sets of steps are integers, one bit a step."""

    def __init__(self, steps: Sequence[Step], sizes: Sequence[int], kept: frozenset[int]) -> None:
        self.steps, self.sizes = steps, sizes
        self.needs = [sum(1 << k for k in step.after) for step in steps]
        self.allocates = [sum(sizes[b] for b in step.writes) for step in steps]
        readers: dict[int, int] = {}
        for position, step in enumerate(steps):
            for buffer in step.reads | step.writes:  # a result that nobody reads dies at once
                readers[buffer] = readers.get(buffer, 0) | 1 << position
        never = 1 << len(steps)
        self.last = {b: mask | never if b in kept else mask for b, mask in readers.items()}

    def frees(self, step: int, done: int) -> int:
        """Return the bytes freed when `step` runs after the steps `done`."""
        done |= 1 << step
        buffers = self.steps[step].reads | self.steps[step].writes
        return sum(self.sizes[b] for b in buffers if not self.last[b] & ~done)

    def ready(self, done: int) -> list[int]:
        """Return the steps that may run next."""
        return [k for k, needs in enumerate(self.needs) if not done >> k & 1 and not needs & ~done]

    def peak(self, order: Sequence[int]) -> int:
        """Return the most bytes alive at once."""
        live = peak = done = 0
        for step in order:
            live += self.allocates[step]
            peak = max(peak, live)
            live -= self.frees(step, done)
            done |= 1 << step
        return peak

    def greedy(self) -> tuple[int, ...]:
        """Run what adds fewest bytes first; of equals, what the given order runs first."""
        waits = [len(step.after) for step in self.steps]
        followers: list[list[int]] = [[] for _ in self.steps]
        for position, step in enumerate(self.steps):
            for before in step.after:
                followers[before].append(position)
        done, order = 0, []

        def entry(k: int) -> tuple[int, int]:
            return self.allocates[k] - self.frees(k, done), k

        queue = [entry(k) for k, count in enumerate(waits) if not count]
        heapq.heapify(queue)
        while queue:
            _, chosen = heapq.heappop(queue)
            if done >> chosen & 1:
                continue
            order.append(chosen)
            done |= 1 << chosen
            # A step comes to free more only when it is the last that some buffer waits for.
            touched = self.steps[chosen].reads | self.steps[chosen].writes
            waiting = {self.last[buffer] & ~done for buffer in touched}
            better = [mask.bit_length() - 1 for mask in waiting if mask.bit_count() == 1]
            for follower in followers[chosen]:
                waits[follower] -= 1
            for k in {*followers[chosen], *better}:
                if k < len(self.steps) and not waits[k]:
                    heapq.heappush(queue, entry(k))
        return tuple(order)

    def exact(self, states: int, limit: int) -> tuple[int, ...] | None:
        """Return an order of the lowest peak; None if more than `states` sets had to be seen.

        `limit` is a peak known to be possible: what goes above it is not followed.
        """
        everything = (1 << len(self.steps)) - 1
        queue: list[tuple[int, int, int, int]] = [(0, 0, 0, 0)]  # peak, steps to go, done, live
        came: dict[int, tuple[int, int]] = {0: (-1, -1)}
        peaks = {0: 0}
        seen: set[int] = set()
        while queue:
            peak, _, done, live = heapq.heappop(queue)
            if done == everything:
                return _path(came, done)
            if done in seen:
                continue
            seen.add(done)
            if len(seen) > states:
                return None
            moves = [
                (k, live + self.allocates[k], live + self.allocates[k] - self.frees(k, done))
                for k in self.ready(done)
            ]
            # What raises neither the peak nor the bytes that stay can only help, so it goes first.
            free = [move for move in moves if move[1] <= peak and move[2] <= live]
            for step, during, after in free[:1] or moves:
                reached, height = done | 1 << step, max(peak, during)
                if height <= limit and height < peaks.get(reached, limit + 1):
                    peaks[reached] = height
                    came[reached] = (done, step)
                    left = len(self.steps) - reached.bit_count()
                    heapq.heappush(queue, (height, left, reached, after))
        return None


def _path(came: dict[int, tuple[int, int]], done: int) -> tuple[int, ...]:
    order = []
    while done:
        done, step = came[done]
        order.append(step)
    return tuple(reversed(order))
