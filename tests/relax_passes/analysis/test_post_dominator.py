"""Post-dominators of graphs drawn by hand (C2), and against a brute-force definition."""

from __future__ import annotations

import random

import pytest

from relax_passes.analysis.post_dominator import immediate_post_dominators


def brute_force(readers: list[list[int]], escapes: list[bool]) -> list[int | None]:
    """Intersect the nodes of all paths to an exit: the nearest common one post-dominates."""

    def exits_without(start: int, banned: int | None) -> bool:
        stack, seen = [start], set()
        while stack:
            node = stack.pop()
            if node in seen or node == banned:
                continue
            seen.add(node)
            if escapes[node] or not readers[node]:
                return True
            stack.extend(readers[node])
        return False

    result: list[int | None] = []
    for node in range(len(readers)):
        later = range(node + 1, len(readers))
        common = [d for d in later if not exits_without(node, d)]
        result.append(min(common, default=None))
    return result


def test_chain():
    assert immediate_post_dominators([[1], [2], []], [False] * 3) == [1, 2, None]


def test_diamond():
    assert immediate_post_dominators([[1, 2], [3], [3], []], [False] * 4) == [3, 3, 3, None]


def test_residual():
    # 0 -> 1 -> 2 -> 3 with 0 read again by 3
    assert immediate_post_dominators([[1, 3], [2], [3], []], [False] * 4) == [3, 2, 3, None]


def test_multi_branch_with_an_inner_diamond():
    readers = [[1, 4, 5], [2, 3], [6], [6], [6], [6], []]
    assert immediate_post_dominators(readers, [False] * 7) == [6, 6, 6, 6, 6, 6, None]


def test_node_that_is_also_returned_has_no_post_dominator():
    assert immediate_post_dominators([[1], [2], []], [False, True, False]) == [1, None, None]


def test_two_exits_share_none():
    assert immediate_post_dominators([[1, 2], [], []], [False] * 3) == [None, None, None]


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_match_the_definition(seed: int):
    rng = random.Random(seed)
    count = rng.randrange(2, 14)
    readers = [
        sorted({rng.randrange(i + 1, count) for _ in range(rng.randrange(4))})
        if i + 1 < count
        else []
        for i in range(count)
    ]
    escapes = [rng.random() < 0.15 for _ in range(count)]
    assert immediate_post_dominators(readers, escapes) == brute_force(readers, escapes)
