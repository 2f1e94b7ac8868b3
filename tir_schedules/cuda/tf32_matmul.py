"""Matrix products and convolutions of float32 on Tensor Cores, operands rounded to tf32 (sm_80).

tf32 has the exponent of float32 and 11 bits of its 24 of precision; sums stay in float32. So a
product of two numbers is off by at most 2^-10 of itself, which the model's author must allow:
`relaxc.compile(..., precision="tf32")`. Numbers are rounded to the nearest as they leave shared
memory; `mma` alone would cut them off, twice the error and all of it in one direction.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx import PrimFunc
from tvm.tirx.script import builder as T

from tir_schedules.cuda.pipelined_product import match_tiled
from tir_schedules.cuda.shared_tile import SharedTile
from tir_schedules.cuda.tensor_core_matmul import TensorCoreProduct
from tir_schedules.cuda.tile_choice import TF32_TILES
from tir_schedules.machine import Machine
from tir_schedules.rule import Decline, Rule


def _apply(func: PrimFunc, machine: Machine) -> PrimFunc:
    if not machine.rounds_to_tf32:
        raise Decline('rounds operands to tf32, which only precision "tf32" allows')
    return Tf32Product(*match_tiled(func, machine, ("float32",), TF32_TILES)).write(func)


class Tf32Product(TensorCoreProduct):
    """A product whose warps multiply 16 x 8 x 8 at a time."""

    steps = 8
    pace = 2  # of eight floats: see `load_fragment`

    def kind(self) -> str:
        """Return how `mma` calls the type of the operands."""
        return "tf32"

    def load_fragment(
        self, tile: SharedTile, base: Any, outer: Any, step: int, into: list[Any], *, left: bool
    ) -> None:
        """Load 16 outer indices by 8 steps as the left operand of one `mma` or two right ones.

        `ldmatrix` transposes 16-bit numbers only. Where outer indices lie side by side, lanes load
        one number each: eight of each of four steps, two chunks of four rows of the tile.
        """
        if tile.along_steps:
            super().load_fragment(tile, base, outer, step, into, left=left)
            return
        for at, register in enumerate(into):
            blocks = (at % 2, at // 2) if left else (at // 2, at % 2)  # of outer indices, of steps
            place = outer + blocks[0] * 8 + tirx.floordiv(self.lane, 4)
            row = step + blocks[1] * 4 + tirx.floormod(self.lane, 4)
            start = base + tirx.floormod(place, 4) * 4
            address = tile.address(self.shared, start, row, tirx.floordiv(place, 4))
            T.evaluate(T.ptx["ld.shared.u32"](register, address))

    def round_fragments(self, half: int) -> None:
        """Round the fragments of a set to the nearest numbers of tf32."""
        convert = T.ptx["cvt.rna.tf32.f32"]
        for registers in (self.left_registers, self.right_registers):
            for at in range(int(registers.shape[1])):
                register = registers[half, at]
                T.evaluate(convert(register, T.reinterpret("float32", register)))


RULE = Rule("tf32_matmul", _apply, kinds=("cuda",))
