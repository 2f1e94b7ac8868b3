"""Offset packing: every strategy is valid, `search` is the tightest, the instances are known."""

from __future__ import annotations

import random

import numpy as np
import pytest

from relax_passes.memory.greedy_offsets import Buffer, greatest_load
from relax_passes.memory.plan_offsets import STRATEGIES, plan_offsets
from relax_passes.memory.verify_offsets import OverlapError, verify_offsets
from tests.fuzz import pack_buffers
from tests.relax_passes.memory.planted import tiling

# The worked example of the MiniMalloc paper (Moffitt, ASPLOS 2024), which fits into 12 bytes.
WORKED_EXAMPLE = [(0, 3, 4), (3, 9, 4), (0, 9, 4), (9, 21, 4), (0, 21, 4)]


# Those that take little time: the rest is for `make fuzz`. Placing buffers one by one leaves 0, 11
# and 19 above 1.02; starts cut short by their nodes, not by their failures, leave 2 and 443.
TILINGS = (0, 1, 2, 3, 4, 8, 9, 10, 11, 13, 14, 15, 16, 19, 443)


def random_buffers(seed: int, count: int = 60) -> list[tuple[int, int, int]]:
    rng = random.Random(seed)
    buffers = []
    for _ in range(count):
        lower = rng.randrange(100)
        buffers.append((lower, lower + rng.randrange(1, 30), 64 * rng.randrange(1, 40)))
    return buffers


@pytest.mark.parametrize("count", [1, 7, 60])
def test_the_breadth_of_a_buffer_is_the_most_alive_during_its_life(count: int):
    """Buffers are placed from the broadest on: told apart from all loads, summed one by one."""
    buffers = [Buffer(*triple) for triple in random_buffers(5, count)]
    load = [sum(b.size for b in buffers if b.lower <= s < b.upper) for s in range(130)]
    assert greatest_load(buffers) == [max(load[b.lower : b.upper]) for b in buffers]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(2))
def test_no_two_live_buffers_overlap(strategy: str, seed: int):
    buffers = random_buffers(seed)
    plan = plan_offsets(buffers, strategy=strategy)
    verify_offsets(buffers, plan.offsets, plan.peak)
    assert plan.lower_bound <= plan.peak
    if strategy != "buddy":  # which pads each buffer to a power of two
        assert plan.peak <= sum(size for *_, size in buffers)


def test_buddies_start_at_multiples_of_their_power_of_two():
    plan = plan_offsets([(0, 2, 96), (0, 2, 40), (1, 3, 33)], strategy="buddy", alignment=1)
    assert plan.offsets == (0, 128, 192)


@pytest.mark.parametrize("seed", range(2))
def test_search_is_at_least_as_tight_as_every_greedy_strategy(seed: int):
    buffers = random_buffers(seed)
    best = plan_offsets(buffers).peak
    greedy = [s for s in STRATEGIES if s != "search"]
    assert all(best <= plan_offsets(buffers, strategy=s).peak for s in greedy)


def test_same_input_gives_the_same_plan():
    buffers = random_buffers(7)
    assert plan_offsets(buffers) == plan_offsets(buffers)


def test_worked_example_meets_its_bound():
    plan = plan_offsets(WORKED_EXAMPLE, alignment=1)
    assert plan.peak == plan.lower_bound == 12


def test_search_closes_most_of_the_gap_that_greedy_leaves():
    """A tiling of a 32 x 32 square by 60 rectangles has a perfect plan; greedy misses it."""
    buffers = tiling(3, count=60, steps=32, capacity=32)
    plan = plan_offsets(buffers, alignment=1)
    verify_offsets(buffers, plan.offsets, plan.peak, alignment=1)
    greedy = plan_offsets(buffers, strategy="greedy_by_size", alignment=1)
    assert plan.lower_bound == 32
    assert greedy.peak > plan.peak
    assert plan.peak <= 1.1 * plan.lower_bound


@pytest.mark.parametrize("seed", TILINGS)
def test_random_buffers_come_within_two_percent_of_the_planted_capacity(seed: int):
    """`make fuzz` packs 500 of these."""
    assert pack_buffers.fault(seed) is None


def test_chain_needs_two_buffers():
    chain = [(i, i + 2, 1024) for i in range(100)]
    assert plan_offsets(chain).peak == 2048


def test_offsets_are_aligned_and_sizes_padded():
    plan = plan_offsets([(0, 2, 65), (1, 3, 1)], alignment=64)
    assert all(offset % 64 == 0 for offset in plan.offsets)
    assert plan.peak == 192


def test_no_buffers_need_no_arena():
    plan = plan_offsets([])
    assert (plan.offsets, plan.peak, plan.lower_bound) == ((), 0, 0)


def test_empty_buffer_takes_no_bytes():
    assert plan_offsets([(0, 2, 0), (0, 2, 64)]).peak == 64


@pytest.mark.parametrize("bad", [(2, 2, 8), (3, 2, 8), (0, 1, -8), (0, 1), (0, 1, 8, 0)])
def test_malformed_buffer_is_refused(bad: tuple[int, ...]):
    with pytest.raises(ValueError, match="buffer 1"):
        plan_offsets([(0, 1, 8), bad])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_integers_of_numpy_are_integers(strategy: str):
    """Those of 32 bits would overflow in the sums of large buffers."""
    triples = [(0, 2, 1 << 30), (1, 3, 1 << 30), (2, 4, 1 << 30)]
    plan = plan_offsets([tuple(map(np.int32, t)) for t in triples], strategy=strategy)
    assert plan == plan_offsets(triples, strategy=strategy)


@pytest.mark.parametrize("bad", [(0, 1, 8.0), (0.0, 1, 8), (0, "1", 8)])
def test_other_numbers_are_refused(bad: tuple[object, object, object]):
    with pytest.raises(TypeError):
        plan_offsets([bad])
    with pytest.raises(TypeError):
        plan_offsets([(0, 1, 8)], alignment=64.0)
    with pytest.raises(TypeError):
        plan_offsets([(0, 1, 8)], capacity=64.0)


def test_unknown_strategy_is_refused():
    with pytest.raises(ValueError, match="buddy_system"):
        plan_offsets([(0, 1, 8)], strategy="buddy_system")


def test_verifier_rejects_an_overlap():
    with pytest.raises(OverlapError, match="0 and 1"):
        verify_offsets([(0, 4, 64), (3, 5, 64)], [0, 0], 128)


def test_verifier_accepts_reuse_after_death():
    verify_offsets([(0, 3, 64), (3, 5, 64)], [0, 0], 64)


@pytest.mark.parametrize(("offset", "arena"), [(8, 128), (64, 64), (-64, 64)])
def test_verifier_rejects_misplaced_buffers(offset: int, arena: int):
    with pytest.raises(OverlapError, match="misaligned or outside"):
        verify_offsets([(0, 1, 64)], [offset], arena)
