"""The register tile that matrix products share: accumulators in registers, epilogue while hot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import Buffer, IndexMap, PrimFunc

from tir_schedules.blocks import (
    constant,
    extents,
    inline_spatial,
    is_spatial,
    leaf_blocks,
    loops_within,
    new_schedule,
    points,
    rule_tag,
)
from tir_schedules.llvm.elementwise import schedule_map
from tir_schedules.llvm.last_tile import end_at_last_tile
from tir_schedules.llvm.prefetch_panel import insert_prefetches, mark_prefetch
from tir_schedules.llvm.row_block import RowBlock
from tir_schedules.loads import loads_in
from tir_schedules.machine import Machine
from tir_schedules.questions import decide
from tir_schedules.rule import Decline, Rule

# Multiply-adds a core does in about 30 us, where a parallel region starts to pay.
PARALLEL_FMAS = 1_000_000
# What reading an element of a weight takes, in multiply-adds: a product of few rows waits for it.
_READ_FMAS = 4
# A longer loop that no small factor divides stays a loop, so that code stays small.
_MAX_UNROLL = 16


@dataclass(frozen=True)
class TileShape:
    """Rows and columns of the register tile, as the blocked computation padded them."""

    rows: int
    cols: int

    @staticmethod
    def of(sch: s_tir.Schedule, anchor: SBlockRV) -> TileShape:
        """Read the tile that the computation was padded to."""
        notes = sch.get(anchor).annotations
        return TileShape(int(notes["tile_rows"]), int(notes["tile_cols"]))


def rows_per_tile(rows: int | None, cols: int) -> int:
    """Return how many rows a register tile of `cols` columns has.

    6 x 16 keeps 12 of 16 AVX2 registers as accumulators, 6 x 64 keeps 24 of 32 AVX-512 registers,
    14 x 32 keeps 28. Tiles are balanced: 128 rows become 22 tiles of 6, 8 rows 2 of 4.
    """
    most = 14 if cols == 32 else 6
    if rows is None:
        return most
    tiles = max(1, -(-rows // most))
    return max(1, -(-rows // tiles))


def tile_count(extent: tirx.Expr | int, size: int) -> tirx.Expr | int:
    """Return how many tiles of `size` cover an axis.

    A symbolic extent n has (n - 1) // size + 1. TVM cannot always prove of the usual
    (n + size - 1) // size that so many tiles cover n, as for n = 6 * w and tiles of 7, and then
    refuses to compute the reader of n values at the tiles of their producer.
    """
    known = constant(extent)
    return tirx.indexdiv(extent - 1, size) + 1 if known is None else -(-known // size)


def anchor_of(sch: s_tir.Schedule, tag: str) -> SBlockRV:
    """Return the one block tagged `tag`.

    Raises:
        Decline: If there is none, or more than one.
    """
    found = [block for block in leaf_blocks(sch) if rule_tag(sch, block) == tag]
    if len(found) != 1:
        raise Decline(f"has {len(found)} blocks tagged {tag}")
    return found[0]


Tiler = Callable[[s_tir.Schedule, SBlockRV, SBlockRV, Machine], object]
Rewriter = Callable[[s_tir.Schedule, SBlockRV, Machine], s_tir.Schedule]


def _finish_tiles(sch: s_tir.Schedule, anchor: SBlockRV, _: Machine) -> s_tir.Schedule:
    name = str(sch.get(anchor).name_hint)
    sch = end_at_last_tile(sch, anchor)
    return insert_prefetches(sch, sch.get_sblock(name))


def anchored_rule(name: str, tag: str, tile: Tiler, rewrite: Rewriter = _finish_tiles) -> Rule:
    """Return the rule of functions built around one block tagged `tag`.

    `tile(schedule, anchor, epilogue, machine)` schedules the anchor with the epilogue at each
    tile; the stages before and after them become elementwise loops. Last comes what no schedule
    primitive does: `rewrite(schedule, anchor, machine)`, by default the end of the tiles and the
    prefetches marked before.
    """

    def schedule(func: PrimFunc, machine: Machine) -> s_tir.Schedule:
        sch = new_schedule(func)
        anchor = anchor_of(sch, tag)
        tile(sch, anchor, prepare_epilogue(sch, anchor), machine)
        finish_stages(sch, machine)
        return rewrite(sch, anchor, machine)

    return Rule(name, schedule, tag)


def prepare_epilogue(sch: s_tir.Schedule, anchor: SBlockRV) -> SBlockRV:
    """Inline the maps after `anchor` into one block over its own (row, column) axes.

    Returns the block that reads the anchor's result. Where several blocks would read it, or the
    one reader is no permutation of it, the crop to the true size stays as a stage of its own.
    """
    name = str(sch.get(anchor).name_hint)
    crop = str(sch.get(sch.get_consumers(anchor)[0]).name_hint)
    attempt = sch.copy()
    inline_spatial(attempt, hot=name)
    readers = attempt.get_consumers(attempt.get_sblock(name))
    if len(readers) == 1 and is_spatial(attempt, readers[0]):
        reader = str(attempt.get(readers[0]).name_hint)
        try:
            _align_axes(attempt, attempt.get_sblock(name), readers[0])
        except (ValueError, RuntimeError):  # TVM reports an index map it cannot invert as either
            reader = ""
        if reader:
            inline_spatial(sch, hot=name)
            _align_axes(sch, sch.get_sblock(name), sch.get_sblock(reader))
            return sch.get_sblock(reader)
    inline_spatial(sch, keep=(crop,), hot=name)
    block = sch.get_sblock(crop)
    _align_axes(sch, sch.get_sblock(name), block)
    return block


def _align_axes(sch: s_tir.Schedule, anchor: SBlockRV, reader: SBlockRV) -> None:
    """Give `reader` the anchor's axes, so that it can be computed tile by tile.

    Raises:
        ValueError: If it reads the anchor's result at several places, or not one to one.
    """
    source = sch.get(anchor).writes[0].source
    stmt = sch.get(reader)
    index = _only_index(stmt.body, source)
    axes = [axis.var for axis in stmt.iter_vars]
    if len(axes) == len(index) and all(a.same_as(b) for a, b in zip(axes, index, strict=True)):
        return
    sch.transform_block_layout(reader, IndexMap(axes, list(index), None))


def _only_index(body: object, source: Buffer) -> list[object]:
    seen = [list(load.indices) for load in loads_in(body, source)]
    if not seen or any(not tvm_ffi.structural_equal(seen[0], other) for other in seen[1:]):
        raise ValueError("the result is read at several places")
    return seen[0]


def unrolled_depth(sch: s_tir.Schedule, loop: LoopRV) -> int:
    """Return the largest unroll factor of at most 4 that divides the reduction."""
    depth = constant(sch.get(loop).extent)
    return next(f for f in (4, 3, 2, 1) if depth is not None and depth % f == 0 or f == 1)


def unroll_channels(sch: s_tir.Schedule, loop: LoopRV) -> list[LoopRV]:
    """Unroll a few steps of the loop over a channel block; return the loop or its two parts.

    Four steps of a register tile hide the loop's own cost; all sixteen take LLVM twice as long.
    """
    extent, depth = constant(sch.get(loop).extent), unrolled_depth(sch, loop)
    if extent is not None and depth == 1 and extent <= _MAX_UNROLL:
        depth = extent  # a small prime
    loops = [loop] if extent == depth else list(sch.split(loop, [None, depth]))
    sch.unroll(loops[-1])
    return loops


def register_tile(
    sch: s_tir.Schedule,
    anchor: SBlockRV,
    epilogue: SBlockRV,
    machine: Machine,
    *,
    prefetch: bool = False,
) -> LoopRV:
    """Tile `anchor` over (batch..., row blocks, panels, tiles) and compute `epilogue` at the tile.

    A block of rows fits half the L2 cache, so a panel and the rows it meets stay near; the
    blocks, panels and batches are spread over the cores. `prefetch` fetches the next panel of
    weights meanwhile; it takes a right operand that is stored panel after panel.

    Returns the loop over panels (fused with batches and row blocks).
    """
    tile = TileShape.of(sch, anchor)
    *batch, rows, cols, depth = sch.get_loops(anchor)
    row_count, col_count, k_count = extents(sch, [rows, cols, depth])
    panels, lane = sch.split(cols, [None, tile.cols])
    tiles, row = sch.split(rows, [None, tile.rows])
    tasks = points(extents(sch, [*batch, panels]))
    block = decide(RowBlock(row_count, k_count, tile.rows, tile.cols, tasks), machine)
    outer: list[LoopRV]
    if block is None:
        outer = [*batch, panels]
    else:
        blocks, tiles = sch.split(tiles, [None, block])
        outer = [*batch, blocks, panels]
    step, unrolled = sch.split(depth, [None, unrolled_depth(sch, depth)])
    sch.reorder(*outer, tiles, step, unrolled, row, lane)
    fused = sch.fuse(*outer) if len(outer) > 1 else outer[0]
    read = points([*extents(sch, [fused]), k_count, tile.cols])
    work = max(read * points([row_count]), read * _READ_FMAS)
    if work >= PARALLEL_FMAS and machine.cores > 1:
        sch.parallel(fused)
    sch.unroll(unrolled)
    sch.unroll(row)
    sch.vectorize(lane)
    sch.reverse_compute_at(epilogue, tiles)
    _lay_out_epilogue(sch, epilogue, tiles, col_count)
    init = sch.decompose_reduction(anchor, step)
    *_, init_row, init_lane = sch.get_loops(init)
    sch.unroll(init_row)
    sch.vectorize(init_lane)
    if prefetch and k_count is not None:
        mark_prefetch(
            sch,
            anchor,
            tile=tiles,
            steps=step,
            elements=k_count * tile.cols,
            machine=machine,
        )
    return fused


def _lay_out_epilogue(
    sch: s_tir.Schedule, epilogue: SBlockRV, tile: LoopRV, cols: int | None
) -> None:
    """Unroll the rows of an epilogue at `tile`; vectorize its columns if they are whole panels.

    Where they are not, each store needs a guard. One row or one column has no loop. Rows of a
    symbolic number that is known to fit one tile, such as 12 // n + 1, stay a loop.
    """
    loops = loops_within(sch, epilogue, tile)
    stored = constant(sch.get(epilogue).iter_vars[-1].dom.extent)
    lane = loops.pop() if loops and stored != 1 else None
    for row in loops:
        if constant(sch.get(row).extent) is not None:
            sch.unroll(row)
    if lane is not None and cols is not None and stored == cols:
        sch.vectorize(lane)


def finish_stages(sch: s_tir.Schedule, machine: Machine) -> None:
    """Schedule the stages before and after the product as elementwise loops of their own."""
    for block in leaf_blocks(sch):
        loops = sch.get_loops(block)
        serial = all(int(sch.get(loop).kind) == 0 for loop in loops)
        siblings = sch.get_child_blocks(loops[0]) if loops else []
        if serial and len(siblings) == 1 and is_spatial(sch, block):
            schedule_map(sch, block, machine)
