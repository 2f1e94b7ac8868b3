"""How many bytes of a function's tensors are alive at once, before its kernels are scheduled."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax, tirx

from relax_passes.analysis.overwrite import overwritable_operands
from relax_passes.memory.greedy_offsets import Buffer
from relax_passes.memory.in_place import choose_in_place
from relax_passes.memory.live_ranges import analyze_live_ranges, bindings_of
from relax_passes.memory.plan_offsets import fullest_step


@dataclass(frozen=True)
class Peak:
    """The bytes alive at the fullest step, and the variables whose tensors they are."""

    bytes: int
    alive: frozenset[relax.Var]


class ArenaPeaks:
    """Peaks of functions; what each kernel may overwrite is found out once."""

    def __init__(self) -> None:
        self._pairs: dict[tirx.PrimFunc, list[tuple[int, int]]] = {}

    def of(self, mod: tvm.IRModule, func: relax.Function) -> Peak:
        """Return the peak of a lowered function in the order it stands."""
        bindings = bindings_of(func)
        live = analyze_live_ranges(bindings, func.body.body)
        choose_in_place(mod, bindings, live, allowed=self._allowed)
        placed = (live.storages[index] for index in live.placed())
        fullest, most = fullest_step([Buffer(s.lower, s.upper, s.arena_bytes) for s in placed])
        alive = {
            var
            for var, indices in live.names.items()
            for index in indices
            if live.storages[index].planned
            and (host := live.storages[live.host_of(index)]).lower <= fullest < host.upper
        }
        return Peak(most, frozenset(alive))

    def _allowed(self, func: tirx.PrimFunc) -> list[tuple[int, int]]:
        if func not in self._pairs:
            self._pairs[func] = overwritable_operands(func)
        return self._pairs[func]
