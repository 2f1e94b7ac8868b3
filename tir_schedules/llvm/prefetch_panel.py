"""Prefetching of the weights that a register-tiled product reads next.

Within a network each product finds its weights out of cache. The first row tile that meets a panel
of them waits for memory at every step, and the tiles after it leave the memory idle. So each tile
fetches its share of the next panel into the second-level cache, and memory and multipliers work at
the same time. The share is spread evenly over the steps: fetched in bursts, the lines queue for
the few buffers of the first-level cache that the product's own loads need (512 -> 2048 channels of
49 pixels, weights out of cache: 0.70 of FMA peak without, 0.85 in bursts, 0.93 evenly).
A prefetch never faults, so the last panel may fetch what lies behind the weights.

Callahan, Kennedy, Porterfield: Software Prefetching, ASPLOS 1991.
"""

from __future__ import annotations

import tvm_ffi
from tvm import DataType, s_tir, tirx
from tvm.s_tir import SBlockRealize
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import Evaluate, For, ForKind, IfThenElse, SeqStmt, Stmt, Var

from tir_schedules.blocks import constant, new_schedule
from tir_schedules.machine import Machine
from tir_schedules.variables import substitute

_TILE, _STEPS = "prefetch_tile", "prefetch_steps"
# Arguments of LLVM's prefetch: to read, into the second-level cache, data.
_READ, _SECOND_LEVEL, _DATA = 0, 2, 1
LINE_BYTES = 64
# Lines are counted in fractions of this many bits.
_FRACTION = 16
# Panels of which one is in use and one on its way leave room in the second-level cache for rows.
_PANELS_IN_CACHE = 3
# Of a symbolic number of tiles, so many fetch a panel; the others find it there.
_SYMBOLIC_TILES = 8


def fits_ahead(panel_bytes: int, machine: Machine) -> bool:
    """Return whether a panel can be fetched into the second-level cache while another is read."""
    return panel_bytes * _PANELS_IN_CACHE <= machine.l2_bytes


def panels_over_cache(panel_bytes: int, machine: Machine) -> int:
    """Return into how many parts a panel is cut so that each can be fetched ahead."""
    return max(1, -(-panel_bytes * _PANELS_IN_CACHE // machine.l2_bytes))


def mark_prefetch(
    sch: s_tir.Schedule,
    anchor: SBlockRV,
    *,
    tile: LoopRV,
    steps: LoopRV,
    elements: int,
    machine: Machine,
    symbolic: bool = False,
) -> None:
    """Mark the loops that `insert_prefetches` works on, if the panels fit the cache.

    Where one tile meets a panel, it reads without pause, and the processor fetches ahead by itself.

    Args:
        sch: The schedule.
        anchor: The product; weights are the last tensor that it reads.
        tile: Loop over the row tiles that meet one panel.
        steps: Loop within it over reduction steps; each iteration fetches its share of lines.
        elements: Length of a panel of weights; the next one follows it in memory.
        machine: The processor with the cache.
        symbolic: Whether there may be fewer tiles than the loop over them says.
    """
    bits = DataType(sch.get(anchor).reads[-1].source.dtype).bits
    tiles = constant(sch.get(tile).extent)
    if tiles != 1 and fits_ahead(elements * bits // 8, machine):
        most = _SYMBOLIC_TILES if symbolic or tiles is None else tiles
        sch.annotate(tile, _TILE, min(most, tiles or most))
        sch.annotate(steps, _STEPS, elements)


def insert_prefetches(sch: s_tir.Schedule, anchor: SBlockRV) -> s_tir.Schedule:
    """Return the schedule with prefetches in the marked loops around `anchor`, if there are any."""
    loops = [sch.get(loop) for loop in sch.get_loops(anchor)]
    marked = [at for at, loop in enumerate(loops) if _is_marked(loop)]
    if not marked:
        return sch
    tile, steps = marked
    fetch = _prefetches(loops[tile : steps + 1])

    def rewrite(loop: For) -> Stmt:
        if not _is_marked(loop):
            return loop
        body = SeqStmt([fetch, loop.body]) if _STEPS in loop.annotations else loop.body
        return For(loop.loop_var, loop.min, loop.extent, loop.kind, body)

    func = sch.mod["main"]
    return new_schedule(func.with_body(tvm_ffi.structural_map(func.body, (For, rewrite))))


def prefetch(buffer: tirx.Buffer, place: list[tirx.Expr], level: int) -> Stmt:
    """Return the statement that fetches a line to read.

    Args:
        buffer: The tensor; the last index may lie outside it.
        place: Indices of an element of the line.
        level: LLVM's locality: 3 for the first-level cache, 2 for the second.
    """
    address = tirx.address_of(tirx.BufferLoad(buffer, place))
    # As an intrinsic of LLVM's: TVM prints its own `prefetch`, but does not parse it.
    kinds = (tirx.const(value, "int32") for value in (_READ, level, _DATA))
    return Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", address, *kinds))


def _is_marked(loop: For) -> bool:
    return _TILE in loop.annotations or _STEPS in loop.annotations


def _prefetches(nest: list[For]) -> Stmt:
    """Return what an iteration of the loops from the tiles to the steps fetches."""
    elements = int(nest[-1].annotations[_STEPS])
    weights, here, guard = _panel_start(nest)
    in_line = LINE_BYTES * 8 // DataType(weights.dtype).bits
    lines = -(-elements // in_line)
    turn, turns = tirx.const(0, "int64"), int(nest[0].annotations[_TILE])
    for loop in nest:
        turn = turn * loop.extent + loop.loop_var
    for loop in nest[1:]:
        turns *= int(loop.extent)
    each, rate = -(-lines // turns), -(-(lines << _FRACTION) // turns)
    first = tirx.shift_right(turn * rate, tirx.const(_FRACTION, "int64"))
    if constant(nest[0].extent) != int(nest[0].annotations[_TILE]):
        first = tirx.min(first, lines - each)
    ahead = Var("ahead", "int64")
    last = here[-1] + elements + (first + ahead) * in_line
    fetch = prefetch(weights, [*here[:-1], last], _SECOND_LEVEL)
    share = For(ahead, 0, each, ForKind.UNROLLED, fetch)
    # A tile past the last row multiplies nothing: prefetches would be all that it does.
    return share if constant(guard) == 1 else IfThenElse(guard, share, None)


def _panel_start(nest: list[For]) -> tuple[tirx.Buffer, list[tirx.Expr], tirx.Expr]:
    """Return the weights, where the panel that a nest reads begins, and whether it reads any."""
    inner = [loop.loop_var for loop in nest[1:]]
    realizes: list[SBlockRealize] = []
    tvm_ffi.structural_walk(
        nest[-1].body,
        [(For, lambda loop: inner.append(loop.loop_var)), (SBlockRealize, realizes.append)],
        order="pre",
    )
    (realize,) = realizes
    read = realize.block.reads[-1]
    axes = (axis.var for axis in realize.block.iter_vars)
    values = dict(zip(axes, realize.iter_values, strict=True))
    start = {var: tirx.const(0, str(var.ty.dtype)) for var in inner}
    place = [substitute(substitute(axis.min, values), start) for axis in read.region]
    return read.source, place, substitute(realize.predicate, start)
