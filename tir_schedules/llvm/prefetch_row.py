"""Prefetching of the row that a row kernel reads next.

A norm or a softmax reads a row from memory and then works on it from cache, while memory idles. So
the last pass over a row, which stores it, fetches the next one, a line for each vector or two that
it stores. Layer norm of 16384 rows of 768, out of cache, on one Zen 3 core: 0.77 of copy bandwidth
without, 0.98 with it. A prefetch never faults, so the last row may fetch what lies behind it.
"""

from __future__ import annotations

import tvm_ffi
from tvm import DataType, s_tir, tirx
from tvm.ir import TensorLoad
from tvm.s_tir import SBlockRealize
from tvm.s_tir.schedule import LoopRV
from tvm.tirx import For, PrimFunc, SeqStmt, Stmt, Var

from tir_schedules.blocks import new_schedule
from tir_schedules.llvm.prefetch_panel import LINE_BYTES, prefetch
from tir_schedules.variables import substitute

_MARK = "prefetch_row"
_FIRST_LEVEL = 3  # LLVM's locality of data that is to stay in all caches


def prefetch_next_row(sch: s_tir.Schedule, step: LoopRV | None) -> s_tir.Schedule:
    """Return the schedule with each operand's next row fetched while a row is stored.

    Args:
        sch: The schedule.
        step: Loop over the vectors of a row that the last pass stores, None if it has none.
    """
    if step is None:
        return sch
    sch.annotate(step, _MARK, 1)
    func = sch.mod["main"]

    def rewrite(loop: For) -> Stmt:
        if _MARK not in loop.annotations:
            return loop
        body = SeqStmt([*_fetches(func, loop), loop.body])
        return For(loop.loop_var, loop.min, loop.extent, loop.kind, body)

    return new_schedule(func.with_body(tvm_ffi.structural_map(func.body, (For, rewrite))))


def _fetches(func: PrimFunc, step: For) -> list[Stmt]:
    """Return what one step fetches: of each operand with the result's shape, a row ahead."""
    result, place, stored = _stored_at(step)
    width = result.shape[-1]
    fetches = []
    for operand in _operands_like(func, result):
        in_line = LINE_BYTES * 8 // DataType(operand.dtype).bits
        for first in range(0, stored, in_line):
            ahead = [*place[:-1], place[-1] + width + first]
            fetches.append(prefetch(operand, ahead, _FIRST_LEVEL))
    return fetches


def _stored_at(step: For) -> tuple[tirx.Buffer, list[tirx.Expr], int]:
    """Return the result, where a step begins to store it, and how many elements a step stores."""
    lanes: list[For] = []
    realizes: list[SBlockRealize] = []
    tvm_ffi.structural_walk(
        step.body, [(For, lanes.append), (SBlockRealize, realizes.append)], order="pre"
    )
    (lane,), (realize,) = lanes, realizes
    (write,) = realize.block.writes
    axes: list[Var] = [axis.var for axis in realize.block.iter_vars]
    values = dict(zip(axes, realize.iter_values, strict=True))
    start = {lane.loop_var: tirx.const(0, str(lane.loop_var.ty.dtype))}
    place = [substitute(substitute(axis.min, values), start) for axis in write.region]
    return write.source, place, int(lane.extent)


def _operands_like(func: PrimFunc, result: tirx.Buffer) -> list[tirx.Buffer]:
    """Return the parameters of the result's shape that the function reads."""
    params = {param: None for param in func.params}
    found: dict[tirx.Buffer, None] = {}

    def visit(load: TensorLoad) -> None:
        buffer = load.source
        alike = tvm_ffi.structural_equal(list(buffer.shape), list(result.shape))
        if buffer in params and alike and not buffer.same_as(result):
            found.setdefault(buffer)

    tvm_ffi.structural_walk(func.body, (TensorLoad, visit), order="pre")
    return list(found)
