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
from tir_schedules.cuda.tensor_core_epilogue import store_fragments
from tir_schedules.cuda.tile_choice import MATRIX_TILES, Tile
from tir_schedules.machine import Machine
from tir_schedules.rule import Rule

TYPES = {"float16": "f16", "bfloat16": "bf16"}


def _apply(func: PrimFunc, machine: Machine) -> PrimFunc:
    return TensorCoreProduct(*match_tiled(func, machine, TYPES, MATRIX_TILES)).write(func)


class TensorCoreProduct(PipelinedProduct):
    """A product whose warps multiply 16 x 8 x 16 at a time."""

    def __init__(self, product: Product, tile: Tile) -> None:
        super().__init__(product, tile)
        kind = TYPES[product.left.dtype]
        self._multiply = T.ptx[f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32"]

    def declare(self) -> None:
        """Emit the registers of sums and of two sets of fragments."""
        tile = self.tile
        sums = tile.warp_rows * tile.warp_columns // 32
        self.sums = T.alloc_buffer((sums,), "float32", scope="local")
        self.left_registers = T.alloc_buffer((2, tile.warp_rows // 4), "uint32", scope="local")
        self.right_registers = T.alloc_buffer((2, tile.warp_columns // 4), "uint32", scope="local")
        for at in range(sums):
            T.buffer_store(self.sums, tirx.const(0, "float32"), [at])

    def multiply_stage(self, stage: Any) -> None:
        """Multiply the tiles of a stage; fragments of the next 16 steps load meanwhile."""
        depth = self.tile.depth
        self._load_fragments(stage, 0)
        for step in range(0, depth, 16):
            if step + 16 < depth:
                self._load_fragments(stage, step + 16)
            self._multiply_fragments(step // 16 % 2)

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
                name, address = tile.fragment(
                    self.shared,
                    self.base(stage, side),
                    self.within[side] + at * 16,
                    step,
                    self.lane,
                    outer_first=side == 0,
                )
                into = [registers[step // 16 % 2, at * 4 + r] for r in range(4)]
                T.evaluate(T.ptx[name](*into, address))

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
