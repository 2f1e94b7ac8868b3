"""The frame of a product written out by hand: blocks, a pipeline of shared tiles, an end.

The kernel reads top to bottom:
  1. fetch the first tiles of both operands, each stage a group of asynchronous copies;
  2. for every tile: wait for its stage, start the copies of the one that comes `stages - 1` later
     into the stage just finished with, then multiply;
  3. store the sums with what the function does with them.

Blocks are numbered in groups of columns, so that those that run at one time share operands in the
L2 cache. Where the tile divides the steps into slices, blocks store plain sums of their slice,
which a second kernel adds up (`split_steps.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm.tirx import Expr, PrimFunc
from tvm.tirx.script import builder as T

from tir_schedules.blocks import constant
from tir_schedules.cuda.matrix_product import find_contraction
from tir_schedules.cuda.product_groups import product_schedule
from tir_schedules.cuda.product_operands import Operand, Product, read_product
from tir_schedules.cuda.shared_tile import SharedTile
from tir_schedules.cuda.split_steps import emit_slices
from tir_schedules.cuda.tile_choice import Tile, choose_tile
from tir_schedules.cuda.written_kernel import write_kernel
from tir_schedules.machine import Machine
from tir_schedules.rule import Decline

UNKNOWN_ROWS = 1024  # what a symbolic number of rows is taken for
_GROUP = 8  # columns of blocks that are walked together
_MOST_BATCHES = 65535  # of blocks along z


def match_tiled(
    func: PrimFunc, machine: Machine, dtypes: Collection[str], tiles: Sequence[Tile]
) -> tuple[Product, Tile]:
    """Return the product that a function computes, and the tile that suits it best.

    As for `match_product`.

    Raises:
        Decline: If it computes something else, or the GPU has no asynchronous copies.
    """
    gpu = machine.gpu
    if gpu is None or gpu.capability < 80:
        raise Decline("needs asynchronous copies: sm_80 or newer")
    product = match_product(func, dtypes)
    rows = constant(product.rows) or UNKNOWN_ROWS
    shape = (rows, product.columns, product.steps, product.batches())
    return product, choose_tile(*shape, gpu, tiles)


def match_product(func: PrimFunc, dtypes: Collection[str], most_rows: int | None = None) -> Product:
    """Return the product that a function computes, of operands of one of `dtypes`.

    Both are of one type, but for bytes, which may have a sign or not.

    Raises:
        Decline: If it computes something else, or has more than `most_rows` or any number of them.
    """
    sch = product_schedule(func)
    block, plan = find_contraction(sch)
    if most_rows is not None and (plan.size(plan.rows) or most_rows + 1) > most_rows:
        raise Decline(f"has more than {most_rows} rows, or any number")
    for read in sch.get(block).reads:
        if str(read.source.dtype) not in dtypes:
            raise Decline(f"multiplies {read.source.dtype}, not {' or '.join(dtypes)}")
    product = read_product(sch, block, plan)
    sizes = {tvm.DataType(side.dtype).itemsize for side in (product.left, product.right)}
    if product.left.dtype != product.right.dtype and sizes != {1}:
        raise Decline(f"multiplies {product.left.dtype} by {product.right.dtype}")
    if product.batches() > _MOST_BATCHES:
        raise Decline("the grid has no room for so many products")
    return product


class PipelinedProduct:
    """Emits the kernel that computes `product` by tiles of one shape.

    Subclasses say how a stage is multiplied and how the sums are stored. `where` holds the first
    row and column of the block, `within` those of the warp in its block.

    Raises:
        Decline: If an operand does not lie in 16-byte chunks.
    """

    pace = 1  # of the swizzle, where rows of a tile are steps

    def __init__(self, product: Product, tile: Tile) -> None:
        self.product, self.tile = product, tile
        self.left = self._shared_tile(product.left, tile.rows)
        self.right = self._shared_tile(product.right, tile.columns)
        trips = -(-product.steps // tile.depth)
        self.slice_trips = -(-trips // tile.slices)
        self.last_trips = trips - self.slice_trips * (tile.slices - 1)

    def _shared_tile(self, operand: Operand, outer: int) -> SharedTile:
        """Return an operand's tile in the order that it is fetched in with the fewest copies."""
        orders = [
            SharedTile(operand, outer, self.tile.depth, along, 1 if along else self.pace)
            for along in (True, False)
        ]
        return max(orders, key=lambda tile: tile.piece or tile.are_neighbours / 2)

    def write(self, func: PrimFunc) -> PrimFunc:
        """Return the kernel with the parameters of `func`."""
        return write_kernel(func, lambda: emit_slices(self, self._emit))

    def declare(self) -> None:
        """Emit the allocations and the first values of the sums."""
        raise NotImplementedError

    def multiply_stage(self, stage: Any) -> None:
        """Emit the products of the tiles in a stage of the pipeline."""
        raise NotImplementedError

    def store(self) -> None:
        """Emit the end of the kernel, when the sums are complete."""
        raise NotImplementedError

    def _emit(self) -> None:
        tile, product = self.tile, self.product
        rows = tirx.ceildiv(product.rows, tile.rows)
        columns = -(-product.columns // tile.columns)
        with (
            T.launch_thread("blockIdx.z", product.batch * tile.slices) as layer,
            T.launch_thread("blockIdx.x", rows * columns) as block,
            T.launch_thread("threadIdx.x", tile.threads) as thread,
        ):
            self.thread = thread
            self.batch = tirx.floordiv(layer, tile.slices)
            self.slice = tirx.floormod(layer, tile.slices)
            self.warp, self.lane = tirx.floordiv(thread, 32), tirx.floormod(thread, 32)
            row, column = _walk(block, rows, columns)
            self.where = (row * tile.rows, column * tile.columns)
            across = tile.columns // tile.warp_columns
            self.within = (
                tirx.floordiv(self.warp, across) * tile.warp_rows,
                tirx.floormod(self.warp, across) * tile.warp_columns,
            )
            # Bytes, as in all kernels: two types would be two declarations of one external array.
            self.shared = T.alloc_buffer((tile.shared_bytes,), "uint8", scope="shared.dyn")
            self.declare()
            self._main_loop()
            self.store()

    def _main_loop(self) -> None:
        stages, slices = self.tile.stages, self.tile.slices
        trips: Any = self.slice_trips
        if self.last_trips != trips:
            trips = tirx.Select(self.slice == slices - 1, self.last_trips, trips)
        for stage in range(stages - 1):
            if stage < self.last_trips:
                self._fetch(stage, stage)
            elif stage < self.slice_trips:
                with T.If(stage < trips), T.Then():
                    self._fetch(stage, stage)
            T.evaluate(T.ptx["cp.async.commit_group"]())
        # Unrolled by nvcc, a short loop keeps the addresses of all its trips alive: it spills.
        with T.serial(0, trips, unroll=False) as trip:
            T.evaluate(T.ptx["cp.async.wait_group"](stages - 2))
            T.evaluate(T.tvm_storage_sync("shared"))
            ahead = trip + stages - 1
            with T.If(ahead < trips):
                with T.Then():
                    self._fetch(ahead, tirx.floormod(ahead, stages))
            T.evaluate(T.ptx["cp.async.commit_group"]())
            self.multiply_stage(tirx.floormod(trip, stages))
        T.evaluate(T.ptx["cp.async.wait_group"](0))

    def base(self, stage: Any, side: int) -> Any:
        """Return the byte of shared memory at which the tile of a side begins."""
        return stage * self.tile.stage_bytes + side * self.left.bytes

    def _fetch(self, trip: Any, stage: Any) -> None:
        """Start the copies of tile `trip` of the slice, of both operands."""
        product = self.product
        sides = [(self.left, product.rows), (self.right, product.columns)]
        for side, (tile, size) in enumerate(sides):
            known = constant(size)
            whole = known is not None and known % tile.outer == product.steps % tile.depth == 0
            limits = None if whole else (size, product.steps)
            step = (self.slice * self.slice_trips + trip) * tile.depth
            where = (self.batch, self.where[side], step)
            base = self.base(stage, side)
            tile.fill(self.shared, base, where, limits, self.thread, self.tile.threads)


def _walk(block: Expr, rows: Expr, columns: int) -> tuple[Expr, Expr]:
    """Return the row and column of a block: groups of columns, each walked row by row."""
    if columns <= _GROUP:
        return tirx.floordiv(block, columns), tirx.floormod(block, columns)
    group = tirx.floordiv(block, _GROUP * rows)
    within = tirx.floormod(block, _GROUP * rows)
    wide = tirx.min(columns - group * _GROUP, _GROUP)
    return tirx.floordiv(within, wide), group * _GROUP + tirx.floormod(within, wide)
