"""Time cut where live ranges start and end: what holds for all slots under or over a buffer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

NOTHING = 1 << 62  # the height of a slot over which no buffer is left


class TimeSlots:
    """The slots, and which of them each live range covers. Arrays over slots or over ranges."""

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Cut time at the ends of `ranges`, (lower, upper) pairs with `upper` exclusive."""
        times = sorted({time for pair in ranges for time in pair})
        number = {time: slot for slot, time in enumerate(times)}
        self.start = np.array([number[lower] for lower, _ in ranges])
        self.end = np.array([number[upper] for _, upper in ranges])
        self.lengths = self.end - self.start
        self.count = len(times) - 1
        # A range is the union of two stretches of the greatest power of two that it holds
        # (the sparse table of Bender and Farach-Colton, LATIN 2000).
        self._level = np.array([int(length).bit_length() - 1 for length in self.lengths])
        self._levels = int(self._level.max()) + 1
        self._second = self.end - (1 << self._level)

    def highest_over_span(self, values: np.ndarray, ranges: np.ndarray) -> np.ndarray:
        """Return for each of `ranges` the greatest value of a slot it covers."""
        table = np.empty((self._levels, self.count), values.dtype)
        table[0] = values
        for level in range(1, self._levels):
            half = 1 << (level - 1)
            table[level] = table[level - 1]
            np.maximum(table[level - 1, :-half], table[level - 1, half:], out=table[level, :-half])
        row = self._level[ranges]
        return np.maximum(table[row, self.start[ranges]], table[row, self._second[ranges]])

    def all_over_span(self, flags: np.ndarray, ranges: np.ndarray) -> np.ndarray:
        """Tell for each of `ranges` whether the flag is set at every slot it covers."""
        unset = np.zeros(self.count + 1, np.int64)
        np.cumsum(~flags, out=unset[1:])
        return unset[self.end[ranges]] == unset[self.start[ranges]]

    def lowest_over_slot(self, values: np.ndarray, ranges: np.ndarray) -> np.ndarray:
        """Return for each slot the least value of a range that covers it, NOTHING if none does."""
        table = np.full((self._levels, self.count), NOTHING, np.int64)
        row = self._level[ranges]
        np.minimum.at(table, (row, self.start[ranges]), values)
        np.minimum.at(table, (row, self._second[ranges]), values)
        for level in range(self._levels - 1, 0, -1):
            half = 1 << (level - 1)
            below = table[level - 1]
            np.minimum(below, table[level], out=below)
            np.minimum(below[half:], table[level, :-half], out=below[half:])
        return table[0]

    def sum_over_slot(self, values: np.ndarray | int, ranges: np.ndarray) -> np.ndarray:
        """Return for each slot the sum over the ranges that cover it."""
        change = np.zeros(self.count + 1, np.int64)
        np.add.at(change, self.start[ranges], values)
        np.subtract.at(change, self.end[ranges], values)
        return np.cumsum(change[:-1])

    def valleys(self, floor: np.ndarray) -> np.ndarray:
        """Tell which slots lie in a stretch of equal height whose neighbours are higher."""
        first, stop = self._stretches(floor)
        height = floor[first]
        around = np.concatenate([[NOTHING], height, [NOTHING]])
        low = (height < NOTHING) & (around[:-2] >= height) & (around[2:] >= height)
        return np.repeat(low, stop - first)

    def valley_around(self, slot: int, valleys: np.ndarray) -> tuple[int, int]:
        """Return the first slot of the valley at `slot` and the slot after its last."""
        walls = np.nonzero(~valleys)[0]
        right = int(np.searchsorted(walls, slot))
        first = int(walls[right - 1]) + 1 if right else 0
        return first, int(walls[right]) if right < len(walls) else self.count

    def next_height(self, floor: np.ndarray, ranges: np.ndarray, size: np.ndarray) -> np.ndarray:
        """Return for each valley slot the top of the smallest buffer beside it in its valley.

        Args:
            floor: The skyline over the slots.
            ranges: The ranges that lie within valleys.
            size: Bytes of each one's buffer.
        """
        none = int(size.max(initial=0)) + 1
        # The least size of those that end before the slot, and of those that start after it.
        before, behind = (np.full(self.count + 1, none, np.int64) for _ in range(2))
        np.minimum.at(before, self.end[ranges], size)
        np.minimum.at(behind, self.start[ranges], size)
        # A term that falls from stretch to stretch keeps the running minima within them; no range
        # crosses from one to the next.
        fall = np.zeros(self.count, np.int64)
        np.cumsum(floor[1:] != floor[:-1], out=fall[1:])
        fall *= none + 1
        left = np.minimum.accumulate(before[:-1] - fall) + fall
        right = np.minimum.accumulate((behind[1:] + fall)[::-1])[::-1] - fall
        least = np.minimum(left, right)
        return np.where(least < none, least + floor, NOTHING)

    def _stretches(self, floor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the first slot of each stretch of equal height, and the slot after its last."""
        steps = np.nonzero(floor[1:] != floor[:-1])[0] + 1
        return np.concatenate([[0], steps]), np.concatenate([steps, [self.count]])
