"""Give a concatenation and its operands one buffer, so that what makes an operand writes it there.

Each concatenation is a storage with a slot for each operand. An operand's storage moves into its
slot if it may lie there for all of its life. One that is in a slot of another concatenation
already, as the features of a dense block are, may draw the whole concatenation into that one's
storage: where the slots agree, both are read from the same bytes. Larger ones go first. An operand
that cannot be placed (an input, a constant, one passed twice) is copied into its slot.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax

from relax_passes.memory.live_ranges import CONCAT, LiveRanges, is_call_to, static_bytes


@dataclass(frozen=True)
class Slot:
    """Bytes of a concatenation for one operand: the storage that fills them, None for a copy."""

    begin: int
    size: int
    storage: int | None


def join_parts(
    bindings: list[relax.Binding], live: LiveRanges, *, place: bool = True
) -> dict[relax.Var, list[int]]:
    """Merge the storages of concatenations and their operands in `live`.

    Args:
        bindings: Bindings in the order they run.
        live: Their live ranges.
        place: Whether operands may lie in the concatenation; otherwise each is copied.

    Returns:
        For each concatenation the numbers of the operands that are to be copied into it.
    """
    found = {b.var: b.value for b in bindings if is_call_to(b.value, CONCAT)}
    joiner = _Joiner(live)
    copied: dict[relax.Var, list[int]] = {}
    for var in sorted(found, key=lambda v: -(static_bytes(v.ty) or 0)):
        slots = _slots(found[var], live) if place else []
        placed = joiner.join(live.results[var][0], slots) if place else []
        operands = range(len(found[var].args[0].fields))
        copied[var] = [k for k in operands if k not in placed]
    joiner.extend_lives()
    return copied


def _slots(concat: relax.Call, live: LiveRanges) -> list[Slot]:
    """Return the slots of a concatenation whose parts are runs of bytes."""
    slots: list[Slot] = []
    begin = 0
    for operand in concat.args[0].fields:
        size = static_bytes(operand.ty) or 0
        named = live.names.get(operand, frozenset())
        whole = len(named) == 1 and operand not in live.slices
        storage = next(iter(named)) if whole else None
        if storage is not None and not live.storages[storage].planned:
            storage = None
        slots.append(Slot(begin, size, storage))
        begin += size
    return slots


class _Joiner:
    def __init__(self, live: LiveRanges) -> None:
        self._live = live
        self._taken: dict[int, list[tuple[int, int]]] = {}  # of each root: filled (begin, end)

    def join(self, whole: int, slots: list[Slot]) -> list[int]:
        """Place a concatenation's operands; return the numbers of those that lie in it."""
        storages = self._live.storages
        if storages[whole].host is None and not storages[whole].escapes:
            self._draw_into_another(whole, slots)
        root, base = self._live.place_of(whole)
        taken = self._taken.setdefault(root, [])
        placed = []
        for number, slot in enumerate(slots):
            begin, end = base + slot.begin, base + slot.begin + slot.size
            if slot.storage is not None:
                if self._live.place_of(slot.storage) == (root, begin) and slot.storage != root:
                    placed.append(number)
                    continue
                if storages[slot.storage].host is None and slot.storage != root:
                    self._host(slot.storage, whole, slot.begin)
                    placed.append(number)
            taken.append((begin, end))
        storages[root].joined |= bool(placed)
        return placed

    def _draw_into_another(self, whole: int, slots: list[Slot]) -> None:
        """Put a concatenation where most bytes of its operands lie already, if all of it fits."""
        size = sum(slot.size for slot in slots)
        support: dict[tuple[int, int], int] = {}
        for slot in slots:
            if slot.storage is not None and self._live.storages[slot.storage].host is not None:
                root, begin = self._live.place_of(slot.storage)
                place = (root, begin - slot.begin)
                support[place] = support.get(place, 0) + slot.size
        for root, base in sorted(support, key=lambda p: -support[p]):
            if 0 <= base and base + size <= (self._live.storages[root].size or 0):
                free = all(
                    self._is_free(root, base + s.begin, base + s.begin + s.size)
                    or self._lies_at(s.storage, root, base + s.begin)
                    for s in slots
                )
                if free:
                    self._host(whole, root, base)
                    return

    def _lies_at(self, storage: int | None, root: int, begin: int) -> bool:
        return storage is not None and self._live.place_of(storage) == (root, begin)

    def _is_free(self, root: int, begin: int, end: int) -> bool:
        return all(stop <= begin or end <= start for start, stop in self._taken.get(root, []))

    def _host(self, storage: int, host: int, shift: int) -> None:
        self._live.storages[storage].host = host
        self._live.storages[storage].shift = shift
        root, base = self._live.place_of(storage)
        moved = self._taken.pop(storage, [])
        self._taken.setdefault(root, []).extend((base + b, base + e) for b, e in moved)

    def extend_lives(self) -> None:
        """Let each buffer live from the first write to a part to the last use of any."""
        for index, storage in enumerate(self._live.storages):
            if storage.host is not None:
                root = self._live.storages[self._live.host_of(index)]
                root.lower = min(root.lower, storage.lower)
                root.upper = max(root.upper, storage.upper)
