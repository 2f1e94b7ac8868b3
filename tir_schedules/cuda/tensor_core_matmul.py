"""Matrix products and convolutions of 16-bit floats on Tensor Cores (sm_80 and newer).

The kernel reads top to bottom:
  1. fetch the first tiles of both operands, each stage a group of asynchronous copies;
  2. for every tile: wait for its stage, start the copies of the one that comes `stages - 1` later
     into the stage just finished with, then load fragments (`ldmatrix`) and multiply (`mma.sync`);
  3. let each warp turn its sums, 16 rows at a time, into lines in shared memory, apply what the
     function does with the product, and store lines of 128 bits.

Shared memory is read and written without bank conflicts (`shared_tile`). Blocks are numbered in
groups of columns, so that those that run at one time share operands in the L2 cache.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx import Expr, PrimFunc
from tvm.tirx.script import builder as T

from tir_schedules.blocks import constant, is_reduction, leaf_blocks, new_schedule
from tir_schedules.cuda.matrix_product import match_contraction
from tir_schedules.cuda.product_operands import Product, read_product
from tir_schedules.cuda.shared_tile import SharedTile
from tir_schedules.cuda.tensor_core_epilogue import store_sums
from tir_schedules.cuda.tile_choice import Tile, choose_tile
from tir_schedules.machine import Machine
from tir_schedules.rule import Decline, Rule

_TYPES = {"float16": "f16", "bfloat16": "bf16"}
_GROUP = 8  # columns of blocks that are walked together
_UNKNOWN = 1024  # what a symbolic size is taken for
_MOST_BATCHES = 65535  # of blocks along z


def _apply(func: PrimFunc, machine: Machine) -> PrimFunc:
    gpu = machine.gpu
    if gpu is None or gpu.capability < 80:
        raise Decline("needs asynchronous copies: sm_80 or newer")
    product = match_product(func)
    rows = constant(product.rows) or _UNKNOWN
    tile = choose_tile(rows, product.columns, product.steps, product.batches(), gpu)
    return write_kernel(func, product, tile)


def match_product(func: PrimFunc) -> Product:
    """Return the product of 16-bit floats that a function computes.

    Raises:
        Decline: If it computes something else.
    """
    sch = new_schedule(func)
    reductions = [block for block in leaf_blocks(sch) if is_reduction(sch, block)]
    if len(reductions) != 1:
        raise Decline(f"has {len(reductions)} reductions")
    (block,) = reductions
    plan = match_contraction(sch, block)
    for read in sch.get(block).reads:
        if str(read.source.dtype) not in _TYPES:
            raise Decline(f"multiplies {read.source.dtype}, not 16-bit floats")
    product = read_product(sch, block, plan)
    if product.batches() > _MOST_BATCHES:
        raise Decline("the grid has no room for so many products")
    return product


def write_kernel(func: PrimFunc, product: Product, tile: Tile) -> PrimFunc:
    """Return the kernel that computes `product` by tiles, with the parameters of `func`.

    Raises:
        Decline: If the operands differ in type or do not lie in 16-byte chunks.
    """
    left, right = (_shared_tile(product, tile, side) for side in (0, 1))
    with IRBuilder() as ib:
        with T.prim_func(s_tir=True):
            T.func_name("main")
            _Kernel(product, tile, left, right).emit()
    return PrimFunc(func.params, ib.get().body, func.ret_type, func.attrs)


def _shared_tile(product: Product, tile: Tile, side: int) -> SharedTile:
    operand = (product.left, product.right)[side]
    if operand.dtype != product.left.dtype:
        raise Decline(f"multiplies {product.left.dtype} by {operand.dtype}")
    outer = (tile.rows, tile.columns)[side]
    for along_steps in (True, False):
        if operand.contiguous(along_steps, 8):
            return SharedTile(operand, outer, tile.depth, along_steps)
    raise Decline("an operand does not lie in chunks of 16 bytes")


class _Kernel:
    """Emits the kernel; its members are what the parts of the kernel share."""

    def __init__(self, product: Product, tile: Tile, left: SharedTile, right: SharedTile) -> None:
        self.product, self.tile = product, tile
        self.left, self.right = left, right
        self.trips = -(-product.steps // tile.depth)
        kind = _TYPES[left.operand.dtype]
        self.multiply = T.ptx[f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32"]

    def emit(self) -> None:
        tile, product = self.tile, self.product
        rows = tirx.ceildiv(product.rows, tile.rows)
        columns = -(-product.columns // tile.columns)
        with (
            T.launch_thread("blockIdx.z", product.batch) as batch,
            T.launch_thread("blockIdx.x", rows * columns) as block,
            T.launch_thread("threadIdx.x", tile.threads) as thread,
        ):
            self.thread, self.batch = thread, batch
            self.warp, self.lane = tirx.floordiv(thread, 32), tirx.floormod(thread, 32)
            row, column = _walk(block, rows, columns)
            self.first_row, self.first_column = row * tile.rows, column * tile.columns
            across = tile.columns // tile.warp_columns
            self.warp_row = tirx.floordiv(self.warp, across) * tile.warp_rows
            self.warp_column = tirx.floormod(self.warp, across) * tile.warp_columns
            self._declare()
            self._main_loop()
            store_sums(self)

    def _declare(self) -> None:
        tile = self.tile
        dtype = self.left.operand.dtype
        self.shared = T.alloc_buffer((tile.shared_bytes // 2,), dtype, scope="shared.dyn")
        sums = tile.warp_rows * tile.warp_columns // 32
        self.sums = T.alloc_buffer((sums,), "float32", scope="local")
        self.left_registers = T.alloc_buffer((2, tile.warp_rows // 4), "uint32", scope="local")
        self.right_registers = T.alloc_buffer((2, tile.warp_columns // 4), "uint32", scope="local")
        for at in range(sums):
            T.buffer_store(self.sums, tirx.const(0, "float32"), [at])

    def _main_loop(self) -> None:
        stages = self.tile.stages
        for stage in range(stages - 1):
            if stage < self.trips:
                self._fetch(stage, stage)
            T.evaluate(T.ptx["cp.async.commit_group"]())
        with T.serial(0, self.trips) as trip:
            T.evaluate(T.ptx["cp.async.wait_group"](stages - 2))
            T.evaluate(T.tvm_storage_sync("shared"))
            ahead = trip + stages - 1
            with T.If(ahead < self.trips):
                with T.Then():
                    self._fetch(ahead, tirx.floormod(ahead, stages))
            T.evaluate(T.ptx["cp.async.commit_group"]())
            self._multiply_stage(tirx.floormod(trip, stages))
        T.evaluate(T.ptx["cp.async.wait_group"](0))
        T.evaluate(T.tvm_storage_sync("shared"))

    def _base(self, stage: Any, side: int) -> Any:
        return stage * (self.tile.stage_bytes // 2) + side * self.left.elements

    def _fetch(self, trip: Any, stage: Any) -> None:
        """Start the copies of tile `trip` of both operands."""
        product = self.product
        for side, (tile, first, size) in enumerate(
            [
                (self.left, self.first_row, product.rows),
                (self.right, self.first_column, product.columns),
            ]
        ):
            known = constant(size)
            whole = known is not None and known % tile.outer == product.steps % tile.depth == 0
            limits = None if whole else (size, product.steps)
            where = (self.batch, first, trip * tile.depth)
            base = self._base(stage, side)
            tile.fill(self.shared, base, where, limits, self.thread, self.tile.threads)

    def _multiply_stage(self, stage: Any) -> None:
        """Multiply the tiles of a stage; fragments of the next 16 steps load meanwhile."""
        depth = self.tile.depth
        self._load_fragments(stage, 0)
        for step in range(0, depth, 16):
            if step + 16 < depth:
                self._load_fragments(stage, step + 16)
            self._multiply_fragments(step // 16 % 2)

    def _load_fragments(self, stage: Any, step: int) -> None:
        for side, (tile, registers, count, first) in enumerate(
            [
                (self.left, self.left_registers, self.tile.warp_rows, self.warp_row),
                (self.right, self.right_registers, self.tile.warp_columns, self.warp_column),
            ]
        ):
            for at in range(count // 16):
                name, address = tile.fragment(
                    self.shared,
                    self._base(stage, side),
                    first + at * 16,
                    step,
                    self.lane,
                    outer_first=side == 0,
                )
                into = [registers[step // 16 % 2, at * 4 + r] for r in range(4)]
                T.evaluate(T.ptx[name](*into, address))

    def _multiply_fragments(self, half: int) -> None:
        tile = self.tile
        for row in range(tile.warp_rows // 16):
            left = [self.left_registers[half, row * 4 + r] for r in range(4)]
            for column in range(tile.warp_columns // 8):
                right = [self.right_registers[half, column * 2 + r] for r in range(2)]
                first = (row * (tile.warp_columns // 8) + column) * 4
                sums = [self.sums[first + at] for at in range(4)]
                T.evaluate(self.multiply(*sums, *left, *right, *sums))


def _walk(block: Expr, rows: Expr, columns: int) -> tuple[Expr, Expr]:
    """Return the row and column of a block: groups of columns, each walked row by row."""
    if columns <= _GROUP:
        return tirx.floordiv(block, columns), tirx.floormod(block, columns)
    group = tirx.floordiv(block, _GROUP * rows)
    within = tirx.floormod(block, _GROUP * rows)
    wide = tirx.min(columns - group * _GROUP, _GROUP)
    return tirx.floordiv(within, wide), group * _GROUP + tirx.floormod(within, wide)


RULE = Rule("tensor_core_matmul", _apply)
