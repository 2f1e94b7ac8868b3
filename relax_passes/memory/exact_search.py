"""Search for offsets that fit a given capacity: fill valleys of the skyline, learn where it fails.

The skyline is the height below which nothing more will be placed, at each slot of time. Every plan
can be pushed down until each buffer rests on the floor or on another one, and such a plan can be
built from below: a *valley* is a stretch of equal height between higher neighbours; of a slot in it
either a buffer that lives within the valley covers it next, or a hole remains there, and the slot
rises to the next height at which a buffer could come to lie. These few options are a node's
branches. Valleys do not depend on each other, so the search is free to choose the slot.

It chooses the slot with the fewest options for the times it has failed before (Boussemart, Hemery,
Lecoutre, Sais, "Boosting Systematic Search by Weighting Constraints", ECAI 2004), so it starts
where the problem is hard. It is cut short and begun anew, slightly disturbed, with these weights
kept (Gomes, Selman, Kautz, "Boosting Combinatorial Search Through Randomization", AAAI 1998). A
branch ends when at some slot the skyline and the buffers to come exceed the capacity, and buffers
that share no slot with the rest are solved on their own (both as in Moffitt, "MiniMalloc: A
Lightweight Memory Allocator for Hardware-Accelerated Machine Learning", ASPLOS 2023).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from relax_passes.memory.time_slots import NOTHING, TimeSlots

_NODES_PER_START = 1.5  # a buffer
_MORE_EACH_START = 1.1
_DISTURBANCE = 0.1  # standard deviations of the logarithm of the area


@dataclass
class _State:
    """Buffers still to be placed, the lowest offset of each, the skyline, and the room above it.

    `floor` is NOTHING where no buffer is left to place; `room` is the greatest height at which the
    buffers left over a slot still fit.
    """

    left: np.ndarray
    lowest: np.ndarray
    floor: np.ndarray
    room: np.ndarray


@dataclass
class _Choice:
    """States to go on with, the best first; what is placed by entering each is (buffer, offset)."""

    options: Iterator[tuple[_State, tuple[int, int] | None]]


@dataclass
class _Parts:
    """Parts of a split state that wait for the one being solved."""

    waiting: list[_State]


def fit_capacity(
    buffers: Sequence[tuple[int, int, int]], capacity: int, nodes: int
) -> list[int] | None:
    """Return offsets whose peak is at most `capacity`, or None if none is found or none exists.

    Args:
        buffers: (lower, upper, size): first step, step after the last, bytes; sizes above zero.
        capacity: Bytes of the arena.
        nodes: Nodes to visit before giving up, some 0.1 ms each for 200 buffers. Equal arguments
            give equal results.
    """
    if not buffers:
        return []
    search = _Search(buffers, capacity)
    area = np.log(search.size * search.slots.lengths.astype(float))
    spread = float(area.std()) or 1.0
    choice = np.random.default_rng(0)
    priority, allowed = area, _NODES_PER_START * len(buffers) + 50
    looks_ahead = False
    while nodes > 0:
        found = search.run(priority, looks_ahead, min(nodes, int(allowed)))
        if found is not None:
            return [int(offset) for offset in search.offsets] if found else None
        nodes -= int(allowed)
        allowed *= _MORE_EACH_START
        looks_ahead = not looks_ahead
        priority = area + choice.normal(0, _DISTURBANCE * spread, len(area))
    return None


class _Search:
    def __init__(self, buffers: Sequence[tuple[int, int, int]], capacity: int) -> None:
        self.slots = TimeSlots([(lower, upper) for lower, upper, _ in buffers])
        self.size = np.array([size for *_, size in buffers], np.int64)
        self.capacity = capacity
        self.offsets = np.zeros(len(buffers), np.int64)
        self.failures = np.ones(self.slots.count)
        # The buffer before this one that equals it: it goes first.
        seen: dict[tuple[int, int, int], int] = {}
        self.twin = np.full(len(buffers), -1)
        for number, buffer in enumerate(buffers):
            self.twin[number] = seen.get(buffer, -1)
            seen[buffer] = number

    def run(self, priority: np.ndarray, looks_ahead: bool, nodes: int) -> bool | None:
        """Fill `offsets`; tell whether that is possible, None when cut short.

        Args:
            priority: Which buffer goes first, of several that fit a valley equally well.
            looks_ahead: Prefer the buffer that leaves most room at the slots beside it.
            nodes: How many states to look at.
        """
        self.priority, self.looks_ahead = priority, looks_ahead
        stack: list[_Choice | _Parts] = []
        everything = np.arange(len(self.size))
        state = self._state(everything, np.zeros(self.slots.count, np.int64))
        if state is None:
            return False
        while True:
            if state is not None and not len(state.left):
                state = self._next_part(stack)
                if state is None:
                    return True
                continue
            if state is not None:
                parts = self._independent(state)
                if len(parts) > 1:
                    state = parts.pop()
                    stack.append(_Parts(parts))
                if not nodes:
                    return None
                nodes -= 1
                stack.append(_Choice(self._options(state)))
            state = self._next_option(stack)
            if state is None and not stack:
                return False

    def _next_part(self, stack: list[_Choice | _Parts]) -> _State | None:
        """Drop the choices of the part just solved; return a part that waits, None at the end."""
        while stack:
            top = stack.pop()
            if isinstance(top, _Parts) and top.waiting:
                state = top.waiting.pop()
                stack.append(top)
                return state
        return None

    def _next_option(self, stack: list[_Choice | _Parts]) -> _State | None:
        """Enter the next option of the last choice that has one left; None if that ran out."""
        top = stack[-1]
        if isinstance(top, _Choice):
            for state, placed in top.options:
                if placed is not None:
                    self.offsets[placed[0]] = placed[1]
                return state
        # A part that cannot be solved fails the state it was split from.
        stack.pop()
        return None

    def _independent(self, state: _State) -> list[_State]:
        """Split where no buffer lives on; the part that has failed most comes last."""
        order = state.left[np.argsort(self.slots.start[state.left], kind="stable")]
        reach = np.maximum.accumulate(self.slots.end[order])
        cuts = np.nonzero(self.slots.start[order][1:] >= reach[:-1])[0]
        if not len(cuts):
            return [state]
        parts = []
        for part in np.split(order, cuts + 1):
            first, stop = self.slots.start[part[0]], self.slots.end[part].max()
            here = np.isin(state.left, part)
            floor, room = np.full_like(state.floor, NOTHING), state.room
            floor[first:stop] = state.floor[first:stop]
            reduced = _State(state.left[here], state.lowest[here], floor, room)
            parts.append((self.failures[first:stop].max(), reduced))
        parts.sort(key=lambda pair: pair[0])
        return [part for _, part in parts]

    def _state(self, left: np.ndarray, floor: np.ndarray) -> _State | None:
        """Return the state over a skyline, None if the buffers left do not fit above it."""
        slots = self.slots
        lowest = slots.highest_over_span(floor, left)
        risen = slots.lowest_over_slot(lowest, left)
        room = self.capacity - slots.sum_over_slot(self.size[left], left)
        too_full = np.nonzero((risen > room) & (risen < NOTHING))[0]
        if len(too_full):
            self.failures[too_full[0]] += 1
            return None
        return _State(left, lowest, risen, room)

    def _options(self, state: _State) -> Iterator[tuple[_State, tuple[int, int] | None]]:
        """Yield the states that follow, each with the buffer placed, None for a hole."""
        slots, left, lowest, floor = self.slots, state.left, state.lowest, state.floor
        valleys = slots.valleys(floor)
        inside = slots.all_over_span(valleys, left)
        within = left[inside]
        count = slots.sum_over_slot(1, within)
        risen = np.minimum(
            slots.lowest_over_slot(lowest[~inside], left[~inside]),
            slots.next_height(floor, within, self.size[within]),
        )
        hole = valleys & (risen <= state.room)
        options = count + hole
        stuck = np.nonzero(valleys & (options == 0))[0]
        if len(stuck):
            self.failures[stuck[0]] += 1
            return
        score = np.where(options == 1, -1.0, options / self.failures)
        slot = int(np.argmin(np.where(valleys, score, np.inf)))
        follow = self._placed(state, slot, self._candidates(within, slot, valleys))
        yield from self._by_waste(state, follow) if self.looks_ahead else follow
        if hole[slot]:
            raised = floor.copy()
            raised[slot] = risen[slot]
            after = self._state(left, raised)
            if after is not None:
                yield after, None

    def _placed(
        self, state: _State, slot: int, candidates: list[int]
    ) -> Iterator[tuple[_State, tuple[int, int]]]:
        """Yield the states after placing each candidate at the height of `slot`."""
        offset = int(state.floor[slot])
        for buffer in candidates:
            raised = state.floor.copy()
            raised[self.slots.start[buffer] : self.slots.end[buffer]] = offset + self.size[buffer]
            after = self._state(state.left[state.left != buffer], raised)
            if after is not None:
                yield after, (buffer, offset)

    def _by_waste(
        self, before: _State, follow: Iterable[tuple[_State, tuple[int, int]]]
    ) -> list[tuple[_State, tuple[int, int]]]:
        """Sort states by the share of the free bytes that each slot loses to holes."""

        def waste(pair: tuple[_State, tuple[int, int]]) -> float:
            after = pair[0]
            free = after.room - after.floor
            lost = np.where(after.floor < NOTHING, before.room - before.floor - free, 0)
            return float((lost / (lost + np.maximum(free, 0) + 1)).sum())

        return sorted(follow, key=waste)

    def _candidates(self, within: np.ndarray, slot: int, valleys: np.ndarray) -> list[int]:
        """Return the buffers that may cover `slot` next, the best first.

        Those that touch the valley's ends come first, then the one of greatest priority.
        """
        start, end = self.slots.start, self.slots.end
        first, stop = self.slots.valley_around(slot, valleys)
        numbers = within[(start[within] <= slot) & (slot < end[within])]
        numbers = numbers[~np.isin(self.twin[numbers], within)]
        ends = (start[numbers] == first).astype(int) + (end[numbers] == stop)
        return numbers[np.lexsort((-self.priority[numbers], -ends))].tolist()
