"""The end of a Tensor Core product: sums become lines, are worked on, and are stored.

After `mma` a lane holds pairs of neighbours scattered over the warp's tile; stored as they are,
they would fill half of each 32-byte sector. So each warp passes 16 rows at a time through its own
part of shared memory, in a layout without bank conflicts, and takes them back four neighbours a
lane, which then are read, computed and stored as one vector together with whatever else the
function reads at the same place (a bias, a residual).
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tir_schedules.cuda.product_stores import VECTOR, store_sums
from tir_schedules.cuda.shared_tile import swizzled

_SLOT = 8  # sums of one row that an `mma` makes: 32 bytes, a quarter of the banks

# How sums are stored and loaded, and as what: `mma` of integers takes them for unsigned.
_KINDS = {"float32": ("f32", "f32", "float32"), "uint32": ("u32", "s32", "int32")}


def store_fragments(kernel: Any) -> None:
    """Emit the epilogue of a `TensorCoreProduct` whose sums are complete."""
    tile, lane = kernel.tile, kernel.lane
    slots = tile.warp_columns // _SLOT
    base = kernel.warp * (16 * tile.warp_columns * 4)
    stored, loaded, dtype = _KINDS[str(kernel.sums.dtype)]
    values = T.alloc_buffer((VECTOR,), dtype, scope="local")

    def address(row: Any, slot: Any, within: Any) -> Any:
        place = swizzled(row, slot, slots, _SLOT * 4) * _SLOT + within
        return kernel.shared.ptr_to([base + place * 4])

    for band in range(tile.warp_rows // 16):
        for slot in range(slots):
            first = (band * slots + slot) * 4
            for half in range(2):
                row = tirx.floordiv(lane, 4) + half * 8
                pair = [kernel.sums[first + half * 2 + at] for at in range(2)]
                where = address(row, slot, tirx.floormod(lane, 4) * 2)
                T.evaluate(T.ptx[f"st.shared.v2.{stored}"](where, *pair))
        T.evaluate(T.cuda.warp_sync())
        for at in range(16 * tile.warp_columns // VECTOR // 32):
            number = lane + at * 32
            row = tirx.floordiv(number, tile.warp_columns // VECTOR)
            column = tirx.floormod(number, tile.warp_columns // VECTOR) * VECTOR
            where = address(row, tirx.floordiv(column, _SLOT), tirx.floormod(column, _SLOT))
            T.evaluate(T.ptx[f"ld.shared.v4.{loaded}"](*(values[i] for i in range(VECTOR)), where))
            row = kernel.within[0] + band * 16 + row
            store_sums(kernel, values.__getitem__, row, kernel.within[1] + column)
        T.evaluate(T.cuda.warp_sync())
