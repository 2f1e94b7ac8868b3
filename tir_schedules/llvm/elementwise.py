"""Chains of elementwise operators: one loop over the results, parallel and vectorized."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import s_tir
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import PrimFunc

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
from tir_schedules.joined_maps import join_maps, join_vectors, joinable_maps
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


def without_division(sch: s_tir.Schedule, loops: list[LoopRV]) -> list[LoopRV]:
    """Return the loops to fuse: a fused one is divided by symbolic extents at each of its steps.

    The last loop then stays apart, so that the steps are rows, not elements.
    """
    return loops[:-1] if len(loops) > 1 and None in extents(sch, loops) else loops


def schedule_map(sch: s_tir.Schedule, block: SBlockRV, machine: Machine) -> None:
    """Schedule one spatial block over its own loops, as `schedule_maps` does."""
    schedule_maps(sch, [block], machine)


def schedule_maps(sch: s_tir.Schedule, blocks: Sequence[SBlockRV], machine: Machine) -> None:
    """Schedule one spatial block, or several that can share all their loops.

    The innermost axis is vectorized when whole registers cover it; otherwise it stays a plain
    loop, which LLVM vectorizes with a scalar tail and no predicate in the hot part. Blocks with
    one axis only are cut into chunks for the cores.
    """
    loops = sch.get_loops(blocks[0])
    if not loops:
        return
    sizes = extents(sch, loops)
    stmts = [sch.get(block) for block in blocks]
    work = points(sizes) * sum(work_per_point(stmt.body) for stmt in stmts)
    written = [str(region.source.dtype) for stmt in stmts for region in stmt.writes[:1]]
    lanes = min(map(machine.lanes, written), default=1)
    width = sizes[-1]
    if width is not None and width % lanes == 0 and width > 0:
        unit = 2 * lanes if width % (2 * lanes) == 0 else lanes
        shared, vectors = join_vectors(sch, blocks, unit)
        for vector in vectors:
            sch.vectorize(vector)
        rows = points(sizes[:-1])
        tasks = shared if rows < 8 * machine.cores else shared[:-1]
        parallel_outer(sch, without_division(sch, tasks), machine, work)
        return
    *outer, inner = join_maps(sch, blocks)
    if outer and (width is None or width >= lanes or points(sizes[:-1]) >= 4 * machine.cores):
        parallel_outer(sch, without_division(sch, outer), machine, work)
    else:  # one long axis: chunks of whole cache lines, the last one shorter
        fused = sch.fuse(*outer, inner) if outer else inner
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
    for blocks in joinable_maps(sch):
        schedule_maps(sch, blocks, machine)
    return sch


RULE = Rule("elementwise", _schedule)
