"""Softmax, norms and long reductions: one block of threads a row.

The threads of a block reduce the row together (each strides over it, then shuffles and shared
memory combine their partial results), keep the row's statistics in shared memory, and map over
the row once more. The row itself is read again from the cache.
"""

from __future__ import annotations

import tvm_ffi
from tvm import DataType, s_tir
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import Expr, IterVar, PrimFunc

from tir_schedules.blocks import (
    constant,
    extents,
    inline_spatial,
    is_output,
    is_reduction,
    is_spatial,
    leaf_blocks,
    new_schedule,
    points,
)
from tir_schedules.cuda.threads import THREADS, WARP, fused, split_axes
from tir_schedules.machine import Machine
from tir_schedules.rule import Decline, Rule

# Rows at least this long are worth a warp, shorter ones a thread.
_LONG_ROW = 2 * WARP
# Recomputing up to this many operations a point is cheaper than a trip through shared memory.
_RECOMPUTE = 40


def _kept(sch: s_tir.Schedule, reduction: SBlockRV) -> list[Expr]:
    axes = [ax for ax in sch.get(reduction).iter_vars if int(ax.iter_type) == IterVar.DataPar]
    return [ax.dom.extent for ax in axes if constant(ax.dom.extent) != 1]


def _long(sizes: list[int | None]) -> list[int | None]:
    return [size for size in sizes if size != 1]


def _row_loops(sch: s_tir.Schedule, out: SBlockRV, reductions: list[SBlockRV]) -> int:
    """Return how many leading loops of the output name the row.

    Raises:
        Decline: If the reductions keep other axes than the leading ones of the output.
    """
    sizes = [sch.get(loop).extent for loop in sch.get_loops(out)]
    counts = set()
    for reduction in reductions:
        count = 0
        for extent in _kept(sch, reduction):
            while count < len(sizes) and constant(sizes[count]) == 1:
                count += 1
            if count == len(sizes) or not tvm_ffi.structural_equal(sizes[count], extent):
                raise Decline("a reduction does not keep the leading axes of the output")
            count += 1
        counts.add(count)
    if len(counts) != 1:
        raise Decline("its reductions keep different axes")
    return counts.pop()


def _threads(row: int | None) -> int:
    """Return how many threads share a row: each takes at least two elements."""
    threads = THREADS
    while row is not None and threads > WARP and threads * 2 > row:
        threads //= 2
    return threads


def _spread(sch: s_tir.Schedule, loops: list[LoopRV], threads: int) -> None:
    """Let the threads of a block stride over loops."""
    _, thread = sch.split(fused(sch, loops), [None, threads])
    sch.bind(thread, "threadIdx.x")


def _bytes_written(sch: s_tir.Schedule, block: SBlockRV) -> int:
    """Return how many bytes a block writes at each of its points."""
    return sum(DataType(str(region.source.dtype)).itemsize for region in sch.get(block).writes)


def _schedule(func: PrimFunc, machine: Machine) -> s_tir.Schedule:
    sch = new_schedule(func)
    inline_spatial(sch, recompute_limit=_RECOMPUTE)
    blocks = leaf_blocks(sch)
    reductions = [block for block in blocks if is_reduction(sch, block)]
    outputs = [block for block in blocks if is_output(sch, block)]
    if not reductions:
        raise Decline("has no reduction")
    if len(outputs) != 1:
        raise Decline("has several outputs")
    if any(not is_spatial(sch, b) and not is_reduction(sch, b) for b in blocks):
        raise Decline("has a block that is neither a map nor a reduction")
    (out,) = outputs
    lengths = [points(extents(sch, split_axes(sch, r)[1])) for r in reductions]
    if max(lengths) < _LONG_ROW and len(reductions) == 1:  # several passes would be kernels
        raise Decline("its rows are short")
    if is_reduction(sch, out):
        result = sch.cache_write(out, 0, "shared")
        out = result
    rows = _row_loops(sch, out, reductions)
    loops = sch.get_loops(out)
    threads = _threads(max(lengths))
    row = fused(sch, loops[:rows]) if rows else sch.add_unit_loop(loops[0] if loops else out)
    inner = [block for block in leaf_blocks(sch) if not is_output(sch, block)]
    reduced = [_long(extents(sch, split_axes(sch, r)[1])) for r in reductions]
    for block in reversed(inner):
        sch.compute_at(block, row)
    # Axes of one size look alike: a reduction that kept another axis now spans several rows.
    if [_long(extents(sch, sch.get_loops(r)[1:])) for r in reductions] != reduced:
        raise Decline("a reduction does not keep the leading axes of the output")
    sch.bind(row, "blockIdx.x")
    room = machine.l1_bytes * 3 // 4  # the rest is for what threads combine
    for block in inner:
        below = sch.get_loops(block)[1:]
        if not is_reduction(sch, block):
            sizes = extents(sch, below)
            room -= _bytes_written(sch, block) * points(sizes)
            if None in sizes or room < 0:
                raise Decline("a row of intermediate results does not fit in shared memory")
        for at in range(len(sch.get(block).writes)):
            sch.set_scope(block, at, "shared")
        _spread(sch, below, threads)
    rest = sch.get_loops(out)[1:]
    _spread(sch, rest if rest else [sch.add_unit_loop(out)], threads)
    _check_reductions(sch)
    return sch


def _check_reductions(sch: s_tir.Schedule) -> None:
    """Decline what the build could not lower: TVM knows few ways in which threads combine."""
    try:
        s_tir.transform.LowerCrossThreadReduction()(sch.mod)
    except (ValueError, RuntimeError) as fault:
        raise Decline("threads cannot combine its results, as a maximum that keeps NaN") from fault


RULE = Rule("row_kernel", _schedule)
