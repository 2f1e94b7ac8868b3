"""Reductions and pooling: one thread a result, or one block a result where rows are long."""

from __future__ import annotations

from tvm import s_tir
from tvm.tirx import PrimFunc

from tir_schedules.blocks import (
    inline_spatial,
    is_reduction,
    is_spatial,
    leaf_blocks,
    new_schedule,
)
from tir_schedules.cuda.threads import bind_map, is_bound, name_of, split_axes, thread_per_result
from tir_schedules.machine import Machine
from tir_schedules.rule import Decline, Rule


def _schedule(func: PrimFunc, machine: Machine) -> s_tir.Schedule:
    sch = new_schedule(func)
    inline_spatial(sch)
    reductions = [block for block in leaf_blocks(sch) if is_reduction(sch, block)]
    if len(reductions) != 1:
        raise Decline(f"has {len(reductions)} reductions")
    (block,) = reductions
    if any(not is_spatial(sch, b) and not is_reduction(sch, b) for b in leaf_blocks(sch)):
        raise Decline("has a block that is neither a map nor a reduction")
    split_axes(sch, block)
    sch = thread_per_result(sch, name_of(sch, block))
    for name in [name_of(sch, b) for b in leaf_blocks(sch) if not is_bound(sch, b)]:
        bind_map(sch, sch.get_sblock(name))
    return sch


RULE = Rule("reduction", _schedule)
