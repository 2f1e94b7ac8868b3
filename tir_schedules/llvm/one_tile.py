"""Buffers of one register tile, by construction.

TVM shrinks a buffer to what one tile of it needs, where it can prove the bounds. By a symbolic
number of pixels it depends on how a size happens to be written: (n // 8 + 1) * 8 is understood,
n // 8 * 8 + 8 is not, and then a tile of unknown size lies in memory, not in registers.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Range, TensorLoad
from tvm.s_tir import SBlock
from tvm.tirx import BufferRegion, BufferStore

from tir_schedules.blocks import new_schedule


def keep_one_tile(sch: s_tir.Schedule, name: str, tile: Sequence[int]) -> s_tir.Schedule:
    """Return the schedule with what a block writes in a buffer of a single tile.

    Args:
        sch: The schedule. All readers of a tile run before the next tile is begun.
        name: The block's.
        tile: The tile's size along each axis; a tile begins at a multiple of it.
    """
    old = sch.get(sch.get_sblock(name)).writes[0].source
    func = sch.mod["main"]
    new = tirx.decl_buffer(list(tile), str(old.dtype), old.name, scope=old.scope(), layout=None)

    def place(index: Sequence[tirx.Expr]) -> list[tirx.Expr]:
        return [tirx.floormod(i, size) for i, size in zip(index, tile, strict=True)]

    def load(node: TensorLoad) -> tirx.Expr:
        return tirx.BufferLoad(new, place(node.indices)) if node.source.same_as(old) else node

    def store(node: BufferStore) -> tirx.Stmt:
        if not node.buffer.same_as(old):
            return node
        return BufferStore(new, node.value, place(node.indices))

    def region(node: BufferRegion) -> BufferRegion:
        if not node.source.same_as(old):
            return node
        places = place([axis.min for axis in node.region])
        ranges = [
            Range.from_min_extent(low, axis.extent)
            for low, axis in zip(places, node.region, strict=True)
        ]
        return BufferRegion(new, ranges)

    def block(node: SBlock) -> SBlock:
        held = [new if buffer.same_as(old) else buffer for buffer in node.alloc_buffers]
        return SBlock(
            node.iter_vars, [region(r) for r in node.reads], [region(w) for w in node.writes],
            node.name_hint, node.body, node.init,
            held, node.match_buffers, node.annotations,
        )  # fmt: skip

    body = tvm_ffi.structural_map(
        func.body,
        [(TensorLoad, load), (BufferStore, store), (SBlock, block)],
    )
    return new_schedule(func.with_body(body))
