"""The schedule of `winograd_conv2d`: one loop nest over groups of tiles, or one for each stage.

`winograd_tile` decides which.
"""

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
from tir_schedules.llvm.prefetch_panel import LINE_BYTES, insert_prefetches, mark_prefetch
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
# The axis of the points (image, group, row, column, ...) along which those of a tile lie.
_POINT_AXIS = 3


def _schedule(func: PrimFunc, machine: Machine) -> s_tir.Schedule:
    sch = new_schedule(func)
    anchor = anchor_of(sch, TAG)
    *_, size, _, _, _, _ = sch.get(anchor).writes[0].source.shape
    outputs = int(size) - TAPS + 1
    grouped = bool(sch.get(anchor).annotations["grouped"])
    last = _join_epilogue(sch)
    if grouped:
        _groups(sch, anchor, last, outputs, machine)
    else:
        _points(sch, machine)
        _products(sch, anchor, machine)
        _pixels(sch, last, outputs, machine)
    finish_stages(sch, machine)
    *_, tiles, _, _, _ = sch.get(sch.get_sblock(COLUMNS)).writes[0].source.shape
    if constant(tiles) is None:
        sch = _keep_one_tile_each(sch)
    return insert_prefetches(sch, sch.get_sblock(f"{PRODUCTS}_update"))


def _keep_one_tile_each(sch: s_tir.Schedule) -> s_tir.Schedule:
    """Hold one tile of each kind, where the number of tiles is symbolic."""
    notes = sch.get(sch.get_sblock(f"{PRODUCTS}_update")).annotations
    register_tile = (int(notes["tile_blocks"]), int(notes["tile_pixels"]))
    for name in (f"{PRODUCTS}_update", PATCH, ROWS, COLUMNS):
        shape = sch.get(sch.get_sblock(name)).writes[0].source.shape
        *_, rows, columns, lanes = shape
        tile = register_tile if name.startswith(PRODUCTS) else (rows, columns)
        held = (*([1] * (len(shape) - 3)), *tile, lanes)
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


def _compute_by_columns(sch: s_tir.Schedule, name: str, tile: LoopRV) -> LoopRV:
    """Compute a block of (..., row, column, lane) for a tile, column after column.

    A column's rows are unrolled: they share their sums, which stay in registers. The columns are
    not: LLVM would keep all of them at once, more than there are registers. Returns their loop.
    """
    block = sch.get_sblock(name)
    sch.set_scope(block, 0, "local")
    sch.compute_at(block, tile, preserve_unit_loops=True)
    *_, row, column, lane = sch.get_loops(block)
    sch.reorder(column, row, lane)
    sch.unroll(row)
    vectorize_wide(sch, lane)
    return column


def _points(sch: s_tir.Schedule, machine: Machine) -> None:
    """Transform the tiles of the input, one after the other."""
    image, group, channels, tile = _transform_tiles(sch, sch.get_loops(sch.get_sblock(POINTS)))
    *_, y, x, _, _, _ = sch.get(sch.get_sblock(POINTS)).writes[0].source.shape
    _spread(sch, [image, group, channels, tile], machine, _SUMS_A_POINT * int(y) * int(x))


def _transform_tiles(sch: s_tir.Schedule, loops: list[LoopRV]) -> list[LoopRV]:
    """Compute the points of a tile at a time; return the loops over the tiles.

    An odd number of cache lines lies between the points of a tile: they are written together, and
    would otherwise share a few sets of the first-level cache, which cannot hold them all.
    """
    image, group, y, x, channels, tile, lane = loops
    line = LINE_BYTES // 4
    sch.storage_align(sch.get_sblock(POINTS), 0, _POINT_AXIS, 2 * line, line)
    sch.reorder(image, group, channels, tile, y, x, lane)
    column = _compute_by_columns(sch, ROWS, tile)
    patch = sch.get_sblock(PATCH)
    sch.set_scope(patch, 0, "local")
    sch.compute_at(patch, column)
    vectorize_lane(sch, patch, column)
    sch.unroll(x)
    vectorize_wide(sch, lane)
    return [image, group, channels, tile]


