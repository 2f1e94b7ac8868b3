"""Chains of elementwise operators: one loop over the result, parallel and vectorized."""

from __future__ import annotations

from tvm import s_tir
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import PrimFunc

from tir_schedules.llvm.blocks import (
    PARALLEL_WORK,
    extents,
    inline_spatial,
    is_spatial,
    leaf_blocks,
    new_schedule,
    points,
    work_per_point,
)
from tir_schedules.machine import Machine
from tir_schedules.rule import Decline, Rule


def parallel_outer(
    sch: s_tir.Schedule, loops: list[LoopRV], machine: Machine, work: int
) -> LoopRV | None:
    """Fuse `loops` and run them on all cores when `work` scalar operations pay for it.

    Returns the fused loop, None when there is no loop to fuse.
    """
    if not loops:
        return None
    fused = sch.fuse(*loops) if len(loops) > 1 else loops[0]
    if work >= PARALLEL_WORK and machine.cores > 1:
        sch.parallel(fused)
    return fused


def schedule_map(sch: s_tir.Schedule, block: SBlockRV, machine: Machine) -> None:
    """Schedule one spatial block over its own loops.

    The innermost axis is vectorized when whole registers cover it; otherwise it stays a plain
    loop, which LLVM vectorizes with a scalar tail and no predicate in the hot part. A block with
    one axis only is cut into chunks for the cores.
    """
    loops = sch.get_loops(block)
    if not loops:
        return
    sizes = extents(sch, loops)
    stmt = sch.get(block)
    work = points(sizes) * work_per_point(stmt.body)
    lanes = machine.lanes(str(stmt.writes[0].source.dtype)) if stmt.writes else 1
    *outer, inner = loops
    width = sizes[-1]
    if width is not None and width % lanes == 0 and width > 0:
        unit = 2 * lanes if width % (2 * lanes) == 0 else lanes
        chunk, lane = sch.split(inner, [None, unit])
        sch.vectorize(lane)
        rows = points(sizes[:-1])
        spread = [*outer, chunk] if rows < 8 * machine.cores else outer
        parallel_outer(sch, spread, machine, work)
    elif outer and (width is None or width >= lanes or points(sizes[:-1]) >= 4 * machine.cores):
        parallel_outer(sch, outer, machine, work)
    else:  # one long axis: chunks of whole cache lines, the last one shorter
        fused = sch.fuse(*loops) if len(loops) > 1 else inner
        if work >= PARALLEL_WORK and machine.cores > 1:
            chunk, _ = sch.split(fused, [None, 16 * lanes])
            sch.parallel(chunk)


def _schedule(func: PrimFunc, machine: Machine) -> s_tir.Schedule:
    sch = new_schedule(func)
    if not all(is_spatial(sch, block) for block in leaf_blocks(sch)):
        raise Decline("has a reduction")
    if not leaf_blocks(sch):
        raise Decline("has no blocks")
    inline_spatial(sch)
    for block in leaf_blocks(sch):
        schedule_map(sch, block, machine)
    return sch


RULE = Rule("elementwise", _schedule)
