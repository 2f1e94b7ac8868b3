"""Reductions of one contiguous run with a vector of partial results."""

from __future__ import annotations

import contextlib

import tvm_ffi
from tvm import s_tir
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import IterVar, Var

from tir_schedules.blocks import constant, is_reduction, leaf_blocks, new_schedule
from tir_schedules.let_names import bind_names_once
from tir_schedules.llvm.reduction_tail import split_reduction_tail
from tir_schedules.machine import Machine

# Four registers of partial results hide the latency of an addition.
_REGISTERS = 4


def split_loops(sch: s_tir.Schedule, block: SBlockRV) -> tuple[list[LoopRV], list[LoopRV]]:
    """Return the loops of a block that run over kept axes, and those over reduced axes."""
    loops = sch.get_loops(block)
    stmt = sch.get(block)
    values: list[object] = []

    def visit(realize: s_tir.SBlockRealize) -> None:
        if realize.block.same_as(stmt):
            for axis, value in zip(stmt.iter_vars, realize.iter_values, strict=True):
                if int(axis.iter_type) == IterVar.CommReduce:
                    values.append(value)

    if loops:
        tvm_ffi.structural_walk(sch.get(loops[-1]), (s_tir.SBlockRealize, visit), order="pre")
    names: list[Var] = []
    for value in values:
        tvm_ffi.structural_walk(value, (Var, names.append), order="pre")
    kept: list[LoopRV] = []
    reduced: list[LoopRV] = []
    for loop in loops:
        var = sch.get(loop).loop_var
        (reduced if any(var.same_as(name) for name in names) else kept).append(loop)
    return kept, reduced


def accumulator_width(
    length: int, lanes: int, exact: bool, registers: int = _REGISTERS
) -> int | None:
    """Return how many partial results a reduction of `length` steps keeps, None for one.

    Counts latencies: a step of up to four registers takes as long as one addition, and so does
    each step of the tail and of the final combination.

    Args:
        length: Steps of the reduction.
        lanes: Elements of a vector register.
        exact: Whether the width has to divide the length.
        registers: How many the partial results may take.
    """
    costs = {
        width: length // width + length % width + width // lanes + lanes
        for width in (registers * lanes, 2 * lanes, lanes)
        if length >= width and (not exact or length % width == 0)
    }
    best = min(costs, key=lambda width: costs[width], default=None)
    return best if best is not None and costs[best] < length else None


def split_tails(sch: s_tir.Schedule, machine: Machine) -> s_tir.Schedule:
    """Split a tail off each reduction along one contiguous axis that lanes do not divide."""
    func = sch.mod["main"]
    for block in leaf_blocks(sch):
        _, reduced = split_loops(sch, block)
        stmt = sch.get(block)
        if len(reduced) != 1 or len(stmt.writes) != 1 or not is_reduction(sch, block):
            continue
        length = constant(sch.get(reduced[0]).extent)
        lanes = machine.lanes(str(stmt.writes[0].source.dtype))
        if length is None:
            continue
        width = accumulator_width(length, lanes, exact=False)
        if width is not None and length % width:
            with contextlib.suppress(ValueError):  # an irregular block keeps its one loop
                func = split_reduction_tail(func, str(stmt.name_hint), length - length % width)
    return new_schedule(bind_names_once(func))  # the tail repeats the bindings of the rest


def accumulate_in_lanes(
    sch: s_tir.Schedule, block: SBlockRV, machine: Machine, registers: int = _REGISTERS
) -> list[SBlockRV]:
    """Rewrite a reduction over its innermost axes to add into vector lanes.

    The result is exact for max and min; a floating-point sum is added in another order. A
    reduction that is too short, of symbolic length or by an unknown combiner stays as it is.

    Returns the blocks that now compute it, in program order.
    """
    _, reduced = split_loops(sch, block)
    if not reduced:
        return [block]
    stmt = sch.get(block)
    lanes = machine.lanes(str(stmt.writes[0].source.dtype))
    rank = len(stmt.writes[0].source.shape)
    length = 1
    for loop in reduced:
        extent = constant(sch.get(loop).extent)
        if extent is None:
            return [block]
        length *= extent
    width = accumulator_width(length, lanes, exact=True, registers=registers)
    if width is None:
        return [block]
    name = str(stmt.name_hint)
    attempt = sch.copy()
    try:
        _factor(attempt, attempt.get_sblock(name), width, rank)
    except s_tir.ScheduleError:
        return [block]  # TVM knows no identity for this combiner
    partial = _factor(sch, block, width, rank)
    blocks = [partial]
    if width > lanes:
        final = sch.get_sblock(name)
        _, (lane,) = split_loops(sch, final)
        _, low = sch.split(lane, [None, lanes])
        blocks.append(sch.rfactor(low, rank))
    return [*blocks, sch.get_sblock(name)]


def _factor(sch: s_tir.Schedule, block: SBlockRV, width: int, axis: int) -> SBlockRV:
    _, reduced = split_loops(sch, block)
    run = sch.fuse(*reduced) if len(reduced) > 1 else reduced[0]
    _, lane = sch.split(run, [None, width])
    return sch.rfactor(lane, axis)


def vectorize_lanes(sch: s_tir.Schedule, block: SBlockRV, outer: int, machine: Machine) -> None:
    """Vectorize the lane loop of a partial reduction, its initial value included.

    A reduction without lanes only has its initial value moved out of the loop, where an empty
    axis leaves it too. The first `outer` loops enumerate rows, not lanes.
    """
    kept, steps = split_loops(sch, block)
    rows = [sch.get(loop).loop_var for loop in sch.get_loops(block)[:outer]]
    kept = [loop for loop in kept if not any(sch.get(loop).loop_var.same_as(r) for r in rows)]
    if not steps:
        return
    lanes = machine.lanes(str(sch.get(block).writes[0].source.dtype))
    lane = next(
        (
            loop
            for loop in reversed(kept)
            if constant(sch.get(loop).extent) in (lanes, 2 * lanes, _REGISTERS * lanes)
        ),
        None,
    )
    if lane is None or len(steps) != 1:
        sch.decompose_reduction(block, steps[0])
        return
    (step,) = steps
    if (constant(sch.get(step).extent) or 0) <= _REGISTERS:
        sch.unroll(step)
    sch.reorder(step, lane)
    sch.vectorize(lane)
    init = sch.decompose_reduction(block, step)
    sch.vectorize(sch.get_loops(init)[-1])
