"""Softmax, norms and reductions of rows that fit in registers: each element is read once.

A row of up to 1024 elements belongs to a warp, a longer one to several warps of one block. Lanes
load vectors of the row into registers; each reduction combines them, then the lanes by shuffles,
then the warps by shared memory; maps read the registers again. Sums of 16-bit floats are kept in
float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.tirx import Expr, PrimFunc
from tvm.tirx.script import builder as T

from tir_schedules.blocks import constant, inline_spatial, new_schedule
from tir_schedules.cuda.row_plan import Combine, RowPlan, RowStep, read_rows
from tir_schedules.cuda.threads import VECTOR, WARP
from tir_schedules.cuda.warp_shuffle import combine_lanes
from tir_schedules.cuda.written_kernel import cast, write_kernel
from tir_schedules.loads import loads_in
from tir_schedules.machine import Machine
from tir_schedules.rule import Decline, Rule
from tir_schedules.variables import substitute, uses

RECOMPUTE = 40  # operations a point that cost less than registers for their results
_LANE_ELEMENTS = 32  # of one row, that a lane keeps
_KEPT = 96  # elements that a lane keeps of all tensors
_SHORT_ROW = 64
_BLOCK_WARPS = 4


def _apply(func: PrimFunc, machine: Machine) -> PrimFunc:
    sch = new_schedule(func)
    inline_spatial(sch, recompute_limit=RECOMPUTE)
    plan = read_rows(sch)
    if plan.columns:
        raise Decline("its rows are columns in memory")
    if plan.width < _SHORT_ROW and sum(s.combine is not None for s in plan.steps) == 1:
        raise Decline("its rows are short")
    warps = 1
    while plan.width > warps * WARP * _LANE_ELEMENTS:
        warps *= 2
    if warps > 32:
        raise Decline("a row does not fit in the registers of a block")
    return write_kernel(func, RowKernel(plan, warps).emit)


@dataclass(frozen=True)
class _Cached:
    """An element of a row, and the registers that hold it for a lane's places."""

    load: TensorLoad
    registers: Any


