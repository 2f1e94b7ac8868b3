"""Look for the plan of the lowest peak: greedy plans first, then searches for a stated peak.

The first is for the bound itself, the next for a peak that is close enough to it for most uses,
the rest bisect. Each places blocks (`fit_blocks.py`), then buffers (`exact_search.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from relax_passes.memory.exact_search import fit_capacity
from relax_passes.memory.fit_blocks import fit_blocks, fit_in_rounds
from relax_passes.memory.greedy_offsets import GREEDY_STRATEGIES, Buffer, place_greedily

# What the search may spend is counted in nodes, not in time, so that a build gives the same plan
# everywhere. A node takes some 150 us, and 0.5 us for each buffer.
_NODE, _NODE_PER_BUFFER = 150, 0.5
_WORK = 2_000_000
_WORK_TO_FIT = 40_000_000  # where the user states a capacity: up to a minute
_FIRST_SHARE = 0.3  # of the work, to meet the bound itself
_SHARE_TO_FIT = 0.8  # of the work, to meet a stated capacity
_CLOSE_SHARE = 0.8  # of what remains, to come close to the bound
_NEXT_SHARE = 0.35  # of what remains, for each peak tried after that
_BLOCKS_SHARE = 0.2  # of the others: what blocks do not show at once, they rarely do later
_CLOSE = 1.02  # times the bound
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
    given = capacity is not None and capacity >= bound
    share = int((_SHARE_TO_FIT if given else _FIRST_SHARE) * nodes)
    low = target = goal
    close = int(_CLOSE * goal)
    while True:
        find = fit_in_rounds if target == goal else _fit
        found = find(triples, target, share)
        nodes -= share
        if found is None:
            low = target
        else:
            best = [0] * len(items)
            for i, offset in zip(solid, found, strict=True):
                best[i] = offset
        if peak(best) <= low * _CLOSE_ENOUGH or nodes <= len(solid):
            return best
        if low < close < peak(best):
            target, share = close, int(_CLOSE_SHARE * nodes)
        else:
            target, share = (low + peak(best)) // 2, int(_NEXT_SHARE * nodes)
        share = max(share, min(nodes, 2 * len(solid)))


def _fit(triples: Sequence[tuple[int, int, int]], target: int, nodes: int) -> list[int] | None:
    """Place blocks, then buffers, at a peak of at most `target`; None if neither is found."""
    for_blocks = int(_BLOCKS_SHARE * nodes)
    found = fit_blocks(triples, target, for_blocks)
    return found or fit_capacity(triples, target, nodes - for_blocks)
