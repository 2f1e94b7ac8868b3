"""Prefetching of the weights that a register-tiled product reads next.

Within a network each product finds its weights out of cache. The first row tile that meets a panel
of them waits for memory at every step, and the tiles after it leave the memory idle. So each tile
fetches its share of the next panel into the second-level cache, and memory and multipliers work at
the same time. The share is spread evenly over the steps: fetched in bursts, the lines queue for
the few buffers of the first-level cache that the product's own loads need (512 -> 2048 channels of
49 pixels, weights out of cache: 0.70 of FMA peak without, 0.85 in bursts, 0.93 evenly).
A prefetch never faults, so the last panel may fetch what lies behind the weights.

Where the number of tiles is known only at run time, so is a tile's share: it is divided there, once
a tile. A share for eight tiles, say, would leave three quarters of a panel to be waited for where
there are two (BERT-base on 16 tokens, one Zen 3 core: 1.6 times the time of static sizes).

Callahan, Kennedy, Porterfield: Software Prefetching, ASPLOS 1991.
"""

from __future__ import annotations

import math

import tvm_ffi
from tvm import DataType, s_tir, tirx
from tvm.s_tir import SBlockRealize
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import Bind, Evaluate, For, ForKind, IfThenElse, SeqStmt, Stmt, Var

from tir_schedules.blocks import constant, new_schedule
from tir_schedules.machine import Machine
from tir_schedules.variables import substitute

_TILE, _STEPS, _DISTANCE = "prefetch_tile", "prefetch_steps", "prefetch_distance"
# Arguments of LLVM's prefetch: to read, into the second-level cache, data.
_READ, _SECOND_LEVEL, _DATA = 0, 2, 1
LINE_BYTES = 64
# Lines are counted in fractions of this many bits.
_FRACTION = 16
# Panels of which one is in use and one on its way leave room in the second-level cache for rows.
_PANELS_IN_CACHE = 3


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
    distance: int | None = None,
) -> None:
    """Mark the loops that `insert_prefetches` works on, if the panels fit the cache.

    Where a single row meets a panel, it reads without pause, and the processor fetches ahead by
    itself; of five rows it does not look far enough ahead (1 tile of 5 x 16, depth 768, weights out
    of cache: 8.6 GB/s on a Zen 3 core, 10.7 with prefetches).

    Args:
        sch: The schedule.
        anchor: The product; weights are the last tensor that it reads.
        tile: Loop over the row tiles that meet one panel.
        steps: Loop within it over reduction steps; each iteration fetches its share of lines.
        elements: Length of a panel of weights.
        machine: The processor with the cache.
        distance: Elements from where a panel begins to where the next one does; `elements` where
            it follows in memory.
    """
    bits = DataType(sch.get(anchor).reads[-1].source.dtype).bits
    rows = int(sch.get(anchor).annotations.get("tile_rows", 1))
    lone = rows == 1 and constant(sch.get(tile).extent) == 1
    if not lone and fits_ahead(elements * bits // 8, machine):
        sch.annotate(tile, _TILE, 1)
        sch.annotate(steps, _STEPS, elements)
        sch.annotate(steps, _DISTANCE, distance or elements)


def insert_prefetches(sch: s_tir.Schedule, anchor: SBlockRV) -> s_tir.Schedule:
    """Return the schedule with prefetches in the marked loops around `anchor`, if there are any."""
    loops = [sch.get(loop) for loop in sch.get_loops(anchor)]
    marks = {_TILE, _STEPS}
    marked = [at for at, loop in enumerate(loops) if marks & set(loop.annotations)]
    if not marked:
        return sch
    tile, steps = marked
    panel = _Panel(loops[tile : steps + 1])

    def rewrite(loop: For) -> Stmt:
        if _STEPS in loop.annotations:
            return panel.with_fetches(loop)
        if _TILE in loop.annotations:
            body = loop.body if panel.share is None else SeqStmt([panel.share, loop.body])
            return For(loop.loop_var, loop.min, loop.extent, loop.kind, body)
        return loop

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


class _Panel:
    """What the tiles that meet a panel fetch of the next one.

    Attributes:
        share: What a tile computes before its steps, None if nothing.
    """

    def __init__(self, nest: list[For]) -> None:
        """Look at the loops from the tiles to the steps."""
        elements = int(nest[-1].annotations[_STEPS])
        self._distance = int(nest[-1].annotations[_DISTANCE])
        self._weights, self._here, self._guard = _panel_start(nest)
        self._in_line = LINE_BYTES * 8 // DataType(self._weights.dtype).bits
        self._lines = -(-elements // self._in_line)
        self._steps = math.prod(int(loop.extent) for loop in nest[1:])
        self._tiles = nest[0].extent
        known = constant(self._tiles)
        rate: tirx.Expr | int = -(-(self._lines << _FRACTION) // (self._steps * (known or 1)))
        self.share: Stmt | None = None
        if known is None:
            whole, rate = rate, Var("rate", "int64")
            tiles = tirx.Cast("int64", self._tiles)
            self.share = Bind(rate, tirx.indexdiv(tiles + (whole - 1), tiles))
        self._rate = rate
        turn = tirx.const(0, "int64")
        for loop in nest:
            turn = turn * loop.extent + loop.loop_var
        self._first = tirx.shift_right(turn * rate, tirx.const(_FRACTION, "int64"))

    def with_fetches(self, loop: For) -> Stmt:
        """Return the loop over steps that fetches, in two versions by an unknown number of tiles.

        Of few tiles each step fetches as many lines as it must; a condition for each in the loop of
        many tiles would take 5 percent of the time.
        """
        known = constant(self._tiles)
        if known is not None:
            return self._fetching(loop, -(-self._lines // (self._steps * known)))
        each = -(-self._lines // self._steps)
        many = self._fetching(loop, 1)
        if each == 1:
            return many
        return IfThenElse(self._tiles < each, _with_own_names(self._fetching(loop, each)), many)

    def _fetching(self, loop: For, each: int) -> For:
        """Return the loop with up to `each` lines fetched in a step."""
        ahead = Var("ahead", "int64")
        place = self._here[-1] + self._distance + (self._first + ahead) * self._in_line
        fetch = prefetch(self._weights, [*self._here[:-1], place], _SECOND_LEVEL)
        if each > 1 and constant(self._tiles) is None:
            before = tirx.shift_left(ahead, tirx.const(_FRACTION, "int64"))
            fetch = IfThenElse(self._rate > before, fetch, None)
        step: Stmt = For(ahead, 0, each, ForKind.UNROLLED, fetch)
        # A tile past the last row multiplies nothing: prefetches would be all that it does.
        if constant(self._guard) != 1:
            step = IfThenElse(self._guard, step, None)
        return For(loop.loop_var, loop.min, loop.extent, loop.kind, SeqStmt([step, loop.body]))


def _with_own_names(loop: For) -> For:
    """Return a copy of a loop nest with loop variables and axes of its own."""
    names: list[Var] = []
    tvm_ffi.structural_walk(
        loop,
        [
            (For, lambda inner: names.append(inner.loop_var)),
            (tirx.IterVar, lambda axis: names.append(axis.var)),
        ],
        order="pre",
    )
    own = {var: Var(var.name, str(var.ty.dtype)) for var in names}
    return substitute(loop, own)


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
