"""The schedule of `winograd_conv2d`: three loop nests, each over all cores."""

from __future__ import annotations

from tvm import s_tir
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import PrimFunc

from tir_schedules.blocks import (
    constant,
    extents,
    inline_spatial,
    is_spatial,
    new_schedule,
    points,
    vectorize_lane,
    vectorize_wide,
)
from tir_schedules.llvm.one_tile import keep_one_tile
from tir_schedules.llvm.prefetch_panel import insert_prefetches, mark_prefetch
from tir_schedules.llvm.register_tile import (
    PARALLEL_FMAS,
    anchor_of,
    finish_stages,
    unroll_channels,
)
from tir_schedules.llvm.winograd_conv2d import COLUMNS, PATCH, PIXELS, POINTS, PRODUCTS, ROWS, TAG
from tir_schedules.llvm.winograd_matrices import TAPS
from tir_schedules.machine import Machine
from tir_schedules.rule import Rule

# Multiply-adds of a vector that one point of a tile, or one pixel, takes to transform.
_SUMS_A_POINT = 8


def _schedule(func: PrimFunc, machine: Machine) -> s_tir.Schedule:
    sch = new_schedule(func)
    anchor = anchor_of(sch, TAG)
    size = constant(sch.get(sch.get_loops(anchor)[0]).extent)
    assert size is not None, "the number of points is that of the matrices"
    last = _join_epilogue(sch)
    _points(sch, machine)
    _products(sch, anchor, machine)
    _pixels(sch, last, size - TAPS + 1, machine)
    finish_stages(sch, machine)
    sch = insert_prefetches(sch, anchor)
    *_, tiles, _ = sch.get(sch.get_sblock(POINTS)).writes[0].source.shape
    return sch if constant(tiles) is not None else _keep_one_tile_each(sch)


def _keep_one_tile_each(sch: s_tir.Schedule) -> s_tir.Schedule:
    """Hold one tile of each kind, where the number of tiles is symbolic."""
    notes = sch.get(sch.get_sblock(f"{PRODUCTS}_update")).annotations
    register_tile = (int(notes["tile_blocks"]), int(notes["tile_pixels"]))
    for name in (f"{PRODUCTS}_update", PATCH, ROWS, COLUMNS):
        *_, rows, columns, lanes = sch.get(sch.get_sblock(name)).writes[0].source.shape
        tile = register_tile if name.startswith(PRODUCTS) else (1, rows, columns)
        held = (*([1] * (5 - len(tile))), *tile, lanes)
        sch = keep_one_tile(sch, name, [int(extent) for extent in held])
    return sch


def _join_epilogue(sch: s_tir.Schedule) -> SBlockRV:
    """Inline what follows the pixels into one block over their axes, and return it.

    Where several blocks would read the pixels, or one in another layout, they stay a block.
    """
    keep = (PATCH, ROWS, POINTS, COLUMNS)
    shape = extents(sch, sch.get_loops(sch.get_sblock(PIXELS)))
    attempt = sch.copy()
    inline_spatial(attempt, keep, hot=PATCH)
    readers = attempt.get_consumers(attempt.get_sblock(COLUMNS))
    if len(readers) == 1 and is_spatial(attempt, readers[0]):
        stmt = attempt.get(readers[0])
        axes = [axis.var for axis in stmt.iter_vars]
        written = stmt.body.indices
        same = len(axes) == len(written) and all(
            a.same_as(i) for a, i in zip(axes, written, strict=True)
        )
        if same and extents(attempt, attempt.get_loops(readers[0])) == shape:
            inline_spatial(sch, keep, hot=PATCH)
            return sch.get_sblock(str(stmt.name_hint))
    inline_spatial(sch, (*keep, PIXELS), hot=PATCH)
    return sch.get_sblock(PIXELS)


def _spread(sch: s_tir.Schedule, loops: list[LoopRV], machine: Machine, vectors: int) -> None:
    """Run loops on all cores, if the vector operations of one step make that worth its cost."""
    work = points(extents(sch, loops)) * vectors
    task = sch.fuse(*loops) if len(loops) > 1 else loops[0]
    if work * machine.lanes() >= PARALLEL_FMAS and machine.cores > 1:
        sch.parallel(task)


def _compute_in_registers(sch: s_tir.Schedule, name: str, loop: LoopRV) -> None:
    """Compute a block at `loop`, all its loops unrolled but the lanes."""
    block = sch.get_sblock(name)
    sch.set_scope(block, 0, "local")
    sch.compute_at(block, loop)
    vectorize_lane(sch, block, loop)


def _points(sch: s_tir.Schedule, machine: Machine) -> None:
    """Transform the tiles of the input, one after the other."""
    block = sch.get_sblock(POINTS)
    y, x, image, channels, tile, lane = sch.get_loops(block)
    sch.reorder(image, channels, tile, y, x, lane)
    for name in (ROWS, PATCH):
        _compute_in_registers(sch, name, tile)
    for loop in (y, x):
        sch.unroll(loop)
    vectorize_wide(sch, lane)
    size = points(extents(sch, [y, x]))
    _spread(sch, [image, channels, tile], machine, _SUMS_A_POINT * size)


def _products(sch: s_tir.Schedule, anchor: SBlockRV, machine: Machine) -> None:
    """Multiply at each point, as a 1x1 convolution over the tiles."""
    notes = sch.get(anchor).annotations
    result = sch.cache_write(anchor, 0, "global")
    y, x, image, block, tile, lane, ci, cb = sch.get_loops(anchor)
    panel, row = sch.split(block, [None, int(notes["tile_blocks"])])
    part, group, col = sch.split(tile, [None, int(notes["task_tiles"]), int(notes["tile_pixels"])])
    steps = unroll_channels(sch, cb)
    sch.reorder(y, x, image, part, panel, group, ci, *steps, col, row, lane)
    work = points(extents(sch, [group, ci, *steps, col, row]))
    _spread(sch, [y, x, image, part, panel], machine, work)
    sch.unroll(col)
    sch.unroll(row)
    vectorize_wide(sch, lane)
    sch.reverse_compute_at(result, group)
    vectorize_lane(sch, result, group)
    init = sch.decompose_reduction(anchor, ci)
    vectorize_lane(sch, init, group)
    mark_prefetch(
        sch,
        anchor,
        tile=group,
        steps=steps[0],
        elements=points(extents(sch, [row, ci, *steps, lane])),
        machine=machine,
    )


def _pixels(sch: s_tir.Schedule, last: SBlockRV, outputs: int, machine: Machine) -> None:
    """Make pixels of the points of each result tile, and apply the epilogue to them."""
    image, block, y, x, lane = sch.get_loops(last)
    down, row = sch.split(y, [None, outputs])
    across, col = sch.split(x, [None, outputs])
    sch.reorder(image, block, down, across, row, col, lane)
    _compute_in_registers(sch, COLUMNS, across)
    sch.unroll(row)
    sch.unroll(col)
    vectorize_wide(sch, lane)
    work = points(extents(sch, [across, row, col]))
    _spread(sch, [image, block, down], machine, _SUMS_A_POINT * work)


RULE = Rule(TAG, _schedule, TAG)
