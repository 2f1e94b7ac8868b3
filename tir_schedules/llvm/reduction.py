"""Reductions over any axes, and functions of several stages with a reduction among them.

Each block is a stage of its own. A reduction whose innermost axis is reduced adds into vector
lanes; one whose innermost axis is kept runs over vectors of results. Floating-point sums are
added in another order than written.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm_ffi
from tvm import s_tir
from tvm.s_tir.schedule import SBlockRV
from tvm.tirx import IterVar, PrimFunc, Var

from tir_schedules.blocks import (
    RECOMPUTE,
    constant,
    inline_spatial,
    is_reduction,
    is_spatial,
    leaf_blocks,
    new_schedule,
    rule_tag,
    total_work,
)
from tir_schedules.llvm.elementwise import parallel_outer, schedule_map
from tir_schedules.llvm.lane_reduction import (
    accumulate_in_lanes,
    split_loops,
    split_tails,
    vectorize_lanes,
)
from tir_schedules.llvm.operand_reductions import reductions_of_operands_first
from tir_schedules.loads import loads_in
from tir_schedules.machine import Machine
from tir_schedules.rule import Decline, Rule

# Reductions that share a loop over columns: two registers each, or one, leave room for loads.
_TOGETHER = 4


def reads_along_reduced_axis(sch: s_tir.Schedule, block: SBlockRV) -> bool:
    """Tell whether the largest operand is contiguous along a reduced axis, and along no kept one.

    A sliding window is contiguous along both: neighbouring results are then the better lanes.
    """
    stmt = sch.get(block)
    results = [region.source for region in stmt.writes]
    operands = [
        load
        for load in loads_in(stmt.body)
        if not any(load.source.same_as(result) for result in results)
    ]
    if not operands:
        return False
    widest = max(operands, key=lambda load: len(load.indices))
    names: list[Var] = []
    tvm_ffi.structural_walk(widest.indices[-1], (Var, names.append), order="pre")
    kinds = {
        int(axis.iter_type)
        for axis in stmt.iter_vars
        if any(axis.var.same_as(name) for name in names)
    }
    return kinds == {IterVar.CommReduce}


def _over_rows(sch: s_tir.Schedule, block: SBlockRV, machine: Machine, work: int) -> None:
    """Reduce contiguous runs, one after the other, each into vector lanes."""
    *partials, final = accumulate_in_lanes(sch, block, machine)
    kept, _ = split_loops(sch, final)
    if not kept:
        kept = [sch.add_unit_loop(sch.get_loops(final)[0])]
    row = parallel_outer(sch, kept, machine, work)
    for partial in reversed(partials):
        sch.compute_at(partial, row)
        sch.set_scope(partial, 0, "local")
    for stage in (*partials, final):
        vectorize_lanes(sch, stage, 1, machine)


def _over_columns(
    sch: s_tir.Schedule, blocks: Sequence[SBlockRV], machine: Machine, work: int
) -> None:
    """Reduce whole vectors of neighbouring results at once, in all of some alike blocks."""
    kept, reduced = split_loops(sch, blocks[0])
    if not kept:
        return
    width = constant(sch.get(kept[-1]).extent)
    lanes = min(machine.lanes(str(sch.get(b).writes[0].source.dtype)) for b in blocks)
    registers = (4, 2, 1) if len(blocks) == 1 else (2, 1)
    unit = next((n * lanes for n in registers if width and width % (n * lanes) == 0), None)
    for block in blocks:
        kept, reduced = split_loops(sch, block)
        *outer, column = kept
        if unit is None:
            sch.reorder(*outer, *reduced, column)
        else:
            chunk, lane = sch.split(column, [None, unit])
            sch.reorder(*outer, chunk, *reduced, lane)
    if len(blocks) > 1:
        sch.merge(*(sch.get_loops(block)[-2] for block in blocks))
    loops = sch.get_loops(blocks[0])
    count = len(loops) - len(reduced) - 1
    parallel_outer(sch, loops[:count], machine, work)
    steps = [sch.get_loops(block)[-1 - len(reduced)] if reduced else None for block in blocks]
    for block, step in zip(blocks, steps, strict=True):
        if unit is not None:
            sch.vectorize(sch.get_loops(block)[-1])
        if step is not None:
            init = sch.decompose_reduction(block, step)
            if unit is not None:
                sch.vectorize(sch.get_loops(init)[-1])


def _alike_columns(sch: s_tir.Schedule, blocks: Sequence[SBlockRV]) -> list[SBlockRV]:
    """Return the blocks that reduce over equal loops, none along its innermost result axis."""
    alike: list[SBlockRV] = []
    first: list[object] = []
    for block in blocks:
        kept, reduced = split_loops(sch, block)
        sizes = [sch.get(loop).extent for loop in (*kept, *reduced)]
        plain = len(sch.get(block).writes) == 1 and not reads_along_reduced_axis(sch, block)
        if not plain or not kept or not reduced or len(alike) == _TOGETHER:
            continue
        if not alike or tvm_ffi.structural_equal(sizes, first):
            alike.append(block)
            first = sizes
    return alike if len(alike) > 1 else []


def schedule_reduction(sch: s_tir.Schedule, block: SBlockRV, machine: Machine) -> None:
    """Schedule one reduction block over its own loops."""
    work = total_work(sch, [block])
    if len(sch.get(block).writes) > 1:  # argmax and argmin carry a position: rows stay serial
        kept, reduced = split_loops(sch, block)
        sch.reorder(*kept, *reduced)
        parallel_outer(sch, kept, machine, work)
        if reduced:
            sch.decompose_reduction(block, reduced[0])
    elif reads_along_reduced_axis(sch, block):
        _over_rows(sch, block, machine, work)
    else:
        _over_columns(sch, [block], machine, work)


def _schedule(func: PrimFunc, machine: Machine) -> s_tir.Schedule:
    sch = new_schedule(func)
    if any(rule_tag(sch, block) for block in leaf_blocks(sch)):
        raise Decline("has a block with a rule of its own")
    inline_spatial(sch, recompute_limit=RECOMPUTE)
    sch = split_tails(sch, machine)
    blocks = leaf_blocks(sch)
    if not any(is_reduction(sch, block) for block in blocks):
        raise Decline("has no reduction")
    together: list[SBlockRV] = []
    if sum(is_reduction(sch, block) for block in blocks) > 1:
        sch, first = reductions_of_operands_first(sch)
        blocks = leaf_blocks(sch)
        together = _alike_columns(sch, blocks[:first])
    if together:
        _over_columns(sch, together, machine, total_work(sch, together))
    for block in blocks:
        if any(block.same_as(done) for done in together):
            continue
        if is_reduction(sch, block):
            schedule_reduction(sch, block, machine)
        elif is_spatial(sch, block):
            schedule_map(sch, block, machine)
        else:
            raise Decline("has an irregular block")
    return sch


RULE = Rule("reduction", _schedule)
