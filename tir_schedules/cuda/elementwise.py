"""Chains of elementwise operators: one thread a vector of results, all in one kernel."""

from __future__ import annotations

from tvm import s_tir
from tvm.tirx import PrimFunc

from tir_schedules.blocks import inline_spatial, is_spatial, leaf_blocks, new_schedule
from tir_schedules.cuda.threads import bind_maps
from tir_schedules.joined_maps import joinable_maps
from tir_schedules.machine import Machine
from tir_schedules.rule import Decline, Rule


def _schedule(func: PrimFunc, machine: Machine) -> s_tir.Schedule:
    sch = new_schedule(func)
    blocks = leaf_blocks(sch)
    if not blocks:
        raise Decline("has no blocks")
    if not all(is_spatial(sch, block) for block in blocks):
        raise Decline("has a reduction")
    inline_spatial(sch)
    for maps in joinable_maps(sch):
        bind_maps(sch, maps)
    return sch


RULE = Rule("elementwise", _schedule)
