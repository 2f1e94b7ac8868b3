"""Register tiles settle in memory before a long epilogue.

LLVM assigns registers to a product and its epilogue together. Where the epilogue computes much, an
error function of twelve accumulators for instance, accumulators are moved and spilled within the
hot loop to suit what follows it: a 6 x 16 tile that a GELU follows ran at 0.35 of the speed of the
bare product. So a long epilogue reads a copy of the tile, made by an instruction that LLVM does
not look through. It takes a load and a store per register, once per tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import tvm
import tvm_ffi
from tvm import tirx
from tvm.tirx import AllocBuffer, Buffer, BufferStore, Evaluate, SeqStmt, Stmt

from tir_schedules.llvm.stack_allocation import buffer_bytes, fits_stack
from tir_schedules.loads import loads_in

# Operations per element of the tile from which an epilogue needs registers of its own. Bias,
# residual and a limited activation are five.
_LONG = 8
# Four registers of AVX2: fewer accumulators leave the epilogue what it needs.
_LEAST_BYTES = 128
_OPERATIONS = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Max, tirx.Min, tirx.Select)


@tirx.transform.prim_func_pass(opt_level=0)
def settle_tiles(
    func: tirx.PrimFunc, _mod: tvm.IRModule, _ctx: tvm.transform.PassContext
) -> tirx.PrimFunc:
    """Let each long epilogue of a register tile read a copy of it."""
    held: list[Buffer] = []

    def allocated(stmt: AllocBuffer) -> None:
        if fits_stack(stmt.buffer) and buffer_bytes(stmt.buffer) >= _LEAST_BYTES:
            held.append(stmt.buffer)

    tvm_ffi.structural_walk(func.body, (AllocBuffer, allocated), order="pre")
    if not held:
        return func
    settle = partial(_settle, held=held)
    return func.with_body(tvm_ffi.structural_map(func.body, (SeqStmt, settle)))


def _settle(seq: SeqStmt, held: Sequence[Buffer]) -> Stmt:
    statements: list[Stmt] = []
    tiles: dict[Buffer, Buffer | None] = {}
    for stmt in seq.seq:
        tiles.update((tile, None) for tile in _accumulated(stmt) if tile in held)
        for tile, copy in tiles.items():
            if copy is None and _is_long_epilogue(stmt, tile):
                tiles[tile] = copy = tirx.decl_buffer(
                    tile.shape, tile.dtype, f"{tile.name}_settled", scope=tile.scope(), layout=None
                )
                statements += [AllocBuffer(copy), _copy(tile, copy)]
            if copy is not None:
                stmt = _read_from(stmt, tile, copy)
        statements.append(stmt)
    return SeqStmt(statements)


def _accumulated(stmt: Stmt) -> list[Buffer]:
    """Return the buffers that `stmt` adds to in place."""
    found: list[Buffer] = []

    def visit(store: BufferStore) -> None:
        if loads_in(store.value, store.buffer):
            found.append(store.buffer)

    tvm_ffi.structural_walk(stmt, (BufferStore, visit), order="pre")
    return found


def _is_long_epilogue(stmt: Stmt, tile: Buffer) -> bool:
    """Return whether `stmt` computes much of a finished tile."""
    loads = len(loads_in(stmt, tile))
    if not loads or any(tile.same_as(buffer) for buffer in _accumulated(stmt)):
        return False
    operations = 0

    def visit(node: tirx.Expr) -> None:
        nonlocal operations
        operations += "float" in str(node.ty.dtype)

    tvm_ffi.structural_walk(stmt, [(kind, visit) for kind in _OPERATIONS], order="pre")
    return operations >= _LONG * loads


def _copy(tile: Buffer, copy: Buffer) -> Stmt:
    """Return a volatile copy: LLVM neither removes it nor looks through it."""
    size, volatile = tirx.const(buffer_bytes(tile), "int64"), tirx.const(True, "bool")
    arguments = (copy.data, tile.data, size, volatile)
    return Evaluate(tirx.call_llvm_intrin("void", "llvm.memcpy.inline", *arguments))


def _read_from(stmt: Stmt, tile: Buffer, copy: Buffer) -> Stmt:
    def replace(buffer: Buffer) -> Buffer:
        return copy if buffer.same_as(tile) else buffer

    return tvm_ffi.structural_map(stmt, (Buffer, replace))
