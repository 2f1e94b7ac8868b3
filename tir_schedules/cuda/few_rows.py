"""Products of few rows, as in decoding: the weights travel once, at the rate of the memory.

A lane multiplies the weights of some steps and columns at a time by the same steps of all rows,
and keeps a sum of each row and column in registers. The weights come straight from memory in
16-byte loads, four in flight a lane: no two lanes want the same ones, so that shared memory would
only be a detour. Lanes and warps of a block divide the steps among them; their sums meet at the
end, by shuffles and in shared memory, in the order of the lanes and warps. Where there are too few
columns for all multiprocessors, blocks divide the steps as well (`split_steps.py`).
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx import Expr, PrimFunc
from tvm.tirx.script import builder as T

from tir_schedules.cuda.pipelined_product import match_product
from tir_schedules.cuda.product_operands import Operand, Product
from tir_schedules.cuda.product_stores import VECTOR, store_sums
from tir_schedules.cuda.row_tile import RowTile, choose_row_tile, row_seconds
from tir_schedules.cuda.split_steps import emit_slices
from tir_schedules.cuda.tile_choice import MATRIX_TILES, choose_tile, estimate_seconds
from tir_schedules.cuda.warp_shuffle import shuffled
from tir_schedules.cuda.written_kernel import cast, write_kernel
from tir_schedules.gpu import Gpu
from tir_schedules.machine import Machine
from tir_schedules.rule import Decline, Rule

FEW_ROWS = 16
TYPES = ("float32", "float16", "bfloat16")


def _apply(func: PrimFunc, machine: Machine) -> PrimFunc:
    product = match_product(func, TYPES, most_rows=FEW_ROWS)
    assert machine.gpu is not None
    tile = choose_row_tile(product, machine.gpu)
    if _suits_tensor_cores(product, tile, machine.gpu):
        raise Decline("has so many rows that Tensor Cores are estimated to be faster")
    return FewRows(product, tile).write(func)


def _suits_tensor_cores(product: Product, tile: RowTile, gpu: Gpu) -> bool:
    if product.left.dtype == "float32" or gpu.capability < 80:
        return False
    shape = (tile.rows, product.columns, product.steps, product.batches(), gpu)
    there = estimate_seconds(choose_tile(*shape, MATRIX_TILES), *shape)
    return there < row_seconds(tile, product, gpu)


class FewRows:
    """Emits the kernel of `product`, which has as many rows as `tile`."""

    def __init__(self, product: Product, tile: RowTile) -> None:
        self.product, self.tile = product, tile
        trips = -(-product.steps // tile.depth)
        self.trips = -(-trips // tile.slices)
        self.vector = min(VECTOR, tile.lane_columns)
        self.left_is_whole = product.left.contiguous(True, tile.lane_steps)

    def write(self, func: PrimFunc) -> PrimFunc:
        """Return the kernel with the parameters of `func`."""
        return write_kernel(func, lambda: emit_slices(self, self._emit))

    def _emit(self) -> None:
        tile, product = self.tile, self.product
        columns = -(-product.columns // tile.columns)
        with (
            T.launch_thread("blockIdx.z", product.batch * tile.slices) as layer,
            T.launch_thread("blockIdx.x", columns) as block,
            T.launch_thread("threadIdx.x", tile.threads) as thread,
        ):
            self.batch = tirx.floordiv(layer, tile.slices)
            self.slice = tirx.floormod(layer, tile.slices)
            self.thread = thread
            self.warp, lane = tirx.floordiv(thread, 32), tirx.floormod(thread, 32)
            # Lanes beside each other load neighbours.
            inner = tile.step_lanes if tile.along_steps else tile.column_lanes
            places = tirx.floordiv(lane, inner), tirx.floormod(lane, inner)
            self.column_lane, self.step_lane = places if tile.along_steps else places[::-1]
            self.where = (0, block * tile.columns)
            self.first_column = self.where[1] + self.column_lane * tile.lane_columns
            # nvcc unrolls: TVM would carry every sum through all its passes.
            with T.attr(tirx.const(0, "int32"), "pragma_unroll_explicit", False):
                self._declare()
                self._main_loop()
                self._add_lanes()
                self._add_warps()

    def _declare(self) -> None:
        tile, weights = self.tile, self.tile.lane_steps * self.tile.lane_columns
        self.sums = T.alloc_buffer((tile.rows * tile.lane_columns,), "float32", scope="local")
        self.left = T.alloc_buffer((tile.lane_steps,), self.product.left.dtype, scope="local")
        self.right = T.alloc_buffer((weights,), self.product.right.dtype, scope="local")
        with T.unroll(0, tile.rows * tile.lane_columns) as at:
            T.buffer_store(self.sums, tirx.const(0, "float32"), [at])

    def _main_loop(self) -> None:
        tile, steps = self.tile, self.product.steps
        with T.serial(0, self.trips) as trip:
            group = (self.slice * self.trips + trip) * tile.warps + self.warp
            step = (group * tile.step_lanes + self.step_lane) * tile.lane_steps
            if steps == self.trips * tile.slices * tile.depth:
                self._multiply(step)
            else:
                with T.If(step < steps), T.Then():
                    self._multiply(step)

    def _multiply(self, step: Expr) -> None:
        """Emit the products of a lane's weights from `step` on."""
        tile, product = self.tile, self.product
        # A column beyond the last one is that one again, and is not stored.
        last = product.columns - (1 if tile.along_steps else tile.lane_columns)
        ragged = product.columns % tile.columns != 0
        if tile.along_steps:
            for at in range(tile.lane_columns):
                column = self.first_column + at
                column = tirx.min(column, last) if ragged else column
                self._load(self.right, at, product.right, column, step)
        else:
            column = tirx.min(self.first_column, last) if ragged else self.first_column
            for at in range(tile.lane_steps):
                self._load(self.right, at, product.right, column, step + at)
        with T.unroll(0, tile.rows) as row:
            self._load_row(row, step)
            with T.unroll(0, tile.lane_steps) as at, T.unroll(0, tile.lane_columns) as column:
                place = (column, at) if tile.along_steps else (at, column)
                weight = cast(self.right[place[0] * tile.load + place[1]], "float32")
                total = row * tile.lane_columns + column
                value = self.sums[total] + cast(self.left[at], "float32") * weight
                T.buffer_store(self.sums, value, [total])

    def _load_row(self, row: Any, step: Expr) -> None:
        left, count = self.product.left, self.tile.lane_steps
        if self.left_is_whole:
            _load_neighbours(self, self.left, 0, left, (row, step), count, along_steps=True)
            return
        with T.unroll(0, count) as at:
            _load_neighbours(self, self.left, at, left, (row, step + at), 1, along_steps=True)

    def _load(self, into: Any, at: int, operand: Operand, outer: Expr, step: Expr) -> None:
        count, along = self.tile.load, self.tile.along_steps
        _load_neighbours(self, into, at * count, operand, (outer, step), count, along_steps=along)

    def _add_lanes(self) -> None:
        """Add up the sums of the lanes of a warp that have the same columns."""
        tile = self.tile
        nearest = 1 if tile.along_steps else tile.column_lanes
        with T.unroll(0, tile.rows * tile.lane_columns) as at:
            for distance in (nearest << n for n in range(tile.step_lanes.bit_length() - 1)):
                total = self.sums[at] + shuffled(self.sums[at], distance)
                T.buffer_store(self.sums, total, [at])

    def _add_warps(self) -> None:
        """Add up the sums of all warps in shared memory, and store what the function makes of them.

        Groups of neighbours lie by lanes of columns, so that no bank is met twice.
        """
        tile, vector, lanes = self.tile, self.vector, self.tile.column_lanes
        groups = tile.rows * tile.lane_columns // vector
        shared = T.alloc_buffer((tile.shared_bytes // 4,), "float32", scope="shared")
        with T.If(self.step_lane == 0), T.Then(), T.unroll(0, groups) as group:
            start = ((self.warp * groups + group) * lanes + self.column_lane) * vector
            _each(
                vector,
                lambda at: T.buffer_store(shared, self.sums[group * vector + at], [start + at]),
            )
        T.evaluate(T.tvm_storage_sync("shared"))
        total = T.alloc_buffer((vector,), "float32", scope="local")
        for first in range(0, groups * lanes, tile.threads):
            number = self.thread + first
            if groups * lanes - first >= tile.threads:
                self._store_group(shared, total, number, groups)
                continue
            with T.If(number < groups * lanes), T.Then():
                self._store_group(shared, total, number, groups)

    def _store_group(self, shared: Any, total: Any, number: Expr, groups: int) -> None:
        tile, vector = self.tile, self.vector
        for warp in range(tile.warps):
            start = (warp * groups * tile.column_lanes + number) * vector

            def add(at: Any, start: Any = start, first: bool = warp == 0) -> None:
                value = shared[start + at]
                T.buffer_store(total, value if first else total[at] + value, [at])

            _each(vector, add)
        place = tirx.floordiv(number, tile.column_lanes) * vector
        column = tirx.floormod(number, tile.column_lanes) * tile.lane_columns
        column = column + tirx.floormod(place, tile.lane_columns)
        row = tirx.floordiv(place, tile.lane_columns)
        store_sums(self, total.__getitem__, row, column, vector)


def _load_neighbours(
    kernel: FewRows,
    into: Any,
    start: Any,
    operand: Operand,
    place: tuple[Any, Any],
    count: int,
    *,
    along_steps: bool,
) -> None:
    """Emit the load of `count` neighbours from an outer index and a step on, zeros if they are."""
    outer, step = place

    def element(at: Any) -> tuple[Any, Expr | None]:
        moved = (outer, step + at) if along_steps else (outer + at, step)
        return operand.locate(kernel.batch, *moved)

    def load() -> None:
        _each(count, lambda at: T.buffer_store(into, element(at)[0], [start + at]))

    condition = element(0)[1]
    if condition is None:
        return load()
    with T.If(condition):
        with T.Then():
            load()
        with T.Else():
            zero = tirx.const(0, operand.dtype)
            _each(count, lambda at: T.buffer_store(into, zero, [start + at]))
    return None


def _each(count: int, emit: Any) -> None:
    if count == 1:
        return emit(0)
    with T.vectorized(0, count) as at:
        emit(at)
    return None


RULE = Rule("few_rows", _apply, kinds=("cuda",))
