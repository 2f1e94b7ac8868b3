"""Softmax, norms and reductions of columns: neighbours in memory belong to different sums.

A lane has a column, so that a warp reads whole lines; the warps of a block divide the rows, combine
their results in shared memory, and go on. What fits is kept in registers and read once; longer
columns are read again for each step, mostly from the cache.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx import Expr, PrimFunc
from tvm.tirx.script import builder as T

from tir_schedules.blocks import constant, inline_spatial, new_schedule
from tir_schedules.cuda.register_rows import RECOMPUTE, RowKernel
from tir_schedules.cuda.row_plan import Combine, RowPlan, read_rows
from tir_schedules.cuda.threads import WARP
from tir_schedules.cuda.written_kernel import write_kernel
from tir_schedules.machine import Machine
from tir_schedules.rule import Decline, Rule

_SHORT = 32  # so short a single sum keeps a thread busy, and there are many
_MOST_WARPS = 16
_LEAST_ROWS = 4  # of a warp
_KEPT = 32  # elements that a lane keeps of all tensors


def _apply(func: PrimFunc, machine: Machine) -> PrimFunc:
    sch = new_schedule(func)
    inline_spatial(sch, recompute_limit=RECOMPUTE)
    plan = read_rows(sch)
    if not plan.columns:
        raise Decline("its rows lie side by side")
    if plan.width < _SHORT and sum(step.combine is not None for step in plan.steps) == 1:
        raise Decline("its columns are short")
    return write_kernel(func, _ColumnKernel(plan).emit)


class _ColumnKernel(RowKernel):
    """The kernel of columns in memory: a lane has one, the warps divide its places."""

    def __init__(self, plan: RowPlan) -> None:
        self.warps = 1
        while self.warps < _MOST_WARPS and plan.width >= 2 * self.warps * _LEAST_ROWS:
            self.warps *= 2
        super().__init__(plan, self.warps)

    def cut(self) -> None:
        """Divide the places of a row among the warps; keep them where they fit in registers."""
        self.vector, self.units = 1, self.plan.width
        self.trips = -(-self.units // self.warps)
        if self.trips * len(self.kept) > _KEPT:
            self.kept = []

    def emit(self) -> None:
        """Emit the kernel."""
        rows = self.plan.rows
        with (
            T.launch_thread("blockIdx.x", tirx.ceildiv(rows, WARP)) as block,
            T.launch_thread("threadIdx.x", self.warps * WARP) as thread,
        ):
            self.warp, self.lane = tirx.floordiv(thread, WARP), tirx.floormod(thread, WARP)
            self.row = block * WARP + self.lane
            height = constant(rows)
            # Threads without a column stay: they take part in the barriers.
            self.there = [] if height is not None and height % WARP == 0 else [self.row < rows]
            self.emit_row()

    def place_in_row(self, trip: Any, lane_place: Any) -> Expr:
        """Return the place of a warp in its trip."""
        return trip * self.warps + self.warp

    def each_unit(self, emit: Any) -> None:
        """Emit what is done for each place of a warp."""

        def at(trip: Any, whole: bool) -> None:
            conditions = [*self.there]
            if not whole:
                conditions.append(trip * self.warps + self.warp < self.units)
            if not conditions:
                emit(trip)
                return
            with T.If(tirx.all(*conditions)), T.Then():
                emit(trip)

        whole = self.units // self.warps
        if self.kept:
            for trip in range(self.trips):
                at(trip, trip < whole)
            return
        if whole:
            with T.serial(0, whole) as trip:
                at(trip, True)
        if whole < self.trips:
            at(tirx.const(whole, "int32"), False)

    def combine_threads(self, combine: Combine, total: Any) -> None:
        """Combine what the warps have found of each column."""
        if self.warps == 1:
            return
        shared = T.alloc_buffer((self.warps * WARP,), str(total.dtype), scope="shared")
        T.buffer_store(shared, total[0], [self.warp * WARP + self.lane])
        T.evaluate(T.tvm_storage_sync("shared"))
        T.buffer_store(total, shared[self.lane], [0])
        for warp in range(1, self.warps):
            T.buffer_store(total, combine(total[0], shared[warp * WARP + self.lane]), [0])

    def speaks(self) -> Expr:
        """Return whether a thread stores the results of its column: those of the first warp do."""
        return tirx.all(self.warp == 0, *self.there)


RULE = Rule("column_kernel", _apply, kinds=("cuda",))
