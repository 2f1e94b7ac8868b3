"""Register tiles settle in memory before a long epilogue.

LLVM assigns registers to a product and its epilogue together. Where the epilogue computes much, an
error function of twelve accumulators for instance, accumulators are moved and spilled within the
hot loop to suit what follows it: a 6 x 16 tile that a GELU follows ran at 0.35 of the speed of the
bare product. So a long epilogue reads a copy of the tile, made by an instruction that LLVM does
not look through. It takes a load and a store per register, once per tile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.tirx import AllocBuffer, Buffer, BufferStore, Evaluate, For, SeqStmt, Stmt

from tir_schedules.llvm.stack_allocation import buffer_bytes, fits_stack

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
    return func.with_body(tvm_ffi.structural_map(func.body, (SeqStmt, _Settle(held))))


@dataclass
class _Use:
    """What a statement does with the tiles of its function: how often it loads each, for one."""

    written: set[Buffer] = field(default_factory=set)
    accumulated: set[Buffer] = field(default_factory=set)
    loads: Counter[Buffer] = field(default_factory=Counter)

    def add(self, other: _Use) -> None:
        """Count what a part of the statement does."""
        self.written |= other.written
        self.accumulated |= other.accumulated
        self.loads.update(other.loads)


class _Settle:
    """Gives the long epilogues of a function copies of their tiles, sequence by sequence."""

    def __init__(self, held: Sequence[Buffer]) -> None:
        # By hash, which is an address; to ask whether two buffers are equal takes TVM far longer.
        self._held = {hash(buffer): buffer for buffer in held}
        # Unrolled loops make long sequences within sequences: each statement is looked at once.
        self._uses: dict[Stmt, _Use] = {}

    def __call__(self, seq: SeqStmt) -> Stmt:
        statements: list[Stmt] = []
        copies: dict[Buffer, Buffer | None] = {}
        changed = False
        for stmt in seq.seq:
            use = self._use(stmt)
            for tile in use.written:
                copies.pop(tile, None)
            copies.update(dict.fromkeys(use.accumulated))
            read = [tile for tile in copies if tile in use.loads]
            operations = _operations(stmt) if read else 0
            for tile in read:
                is_long = operations >= _LONG * use.loads[tile] and tile not in use.accumulated
                if is_long and copies[tile] is None:
                    copies[tile] = copy = _buffer_like(tile)
                    statements += [AllocBuffer(copy), _copy(tile, copy)]
                if (settled := copies[tile]) is not None:
                    stmt = _read_from(stmt, tile, settled)
                    changed = True
            statements.append(stmt)
        # The same where nothing changed: whoever looks at what holds it knows it already.
        return SeqStmt(statements) if changed else seq

    def _use(self, stmt: Stmt) -> _Use:
        if (use := self._uses.get(stmt)) is None:
            use = self._uses[stmt] = _Use()
            if isinstance(stmt, SeqStmt | For):
                for part in stmt.seq if isinstance(stmt, SeqStmt) else [stmt.body]:
                    use.add(self._use(part))
            else:
                self._look(stmt, use)
        return use

    def _look(self, stmt: Stmt, use: _Use) -> None:
        stored: Buffer | None = None

        def store(node: BufferStore) -> None:
            nonlocal stored
            stored = self._held.get(hash(node.buffer))
            if stored is not None:
                use.written.add(stored)

        def load(node: TensorLoad) -> None:
            tile = self._held.get(hash(node.source))
            if tile is not None:
                use.loads[tile] += 1
                if tile is stored:  # what a store's value loads comes right after it
                    use.accumulated.add(tile)

        tvm_ffi.structural_walk(stmt, [(BufferStore, store), (TensorLoad, load)], order="pre")


def _buffer_like(tile: Buffer) -> Buffer:
    name, scope = f"{tile.name}_settled", tile.scope()
    return tirx.decl_buffer(tile.shape, tile.dtype, name, scope=scope, layout=None)


def _operations(stmt: Stmt) -> int:
    """Return how many operations on floats `stmt` is written with."""
    found = 0

    def visit(node: tirx.Expr) -> None:
        nonlocal found
        found += "float" in str(node.ty.dtype)

    tvm_ffi.structural_walk(stmt, (_OPERATIONS, visit), order="pre")
    return found


def _copy(tile: Buffer, copy: Buffer) -> Stmt:
    """Return a volatile copy: LLVM neither removes it nor looks through it."""
    size, volatile = tirx.const(buffer_bytes(tile), "int64"), tirx.const(True, "bool")
    arguments = (copy.data, tile.data, size, volatile)
    return Evaluate(tirx.call_llvm_intrin("void", "llvm.memcpy.inline", *arguments))


def _read_from(stmt: Stmt, tile: Buffer, copy: Buffer) -> Stmt:
    def replace(buffer: Buffer) -> Buffer:
        return copy if buffer.same_as(tile) else buffer

    return tvm_ffi.structural_map(stmt, (Buffer, replace))
