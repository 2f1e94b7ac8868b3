"""Search for offsets of blocks composed from the buffers: fewer things to place."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import chain

from relax_passes.memory.compose_blocks import Block, compose_blocks, offsets_of_buffers
from relax_passes.memory.compose_loosely import compose_loosely
from relax_passes.memory.exact_search import fit_capacity

_ORDERS = 64
_NODES_PER_ORDER = 4  # a block, and 60: where blocks are the right ones, few nodes suffice
_WASTE = (0.05, 0.3)  # of the area of a loose block
# Only a stated capacity leaves nodes for these orders: loose blocks are disturbed in them.
_LATE_ORDER = 8
_LATE_WASTE = (0.02, 0.05, 0.1, 0.2, 0.3, 0.45)  # two of them for each order
_MOST_LOOSE = 300  # blocks to compose loosely, since that takes quadratic space
# Of the portfolio: how much longer a search takes in its second round.
_LONGER_BUFFERS, _LONGER_BLOCKS = 4, 8


class _Portfolio:
    """Searches that share one number of nodes; the first that succeeds ends all.

    Attributes:
        offsets: Of the buffers, once a search has found them.
    """

    def __init__(self, buffers: Sequence[tuple[int, int, int]], capacity: int, nodes: int) -> None:
        self._buffers, self._capacity, self._nodes = buffers, capacity, nodes
        self.offsets: list[int] | None = None

    @property
    def is_over(self) -> bool:
        """Whether a plan is found, or no node is left to look for one."""
        return self.offsets is not None or self._nodes <= 0

    def try_blocks(self, blocks: Sequence[Block], longer: int = 1, order: int = 0) -> None:
        """Search for offsets of blocks, `longer` times as long as suffices where they are right."""
        triples = [(block.lower, block.upper, block.size) for block in blocks]
        found = self._search(triples, longer * (_NODES_PER_ORDER * len(blocks) + 60), order)
        if found is not None:
            offsets = offsets_of_buffers(blocks, found)
            self.offsets = [offsets[number] for number in range(len(self._buffers))]

    def try_buffers(self, longer: int, order: int) -> None:
        """Search for offsets of the buffers themselves."""
        self.offsets = self._search(self._buffers, longer * (2 * len(self._buffers) + 60), order)

    def _search(
        self, triples: Sequence[tuple[int, int, int]], nodes: int, order: int
    ) -> list[int] | None:
        allowed = min(self._nodes, nodes)
        self._nodes -= allowed
        return fit_capacity(triples, self._capacity, allowed, order)


def fit_blocks(
    buffers: Sequence[tuple[int, int, int]], capacity: int, nodes: int
) -> list[int] | None:
    """Return offsets whose peak is at most `capacity`, or None if none is found.

    None says nothing about other plans: blocks rule out those that part them.

    Args:
        buffers: (lower, upper, size): first step, step after the last, bytes; sizes above zero.
        capacity: Bytes of the arena.
        nodes: Nodes of the search to visit before giving up.
    """
    portfolio = _Portfolio(buffers, capacity, nodes)
    for order in range(0, _ORDERS, 2):
        composed = [compose_blocks(buffers, order), compose_blocks(buffers, order + 1)]
        exact = [blocks for blocks in composed if len(blocks) < len(buffers)]
        for blocks in chain(exact, _loose(composed, capacity, order)):
            if portfolio.is_over:
                return portfolio.offsets
            portfolio.try_blocks(blocks)
        if not exact:
            break  # no other order composes anything either
    return portfolio.offsets


def fit_in_rounds(
    buffers: Sequence[tuple[int, int, int]], capacity: int, nodes: int
) -> list[int] | None:
    """Return offsets whose peak is at most `capacity`, or None if none is found.

    Which of the buffers, exact blocks and loose blocks lead to a plan is not known before, and how
    long the right search takes varies widely from instance to instance. So each gets a short turn
    first, then longer ones, always in another order (Gomes and Selman, "Algorithm Portfolios",
    Artificial Intelligence 126, 2001).

    Args:
        buffers: (lower, upper, size): first step, step after the last, bytes; sizes above zero.
        capacity: Bytes of the arena.
        nodes: Nodes of all searches together.
    """
    portfolio = _Portfolio(buffers, capacity, nodes)
    before: list[list[Block]] = []
    turn = 0
    while not portfolio.is_over:
        order = 2 * turn
        composed = [compose_blocks(buffers, order), compose_blocks(buffers, order + 1)]
        exact = [blocks for blocks in composed if len(blocks) < len(buffers)]
        for blocks in chain(exact, _loose(composed, capacity, order)):
            if not portfolio.is_over:
                portfolio.try_blocks(blocks)
        if not portfolio.is_over:
            portfolio.try_buffers(_LONGER_BUFFERS if turn else 1, turn)
        for blocks in before:
            if not portfolio.is_over:
                portfolio.try_blocks(blocks, _LONGER_BLOCKS, turn)
        before, turn = exact, turn + 1
    return portfolio.offsets


def _loose(composed: list[list[Block]], capacity: int, order: int) -> Iterator[list[Block]]:
    """Yield the blocks of rows and of stacks, `composed` in this order and the next, looser yet."""
    late = order >= _LATE_ORDER
    wastes = random.Random(order).sample(_LATE_WASTE, 2) if late else _WASTE
    for number, blocks in enumerate(composed, order):
        for waste in wastes if len(blocks) <= _MOST_LOOSE else ():
            loose = compose_loosely(blocks, capacity, waste, number if late else 0)
            if len(loose) < len(blocks):
                yield loose
