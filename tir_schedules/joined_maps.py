"""One loop nest for several results of a map kernel, so that each operand is loaded once."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import s_tir
from tvm.s_tir.schedule import LoopRV, SBlockRV

from tir_schedules.blocks import is_output, leaf_blocks
from tir_schedules.row_space import row_space


def joinable_maps(sch: s_tir.Schedule) -> list[list[SBlockRV]]:
    """Return the maps of a function as lists of those that can share loops, here all or none.

    They can if they visit equal points, and read what another stores only at their own point.
    """
    blocks = leaf_blocks(sch)
    if len(blocks) > 1:
        space = row_space(sch.mod["main"])
        rows = 0 if space is None else space.rows
        if rows and all(len(sch.get_loops(block)) == rows for block in blocks):
            return [blocks]
    return [[block] for block in blocks]


def join_maps(sch: s_tir.Schedule, blocks: Sequence[SBlockRV]) -> list[LoopRV]:
    """Merge the nests of maps into one and return its loops."""
    if len(blocks) > 1:
        sch.merge(*(sch.get_loops(block)[-1] for block in blocks))
        _keep_in_registers(sch, blocks)
    return sch.get_loops(blocks[0])


def join_vectors(
    sch: s_tir.Schedule, blocks: Sequence[SBlockRV], width: int
) -> tuple[list[LoopRV], list[LoopRV]]:
    """Merge the nests of maps, each map's vectors of `width` points remaining a loop of its own.

    A vector of one map is whole before the next map reads it: a buffer within a vectorized loop
    would have one element only. Returns the shared loops, and each map's loop over a vector.
    """
    chunks, lanes = [], []
    for block in blocks:
        chunk, lane = sch.split(sch.get_loops(block)[-1], [None, width])
        chunks.append(chunk)
        lanes.append(lane)
    if len(blocks) > 1:
        sch.merge(*chunks)
        _keep_in_registers(sch, blocks)
    return sch.get_loops(blocks[0])[:-1], lanes


def _keep_in_registers(sch: s_tir.Schedule, blocks: Sequence[SBlockRV]) -> None:
    """Move what only the nest itself reads out of memory."""
    for block in blocks:
        if not is_output(sch, block):
            sch.set_scope(block, 0, "local")
