"""Maps that read an operand across its lines, as transposes do: by tiles in shared memory.

A warp reads 32 neighbours of the operand and writes 32 neighbours of the result. Between them a
tile of 32 x 32 elements lies in shared memory, a row of it longer by a word, so that neither rows
nor columns meet a bank twice. What else the map reads is read where its result is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad
from tvm.tirx import Expr, PrimFunc
from tvm.tirx.script import builder as T

from tir_schedules.blocks import constant, inline_spatial, is_spatial, leaf_blocks, new_schedule
from tir_schedules.cuda.product_operands import flat_index, flat_position
from tir_schedules.cuda.row_plan import unravel
from tir_schedules.cuda.threads import WARP
from tir_schedules.cuda.written_kernel import write_kernel
from tir_schedules.loads import loads_in
from tir_schedules.machine import Machine
from tir_schedules.rule import Decline, Rule
from tir_schedules.variables import substitute, uses

_WARPS = 8  # of a block; each moves four lines of a tile
_WORD_BYTES = 4  # of a bank
_FEW = 8  # along one side a tile would be idle


def _apply(func: PrimFunc, machine: Machine) -> PrimFunc:
    sch = new_schedule(func)
    inline_spatial(sch)
    blocks = leaf_blocks(sch)
    if len(blocks) != 1 or not is_spatial(sch, blocks[0]):
        raise Decline("is not one map")
    stmt = sch.get(blocks[0])
    store, axes = stmt.body, list(stmt.iter_vars)
    if not isinstance(store, tirx.BufferStore):
        raise Decline("a block stores several values")
    if _has_conditions(store.value):
        raise Decline("reads under a condition")
    inner = _neighbours(flat_index(store.indices, store.buffer.shape), axes)
    across = [(load, _neighbours(flat_position(load), axes)) for load in loads_in(store.value)]
    across = [(load, at) for load, at in across if at is not None and at != inner]
    if inner is not None:  # what does not change along the result's lines is read once for each
        last = axes[inner].var
        across = [(load, at) for load, at in across if uses(flat_position(load), last)]
    keys = {tvm_ffi.StructuralKey(load) for load, _ in across}
    if inner is None or len(keys) != 1:
        raise Decline(f"reads {len(keys)} operands across their lines")
    load, outer = across[0]
    assert outer is not None
    if any((constant(axes[at].dom.extent) or WARP) < _FEW for at in (inner, outer)):
        raise Decline("a side of its tiles would be short")
    return write_kernel(func, _Transpose(store, axes, load, outer, inner).emit)


def _has_conditions(value: Expr) -> bool:
    found: list[Call] = []
    tvm_ffi.structural_walk(value, (Call, found.append), order="pre")
    return any(getattr(call.op, "name", "") == "prim.if_then_else" for call in found)


def _neighbours(position: Expr, axes: list[Any]) -> int | None:
    """Return the axis along which the next place in memory follows, None for none."""
    analyzer = tvm.sym.Analyzer()
    for axis in axes:
        analyzer.bind(axis.var, axis.dom)
    for at, axis in enumerate(axes):
        if constant(axis.dom.extent) == 1:
            continue
        following = substitute(position, {axis.var: axis.var + 1})
        if analyzer.can_prove_equal(following - position, 1):
            return at
    return None


@dataclass(frozen=True)
class _Transpose:
    """The kernel of a map with one operand whose lines are along `outer`, not along `inner`."""

    store: tirx.BufferStore
    axes: list[Any]
    load: TensorLoad
    outer: int
    inner: int

    def emit(self) -> None:
        """Emit the kernel."""
        sizes = [axis.dom.extent for axis in self.axes]
        others = [at for at in range(len(sizes)) if at not in (self.outer, self.inner)]
        tiles = [tirx.ceildiv(sizes[at], WARP) for at in (self.outer, self.inner)]
        blocks = tiles[0] * tiles[1]
        for at in others:
            blocks = blocks * sizes[at]
        with (
            T.launch_thread("blockIdx.x", blocks) as block,
            T.launch_thread("threadIdx.x", _WARPS * WARP) as thread,
        ):
            line, lane = tirx.floordiv(thread, WARP), tirx.floormod(thread, WARP)
            extents = [*(sizes[at] for at in others), *tiles]
            *fixed, row, column = unravel(tirx.Cast("int64", block), extents)
            places = dict(zip(others, fixed, strict=True))
            dtype = str(self.load.ty.dtype)
            pitch = WARP + max(1, _WORD_BYTES // tvm.DataType(dtype).itemsize)
            tile = T.alloc_buffer((WARP * pitch,), dtype, scope="shared")

            def placed(outer: Expr, inner: Expr) -> tuple[dict[tirx.Var, Expr], Expr]:
                places[self.outer], places[self.inner] = row * WARP + outer, column * WARP + inner
                mapping = {axis.var: places[n] for n, axis in enumerate(self.axes)}
                inside = tirx.all(*(places[n] < sizes[n] for n in (self.outer, self.inner)))
                return mapping, inside

            for step in range(0, WARP, _WARPS):
                mapping, inside = placed(lane, line + step)
                with T.If(inside), T.Then():
                    value = substitute(self.load, mapping)
                    T.buffer_store(tile, value, [(line + step) * pitch + lane])
            T.evaluate(T.tvm_storage_sync("shared"))
            for step in range(0, WARP, _WARPS):
                mapping, inside = placed(line + step, lane)
                place = lane * pitch + line + step
                with T.If(inside), T.Then():
                    self._store(mapping, tile[place])

    def _store(self, mapping: dict[tirx.Var, Expr], moved: Expr) -> None:
        def read(load: TensorLoad) -> Expr:
            return moved if tvm_ffi.structural_equal(load, self.load) else load

        value = tvm_ffi.structural_map(self.store.value, (TensorLoad, read))
        indices = [substitute(index, mapping) for index in self.store.indices]
        T.buffer_store(self.store.buffer, substitute(value, mapping), indices)


RULE = Rule("transpose", _apply, kinds=("cuda",))
