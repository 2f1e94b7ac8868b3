"""Matrix products and convolutions of float32 on CUDA cores (sm_80 and newer).

A warp is 4 x 8 lanes; each has up to 8 x 8 sums in registers and reads its operands from shared
memory 16 bytes at a time: four steps of a row where steps lie side by side, else four rows of a
step. Lanes that share an operand read the same bytes; the others never meet in a bank.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx import Expr, PrimFunc
from tvm.tirx.script import builder as T

from tir_schedules.cuda.pipelined_product import PipelinedProduct, match_tiled
from tir_schedules.cuda.product_stores import VECTOR, store_sums
from tir_schedules.cuda.shared_tile import SharedTile
from tir_schedules.cuda.tile_choice import LANE_TILES
from tir_schedules.machine import Machine
from tir_schedules.rule import Rule

_LANES = (4, 8)  # of a warp, along rows and columns
_STEPS = 4  # of a 16-byte chunk


def _apply(func: PrimFunc, machine: Machine) -> PrimFunc:
    return CudaCoreProduct(*match_tiled(func, machine, ("float32",), LANE_TILES)).write(func)


class CudaCoreProduct(PipelinedProduct):
    """A product whose lanes multiply `lane_rows` by `lane_columns` at a time."""

    def declare(self) -> None:
        """Emit the registers of sums and of operands, four steps of those that have them."""
        tile = self.tile
        self.counts = (tile.warp_rows // _LANES[0], tile.warp_columns // _LANES[1])
        self.places = (tirx.floordiv(self.lane, _LANES[1]), tirx.floormod(self.lane, _LANES[1]))
        rows, columns = self.counts
        self.sums = T.alloc_buffer((rows, columns), "float32", scope="local")
        self.registers = [
            T.alloc_buffer((count, _STEPS if side.along_steps else 1), "float32", scope="local")
            for side, count in zip((self.left, self.right), self.counts, strict=True)
        ]
        with T.unroll(0, rows) as row, T.unroll(0, columns) as column:
            T.buffer_store(self.sums, tirx.const(0, "float32"), [row, column])

    def multiply_stage(self, stage: Any) -> None:
        """Multiply the tiles of a stage, four steps at a time."""
        sides = (self.left, self.right)
        rows, columns = self.counts
        for chunk in range(self.tile.depth // _STEPS):
            for at, side in enumerate(sides):
                if side.along_steps:
                    self._load_rows(stage, at, side, chunk)
            for step in range(_STEPS):
                for at, side in enumerate(sides):
                    if not side.along_steps:
                        self._load_step(stage, at, side, chunk * _STEPS + step)
                with T.unroll(0, rows) as row, T.unroll(0, columns) as column:
                    left = self.registers[0][row, step if sides[0].along_steps else 0]
                    right = self.registers[1][column, step if sides[1].along_steps else 0]
                    total = self.sums[row, column] + left * right
                    T.buffer_store(self.sums, total, [row, column])

    def outer(self, at: int, number: Any) -> Expr:
        """Return which row (or column) of the block's tile is the `number`-th of a lane."""
        side, place, lanes = (self.left, self.right)[at], self.places[at], _LANES[at]
        if side.along_steps:
            return self.within[at] + place + number * lanes
        group, within = number // VECTOR, number % VECTOR
        return self.within[at] + (group * lanes + place) * VECTOR + within

    def _load_rows(self, stage: Any, at: int, side: SharedTile, chunk: int) -> None:
        """Load four steps of each of a lane's rows."""
        for number in range(self.counts[at]):
            row = self.outer(at, number)
            address = side.address(self.shared, self.base(stage, at), row, chunk)
            into = [self.registers[at][number, step] for step in range(_STEPS)]
            T.evaluate(T.ptx["ld.shared.v4.f32"](*into, address))

    def _load_step(self, stage: Any, at: int, side: SharedTile, step: int) -> None:
        """Load one step of all of a lane's rows, four at a time."""
        for number in range(0, self.counts[at], VECTOR):
            chunk = tirx.floordiv(self.outer(at, number), VECTOR)
            address = side.address(self.shared, self.base(stage, at), step, chunk)
            into = [self.registers[at][number + row, 0] for row in range(VECTOR)]
            T.evaluate(T.ptx["ld.shared.v4.f32"](*into, address))

    def store(self) -> None:
        """Store each lane's sums: vectors where its columns are neighbours."""
        rows, columns = self.counts
        count = 1 if self.right.along_steps else VECTOR
        for row in range(rows):
            for column in range(0, columns, count):
                self._store_neighbours(row, column, count)

    def _store_neighbours(self, row: int, column: int, count: int) -> None:
        def total(at: Any) -> Expr:
            return self.sums[row, column + at]

        store_sums(self, total, self.outer(0, row), self.outer(1, column), count)


RULE = Rule("cuda_core_matmul", _apply, kinds=("cuda",))
