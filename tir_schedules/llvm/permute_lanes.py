"""Reads of other lanes of a register, by the instruction that permutes it.

A vectorized loop that reads x[place(lane)] fills a register by as many loads as it has lanes.
Where all places lie in one register, x is loaded as it is and its lanes are put in their places.
"""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.s_tir.schedule import SBlockRV
from tvm.sym import Analyzer

from tir_schedules.blocks import new_schedule
from tir_schedules.machine import Machine
from tir_schedules.variables import uses

_INSTRUCTIONS = {16: "llvm.x86.avx512.permvar.sf.512", 8: "llvm.x86.avx2.permps"}


def can_permute(lanes: int, machine: Machine) -> bool:
    """Return whether one instruction permutes `lanes` float32 values, a whole register."""
    x86 = machine.name in ("avx512", "avx2")
    return x86 and lanes == machine.lanes("float32") and lanes in _INSTRUCTIONS


def permute_reads(
    sch: s_tir.Schedule, block: SBlockRV, lane: tirx.Var, place: tirx.Expr, lanes: int
) -> s_tir.Schedule:
    """Return the schedule with the reads of `place` as permutations of registers.

    Args:
        sch: The schedule; the loop over `lane` is vectorized.
        block: The block that reads.
        lane: Its axis over the lanes, 0 to `lanes` - 1.
        place: The lane that each lane reads, as it stands in the last index of a read, also within
            a sum.
        lanes: Lanes of a register that `can_permute` accepts.
    """
    analyzer, func = Analyzer(), sch.mod["main"]
    (axis,) = (axis for axis in sch.get(block).iter_vars if axis.var.same_as(lane))
    analyzer.bind(lane, axis.dom)

    def rewrite(load: TensorLoad) -> tirx.Expr:
        *outer, last = load.indices
        base = analyzer.simplify(last - place)
        if not uses(last, lane) or uses(base, lane):
            return load
        value = tirx.BufferLoad(load.source, [*outer, base + lane])
        # Unsigned, because TVM widens signed indices to 64 bits wherever they stand.
        order = tirx.Cast("uint32", place)
        return tirx.call_llvm_pure_intrin("float32", _INSTRUCTIONS[lanes], value, order)

    return new_schedule(func.with_body(tvm_ffi.structural_map(func.body, (TensorLoad, rewrite))))
