"""Buffers of one register tile, by construction.

TVM shrinks a buffer to what one tile of it needs, where it can prove the bounds. By a symbolic
number of pixels it depends on how a size happens to be written: (n // 8 + 1) * 8 is understood,
n // 8 * 8 + 8 is not, and then a tile of unknown size lies in memory, not in registers.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import s_tir, tirx

from tir_schedules.blocks import new_schedule
from tir_schedules.replaced_buffer import replace_buffer


def keep_one_tile(sch: s_tir.Schedule, name: str, tile: Sequence[int]) -> s_tir.Schedule:
    """Return the schedule with what a block writes in a buffer of a single tile.

    Args:
        sch: The schedule. All readers of a tile run before the next tile is begun.
        name: The block's.
        tile: The tile's size along each axis; a tile begins at a multiple of it.
    """
    old = sch.get(sch.get_sblock(name)).writes[0].source
    new = tirx.decl_buffer(list(tile), str(old.dtype), old.name, scope=old.scope(), layout=None)

    def place(index: Sequence[tirx.Expr]) -> list[tirx.Expr]:
        return [tirx.floormod(i, size) for i, size in zip(index, tile, strict=True)]

    return new_schedule(replace_buffer(sch.mod["main"], old, new, place))
