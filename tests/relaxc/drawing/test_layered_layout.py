"""Boxes do not overlap, edges go down, and a chain is a straight line."""

from __future__ import annotations

import random
import time
from itertools import combinations

from relaxc.drawing.layered_layout import Layout, place_boxes


def overlapping(sizes: list[tuple[float, float]], layout: Layout) -> list[tuple[int, int]]:
    found = []
    for a, b in combinations(range(len(sizes)), 2):
        (ax, ay), (bx, by) = layout.corners[a], layout.corners[b]
        (aw, ah), (bw, bh) = sizes[a], sizes[b]
        if ax < bx + bw and bx < ax + aw and ay < by + bh and by < ay + ah:
            found.append((a, b))
    return found


def random_graph(count: int, seed: int) -> tuple[list[tuple[float, float]], list[tuple[int, int]]]:
    choice = random.Random(seed)
    sizes = [(choice.uniform(20, 200), choice.uniform(20, 90)) for _ in range(count)]
    edges = {(choice.randrange(max(0, t - 8), t), t) for t in range(1, count) for _ in range(2)}
    edges |= {(0, t) for t in range(10, count, 10)}  # one that reaches through every layer
    return sizes, sorted(edges)


def test_boxes_do_not_overlap_and_edges_go_down() -> None:
    for seed in range(5):
        sizes, edges = random_graph(60, seed)
        layout = place_boxes(sizes, edges)
        assert not overlapping(sizes, layout)
        for (source, target), path in zip(edges, layout.paths, strict=True):
            (x, y), (w, h) = layout.corners[source], sizes[source]
            assert abs(path[0][0] - x - w / 2) < 1e-6 and path[0][1] == y + h
            assert abs(path[-1][0] - layout.corners[target][0] - sizes[target][0] / 2) < 1e-6
            assert path[-1][1] == layout.corners[target][1]
            assert all(a[1] <= b[1] for a, b in zip(path, path[1:], strict=False))
        assert min(x for x, _ in layout.corners) >= -1e-6
        assert all(
            x + w <= layout.width + 1e-6 and y + h <= layout.height + 1e-6
            for (x, y), (w, h) in zip(layout.corners, sizes, strict=True)
        )


def test_a_chain_is_straight_and_a_diamond_symmetric() -> None:
    chain = place_boxes([(40, 20), (100, 20), (60, 20)], [(0, 1), (1, 2)])
    middles = [x + w / 2 for (x, _), w in zip(chain.corners, (40, 100, 60), strict=True)]
    assert max(middles) - min(middles) < 1e-6
    diamond = place_boxes([(50, 20)] * 4, [(0, 1), (0, 2), (1, 3), (2, 3)])
    left, right = diamond.corners[1][0], diamond.corners[2][0]
    assert abs((left + right) / 2 - diamond.corners[3][0]) < 1e-6


def test_an_empty_graph_and_a_large_one() -> None:
    assert place_boxes([], []) == Layout([], [], 0.0, 0.0)
    sizes, edges = random_graph(1500, 0)
    start = time.process_time()
    place_boxes(sizes, edges)
    assert time.process_time() - start < 20
