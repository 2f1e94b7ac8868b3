"""Matrix products and convolutions of 16-bit floats on Tensor Cores (sm_80 and newer).

Fragments of the next 16 steps load (`ldmatrix`) while the current ones are multiplied (`mma.sync`
with sums in float32 registers). Shared memory is read and written without bank conflicts.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx import PrimFunc
from tvm.tirx.script import builder as T

from tir_schedules.cuda.pipelined_product import PipelinedProduct, match_tiled
from tir_schedules.cuda.product_operands import Product
from tir_schedules.cuda.shared_tile import SharedTile
from tir_schedules.cuda.tensor_core_epilogue import store_fragments
from tir_schedules.cuda.tile_choice import MATRIX_TILES, Tile
from tir_schedules.machine import Machine
from tir_schedules.rule import Rule

TYPES = {"float16": "f16", "bfloat16": "bf16"}


def _apply(func: PrimFunc, machine: Machine) -> PrimFunc:
    return TensorCoreProduct(*match_tiled(func, machine, TYPES, MATRIX_TILES)).write(func)


class TensorCoreProduct(PipelinedProduct):
    """A product whose warps multiply 16 x 8 by `steps` at a time, those of 32 bytes."""

    steps = 16
    sum_type = "float32"

    def __init__(self, product: Product, tile: Tile) -> None:
        super().__init__(product, tile)
        self._multiply = T.ptx[self.instruction()]

    def instruction(self) -> str:
        """Return the name of the `mma` that multiplies fragments."""
        kind = self.kind()
        return f"mma.sync.aligned.m16n8k{self.steps}.row.col.f32.{kind}.{kind}.f32"

    def kind(self) -> str:
        """Return how `mma` calls the type of the operands."""
        return TYPES[self.product.left.dtype]

    def declare(self) -> None:
        """Emit the registers of sums and of two sets of fragments."""
        tile = self.tile
        sums = tile.warp_rows * tile.warp_columns // 32
        self.sums = T.alloc_buffer((sums,), self.sum_type, scope="local")
        self.left_registers = T.alloc_buffer((2, tile.warp_rows // 4), "uint32", scope="local")
        self.right_registers = T.alloc_buffer((2, tile.warp_columns // 4), "uint32", scope="local")
        for at in range(sums):
            T.buffer_store(self.sums, tirx.const(0, self.sum_type), [at])

    def multiply_stage(self, stage: Any) -> None:
        """Multiply the tiles of a stage; fragments of the next steps load meanwhile."""
        depth = self.tile.depth
        self._load_fragments(stage, 0)
        for step in range(0, depth, self.steps):
            if step + self.steps < depth:
                self._load_fragments(stage, step + self.steps)
            self.round_fragments(step // self.steps % 2)
            self._multiply_fragments(step // self.steps % 2)

    def store(self) -> None:
        """Store the sums by way of shared memory, which the pipeline is done with."""
        T.evaluate(T.tvm_storage_sync("shared"))
        store_fragments(self)

    def _load_fragments(self, stage: Any, step: int) -> None:
        for side, (tile, registers, count) in enumerate(
            [
                (self.left, self.left_registers, self.tile.warp_rows),
                (self.right, self.right_registers, self.tile.warp_columns),
            ]
        ):
            for at in range(count // 16):
                into = [registers[step // self.steps % 2, at * 4 + r] for r in range(4)]
                outer, base = self.within[side] + at * 16, self.base(stage, side)
                self.load_fragment(tile, base, outer, step, into, left=side == 0)

    def load_fragment(
        self, tile: SharedTile, base: Any, outer: Any, step: int, into: list[Any], *, left: bool
    ) -> None:
        """Load 16 outer indices by the steps of one `mma` as its left operand or two right ones."""
        name, address = tile.fragment(self.shared, base, outer, step, self.lane, outer_first=left)
        T.evaluate(T.ptx[name](*into, address))

    def round_fragments(self, half: int) -> None:
        """Round the fragments of a set as `mma` wants them; 16-bit floats are as they should be."""

    def _multiply_fragments(self, half: int) -> None:
        tile = self.tile
        for row in range(tile.warp_rows // 16):
            left = [self.left_registers[half, row * 4 + r] for r in range(4)]
            for column in range(tile.warp_columns // 8):
                right = [self.right_registers[half, column * 2 + r] for r in range(2)]
                first = (row * (tile.warp_columns // 8) + column) * 4
                sums = [self.sums[first + at] for at in range(4)]
                T.evaluate(self._multiply(*sums, *left, *right, *sums))


RULE = Rule("tensor_core_matmul", _apply, kinds=("cuda",))
