"""A block of tiles ends at the last one that there is.

By a symbolic number of rows the last block has fewer tiles than the others, and TVM puts what a
tile does under a condition, in each step of the reduction. LLVM then keeps the sums of a tile in
memory, since a step may add nothing to them. So the loop over the tiles of a block ends earlier.
"""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir import SBlockRealize
from tvm.s_tir.schedule import SBlockRV
from tvm.sym import Analyzer
from tvm.tirx import For

from tir_schedules.blocks import new_schedule
from tir_schedules.variables import substitute, uses


def end_at_last_tile(sch: s_tir.Schedule, anchor: SBlockRV) -> s_tir.Schedule:
    """Return the schedule with the condition of a block in the extent of one of its loops.

    Nothing changes where the condition is none of one loop alone: `place + loop < end`.
    """
    loops = [sch.get(loop) for loop in sch.get_loops(anchor)]
    guard = _guard_of(loops[-1], sch.get(anchor))
    within = [loop for loop in loops if uses(guard, loop.loop_var)]
    if not isinstance(guard, tirx.LT) or not within:
        return sch
    tiles = within[-1]
    start = substitute(guard.a, {tiles.loop_var: tirx.const(0, str(tiles.loop_var.ty.dtype))})
    step = Analyzer().simplify(guard.a - start)
    if uses(guard.b, tiles.loop_var) or not step.same_as(tiles.loop_var):
        return sch

    def realize(node: SBlockRealize) -> SBlockRealize:
        if not tvm_ffi.structural_equal(node.predicate, guard):
            return node
        return SBlockRealize(node.iter_values, tirx.const(True, "bool"), node.block)

    def end(loop: For) -> For:
        if not loop.loop_var.same_as(tiles.loop_var):
            return loop
        body = tvm_ffi.structural_map(loop.body, (SBlockRealize, realize))
        extent = tirx.min(loop.extent, guard.b - start)
        return For(loop.loop_var, loop.min, extent, loop.kind, body, annotations=loop.annotations)

    func = sch.mod["main"]
    return new_schedule(func.with_body(tvm_ffi.structural_map(func.body, (For, end))))


def _guard_of(loop: For, block: s_tir.SBlock) -> tirx.Expr:
    """Return the condition under which a block runs within its innermost loop."""
    found: list[SBlockRealize] = []
    tvm_ffi.structural_walk(loop.body, (SBlockRealize, found.append), order="pre")
    return next(realize.predicate for realize in found if realize.block.same_as(block))
