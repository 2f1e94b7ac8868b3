"""Fitting buffers into a stated capacity: planted solutions are found, impossible ones refused."""

from __future__ import annotations

import csv
import random
import time
from pathlib import Path

import pytest

from relax_passes.memory.exact_search import fit_capacity
from relax_passes.memory.plan_offsets import plan_offsets
from relax_passes.memory.verify_offsets import verify_offsets
from tests.relax_passes.memory.planted import tiling


@pytest.mark.parametrize("seed", range(6))
def test_a_planted_solution_without_slack_is_found(seed: int):
    buffers = tiling(seed, count=20, steps=40, capacity=1000)
    offsets = fit_capacity(buffers, 1000, nodes=20_000)
    assert offsets is not None
    verify_offsets(buffers, offsets, 1000, alignment=1)


def test_a_capacity_below_the_bound_is_refused():
    buffers = tiling(0, count=20, steps=40, capacity=1000)
    assert fit_capacity(buffers, 999, nodes=20_000) is None


def _fits_by_brute_force(buffers: list[tuple[int, int, int]], capacity: int) -> bool:
    def extend(placed: list[int]) -> bool:
        if len(placed) == len(buffers):
            return True
        lower, upper, size = buffers[len(placed)]
        for offset in range(capacity - size + 1):
            clash = any(
                lower < b[1] and b[0] < upper and offset < at + b[2] and at < offset + size
                for at, b in zip(placed, buffers, strict=False)
            )
            if not clash and extend([*placed, offset]):
                return True
        return False

    return extend([])


@pytest.mark.parametrize("seed", range(40))
def test_small_instances_agree_with_brute_force(seed: int):
    choice = random.Random(seed)
    buffers = []
    for _ in range(7):
        lower = choice.randrange(6)
        buffers.append((lower, lower + choice.randrange(1, 4), choice.randrange(1, 4)))
    bound = plan_offsets(buffers, alignment=1).lower_bound
    for capacity in (bound, bound + 1):
        found = fit_capacity(buffers, capacity, nodes=10_000)
        assert (found is not None) == _fits_by_brute_force(buffers, capacity)


def test_equal_arguments_give_equal_offsets():
    buffers = tiling(3, count=30, steps=60, capacity=5000)
    first, second = (fit_capacity(buffers, 5200, nodes=20_000) for _ in range(2))
    assert first == second is not None


def test_buffers_of_separate_times_share_the_arena():
    buffers = [(k, k + 1, 7) for k in range(300)]
    assert fit_capacity(buffers, 7, nodes=400) == [0] * 300


def test_a_stated_capacity_lets_the_planner_look_longer():
    buffers = tiling(11, count=60, steps=80, capacity=4096)
    plan = plan_offsets(buffers, alignment=1, capacity=4200)
    verify_offsets(buffers, plan.offsets, plan.peak, alignment=1)
    assert plan.peak <= 4200


INSTANCES = sorted((Path(__file__).parent / "minimalloc").glob("*.csv"))


@pytest.mark.parametrize("path", INSTANCES, ids=lambda path: path.stem)
def test_hard_instances_fit_their_capacity(path: Path):
    """Each fits the capacity in its name; greedy plans need 1.29-1.44 times the bound."""
    capacity = int(path.stem.split(".")[1])
    with path.open() as file:
        rows = [(int(r["lower"]), int(r["upper"]), int(r["size"])) for r in csv.DictReader(file)]
    start = time.process_time()
    plan = plan_offsets(rows, alignment=1, capacity=capacity)
    assert time.process_time() - start < 60
    verify_offsets(rows, plan.offsets, capacity, alignment=1)


def test_many_buffers_in_one_valley_are_searched_without_recursion():
    """A search goes as deep as there are buffers, and Python's stack does not."""
    buffers = [(0, 2, 1)] * 1500 + [(1, 3, 1)]
    assert fit_capacity(buffers, 1501, nodes=4000) is not None
