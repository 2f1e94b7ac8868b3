"""Place the boxes of an acyclic graph in layers, few crossings, edges nearly straight.

The method is that of Sugiyama, Tagawa and Toda (1981): layers by longest path, a dummy box where an
edge passes a layer, order within a layer by the mean of the neighbours, then coordinates. Given the
order, coordinates are the least squares fit to the neighbours' with the boxes kept apart, which
pooling adjacent violators solves exactly. Edges that leave one box share their dummies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_SWEEPS = 6
_GAP_X, _GAP_Y, _LANE = 18.0, 30.0, 10.0

Point = tuple[float, float]


@dataclass(frozen=True)
class Layout:
    """Top left corner of each box, the points each edge passes, and the whole extent."""

    corners: list[Point]
    paths: list[list[Point]]
    width: float
    height: float


@dataclass
class _Layers:
    """Boxes and dummies by layer; `up` and `down` are neighbours by number."""

    rows: list[list[int]]
    up: list[list[int]]
    down: list[list[int]]
    widths: list[float]
    chains: list[list[int]]  # for each edge the boxes and dummies it passes


def place_boxes(sizes: Sequence[Point], edges: Sequence[tuple[int, int]]) -> Layout:
    """Lay out boxes of (width, height) joined by edges, each from a lower number to a higher."""
    layer = [0] * len(sizes)
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        layer[target] = max(layer[target], layer[source] + 1)
    _pull_down(layer, edges)
    layers = _with_dummies(sizes, edges, layer)
    _order_rows(layers)
    xs = _coordinates(layers)
    heights = [0.0] * len(layers.rows)
    for box, (_, height) in enumerate(sizes):
        heights[layer[box]] = max(heights[layer[box]], height)
    tops, y = [], 0.0
    for height in heights:
        tops.append(y)
        y += height + _GAP_Y
    rows = {node: number for number, row in enumerate(layers.rows) for node in row}
    corners = [(xs[b] - w / 2, tops[layer[b]]) for b, (w, _) in enumerate(sizes)]
    paths = []
    for chain in layers.chains:
        first, *between, last = chain
        path = [(xs[first], tops[layer[first]] + sizes[first][1])]
        for dummy in between:
            top = tops[rows[dummy]]
            path += [(xs[dummy], top), (xs[dummy], top + heights[rows[dummy]])]
        paths.append([*path, (xs[last], tops[layer[last]])])
    width = max((x + w for (x, _), (w, _) in zip(corners, sizes, strict=True)), default=0.0)
    width = max([width, *(x + _LANE for x in xs)])
    return Layout(corners, paths, width, max(y - _GAP_Y, 0.0))


def _pull_down(layer: list[int], edges: Sequence[tuple[int, int]]) -> None:
    """Move boxes without sources right above the first that reads them."""
    fed = {target for _, target in edges}
    first: dict[int, int] = {}
    for source, target in edges:
        first[source] = min(first.get(source, layer[target]), layer[target])
    for box, reader in first.items():
        if box not in fed:
            layer[box] = max(0, reader - 1)


def _with_dummies(
    sizes: Sequence[Point], edges: Sequence[tuple[int, int]], layer: list[int]
) -> _Layers:
    count = max(layer, default=-1) + 1
    widths = [width for width, _ in sizes]
    rows: list[list[int]] = [[] for _ in range(count)]
    for box, number in enumerate(layer):
        rows[number].append(box)
    up: list[list[int]] = [[] for _ in sizes]
    down: list[list[int]] = [[] for _ in sizes]
    lanes: dict[tuple[int, int], int] = {}  # (source, layer) -> dummy
    chains = []
    for source, target in edges:
        chain = [source]
        for number in range(layer[source] + 1, layer[target]):
            if (source, number) not in lanes:
                lanes[source, number] = len(widths)
                widths.append(_LANE)
                rows[number].append(len(widths) - 1)
                up.append([])
                down.append([])
            chain.append(lanes[source, number])
        chain.append(target)
        for a, b in zip(chain, chain[1:], strict=False):
            if b not in down[a]:
                down[a].append(b)
                up[b].append(a)
        chains.append(chain)
    return _Layers(rows, up, down, widths, chains)


def _order_rows(layers: _Layers) -> None:
    """Sort each row by the mean place of its neighbours, downwards and upwards in turn."""
    place = {node: i for row in layers.rows for i, node in enumerate(row)}
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        neighbours = layers.up if downwards else layers.down
        for row in layers.rows if downwards else reversed(layers.rows):
            means = {
                node: _mean([place[other] for other in neighbours[node]], place[node])
                for node in row
            }
            row.sort(key=lambda node: means[node])
            place.update({node: i for i, node in enumerate(row)})


def _coordinates(layers: _Layers) -> list[float]:
    """Return the middle of each box and dummy."""
    xs = [0.0] * len(layers.widths)
    for row in layers.rows:
        _spread(row, [0.0] * len(row), layers.widths, xs)
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        neighbours = layers.up if downwards else layers.down
        for row in layers.rows if downwards else reversed(layers.rows):
            wanted = [_mean([xs[other] for other in neighbours[n]], xs[n]) for n in row]
            _spread(row, wanted, layers.widths, xs)
    left = min((x - w / 2 for x, w in zip(xs, layers.widths, strict=True)), default=0.0)
    return [x - left for x in xs]


def _spread(row: list[int], wanted: list[float], widths: Sequence[float], xs: list[float]) -> None:
    """Set the row's coordinates as near to `wanted` as boxes that do not touch allow."""
    offsets, offset = [], 0.0
    for i, node in enumerate(row):
        if i:
            offset += (widths[row[i - 1]] + widths[node]) / 2 + _GAP_X
        offsets.append(offset)
    pools: list[tuple[float, int]] = []  # (mean, members): offsets taken off, values must not fall
    for value, shift in zip(wanted, offsets, strict=True):
        mean, size = value - shift, 1
        while pools and pools[-1][0] > mean:
            other, members = pools.pop()
            mean = (mean * size + other * members) / (size + members)
            size += members
        pools.append((mean, size))
    fitted = [mean for mean, size in pools for _ in range(size)]
    for node, value, shift in zip(row, fitted, offsets, strict=True):
        xs[node] = value + shift


def _mean(values: list[float] | list[int], default: float) -> float:
    return sum(values) / len(values) if values else default
