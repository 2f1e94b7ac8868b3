"""Binding loops to the grid: the few moves that every CUDA rule is made of."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import DataType, s_tir
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import IterVar

from tir_schedules.blocks import constant, extents, is_output, is_spatial, points
from tir_schedules.joined_maps import join_maps, join_vectors
from tir_schedules.loads import loads_in
from tir_schedules.variables import uses

THREADS = 256  # a block of eight warps keeps up to 255 registers a thread and fills an SM by eights
VECTOR = 4  # four float32 are one 16-byte load
WARP = 32


def fused(sch: s_tir.Schedule, loops: list[LoopRV]) -> LoopRV:
    """Fuse one or more adjacent loops."""
    return sch.fuse(*loops) if len(loops) > 1 else loops[0]


def bind_grid(sch: s_tir.Schedule, loops: list[LoopRV], threads: int = THREADS) -> LoopRV:
    """Spread adjacent loops over blocks of `threads` threads; return the thread loop."""
    loop = fused(sch, loops)
    extent = constant(sch.get(loop).extent)
    if extent is not None:
        threads = min(threads, max(WARP, -(-extent // WARP) * WARP))
    block, thread = sch.split(loop, [None, threads])
    sch.bind(block, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    return thread


def bind_map(sch: s_tir.Schedule, block: SBlockRV) -> None:
    """Give each thread one vector of a map's results, or one result where rows are odd."""
    bind_maps(sch, [block])


def bind_maps(sch: s_tir.Schedule, blocks: Sequence[SBlockRV]) -> None:
    """Do so for several maps that can share all their loops: one kernel then makes them all."""
    loops = sch.get_loops(blocks[0])
    if not loops:
        loops = [sch.add_unit_loop(blocks[0])]
    width = constant(sch.get(loops[-1]).extent)
    total = points(extents(sch, loops))
    # Few results fill more multiprocessors one by one.
    if width is not None and width % VECTOR == 0 and total >= 108 * WARP * VECTOR:
        spread = [repeats_bytes(sch, block) for block in blocks]
        loops, vectors = join_vectors(sch, blocks, VECTOR)
        for vector, repeats in zip(vectors, spread, strict=True):
            (sch.unroll if repeats else sch.vectorize)(vector)
    else:
        loops = join_maps(sch, blocks)
    bind_grid(sch, loops)


def repeats_bytes(sch: s_tir.Schedule, block: SBlockRV) -> bool:
    """Tell whether a block reads a byte at the same place for neighbours along its last axis.

    TVM has no code for a vector of one byte, unless it is a constant.
    """
    stmt = sch.get(block)
    last = stmt.iter_vars[-1].var if len(stmt.iter_vars) else None
    for load in loads_in(stmt.body):
        if DataType(str(load.ty.dtype)).itemsize == 1:
            if last is None or not any(uses(index, last) for index in load.indices):
                return True
    return False


def split_axes(sch: s_tir.Schedule, block: SBlockRV) -> tuple[list[LoopRV], list[LoopRV]]:
    """Return a block's loops as those over its results and those it accumulates over."""
    loops = sch.get_loops(block)
    axes = sch.get(block).iter_vars
    if len(loops) != len(axes):
        raise ValueError("loops and axes differ in number")
    spatial = [
        lp for lp, ax in zip(loops, axes, strict=True) if int(ax.iter_type) == IterVar.DataPar
    ]
    reduced = [
        lp for lp, ax in zip(loops, axes, strict=True) if int(ax.iter_type) == IterVar.CommReduce
    ]
    return spatial, reduced


def name_of(sch: s_tir.Schedule, block: SBlockRV) -> str:
    """Return a block's name, by which a copy of the schedule finds it again."""
    return str(sch.get(block).name_hint)


def is_bound(sch: s_tir.Schedule, block: SBlockRV) -> bool:
    """Tell whether a loop over `block` is already spread over threads."""
    return any(sch.get(loop).thread_binding is not None for loop in sch.get_loops(block))


def thread_per_result(sch: s_tir.Schedule, name: str) -> s_tir.Schedule:
    """Let each thread accumulate one result of a reduction in a register.

    A map that only reads that result is computed by the same thread; the schedule returned is
    the one to go on with.
    """
    block = sch.get_sblock(name)
    consumers = sch.get_consumers(block)
    if len(consumers) == 1 and not is_output(sch, block) and is_spatial(sch, consumers[0]):
        attempt = sch.copy()
        try:
            thread = bind_grid(
                attempt, attempt.get_loops(attempt.get_sblock(name_of(sch, consumers[0])))
            )
            block = attempt.get_sblock(name)
            attempt.compute_at(block, thread)
            inner = [lp for lp, size in _sized(attempt, block) if size != 1]
            _, reduced = split_axes(sch, sch.get_sblock(name))
            if len(inner) > len(reduced):
                raise s_tir.ScheduleError("a result is read by several threads")
            for at in range(len(attempt.get(block).writes)):
                attempt.set_scope(block, at, "local")
        except s_tir.ScheduleError:
            block = sch.get_sblock(name)  # the map reads other results too: two kernels
        else:
            return attempt
    spatial, reduced = split_axes(sch, block)
    if not spatial:
        spatial = [sch.add_unit_loop(sch.get_loops(block)[0] if reduced else block)]
    sch.reorder(*spatial, *reduced)
    point = fused(sch, spatial)
    if len(sch.get(block).writes) == 1:
        # Before the loop is split: TVM would give the store no bound where threads are left over.
        sch.reverse_compute_at(sch.cache_write(block, 0, "local"), point)
    bind_grid(sch, [point])
    return sch


def _sized(sch: s_tir.Schedule, block: SBlockRV) -> list[tuple[LoopRV, int | None]]:
    loops = sch.get_loops(block)[2:]  # below the block and the thread
    return list(zip(loops, extents(sch, loops), strict=True))
