"""The last rule: takes anything; each block that stays becomes a kernel of its own."""

from __future__ import annotations

from tvm import s_tir
from tvm.tirx import PrimFunc

from tir_schedules.blocks import (
    inline_spatial,
    is_spatial,
    launches_threads,
    leaf_blocks,
    new_schedule,
)
from tir_schedules.cuda.threads import bind_map, is_bound, name_of, thread_per_result
from tir_schedules.machine import Machine
from tir_schedules.rule import Rule


def _one_thread(sch: s_tir.Schedule, name: str) -> s_tir.Schedule:
    """Run a block whose axes may depend on each other, a scan or a sort, in one thread."""
    block = sch.get_sblock(name)
    loops = sch.get_loops(block)
    sch.bind(sch.add_unit_loop(loops[0] if loops else block), "threadIdx.x")
    return sch


def _schedule(func: PrimFunc, machine: Machine) -> s_tir.Schedule:
    sch = new_schedule(func)
    if launches_threads(func):
        return sch
    try:
        inline_spatial(sch)
        names = [name_of(sch, block) for block in leaf_blocks(sch)]
    except Exception:  # this rule may never fail: an unusual function is taken as it is
        return new_schedule(func)
    for name in names:
        if is_bound(sch, sch.get_sblock(name)):
            continue
        for bind in (_map, thread_per_result, _one_thread):
            try:
                sch = bind(sch.copy(), name)
            except Exception:  # an opaque or irregular block: the next way is more careful
                continue
            break
    return sch


def _map(sch: s_tir.Schedule, name: str) -> s_tir.Schedule:
    block = sch.get_sblock(name)
    if not is_spatial(sch, block):
        raise ValueError("not a map")
    bind_map(sch, block)
    return sch


RULE = Rule("fallback", _schedule, needs_blocks=False)
