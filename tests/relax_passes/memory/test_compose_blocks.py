"""Blocks of buffers: exact ones lose nothing, loose ones stay within the capacity."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from relax_passes.memory.compose_blocks import Block, compose_blocks, offsets_of_buffers
from relax_passes.memory.compose_loosely import compose_loosely
from relax_passes.memory.exact_search import fit_capacity
from relax_passes.memory.fit_blocks import fit_blocks, fit_in_rounds
from relax_passes.memory.verify_offsets import verify_offsets
from tests.relax_passes.memory.planted import GRID, hard_tiling, random_tiling, tiling

Buffers = list[tuple[int, int, int]]


def load(buffers: Buffers | Sequence[Block], step: int) -> int:
    triples = [(b.lower, b.upper, b.size) if isinstance(b, Block) else b for b in buffers]
    return sum(size for lower, upper, size in triples if lower <= step < upper)


def test_buffers_of_equal_life_stack():
    (block,) = compose_blocks([(0, 4, 3), (0, 4, 5)])
    assert (block.lower, block.upper, block.size) == (0, 4, 8)
    assert offsets_of_buffers([block], [10]) == {0: 10, 1: 13}


def test_a_buffer_takes_the_place_of_one_of_its_size_that_ends():
    (block,) = compose_blocks([(0, 4, 3), (4, 9, 3)])
    assert (block.lower, block.upper, block.size) == (0, 9, 3)
    assert offsets_of_buffers([block], [7]) == {0: 7, 1: 7}


@pytest.mark.parametrize("other", [(5, 9, 3), (4, 9, 2), (0, 3, 3)])
def test_buffers_that_leave_a_hole_stay_apart(other: tuple[int, int, int]):
    assert len(compose_blocks([(0, 4, 3), other])) == 2


def test_a_stack_that_matches_its_neighbour_goes_before_others():
    """Of 5, 2 and 4 over the same steps, 5 and 4 continue the 9 before them."""
    buffers = [(0, 2, 9), (2, 4, 5), (2, 4, 2), (2, 4, 4)]
    assert sorted(b.size for b in compose_blocks(buffers, order=0)) == [2, 9]


@pytest.mark.parametrize("order", range(5))
def test_blocks_change_no_load_and_their_buffers_do_not_overlap(order: int):
    buffers = tiling(order, count=120, steps=60, capacity=4096)
    blocks = compose_blocks(buffers, order)
    assert len(blocks) < len(buffers) / 2
    assert blocks == compose_blocks(buffers, order)
    assert all(load(blocks, step) == load(buffers, step) == 4096 for step in range(60))
    above = [sum(b.size for b in blocks[:number]) for number in range(len(blocks))]
    offsets = offsets_of_buffers(blocks, above)
    top = sum(block.size for block in blocks)
    verify_offsets(buffers, [offsets[i] for i in range(len(buffers))], top, alignment=1)


def test_a_deep_stack_needs_no_recursion():
    blocks = compose_blocks([(0, 2, 1)] * 1200)
    assert len(offsets_of_buffers(blocks, [0])) == 1200


@pytest.mark.parametrize(("seed", "order"), [(0, 0), (1, 0), (2, 2)])
def test_loose_blocks_keep_every_load_within_the_capacity(seed: int, order: int):
    buffers = tiling(seed, count=120, steps=60, capacity=4096)[::2]
    exact = compose_blocks(buffers)
    loose = compose_loosely(exact, 4096, waste=0.3, order=order)
    assert len(loose) < len(exact)
    assert all(load(loose, step) <= 4096 for step in range(60))
    offsets = offsets_of_buffers(loose, [0] * len(loose))
    assert sorted(offsets) == list(range(len(buffers)))


def test_orders_put_other_loose_blocks_together():
    """Where few buffers match exactly, the orders of exact blocks hardly differ."""
    exact = compose_blocks(tiling(0, count=120, steps=60, capacity=4096)[::2])
    first, second, third = (compose_loosely(exact, 4096, 0.1, order) for order in (2, 3, 2))
    assert first == third != second


def test_loose_blocks_waste_no_more_than_they_may():
    pair = compose_blocks([(0, 4, 10), (4, 8, 8)])
    assert len(compose_loosely(pair, 100, waste=0.09)) == 2
    (block,) = compose_loosely(pair, 100, waste=0.11)
    assert (block.lower, block.upper, block.size) == (0, 8, 10)


def test_loose_blocks_respect_a_full_step():
    blocks = compose_blocks([(0, 4, 10), (4, 8, 8), (4, 5, 2)])
    assert len(compose_loosely(blocks, 10, waste=0.11)) == 3


def test_blocks_meet_a_capacity_that_single_buffers_miss():
    """With equal nodes, the search over buffers gives up."""
    buffers, capacity = random_tiling(0)
    offsets = fit_blocks(buffers, capacity, nodes=800)
    assert offsets is not None
    verify_offsets(buffers, offsets, capacity, alignment=1)
    assert fit_capacity(buffers, capacity, nodes=800) is None


def test_blocks_that_cannot_fit_are_refused():
    assert fit_blocks([(0, 4, 3), (0, 4, 5), (2, 6, 1)], 8, nodes=500) is None


def test_buffers_and_blocks_take_turns() -> None:
    """Buffers lead to a plan of the one instance in a tenth of the time, blocks of the other."""
    for seed, nodes in ((115, 3000), (204, 6000)):
        buffers = hard_tiling(seed)
        found = fit_in_rounds(buffers, GRID, nodes)
        assert found is not None
        verify_offsets(buffers, found, GRID, alignment=1)
    assert fit_blocks(hard_tiling(115), GRID, nodes=1500) is None
    assert fit_capacity(hard_tiling(204), GRID, nodes=1500) is None
