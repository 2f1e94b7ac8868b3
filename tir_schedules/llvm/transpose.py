"""Permutations that move the innermost axis: square tiles, so that both sides use cache lines."""

from __future__ import annotations

from tvm import s_tir
from tvm.s_tir.schedule import SBlockRV
from tvm.tirx import PrimFunc

from tir_schedules.blocks import (
    constant,
    extents,
    inline_spatial,
    is_spatial,
    leaf_blocks,
    new_schedule,
    points,
)
from tir_schedules.llvm.elementwise import parallel_outer, without_division
from tir_schedules.loads import loads_in
from tir_schedules.machine import Machine
from tir_schedules.rule import Decline, Rule

# One 64-byte cache line of float32 on each side of the tile.
_TILE = 16


def _moved_axis(sch: s_tir.Schedule, block: SBlockRV) -> int:
    """Return which axis of the result runs along the innermost axis of the operand.

    Raises:
        Decline: If no operand of the result's size is read across its innermost axis.
    """
    stmt = sch.get(block)
    axes = [axis.var for axis in stmt.iter_vars]
    for load in loads_in(stmt.body):
        if len(load.indices) < 2:
            continue
        position = next(
            (at for at, var in enumerate(axes) if var.same_as(load.indices[-1])), len(axes) - 1
        )
        if position != len(axes) - 1:
            return position
    raise Decline("no operand is read across its innermost axis")


def _schedule(func: PrimFunc, machine: Machine) -> s_tir.Schedule:
    sch = new_schedule(func)
    if not all(is_spatial(sch, block) for block in leaf_blocks(sch)):
        raise Decline("has a reduction")
    inline_spatial(sch)
    blocks = leaf_blocks(sch)
    if len(blocks) != 1:
        raise Decline("is not one map")
    (block,) = blocks
    loops = sch.get_loops(block)
    moved = _moved_axis(sch, block)
    if len(loops) != len(sch.get(block).iter_vars):
        raise Decline("loops and axes differ")
    sizes = extents(sch, loops)
    across, along = loops[moved], loops[-1]
    outer = [loop for at, loop in enumerate(loops) if at not in (moved, len(loops) - 1)]
    tiles = [_split(sch, across), _split(sch, along)]
    heads = [head for head, _ in tiles if head is not None]
    tails = [tail for _, tail in tiles]
    sch.reorder(*outer, *heads, *tails)
    spread = [*outer, *heads]
    parallel_outer(sch, without_division(sch, spread), machine, 4 * points(sizes))
    return sch


def _split(sch: s_tir.Schedule, loop: s_tir.schedule.LoopRV) -> tuple[object | None, object]:
    """Split a tile off a loop; a loop without whole tiles of some size stays inside."""
    extent = constant(sch.get(loop).extent)
    size = next((t for t in (_TILE, 8, 4) if extent and extent % t == 0), None)
    if size is None or extent == size:
        return None, loop
    head, tail = sch.split(loop, [None, size])
    return head, tail


RULE = Rule("transpose", _schedule)
