"""Search for offsets of blocks composed from the buffers: fewer things to place."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

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
    for blocks in _compositions(buffers, capacity):
        allowed = min(nodes, _NODES_PER_ORDER * len(blocks) + 60)
        if allowed <= 0:
            return None
        nodes -= allowed
        triples = [(block.lower, block.upper, block.size) for block in blocks]
        found = fit_capacity(triples, capacity, allowed)
        if found is not None:
            offsets = offsets_of_buffers(blocks, found)
            return [offsets[number] for number in range(len(buffers))]
    return None


def _compositions(buffers: Sequence[tuple[int, int, int]], capacity: int) -> Iterator[list[Block]]:
    """Yield blocks of two orders, of rows and of stacks first, then these composed loosely."""
    for order in range(0, _ORDERS, 2):
        exact = [compose_blocks(buffers, order), compose_blocks(buffers, order + 1)]
        yield from (blocks for blocks in exact if len(blocks) < len(buffers))
        late = order >= _LATE_ORDER
        wastes = random.Random(order).sample(_LATE_WASTE, 2) if late else _WASTE
        for number, blocks in enumerate(exact, order):
            for waste in wastes if len(blocks) <= _MOST_LOOSE else ():
                loose = compose_loosely(blocks, capacity, waste, number if late else 0)
                if len(loose) < len(blocks):
                    yield loose
        if len(exact[0]) == len(buffers):
            return  # no other order composes anything either
