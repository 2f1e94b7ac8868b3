"""The epilogue of a tile whose last rows may not exist, without a branch around what it computes.

With a symbolic number of rows each row of a tile is stored under a condition. A long epilogue, such
as a GELU, computed within these branches keeps the sums of all rows alive across them, and LLVM
then spills the sums in the product's own loop: 768 -> 3072 columns with a GELU took 2.8 times as
long as with known rows. So all rows are computed, those past the end as copies of the last one, and
only the stores are conditional.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.s_tir import SBlockRealize
from tvm.s_tir.schedule import SBlockRV
from tvm.tirx import (
    AllocBuffer,
    Buffer,
    BufferStore,
    Expr,
    For,
    ForKind,
    IfThenElse,
    SeqStmt,
    Stmt,
    Var,
)

from tir_schedules.blocks import constant, new_schedule
from tir_schedules.variables import substitute, uses


def compute_all_rows(sch: s_tir.Schedule, epilogue: SBlockRV, tile: Buffer) -> s_tir.Schedule:
    """Return the schedule with the epilogue computed before the conditions of its stores.

    Nothing changes unless rows are unrolled, columns are vectors, and the stores are conditional
    because the number of rows is symbolic.

    Args:
        sch: The schedule.
        epilogue: The block that stores the results of a tile.
        tile: The buffer of sums, which has all rows of a tile.
    """
    loops = [sch.get(loop) for loop in sch.get_loops(epilogue)[-2:]]
    kinds = [int(loop.kind) for loop in loops]
    if kinds != [ForKind.UNROLLED, ForKind.VECTORIZED]:
        return sch
    row, lane = loops
    realize, stmt = lane.body, sch.get(epilogue)
    if not isinstance(realize, SBlockRealize) or not isinstance(stmt.body, BufferStore):
        return sch
    axes = [
        axis
        for axis, value in zip(stmt.iter_vars, realize.iter_values, strict=True)
        if uses(value, row.loop_var)
    ]
    guarded = uses(realize.predicate, row.loop_var) and not uses(realize.predicate, lane.loop_var)
    if not guarded or len(axes) != 1 or constant(axes[0].dom.extent) is not None:
        return sch
    statement = _Rows(row, lane, realize, axes[0], tile).statement()

    def swap(loop: For) -> Stmt:
        return statement if loop.loop_var.same_as(row.loop_var) else loop

    func = sch.mod["main"]
    return new_schedule(func.with_body(tvm_ffi.structural_map(func.body, (For, swap))))


class _Rows:
    """The rows of an epilogue, each in a buffer of a vector, then their stores."""

    def __init__(
        self, row: For, lane: For, realize: SBlockRealize, axis: Any, tile: Buffer
    ) -> None:
        self.row, self.lane, self.realize, self.axis, self.tile = row, lane, realize, axis, tile
        axes = [each.var for each in realize.block.iter_vars]
        self.values = dict(zip(axes, realize.iter_values, strict=True))

    def statement(self) -> Stmt:
        """Return what takes the place of the loop over rows."""
        store = self.realize.block.body
        held = [
            tirx.decl_buffer((self.lane.extent,), str(store.buffer.dtype), "row", scope="local")
            for _ in range(int(self.row.extent))
        ]
        computed = [self._computed(number, buffer) for number, buffer in enumerate(held)]
        stored = [self._stored(number, buffer) for number, buffer in enumerate(held)]
        return SeqStmt([*map(AllocBuffer, held), *computed, *stored])

    def _at(self, node: Any, number: int, lane: Var) -> Any:
        """Return an expression over the block's axes at a row of the tile."""
        place = {self.row.loop_var: tirx.const(number, str(self.row.loop_var.ty.dtype))}
        return substitute(
            substitute(substitute(node, self.values), place), {self.lane.loop_var: lane}
        )

    def _lanes(self, body: Stmt, lane: Var) -> Stmt:
        return For(lane, self.lane.min, self.lane.extent, ForKind.VECTORIZED, body)

    def _computed(self, number: int, held: Buffer) -> Stmt:
        last = self.axis.dom.extent - 1
        clamp = {self.axis.var: tirx.min(self.axis.var, last)}

        def inside(load: TensorLoad) -> Expr:
            return load if load.source.same_as(self.tile) else substitute(load, clamp)

        value = tvm_ffi.structural_map(self.realize.block.body.value, (TensorLoad, inside))
        lane = Var("lane", str(self.lane.loop_var.ty.dtype))
        return self._lanes(BufferStore(held, self._at(value, number, lane), [lane]), lane)

    def _stored(self, number: int, held: Buffer) -> Stmt:
        lane = Var("lane", str(self.lane.loop_var.ty.dtype))
        store = self.realize.block.body
        place = [self._at(index, number, lane) for index in store.indices]
        stored = BufferStore(store.buffer, tirx.BufferLoad(held, [lane]), place)
        condition = self._at(self.realize.predicate, number, lane)
        return IfThenElse(condition, self._lanes(stored, lane), None)
