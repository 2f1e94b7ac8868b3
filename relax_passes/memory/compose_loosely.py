"""Compose blocks that do not fill their rectangle, as far as the capacity has room for the holes.

Where buffers are missing from a tiling, few blocks match exactly (`compose_blocks.py`). Of all
pairs, the one whose common rectangle wastes the smallest share of its area is put together first,
unless some step's load would exceed the capacity (bottom-up block building with a waste limit, as
the general blocks of Fanslau and Bortfeldt, INFORMS Journal on Computing 22, 2010).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relax_passes.memory.compose_blocks import Block

_DISTURBANCE = 0.05  # of the area of a joint block, in orders after the first ones


def compose_loosely(
    blocks: Sequence[Block], capacity: int, waste: float, order: int = 0
) -> list[Block]:
    """Compose until every pair wastes too much; some quadratic time in the number of blocks.

    Args:
        blocks: What to compose.
        capacity: Bytes that no step's load may exceed, holes counted.
        waste: The greatest share of a new block's area, below 1, that may be empty.
        order: From 2 on, the shares are disturbed at random, by the number. Equal arguments give
            equal blocks.
    """
    choice = np.random.default_rng(order) if order > 1 else None
    return _LooseBench(blocks, capacity, waste, choice).compose()


class _LooseBench:
    def __init__(
        self,
        blocks: Sequence[Block],
        capacity: int,
        waste: float,
        choice: np.random.Generator | None,
    ) -> None:
        self.choice = choice
        self.blocks: list[Block | None] = list(blocks)
        self.capacity, self.limit = capacity, waste
        self.lower = np.array([block.lower for block in blocks], np.int64)
        self.upper = np.array([block.upper for block in blocks], np.int64)
        self.size = np.array([block.size for block in blocks], np.int64)
        self.times = np.unique(np.concatenate([self.lower, self.upper]))
        self.load = np.zeros(len(self.times), np.int64)
        for block in blocks:
            self.load[self._slots(block)] += block.size
        self.cost = np.array([self._waste_beside(number) for number in range(len(blocks))])

    def compose(self) -> list[Block]:
        while len(self.blocks):
            one, other = np.unravel_index(int(self.cost.argmin()), self.cost.shape)
            if self.cost[one, other] > self.limit:
                break
            self._join(int(one), int(other))
        return [block for block in self.blocks if block is not None]

    def _waste_beside(self, number: int) -> np.ndarray:
        """Return the share of the area that is empty in a block of `number` and each other one."""
        lower, upper, size = self.lower[number], self.upper[number], self.size[number]
        apart = (self.upper <= lower) | (self.lower >= upper)
        height = np.where(apart, np.maximum(self.size, size), self.size + size)
        length = np.maximum(self.upper, upper) - np.minimum(self.lower, lower)
        area = (self.upper - self.lower) * self.size.astype(float) + float(upper - lower) * size
        waste = 1 - area / (length * height.astype(float))
        if self.choice is not None:
            waste += _DISTURBANCE * self.choice.random(len(waste))
        waste[[block is None for block in self.blocks]] = np.inf
        waste[number] = np.inf
        return waste

    def _join(self, one: int, other: int) -> None:
        """Put two blocks together if the load allows it; forget the pair if not."""
        below, above = self.blocks[one], self.blocks[other]
        assert below is not None and above is not None
        apart = below.upper <= above.lower or above.upper <= below.lower
        size = max(below.size, above.size) if apart else below.size + above.size
        parts = ((below, 0), (above, 0 if apart else below.size))
        lower, upper = min(below.lower, above.lower), max(below.upper, above.upper)
        joint = Block(lower, upper, size, parts=parts)
        load = self.load.copy()
        load[self._slots(joint)] += size
        load[self._slots(below)] -= below.size
        load[self._slots(above)] -= above.size
        if load.max() > self.capacity:
            self.cost[one, other] = self.cost[other, one] = np.inf  # loads only grow: for good
            return
        self.load = load
        self.blocks[one], self.blocks[other] = joint, None
        self.lower[one], self.upper[one], self.size[one] = lower, upper, size
        self.cost[other], self.cost[:, other] = np.inf, np.inf
        self.cost[one] = self.cost[:, one] = self._waste_beside(one)

    def _slots(self, block: Block) -> slice:
        first, stop = np.searchsorted(self.times, (block.lower, block.upper))
        return slice(int(first), int(stop))
