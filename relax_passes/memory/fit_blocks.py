"""Search for offsets of blocks composed from the buffers: fewer things to place."""

from __future__ import annotations

from collections.abc import Sequence

from relax_passes.memory.compose_blocks import compose_blocks, offsets_of_buffers
from relax_passes.memory.exact_search import fit_capacity

_ORDERS = 16
_NODES_PER_ORDER = 2  # a block: where blocks are the right ones, few nodes suffice


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
    for order in range(_ORDERS):
        blocks = compose_blocks(buffers, order)
        allowed = min(nodes, _NODES_PER_ORDER * len(blocks) + 60)
        if len(blocks) == len(buffers) or allowed <= 0:
            return None
        nodes -= allowed
        triples = [(block.lower, block.upper, block.size) for block in blocks]
        found = fit_capacity(triples, capacity, allowed)
        if found is not None:
            offsets = offsets_of_buffers(blocks, found)
            return [offsets[number] for number in range(len(buffers))]
    return None
