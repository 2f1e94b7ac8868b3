"""Softmax and norms: reductions of a row followed by maps over it, computed row by row.

All blocks of one row run before the next row starts, so that the row stays in the L1 cache
between the passes over it; the last pass fetches the next row. Rows are spread over the cores.
"""

from __future__ import annotations

from itertools import pairwise

import tvm_ffi
from tvm import s_tir
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.sym import Analyzer
from tvm.tirx import Expr, IterVar, PrimFunc

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
from tir_schedules.llvm.prefetch_row import prefetch_next_row
from tir_schedules.llvm.row_in_result import keep_row_in_result
from tir_schedules.loads import loads_in
from tir_schedules.machine import Machine
from tir_schedules.rule import Decline, Rule
from tir_schedules.variables import used_in

# Row buffers up to this size live on the stack.
_STACK_BYTES = 16 << 10


def _long_axes(extents_: list[Expr]) -> list[Expr]:
    return [extent for extent in extents_ if constant(extent) != 1]


def _reads_columns(sch: s_tir.Schedule, reduction: SBlockRV) -> bool:
    """Tell whether a reduced axis comes before a long kept one in some tensor that is read."""
    stmt = sch.get(reduction)
    kept = {
        axis.var: int(axis.iter_type) == IterVar.DataPar
        for axis in stmt.iter_vars
        if constant(axis.dom.extent) != 1
    }
    order = [
        [kept[v] for i in load.indices for v in used_in(i) if v in kept]
        for load in loads_in(stmt.body)
    ]
    return any(not before and after for axes in order for before, after in pairwise(axes))


def count_row_loops(sch: s_tir.Schedule, out: SBlockRV, reduction: SBlockRV) -> int:
    """Return how many leading loops of `out` enumerate the results of `reduction`.

    Raises:
        Decline: If the kept axes of the reduction are not the leading axes of the output, or do not
            lead in what it reads: of a square, the columns are as many as the rows.
    """
    kept = _long_axes(
        [
            axis.dom.extent
            for axis in sch.get(reduction).iter_vars
            if int(axis.iter_type) == IterVar.DataPar
        ]
    )
    loops = [sch.get(loop).extent for loop in sch.get_loops(out)]
    count = 0
    for extent in kept:
        while count < len(loops) and constant(loops[count]) == 1:
            count += 1
        if count == len(loops) or not tvm_ffi.structural_equal(loops[count], extent):
            raise Decline("the reduction does not keep the leading axes of the output")
        count += 1
    if _reads_columns(sch, reduction):
        raise Decline("the reduction runs along axes before those that it keeps")
    return count


def vectorize_map(
    sch: s_tir.Schedule, block: SBlockRV, depth: int, machine: Machine
) -> LoopRV | None:
    """Vectorize the innermost of the loops below `depth`; LLVM does it where a tail is left.

    Returns the loop over vectors, None where there are none.
    """
    loops = sch.get_loops(block)[depth:]
    if not loops:
        return None
    width = constant(sch.get(loops[-1]).extent)
    lanes = machine.lanes(str(sch.get(block).writes[0].source.dtype))
    if width is not None and width > 0 and width % lanes == 0:
        unit = 2 * lanes if width % (2 * lanes) == 0 else lanes
        step, lane = sch.split(loops[-1], [None, unit])
        sch.vectorize(lane)
        return step
    return None


def keep_on_stack(sch: s_tir.Schedule, block: SBlockRV, depth: int) -> None:
    """Move the row buffer of `block` to the stack when it is small.

    `stack_allocation` places buffers of any scope there, but of this scope a softmax of 200 or 768
    columns is a seventh fewer instructions.
    """
    row = extents(sch, sch.get_loops(block)[depth:])
    if None not in row and 4 * points(row) <= _STACK_BYTES:
        sch.set_scope(block, 0, "local")


def _take_as_mapped(sch: s_tir.Schedule, source: SBlockRV, block: SBlockRV) -> bool:
    """Reduce a row to vectors of partial results while the map before computes it, in one pass.

    Returns whether it could be done: the block reads the map's vectors one by one.
    """
    vectors, (kept, reduced) = sch.get_loops(source), split_loops(sch, block)
    if is_reduction(sch, source) or (len(vectors), len(kept), len(reduced)) != (3, 2, 1):
        return False
    loops = [kept[0], *reduced, kept[1]]
    sizes = extents(sch, loops[1:])
    if None in sizes or sizes != extents(sch, vectors[1:]):
        return False
    stmt, row = sch.get(block), sch.get(source).writes[0].source
    read = [load.indices[-1] for load in loads_in(stmt.body, row)]
    (step,) = (a.var for a in stmt.iter_vars if int(a.iter_type) == IterVar.CommReduce)
    vector = step * sch.get(kept[1]).extent + stmt.writes[0].region[-1].min
    if not read or not all(Analyzer().can_prove_equal(place, vector) for place in read):
        return False
    sch.reorder(*loops[1:])
    sch.vectorize(kept[1])
    sch.merge(vectors[1], *reduced)
    init = sch.decompose_reduction(block, sch.get_loops(block)[1])
    sch.vectorize(sch.get_loops(init)[-1])
    return True


def _schedule(func: PrimFunc, machine: Machine) -> s_tir.Schedule:
    sch = new_schedule(func)
    if any(rule_tag(sch, block) for block in leaf_blocks(sch)):
        raise Decline("has a block with a rule of its own")
    inline_spatial(sch, recompute_limit=RECOMPUTE)
    sch = split_tails(sch, machine)
    blocks = leaf_blocks(sch)
    reductions = [block for block in blocks if is_reduction(sch, block)]
    outputs = [block for block in blocks if is_output(sch, block)]
    if not reductions:
        raise Decline("has no reduction")
    if len(outputs) != 1 or not is_spatial(sch, outputs[0]):
        raise Decline("has no single map as its output")
    if any(len(sch.get(block).writes) != 1 for block in blocks):
        raise Decline("has a block with several results")
    (out,) = outputs
    rows = {count_row_loops(sch, out, reduction) for reduction in reductions}
    if len(rows) != 1:
        raise Decline("its reductions keep different axes")
    (row_count,) = rows
    for reduction in reductions:
        # A map leaves time for additions, and fewer registers.
        mapped = any(not is_reduction(sch, p) for p in sch.get_producers(reduction))
        accumulate_in_lanes(sch, reduction, machine, registers=2 if mapped else 4)
    if row_count == 0:
        sch.add_unit_loop(sch.get_loops(out)[0])
        row_count = 1
    work = total_work(sch, leaf_blocks(sch))
    row = parallel_outer(sch, sch.get_loops(out)[:row_count], machine, work)
    inner = [block for block in leaf_blocks(sch) if not is_output(sch, block)]
    for block in reversed(inner):
        sch.compute_at(block, row)
    for before, block in pairwise([None, *inner]):
        keep_on_stack(sch, block, 1)
        if not is_reduction(sch, block):
            vectorize_map(sch, block, 1, machine)
        elif before is None or not _take_as_mapped(sch, before, block):
            vectorize_lanes(sch, block, 1, machine)
    name = str(sch.get(out).name_hint)
    sch = prefetch_next_row(sch, vectorize_map(sch, out, 1, machine))
    return keep_row_in_result(sch, sch.get_sblock(name))


RULE = Rule("row_kernel", _schedule)
