"""Let tensors of equal symbolic size take turns in one storage, where their lives do not meet.

Sizes that are known only at run time have no offsets, but two tensors of n * 64 floats have equal
sizes whatever n is. Within a group of provably equal sizes the fewest storages suffice: as many as
are alive at once, each taken over by the first tensor that starts after its last one ended (optimal
for intervals; the left-edge algorithm of Hashimoto and Stevens, DAC 1971).
"""

from __future__ import annotations

from typing import Any

from tvm import DataType, relax, tirx
from tvm.sym import Analyzer

from relax_passes.memory.live_ranges import LiveRanges


def share_symbolic_storage(live: LiveRanges) -> dict[int, int]:
    """Return for each storage of symbolic size that shares its bytes which other one it shares.

    The first of those that share, in the order they are written, is mapped to itself. What shares
    with nothing is left to the run-time pool.
    """
    groups: list[tuple[Any, list[int]]] = []
    by_text: dict[str, list[int]] = {}
    analyzer = Analyzer()
    for index, storage in enumerate(live.storages):
        if storage.size is not None or storage.escapes or storage.foreign:
            continue
        size = symbolic_bytes(storage.ty)
        if size is None:
            continue
        size = analyzer.simplify(size)
        members = by_text.get(str(size))
        if members is None:
            equal = (found for known, found in groups if analyzer.can_prove_equal(known, size))
            members = by_text[str(size)] = next(equal, [])
            if not members:
                groups.append((size, members))
        members.append(index)
    owners: dict[int, int] = {}
    for _, members in groups:
        owners.update(_take_turns(members, live))
    shared = list(owners.values())
    return {index: owner for index, owner in owners.items() if shared.count(owner) > 1}


def symbolic_bytes(ty: relax.TensorType) -> Any | None:
    """Return a tensor's size in bytes as an expression, None where its shape is unknown."""
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return None
    total: Any = tirx.const((DataType(str(ty.dtype)).bits + 7) // 8, "int64")
    for dim in ty.shape.values:
        total = total * dim
    return total


def _take_turns(members: list[int], live: LiveRanges) -> dict[int, int]:
    """Return for each member, in the order they are written, the first one in its storage."""
    ends: dict[int, int] = {}  # of each storage, by its first member: the step after its last use
    owners: dict[int, int] = {}
    for index in members:
        storage = live.storages[index]
        free = [owner for owner, end in ends.items() if end <= storage.lower]
        owners[index] = max(free, key=ends.__getitem__) if free else index
        ends[owners[index]] = storage.upper
    return owners
