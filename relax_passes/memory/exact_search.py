"""Search for offsets that fit a given capacity: fill valleys of the skyline, learn where it fails.

The skyline is the height below which nothing more will be placed, at each slot of time. Every plan
can be pushed down until each buffer rests on the floor or on another one, and such a plan can be
built from below: a *valley* is a stretch of equal height between higher neighbours; of a slot in it
either a buffer that lives within the valley covers it next, or a hole remains there, and the slot
rises to the next height at which a buffer could come to lie. These few options are a node's
branches. Valleys do not depend on each other, so the search is free to choose the slot.

It chooses the slot with the fewest options for the times it has failed before (Boussemart, Hemery,
Lecoutre, Sais, "Boosting Systematic Search by Weighting Constraints", ECAI 2004), so it starts
where the problem is hard. Of the options, the one goes first that loses the least of what is free.
After few failures it is begun anew, disturbed, with these weights kept (Gomes, Selman, Kautz,
"Boosting Combinatorial Search Through Randomization", AAAI 1998): what follows an early mistake
does not mend it, and a start without one needs few more nodes than there are buffers. A branch ends
when at some slot the skyline and the buffers to come exceed the capacity, and buffers that share no
slot with the rest are solved on their own (both as in Moffitt, "MiniMalloc: A Lightweight Memory
Allocator for Hardware-Accelerated Machine Learning", ASPLOS 2023).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from relax_passes.memory.time_slots import NOTHING, TimeSlots

_FAILURES_PER_START = 10
_MORE_EACH_START = 1.05
_DISTURBANCE = 0.4  # standard deviations of the logarithm of the area
# What a branch is judged by, in units of one logarithm of the area.
_WASTE = 100.0  # where all free bytes of a slot are lost to a hole
_TOUCH = 0.5  # where an end of the valley is touched


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
    buffers: Sequence[tuple[int, int, int]], capacity: int, nodes: int, order: int = 0
) -> list[int] | None:
    """Return offsets whose peak is at most `capacity`, or None if none is found or none exists.

    Args:
        buffers: (lower, upper, size): first step, step after the last, bytes; sizes above zero.
        capacity: Bytes of the arena.
        nodes: Nodes to visit before giving up, some 0.1 ms each for 200 buffers. Equal arguments
            give equal results.
        order: Above 0, the first start is disturbed as well: another search, by the number.
    """
    if not buffers:
        return []
    search = _Search(buffers, capacity, nodes)
    area = np.log(search.size * search.slots.lengths.astype(float))
    spread = float(area.std()) or 1.0
    choice = np.random.default_rng(order)
    for start in count():
        priority = area
        if start or order:
            priority = area + choice.normal(0, _DISTURBANCE * spread, len(area))
        found = search.run(priority, int(_FAILURES_PER_START * _MORE_EACH_START**start))
        if found is not None or search.nodes <= 0:
            break
    return [int(offset) for offset in search.offsets] if found else None


class _Search:
    """The search: what is known of the buffers, and what failures have taught.

    Args:
        buffers: (lower, upper, size) triples.
        capacity: Bytes of the arena.
        nodes: How many states may still be looked at; it falls.
    """

    def __init__(self, buffers: Sequence[tuple[int, int, int]], capacity: int, nodes: int) -> None:
        self.slots = TimeSlots([(lower, upper) for lower, upper, _ in buffers])
        self.size = np.array([size for *_, size in buffers], np.int64)
        self.capacity, self.nodes = capacity, nodes
        self.offsets = np.zeros(len(buffers), np.int64)
        self.failures = np.ones(self.slots.count)
        # The buffer before this one that equals it: it goes first.
        seen: dict[tuple[int, int, int], int] = {}
        self.twin = np.full(len(buffers), -1)
        for number, buffer in enumerate(buffers):
            self.twin[number] = seen.get(buffer, -1)
            seen[buffer] = number

    def run(self, priority: np.ndarray, failures: int) -> bool | None:
        """Fill `offsets`; tell whether that is possible, None when cut short.

        Args:
            priority: Which buffer goes first, of several that waste equally little.
            failures: How many states may turn out to have no option left.
        """
        self.priority = priority
        stack: list[_Choice | _Parts] = []
        state = self._start()
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
                if self.nodes <= 0 or failures <= 0:
                    return None
                self.nodes -= 1
                stack.append(_Choice(self._options(state)))
            state = self._next_option(stack)
            failures -= state is None
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
        left = state.left
        reach = np.maximum.accumulate(self.slots.end[left])
        cuts = np.nonzero(self.slots.start[left[1:]] >= reach[:-1])[0] + 1
        if not len(cuts):
            return [state]
        parts = []
        for part, lowest in zip(np.split(left, cuts), np.split(state.lowest, cuts), strict=True):
            first, stop = self.slots.start[part[0]], self.slots.end[part].max()
            floor = np.full_like(state.floor, NOTHING)
            floor[first:stop] = state.floor[first:stop]
            reduced = _State(part, lowest, floor, state.room)
            parts.append((self.failures[first:stop].max(), reduced))
        parts.sort(key=lambda pair: pair[0])
        return [part for _, part in parts]

    def _start(self) -> _State | None:
        """Return the state before anything is placed, None if some slot's load is too high."""
        left = np.argsort(self.slots.start, kind="stable")
        room = self.capacity - self.slots.sum_over_slot(self.size, np.arange(len(left)))
        return self._state(left, np.zeros(len(left), np.int64), room)

    def _raised(
        self, state: _State, span: tuple[int, int], height: int, placed: int | None = None
    ) -> _State | None:
        """Return the state where the skyline over `span` is `height`, None if the rest won't fit.

        Args:
            state: The state before; over `span` its skyline is level, and lower.
            span: First slot, slot after the last.
            height: The new height.
            placed: The buffer that raises it, None for a hole.
        """
        first, stop = span
        left, lowest, room = state.left, state.lowest, state.room
        if placed is not None:
            others = left != placed
            left, lowest, room = left[others], lowest[others], room.copy()
            room[first:stop] += self.size[placed]
        above = (self.slots.start[left] < stop) & (self.slots.end[left] > first)
        return self._state(left, np.where(above, np.maximum(lowest, height), lowest), room)

    def _state(self, left: np.ndarray, lowest: np.ndarray, room: np.ndarray) -> _State | None:
        """Return the state with its skyline, None if the buffers left do not fit above it."""
        risen = self.slots.lowest_over_slot(lowest, left)
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
        covers = slots.sum_over_slot(1, within)
        risen = np.minimum(
            slots.lowest_over_slot(lowest[~inside], left[~inside]),
            slots.next_height(floor, within, self.size[within]),
        )
        hole = valleys & (risen <= state.room)
        options = covers + hole
        stuck = np.nonzero(valleys & (options == 0))[0]
        if len(stuck):
            self.failures[stuck[0]] += 1
            return
        score = np.where(options == 1, -1.0, options / self.failures)
        slot = int(np.argmin(np.where(valleys, score, np.inf)))
        for _, _, after, placed in self._placed(state, slot, within, valleys):
            yield after, placed
        if hole[slot]:
            above_hole = self._raised(state, (slot, slot + 1), int(risen[slot]))
            if above_hole is not None:
                yield above_hole, None

    def _placed(
        self, state: _State, slot: int, within: np.ndarray, valleys: np.ndarray
    ) -> list[tuple[float, int, _State, tuple[int, int]]]:
        """Return (loss, number, state, placed) for each buffer that may cover `slot` next, sorted.

        Those go first that lose few bytes to holes, are large, and touch the valley's ends.

        Args:
            state: The state before.
            slot: A slot of a valley.
            within: The buffers that lie within valleys.
            valleys: The slots that lie in valleys.
        """
        offset, ends = int(state.floor[slot]), self.slots.valley_around(slot, valleys)
        follow = []
        for buffer in self._candidates(within, slot):
            span = int(self.slots.start[buffer]), int(self.slots.end[buffer])
            after = self._raised(state, span, offset + int(self.size[buffer]), buffer)
            if after is not None:
                touched = (span[0] == ends[0]) + (span[1] == ends[1])
                gain = float(self.priority[buffer]) + _TOUCH * touched
                loss = _WASTE * _waste(state, after) - gain
                follow.append((loss, buffer, after, (buffer, offset)))
        return sorted(follow, key=lambda branch: branch[:2])

    def _candidates(self, within: np.ndarray, slot: int) -> list[int]:
        """Return the buffers over `slot`; of equal ones the first."""
        present = np.zeros(len(self.size) + 1, bool)  # one more: who has no twin has number -1
        present[within] = True
        over = (self.slots.start[within] <= slot) & (slot < self.slots.end[within])
        numbers = within[over]
        return numbers[~present[self.twin[numbers]]].tolist()


def _waste(before: _State, after: _State) -> float:
    """Return which share of its free bytes each slot loses to holes, summed over the slots."""
    free = after.room - after.floor
    lost = np.where(after.floor < NOTHING, before.room - before.floor - free, 0)
    return float((lost / (lost + np.maximum(free, 0) + 1)).sum())