class RowKernel:
    """Emits the kernel of a function over rows, whose elements belong to the lanes of warps."""

    def __init__(self, plan: RowPlan, warps: int) -> None:
        self.plan, self.warps = plan, warps
        self.rows_of_block = _BLOCK_WARPS if warps == 1 else 1
        self.kept = _loads_of_reductions(plan)
        self.cut()
        self.totals: list[tuple[Any, Expr]] = []

    def cut(self) -> None:
        """Divide a row into vectors, and those among the lanes.

        Raises:
            Decline: If a lane has no registers for them.
        """
        # Four, of 16-bit floats too: TVM's code for vectors of eight float32 does not compile.
        self.vector = VECTOR if self.plan.width % VECTOR == 0 else 1
        self.units = self.plan.width // self.vector
        self.trips = -(-self.units // (self.warps * WARP))
        if self.trips * self.vector * len(self.kept) > _KEPT:
            raise Decline("its rows do not fit in registers")

    def emit(self) -> None:
        """Emit the kernel."""
        rows = self.plan.rows
        blocks = tirx.ceildiv(rows, self.rows_of_block)
        threads = self.warps * self.rows_of_block * WARP
        with (
            T.launch_thread("blockIdx.x", blocks) as block,
            T.launch_thread("threadIdx.x", threads) as thread,
        ):
            of_row = self.warps * WARP
            self.row = block * self.rows_of_block + tirx.floordiv(thread, of_row)
            self.place = tirx.floormod(thread, of_row)
            self.warp, self.lane = tirx.floordiv(thread, WARP), tirx.floormod(thread, WARP)
            height = constant(rows)
            whole = height is not None and height % self.rows_of_block == 0
            if whole or self.rows_of_block == 1:
                return self.emit_row()
            with T.If(self.row < rows), T.Then():
                self.emit_row()
            return None

    def emit_row(self) -> None:
        """Emit the steps of a thread's row."""
        self.cached = [self._load_once(load) for load in self.kept]
        for step in self.plan.steps:
            if step.combine is not None:
                self._reduce(step)
            elif step.across:
                self._store_across(step)
            else:
                self._store_of_row(step, self._at(step.value, None, None))

    def _at(self, value: Expr, trip: Any, lane_place: Any) -> Expr:
        """Return a value at a lane's place: registers instead of what they hold.

        Args:
            value: In terms of the plan's y and x.
            trip: Which of the lane's vectors, None where x does not occur.
            lane_place: Which of the vector's elements.
        """

        def read(load: TensorLoad) -> Expr:
            for buffer, total in self.totals:
                if load.source.same_as(buffer):
                    return total
            for cached in self.cached:
                if tvm_ffi.structural_equal(load, cached.load):
                    return cached.registers[trip * self.vector + lane_place]
            return load

        value = tvm_ffi.structural_map(value, (TensorLoad, read))
        return self._placed(value, trip, lane_place)

    def _placed(self, value: Expr, trip: Any, lane_place: Any) -> Expr:
        mapping = {self.plan.y: tirx.Cast("int64", self.row)}
        if trip is not None:
            mapping[self.plan.x] = tirx.Cast("int64", self.place_in_row(trip, lane_place))
        return substitute(value, mapping)

    def place_in_row(self, trip: Any, lane_place: Any) -> Expr:
        """Return where in its row an element of a lane's vector is."""
        return (trip * (self.warps * WARP) + self.place) * self.vector + lane_place

    def each_unit(self, emit: Any) -> None:
        """Emit what is done for each of a lane's vectors that lie in the row."""
        for trip in range(self.trips):
            if (trip + 1) * self.warps * WARP <= self.units:
                emit(trip)
                continue
            with T.If(trip * (self.warps * WARP) + self.place < self.units), T.Then():
                emit(trip)

    def _each_element(self, emit: Any, trip: int) -> None:
        if self.vector == 1:
            return emit(trip, 0)
        with T.vectorized(0, self.vector) as at:
            emit(trip, at)
        return None

    def _load_once(self, load: TensorLoad) -> _Cached:
        count = self.trips * self.vector
        registers = T.alloc_buffer((count,), str(load.source.dtype), scope="local")

        def fill(trip: int, at: Any) -> None:
            value = self._placed(load, trip, at)
            T.buffer_store(registers, value, [trip * self.vector + at])

        self.each_unit(lambda trip: self._each_element(fill, trip))
        return _Cached(load, registers)

    def _reduce(self, step: RowStep) -> None:
        """Combine a lane's elements, the lanes of a warp, and the warps of a row."""
        combine = step.combine
        assert combine is not None
        dtype = str(step.buffer.dtype)
        inner = "float32" if dtype in ("float16", "bfloat16") else dtype
        total = T.alloc_buffer((1,), inner, scope="local")
        T.buffer_store(total, cast(step.first, inner), [0])

        def take(trip: int) -> None:
            for at in range(self.vector):
                value = cast(self._at(step.value, trip, at), inner)
                T.buffer_store(total, combine(total[0], value), [0])

        self.each_unit(take)
        self.combine_threads(combine, total)
        result = cast(total[0], dtype)
        self.totals.append((step.buffer, result))
        if step.stored:
            self._store_of_row(step, result)

    def combine_threads(self, combine: Combine, total: Any) -> None:
        """Combine what the threads of a row have found; each gets the whole."""
        combine_lanes(total, 0, combine)
        if self.warps == 1:
            return
        shared = T.alloc_buffer((self.warps,), str(total.dtype), scope="shared")
        with T.If(self.lane == 0), T.Then():
            T.buffer_store(shared, total[0], [self.warp])
        T.evaluate(T.tvm_storage_sync("shared"))
        T.buffer_store(total, shared[0], [0])
        for warp in range(1, self.warps):
            T.buffer_store(total, combine(total[0], shared[warp]), [0])

    def _store_across(self, step: RowStep) -> None:
        def store(trip: int, at: Any) -> None:
            indices = [self._placed(index, trip, at) for index in step.indices]
            T.buffer_store(step.buffer, self._at(step.value, trip, at), indices)

        self.each_unit(lambda trip: self._each_element(store, trip))

    def speaks(self) -> Expr:
        """Return whether a thread stores the results of its row."""
        return self.place == 0

    def _store_of_row(self, step: RowStep, value: Expr) -> None:
        indices = [self._placed(index, None, None) for index in step.indices]
        with T.If(self.speaks()), T.Then():
            T.buffer_store(step.buffer, value, indices)


def _loads_of_reductions(plan: RowPlan) -> list[TensorLoad]:
    """Return the elements of a row that reductions read: later steps mostly read them, too."""
    made = [step.buffer for step in plan.steps]
    found: dict[Any, TensorLoad] = {}
    for step in plan.steps:
        if step.combine is None:
            continue
        for load in loads_in(step.value):
            if any(load.source.same_as(buffer) for buffer in made) or not uses(load, plan.x):
                continue
            found.setdefault(tvm_ffi.StructuralKey(load), load)
    return list(found.values())


RULE = Rule("register_rows", _apply, kinds=("cuda",))
