"""Matrix products and convolutions: register tiles fed from shared memory.

Budget of a 64 x 64 tile: 256 threads of 4 x 4 accumulators, 8 KiB of shared memory for 16 steps
of k, about 60 registers a thread, so that four blocks share a multiprocessor.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import s_tir
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import PrimFunc

from tir_schedules.blocks import inline_spatial, leaf_blocks
from tir_schedules.cuda.matrix_product import Contraction, as_matrix_product, find_contraction
from tir_schedules.cuda.product_groups import product_schedule
from tir_schedules.cuda.threads import bind_map, fused, is_bound, name_of
from tir_schedules.machine import Machine
from tir_schedules.rule import Rule

_SIDE = 16  # threads along each side of a tile
_REGISTERS = 4  # accumulators of a thread along each side
_STEPS = 16  # steps of k between two barriers


@dataclass(frozen=True)
class Tile:
    """The part of the result one block of threads computes."""

    row_threads: int
    row_registers: int
    column_threads: int
    column_registers: int

    def rows(self) -> int:
        """Return how many rows the tile has."""
        return self.row_threads * self.row_registers

    def columns(self) -> int:
        """Return how many columns the tile has."""
        return self.column_threads * self.column_registers


def _tile(plan: Contraction) -> Tile:
    """Choose a tile: square, or wide and flat where there are few rows."""
    rows = plan.size(plan.rows)
    if rows is not None and rows <= 4:
        return Tile(1, rows, 128, 1)
    if rows is not None and rows <= _SIDE:
        return Tile(4, 4, 64, 2)
    return Tile(_SIDE, _REGISTERS, _SIDE, _REGISTERS)


def _stage(sch: s_tir.Schedule, operand: SBlockRV, step: LoopRV, threads: tuple[int, int]) -> None:
    """Let all threads of a block copy one tile of an operand to shared memory."""
    sch.compute_at(operand, step, preserve_unit_loops=True)
    loops = sch.get_loops(operand)[-2:]
    _, y, x = sch.split(fused(sch, loops), [None, *threads])
    sch.bind(y, "threadIdx.y")
    sch.bind(x, "threadIdx.x")


def _schedule(func: PrimFunc, machine: Machine) -> s_tir.Schedule:
    sch = product_schedule(func)
    block, plan = find_contraction(sch)
    tile = _tile(plan)
    result = as_matrix_product(sch, block, plan).result
    # TVM has no code for a byte repeated in a vector.
    bytes_read = any(str(r.source.dtype) in ("int8", "uint8") for r in sch.get(block).reads)
    batch = [1] * bool(plan.batch)
    sch.pad_einsum(block, [*batch, tile.rows(), tile.columns(), _STEPS])
    shared = [sch.cache_read(block, at, "shared") for at in (0, 1)]
    inline_spatial(sch, keep=tuple(name_of(sch, kept) for kept in [*shared, result]))

    *grid_z, y, x, k = sch.get_loops(block)
    grid_y, thread_y, row = sch.split(y, [None, tile.row_threads, tile.row_registers])
    grid_x, thread_x, column = sch.split(x, [None, tile.column_threads, tile.column_registers])
    step, inner = sch.split(k, [None, _STEPS])
    sch.reorder(*grid_z, grid_x, grid_y, thread_y, thread_x, step, inner, row, column)
    # One axis with the batch: WebGPU has no blockIdx.z, and CUDA's ends at 65,535.
    grid_x = fused(sch, [*grid_z, grid_x])
    for loop, thread in zip(
        (grid_x, grid_y, thread_y, thread_x),
        ("blockIdx.x", "blockIdx.y", "threadIdx.y", "threadIdx.x"),
        strict=True,
    ):
        sch.bind(loop, thread)
    sch.reverse_compute_at(result, thread_x)
    sch.set_scope(block, 0, "local")
    for operand in shared:
        _stage(sch, operand, step, (tile.row_threads, tile.column_threads))
    sch.unroll(row)
    if tile.column_registers in (2, 4) and not bytes_read:
        sch.vectorize(column)
    sch.decompose_reduction(block, step)
    for name in [name_of(sch, b) for b in leaf_blocks(sch) if not is_bound(sch, b)]:
        bind_map(sch, sch.get_sblock(name))
    return sch


RULE = Rule("contraction", _schedule)