def _products(sch: s_tir.Schedule, anchor: SBlockRV, machine: Machine) -> None:
    """Multiply at each point, as a 1x1 convolution over the tiles."""
    notes = sch.get(anchor).annotations
    result = sch.cache_write(anchor, 0, "global")
    image, group, y, x, block, tile, lane, ci, cb = sch.get_loops(anchor)
    panel, row = sch.split(block, [None, int(notes["tile_blocks"])])
    sch.reorder(y, x, image, group, panel, row, tile, lane, ci, cb)
    work = points(extents(sch, [row, tile, ci, cb]))
    _spread(sch, [y, x, image, group, panel], machine, work)
    _multiply(sch, anchor, result, [row, tile, lane, ci, cb], machine)


def _multiply(
    sch: s_tir.Schedule,
    anchor: SBlockRV,
    result: SBlockRV,
    loops: list[LoopRV],
    machine: Machine,
    distance: int | None = None,
) -> None:
    """Multiply a panel of weights by the tiles of a group, a register tile at a time.

    Args:
        sch: The schedule.
        anchor: The product.
        result: The block that stores a register tile of it.
        loops: Those over the panel's blocks, the group's tiles, lanes, channel blocks, channels.
        machine: The processor.
        distance: Elements from this panel of weights to the one that is read next.
    """
    row, tile, lane, ci, cb = loops
    part, col = sch.split(tile, [None, int(sch.get(anchor).annotations["tile_pixels"])])
    steps = unroll_channels(sch, cb)
    sch.reorder(part, ci, *steps, col, row, lane)
    sch.unroll(col)
    sch.unroll(row)
    vectorize_wide(sch, lane)
    sch.reverse_compute_at(result, part)
    vectorize_lane(sch, result, part)
    init = sch.decompose_reduction(anchor, ci)
    vectorize_lane(sch, init, part)
    mark_prefetch(
        sch,
        anchor,
        tile=part,
        steps=steps[0],
        elements=points(extents(sch, [row, ci, *steps, lane])),
        machine=machine,
        distance=distance,
    )


def _pixels(sch: s_tir.Schedule, last: SBlockRV, outputs: int, machine: Machine) -> None:
    """Make pixels of the points of each result tile, and apply the epilogue to them."""
    image, block, y, x, lane = sch.get_loops(last)
    down, row = sch.split(y, [None, outputs])
    across, col = sch.split(x, [None, outputs])
    sch.reorder(image, block, down, across, row, col, lane)
    _combine_points(sch, across, [row, col, lane])
    work = points(extents(sch, [across, row, col]))
    _spread(sch, [image, block, down], machine, _SUMS_A_POINT * work)


def _combine_points(sch: s_tir.Schedule, tile: LoopRV, loops: list[LoopRV]) -> None:
    """Compute the pixels of a tile, row after row; `loops` are its rows, columns, lanes."""
    _, col, lane = loops
    _compute_by_columns(sch, COLUMNS, tile)
    sch.unroll(col)
    vectorize_wide(sch, lane)


def _groups(
    sch: s_tir.Schedule, anchor: SBlockRV, last: SBlockRV, outputs: int, machine: Machine
) -> None:
    """Do all stages for a group of tiles, before the next group.

    All points of a group, then for each panel of weights its products and their pixels.
    """
    notes = sch.get(anchor).annotations
    result = sch.cache_write(anchor, 0, "global")
    *_, group, _ = sch.get(sch.get_sblock(POINTS)).writes[0].source.shape
    image, block, y, x, lane = sch.get_loops(last)
    down, row = sch.split(y, [None, outputs])
    across, col = sch.split(x, [None, outputs])
    sch.reorder(image, down, across, block, row, col, lane)
    groups, tile = sch.split(sch.fuse(down, across), [None, int(group)])
    panel, blocks = sch.split(block, [None, int(notes["tile_blocks"])])
    sch.reorder(image, groups, panel, blocks, tile, row, col, lane)
    _combine_points(sch, tile, [row, col, lane])
    for stage, loop in ((result, panel), (anchor, panel), (sch.get_sblock(POINTS), groups)):
        sch.compute_at(stage, loop, preserve_unit_loops=True)
    work = points(extents(sch, [image, groups, panel, blocks, tile]))
    multiplies = sch.get_loops(anchor)[-7:]
    depth = points(extents(sch, [*multiplies[:2], *multiplies[-2:]]))
    _spread(sch, [image, groups], machine, work * depth)
    weights = sch.get(anchor).reads[-1].source.shape[2:]
    _multiply(sch, anchor, result, multiplies[2:], machine, points([int(e) for e in weights]))
    _transform_tiles(sch, sch.get_loops(sch.get_sblock(POINTS))[-7:])


RULE = Rule(TAG, _schedule, TAG)
