"""Products of 8-bit integers of few rows, by `dp4a` on CUDA cores (sm_61 and newer).

With few rows the columns are read once and multiplied little: their bytes take the time, not the
products. A warp has four columns; its lanes take 16 bytes of each in turn, multiply them by those
of up to eight rows (`dp4a` adds four products), and add up by shuffles. GPUs without asynchronous
copies get products of any number of rows this way, eight at a time.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx import Expr, PrimFunc
from tvm.tirx.script import builder as T

from tir_schedules.blocks import constant
from tir_schedules.cuda.byte_matmul import TYPES
from tir_schedules.cuda.pipelined_product import match_product
from tir_schedules.cuda.product_operands import Operand, Product
from tir_schedules.cuda.threads import WARP
from tir_schedules.cuda.warp_shuffle import combine_lanes
from tir_schedules.cuda.written_kernel import cast, write_kernel
from tir_schedules.machine import Machine
from tir_schedules.rule import Decline, Rule

_ROWS = 8  # whose sums a lane keeps
_COLUMNS = 4  # of a warp
_WARPS = 4  # of a block
_WORD = 4  # bytes that a `dp4a` multiplies


def _apply(func: PrimFunc, machine: Machine) -> PrimFunc:
    capability = 0 if machine.gpu is None else machine.gpu.capability
    if capability < 61:
        raise Decline("needs dp4a: sm_61 or newer")
    product = match_product(func, TYPES)
    rows = constant(product.rows)
    if capability >= 80 and (rows is None or rows > _ROWS):
        raise Decline("has rows for a tile on Tensor Cores")
    return write_kernel(func, _Kernel(product).emit)


class _Kernel:
    def __init__(self, product: Product) -> None:
        self.product = product
        sides = (product.left, product.right)
        self.words = next((n for n in (4, 1) if all(_has_words(side, n) for side in sides)), 0)
        if not self.words or product.steps % (self.words * _WORD):
            raise Decline("steps do not lie side by side in words")
        self.rows = min(constant(product.rows) or _ROWS, _ROWS)
        self.units = product.steps // (self.words * _WORD)  # of a row, one of which a lane takes
        self.types = tuple("s32" if side.dtype == "int8" else "u32" for side in sides)

    def emit(self) -> None:
        product = self.product
        columns = -(-product.columns // (_COLUMNS * _WARPS))
        with (
            T.launch_thread("blockIdx.z", product.batch) as self.batch,
            T.launch_thread("blockIdx.y", tirx.ceildiv(product.rows, self.rows)) as rows,
            T.launch_thread("blockIdx.x", columns) as block,
            T.launch_thread("threadIdx.x", _WARPS * WARP) as thread,
        ):
            warp, self.lane = tirx.floordiv(thread, WARP), tirx.floormod(thread, WARP)
            self.row = rows * self.rows
            self.column = (block * _WARPS + warp) * _COLUMNS
            self._emit_warp()

    def _emit_warp(self) -> None:
        # `dp4a` of unsigned bytes adds to an unsigned sum: the same bits.
        dtype = "uint32" if self.types == ("u32", "u32") else "int32"
        sums = T.alloc_buffer((self.rows * _COLUMNS,), dtype, scope="local")
        shapes = (self.rows, _COLUMNS)
        registers = [
            T.alloc_buffer((count * self.words,), _register(kind), scope="local")
            for count, kind in zip(shapes, self.types, strict=True)
        ]
        for at in range(self.rows * _COLUMNS):
            T.buffer_store(sums, tirx.const(0, dtype), [at])
        trips = -(-self.units // WARP)
        with T.serial(0, trips, unroll=False) as trip:
            unit = trip * WARP + self.lane
            with T.If(unit < self.units), T.Then():
                for side in (1, 0):
                    for number in range(shapes[side]):
                        self._load(registers[side], side, number, unit * (self.words * _WORD))
                self._multiply(sums, registers)
        mine = T.alloc_buffer((1,), dtype, scope="local")
        T.buffer_store(mine, tirx.const(0, dtype), [0])
        for at in range(self.rows * _COLUMNS):
            combine_lanes(sums, at, lambda a, b: a + b)
            T.buffer_store(mine, tirx.Select(self.lane == at, sums[at], mine[0]), [0])
        self._store(mine[0])

    def _load(self, registers: Any, side: int, number: int, step: Expr) -> None:
        """Load a lane's words of a row or a column; there are zeros beyond the last one."""
        operand: Operand = (self.product.left, self.product.right)[side]
        first, end = (self.row, self.column)[side], (self.product.rows, self.product.columns)[side]
        load, condition = operand.locate(self.batch, first + number, step)
        into = [registers[number * self.words + at] for at in range(self.words)]
        known = constant(end)
        whole = known is not None and known % (self.rows, _COLUMNS * _WARPS)[side] == 0
        inside = [] if whole else [first + number < end]
        inside += [] if condition is None else [condition]
        width = "v4." if self.words == 4 else ""
        fetch = T.ptx[f"ld.global.{width}{self.types[side]}"]
        address = load.source.ptr_to(list(load.indices))
        if not inside:
            T.evaluate(fetch(*into, address))
            return
        with T.If(tirx.all(*inside)):
            with T.Then():
                T.evaluate(fetch(*into, address))
            with T.Else():
                for register in range(number * self.words, (number + 1) * self.words):
                    T.buffer_store(registers, tirx.const(0, str(registers.dtype)), [register])

    def _multiply(self, sums: Any, registers: list[Any]) -> None:
        dot = T.ptx[f"dp4a.{'.'.join(self.types)}"]
        for row in range(self.rows):
            for column in range(_COLUMNS):
                total = sums[row * _COLUMNS + column]
                for word in range(self.words):
                    left = registers[0][row * self.words + word]
                    right = registers[1][column * self.words + word]
                    T.evaluate(dot(total, left, right, total))

    def _store(self, total: Expr) -> None:
        """Store one result a lane, the columns of a row by neighbouring lanes."""
        product = self.product
        row = self.row + tirx.floordiv(self.lane, _COLUMNS)
        column = self.column + tirx.floormod(self.lane, _COLUMNS)
        conditions = [self.lane < self.rows * _COLUMNS, row < product.rows]
        with T.If(tirx.all(*conditions, column < product.columns)), T.Then():
            # The exclusive or hides from TVM that the sum may not fit.
            signed = tirx.bitwise_xor(cast(total, "int32"), tirx.const(0, "int32"))
            value = cast(signed, product.dtype)
            buffer, indices, stored = product.stores(self.batch, row, column, value)
            T.buffer_store(buffer, stored, indices)


def _has_words(operand: Operand, words: int) -> bool:
    return operand.contiguous(True, words * _WORD)


def _register(kind: str) -> str:
    return {"s32": "int32", "u32": "uint32"}[kind]


RULE = Rule("byte_rows", _apply, kinds=("cuda",))
