"""Matrix products and convolutions of 8-bit integers on Tensor Cores (sm_80 and newer).

As `tensor_core_matmul`, but for the type: `mma.sync.m16n8k32` adds up four times eight products a
lane in int32, exactly. Either operand may be signed or not. Steps lie side by side in shared
memory, for `ldmatrix` transposes pairs of bytes, not bytes; an operand whose steps are apart in
memory is gathered byte by byte, so importers and passes store weights by columns.
"""

from __future__ import annotations

from tvm.tirx import PrimFunc

from tir_schedules.cuda.pipelined_product import match_tiled
from tir_schedules.cuda.product_operands import Operand
from tir_schedules.cuda.shared_tile import SharedTile
from tir_schedules.cuda.tensor_core_matmul import TensorCoreProduct
from tir_schedules.cuda.tile_choice import BYTE_TILES
from tir_schedules.machine import Machine
from tir_schedules.rule import Rule

TYPES = {"int8": "s8", "uint8": "u8"}


def _apply(func: PrimFunc, machine: Machine) -> PrimFunc:
    return ByteProduct(*match_tiled(func, machine, TYPES, BYTE_TILES)).write(func)


class ByteProduct(TensorCoreProduct):
    """A product of bytes whose warps multiply 16 x 8 x 32 at a time."""

    steps = 32
    sum_type = "uint32"  # as the instruction has it; int32 from then on

    def instruction(self) -> str:
        """Return the name of the `mma` that multiplies fragments."""
        left, right = (TYPES[side.dtype] for side in (self.product.left, self.product.right))
        return f"mma.sync.aligned.m16n8k32.row.col.s32.{left}.{right}.s32"

    def _shared_tile(self, operand: Operand, outer: int) -> SharedTile:
        return SharedTile(operand, outer, self.tile.depth, along_steps=True)


RULE = Rule("byte_matmul", _apply, kinds=("cuda",))
