"""Several results a row: reductions of one row and maps over it, each row's all before the next.

The nests of all blocks become one over the rows, so that a row comes from memory once and then from
the cache, and reductions that read nothing but operands share one pass over it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import s_tir
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import PrimFunc

from tir_schedules.blocks import (
    RECOMPUTE,
    constant,
    extents,
    inline_spatial,
    is_output,
    is_reduction,
    is_spatial,
    leaf_blocks,
    new_schedule,
    points,
    rule_tag,
    total_work,
)
from tir_schedules.llvm.elementwise import parallel_outer
from tir_schedules.llvm.lane_reduction import (
    accumulate_in_lanes,
    split_loops,
    split_tails,
    vectorize_lanes,
)
from tir_schedules.llvm.operand_reductions import reductions_of_operands_first
from tir_schedules.llvm.reduction import reads_along_reduced_axis
from tir_schedules.llvm.row_kernel import keep_on_stack, vectorize_map
from tir_schedules.machine import Machine
from tir_schedules.row_space import row_space
from tir_schedules.rule import Decline, Rule


def _check(sch: s_tir.Schedule) -> int:
    """Return how many leading axes are rows.

    Raises:
        Decline: If the blocks do not run row by row.
    """
    blocks = leaf_blocks(sch)
    if not any(is_reduction(sch, block) for block in blocks):
        raise Decline("has no reduction")
    if any(not is_reduction(sch, block) and not is_spatial(sch, block) for block in blocks):
        raise Decline("has a block that is neither a map nor a reduction")
    if not all(reads_along_reduced_axis(sch, b) for b in blocks if is_reduction(sch, b)):
        raise Decline("reduces columns")
    space = row_space(sch.mod["main"])
    if space is None:
        raise Decline("has a block that stores to more than its own point")
    if space.rows == 0:
        for block in blocks:
            kept, _ = split_loops(sch, block)
            if points(extents(sch, kept)) != 1:
                raise Decline("its results have no leading axis in common")
    return space.rows


def _join_rows(sch: s_tir.Schedule, rows: int) -> LoopRV:
    """Make one loop over the rows of all blocks, which keep their order within a row."""
    heads = []
    for block in leaf_blocks(sch):
        loops = sch.get_loops(block)
        if rows == 0:
            heads.append(sch.add_unit_loop(loops[0] if loops else block))
        else:
            heads.append(sch.fuse(*loops[:rows]) if rows > 1 else loops[0])
    return sch.merge(*heads)


def _share_passes(
    sch: s_tir.Schedule, reductions: Sequence[SBlockRV], most: int
) -> list[list[SBlockRV]]:
    """Merge the loops of adjacent reductions that take equal steps, of up to `most` at a time.

    Returns those that share a loop, each list's blocks with the loops (row, step, lanes).
    """
    alike: dict[tuple[int | None, ...], list[SBlockRV]] = {}
    for block in reductions:
        _, steps = split_loops(sch, block)
        below = sch.get_loops(block)[1:]
        stepwise = len(steps) == 1 and below and sch.get(below[0]).same_as(sch.get(steps[0]))
        sizes = extents(sch, below)
        if stepwise and len(below) <= 2 and None not in sizes:
            alike.setdefault(tuple(sizes), []).append(block)
    taken = [
        blocks[at : at + most] for blocks in alike.values() for at in range(0, len(blocks), most)
    ]
    shared = [blocks for blocks in taken if len(blocks) > 1]
    for blocks in shared:
        sch.merge(*(sch.get_loops(block)[1] for block in blocks))
    return shared


def _vectorize_pass(sch: s_tir.Schedule, blocks: Sequence[SBlockRV]) -> None:
    """Vectorize the lanes of reductions that share the loop over steps."""
    for block in blocks:
        for lane in sch.get_loops(block)[2:]:
            sch.vectorize(lane)
    for block in blocks:
        init = sch.decompose_reduction(block, sch.get_loops(block)[1])
        for lane in sch.get_loops(init)[1:]:
            sch.vectorize(lane)


def _schedule(func: PrimFunc, machine: Machine) -> s_tir.Schedule:
    sch = new_schedule(func)
    blocks = leaf_blocks(sch)
    if any(rule_tag(sch, block) for block in blocks):
        raise Decline("has a block with a rule of its own")
    if sum(is_output(sch, block) for block in blocks) < 2:
        raise Decline("has one result")
    inline_spatial(sch, recompute_limit=RECOMPUTE)
    sch = split_tails(sch, machine)
    rows = _check(sch)
    for block in leaf_blocks(sch):
        if is_reduction(sch, block):
            accumulate_in_lanes(sch, block, machine)
    sch, first = reductions_of_operands_first(sch)
    work = total_work(sch, leaf_blocks(sch))
    row = _join_rows(sch, rows)
    if constant(sch.get(row).extent) != 1:
        parallel_outer(sch, [row], machine, work)
    stages = leaf_blocks(sch)
    # Each has four registers of partial results; four stay free for what is loaded.
    shared = _share_passes(sch, stages[:first], machine.vector_registers // 4 - 1)
    together = [block for blocks in shared for block in blocks]
    for block in stages:
        if not is_output(sch, block):
            keep_on_stack(sch, block, 1)
    for blocks in shared:
        _vectorize_pass(sch, blocks)
    for block in stages:
        if is_reduction(sch, block):
            if not any(block.same_as(other) for other in together):
                vectorize_lanes(sch, block, 1, machine)
        elif is_spatial(sch, block):
            vectorize_map(sch, block, 1, machine)
    return sch


RULE = Rule("row_results", _schedule)
