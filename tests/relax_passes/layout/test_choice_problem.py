"""The solver finds the least sum: against trying all choices, on random graphs."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from relax_passes.layout.choice_problem import ChoiceProblem, solve


def random_problem(
    rng: np.random.Generator, pairs: list[tuple[int, int]], nodes: int
) -> ChoiceProblem:
    problem = ChoiceProblem()
    sizes = rng.integers(1, 4, nodes)
    for node, size in enumerate(sizes):
        problem.node(node, rng.integers(0, 20, size).tolist())
    for a, b in pairs:
        costs = rng.integers(0, 20, (sizes[a], sizes[b])).astype(float)
        costs[rng.random(costs.shape) < 0.1] = 50
        problem.edge(a, b, costs)
    return problem


def least(problem: ChoiceProblem) -> float:
    names = list(problem.costs)

    def cost(choice: dict[int, int]) -> float:
        total = sum(problem.costs[n][choice[n]] for n in names)
        edges = [(a, b, m) for a, near in problem.edges.items() for b, m in near.items() if a < b]
        return total + sum(m[choice[a], choice[b]] for a, b, m in edges)

    sizes = [range(len(problem.costs[n])) for n in names]
    return min(cost(dict(zip(names, choice, strict=True))) for choice in product(*sizes))


def residual_blocks(count: int) -> list[tuple[int, int]]:
    pairs = []
    for block in range(count):
        a = 3 * block
        pairs += [(a, a + 1), (a + 1, a + 2), (a + 2, a + 3), (a, a + 3)]
    return pairs


SHAPES = {
    "no edges": ([], 4),
    "a chain": ([(i, i + 1) for i in range(7)], 8),
    "a tree": ([(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (2, 6)], 7),
    "residual blocks": (residual_blocks(2), 7),
    "edges of one pair": ([(0, 1), (1, 0), (0, 1)], 2),
    "a ring": ([(i, (i + 1) % 6) for i in range(6)], 6),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_built_of_serial_and_parallel_parts_is_solved_exactly(shape: str) -> None:
    pairs, nodes = SHAPES[shape]
    for seed in range(20):
        problem = random_problem(np.random.default_rng(seed), pairs, nodes)
        solution = solve(problem)
        assert solution.is_optimal
        assert solution.cost == least(problem)


def test_a_dense_graph_is_solved_well_and_says_so() -> None:
    pairs = [(a, b) for a in range(6) for b in range(a)]
    ratios = []
    for seed in range(20):
        problem = random_problem(np.random.default_rng(seed), pairs, 6)
        solution = solve(problem)
        assert not solution.is_optimal
        ratios.append(solution.cost / least(problem))
    assert min(ratios) >= 1
    assert np.median(ratios) <= 1.1


def test_what_may_not_be_chosen() -> None:
    problem = ChoiceProblem()
    problem.node("a", [0, 5])
    problem.node("b", [0, 0])
    problem.edge("a", "b", np.array([[np.inf, np.inf], [1, 2]]))
    assert solve(problem).chosen == {"a": 1, "b": 0}
    problem.edge("a", "b", np.array([[0, 0], [np.inf, np.inf]]))
    with pytest.raises(ValueError, match="every choice"):
        solve(problem)


def test_time_is_linear_in_a_chain() -> None:
    problem = random_problem(np.random.default_rng(0), residual_blocks(20_000), 60_001)
    assert solve(problem).is_optimal
