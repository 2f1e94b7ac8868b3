"""Look for the plan of the lowest peak: greedy plans first, then a bisection of exact searches."""

from __future__ import annotations

from collections.abc import Sequence

from relax_passes.memory.exact_search import fit_capacity
from relax_passes.memory.greedy_offsets import GREEDY_STRATEGIES, Buffer, place_greedily

# What the search may spend is counted in nodes, not in time, so that a build gives the same plan
# everywhere. A node takes some 250 us, and 0.6 us for each buffer.
_NODE, _NODE_PER_BUFFER = 250, 0.6
_WORK = 2_000_000
_WORK_TO_FIT = 50_000_000  # where the user states a capacity: up to a minute
_FIRST_SHARE = 0.3  # of the work, to meet the bound itself
_SHARE_TO_FIT = 0.8  # of the work, to meet a stated capacity
_NEXT_SHARE = 0.35  # of what remains, for each peak tried after that
_CLOSE_ENOUGH = 1.001


def search_offsets(items: Sequence[Buffer], bound: int, capacity: int | None) -> list[int]:
    """Return offsets of a low peak; stop at `bound`, or at `capacity` if one is given.

    Args:
        items: The buffers.
        bound: No plan has a lower peak.
        capacity: Bytes the arena may take, if the user states them: then the search takes longer.
    """

    def peak(offsets: Sequence[int]) -> int:
        return max((o + b.size for o, b in zip(offsets, items, strict=True)), default=0)

    goal = max(bound, capacity or 0)
    best: list[int] = []
    for strategy in GREEDY_STRATEGIES:
        offsets = place_greedily(items, strategy)
        if not best or peak(offsets) < peak(best):
            best = offsets
        if peak(best) <= goal:
            return best
    solid = [i for i, b in enumerate(items) if b.size]
    triples = [(items[i].lower, items[i].upper, items[i].size) for i in solid]
    work = _WORK if capacity is None else _WORK_TO_FIT
    nodes = int(work / (_NODE + _NODE_PER_BUFFER * len(solid)))

    def fit(target: int, nodes: int) -> list[int] | None:
        found = fit_capacity(triples, target, nodes)
        if found is None:
            return None
        offsets = [0] * len(items)
        for i, offset in zip(solid, found, strict=True):
            offsets[i] = offset
        return offsets

    given = capacity is not None and capacity >= bound
    first = int((_SHARE_TO_FIT if given else _FIRST_SHARE) * nodes)
    met = fit(goal, first)
    if met is not None:
        return met
    low, nodes = goal, nodes - first
    while peak(best) > low * _CLOSE_ENOUGH and nodes > len(solid):
        target = (low + peak(best)) // 2
        share = max(int(_NEXT_SHARE * nodes), min(nodes, 2 * len(solid)))
        found, nodes = fit(target, share), nodes - share
        if found is None:
            low = target
        else:
            best = found
    return best
