"""The last rule: takes anything, and does to each block only what is certainly legal."""

from __future__ import annotations

from tvm import s_tir
from tvm.s_tir.schedule import SBlockRV
from tvm.tirx import IterVar, PrimFunc

from tir_schedules.blocks import (
    PARALLEL_WORK,
    extents,
    inline_spatial,
    is_spatial,
    leaf_blocks,
    new_schedule,
    points,
    work_per_point,
)
from tir_schedules.llvm.elementwise import schedule_map
from tir_schedules.machine import Machine
from tir_schedules.rule import Rule


def _parallel_leading_axes(sch: s_tir.Schedule, block: SBlockRV, machine: Machine) -> None:
    """Run the leading loops that bind only spatial axes on all cores."""
    loops = sch.get_loops(block)
    stmt = sch.get(block)
    count = 0
    for axis in stmt.iter_vars[: len(loops)]:
        if int(axis.iter_type) != IterVar.DataPar:
            break
        count += 1
    work = points(extents(sch, loops)) * work_per_point(stmt.body)
    if len(loops) != len(stmt.iter_vars) or not count or work < PARALLEL_WORK:
        return
    if machine.cores > 1:
        sch.parallel(sch.fuse(*loops[:count]) if count > 1 else loops[0])


def _schedule(func: PrimFunc, machine: Machine) -> s_tir.Schedule:
    sch = new_schedule(func)
    try:
        inline_spatial(sch)
        names = [str(sch.get(block).name_hint) for block in leaf_blocks(sch)]
    except Exception:  # this rule may never fail: an unusual function keeps its serial loops
        return new_schedule(func)
    for name in names:
        attempt = sch.copy()
        try:
            block = attempt.get_sblock(name)
            if is_spatial(attempt, block):
                schedule_map(attempt, block, machine)
            else:
                _parallel_leading_axes(attempt, block, machine)
        except Exception:  # an opaque or irregular block stays serial; the others still gain
            continue
        sch = attempt
    return sch


RULE = Rule("fallback", _schedule, needs_blocks=False)
