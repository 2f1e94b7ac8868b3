"""What the arenas of functions that call each other take together.

A function's arena lives while the function runs, so it adds to those of its callers. Functions that
are never under way at once need no more than the largest of them: the branches of an `If`, and what
is called one after the other. These ask the run-time pool for equally many bytes, for it hands out
a block again only to whoever asks for its size: all of them use one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tvm import relax
from tvm.relax import analysis as relax_analysis


@dataclass(frozen=True)
class FunctionArena:
    """One function's plan.

    Attributes:
        peak: Bytes of its arena.
        bound: The most of its bytes alive at one step.
        naive: Bytes of its tensors without reuse.
        alive: (lower, upper, bytes) of each buffer in the arena.
        calls: The steps at which other functions are called, and which ones: one of them runs.
    """

    peak: int
    bound: int
    naive: int
    alive: Sequence[tuple[int, int, int]]
    calls: Sequence[tuple[int, frozenset[str]]]


def calls_of(
    bindings: Sequence[relax.Binding], functions: Collection[str]
) -> list[tuple[int, frozenset[str]]]:
    """Return the steps that call some of `functions`, and which: several where it is a branch."""
    found = []
    for step, binding in enumerate(bindings):
        names = {var.name_hint for var in relax_analysis.all_global_vars(binding.value)}
        if called := frozenset(names & set(functions)):
            found.append((step, called))
    return found


@dataclass(frozen=True)
class Totals:
    """Of one run of a function and what it calls: bytes of the arenas, their bound, no reuse."""

    peak: int = 0
    bound: int = 0
    naive: int = 0


class ArenaStack:
    """The arenas of all functions of a module; one that calls itself counts once."""

    def __init__(self, arenas: Mapping[str, FunctionArena], main: str = "main") -> None:
        """Compute what each function asks the pool for, from how deep below `main` it is called."""
        self._arenas = arenas
        depths: dict[str, int] = {}
        self._sink(main, frozenset(), depths)
        self.bytes = {name: arena.peak for name, arena in arenas.items()}
        for depth in set(depths.values()):
            beside = [name for name in depths if depths[name] == depth and arenas[name].peak]
            most = max((arenas[name].peak for name in beside), default=0)
            self.bytes.update(dict.fromkeys(beside, most))
        self._known: dict[str, Totals] = {}

    def totals(self, name: str = "main") -> Totals:
        """Return what one run of a function takes, the larger of each two branches."""
        if name not in self._known:
            self._known[name] = Totals()  # to whatever calls it from within
            arena = self._arenas[name]
            peak, bound, naive = 0, arena.bound, arena.naive
            for step, names in arena.calls:
                below = [self.totals(called) for called in sorted(names)]
                load = sum(size for lower, upper, size in arena.alive if lower <= step < upper)
                peak = max(peak, *(each.peak for each in below))
                bound = max(bound, *(load + each.bound for each in below))
                naive += max(each.naive for each in below)
            self._known[name] = Totals(self.bytes[name] + peak, bound, naive)
        return self._known[name]

    def _sink(self, name: str, callers: frozenset[str], depths: dict[str, int]) -> None:
        """Note how many functions are under way, at most, when one begins."""
        if name in callers or len(callers) <= depths.get(name, -1):
            return
        depths[name] = len(callers)
        for _, names in self._arenas[name].calls:
            for called in names:
                self._sink(called, callers | {name}, depths)
