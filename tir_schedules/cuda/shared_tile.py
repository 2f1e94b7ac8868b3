"""Tiles of a matrix in shared memory: laid out without bank conflicts, filled asynchronously.

A tile is kept as it lies in global memory: rows of 16-byte chunks. Eight rows of one chunk column,
which one `ldmatrix` phase reads, would lie on the same banks; so the chunks of each row are
permuted by an exclusive or with the row's number (the swizzle of CUTLASS's `Swizzle` layouts).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.tirx import Expr
from tvm.tirx.script import builder as T

from tir_schedules.cuda.product_operands import Operand
from tir_schedules.cuda.written_kernel import cast, word_of_bytes

CHUNK_BYTES = 16
BANK_BYTES = 128  # of all banks together
_PAIRS = {"float16": "f16x2", "bfloat16": "bf16x2"}


def swizzled(
    row: Expr, chunk: Expr, chunks: int, chunk_bytes: int = CHUNK_BYTES, pace: int = 1
) -> Expr:
    """Return where chunk `chunk` of row `row` lies, in chunks, in a tile `chunks` wide.

    As many neighbouring rows as fill all banks once keep their order; the next ones are permuted
    otherwise. `chunks` is a power of two, or a multiple of those that fill all banks. Where
    neighbouring rows are read `pace` chunks at a time, those of the next row lie `pace` further.
    """
    line = BANK_BYTES // chunk_bytes
    permuted = min(chunks, line)
    turn = tirx.floormod(tirx.floordiv(row, max(1, line // chunks)) * pace, permuted)
    return row * chunks + tirx.bitwise_xor(chunk, turn)


@dataclass(frozen=True)
class SharedTile:
    """One operand's part of a pipeline stage.

    `outer` rows (or columns) of the product by `depth` steps. `along_steps`
    tells that steps lie side by side in memory; a row of the tile is then one outer index, else
    one step. `pace` is that of `swizzled`.
    """

    operand: Operand
    outer: int
    depth: int
    along_steps: bool
    pace: int = 1

    @property
    def bytes(self) -> int:
        """Return the shared memory that the tile takes."""
        return self.outer * self.depth // self.chunk * CHUNK_BYTES

    @property
    def chunk(self) -> int:
        """Return how many elements a chunk has."""
        return CHUNK_BYTES // tvm.DataType(self.operand.dtype).itemsize

    @property
    def chunks(self) -> int:
        """Return how many chunks a row of the tile has."""
        return (self.depth if self.along_steps else self.outer) // self.chunk

    def address(self, memory: Any, base: Expr, row: Expr, chunk: Expr) -> Expr:
        """Return the address of a chunk of a tile that begins at byte `base` of shared memory."""
        place = swizzled(row, chunk, self.chunks, pace=self.pace)
        return memory.ptr_to([base + place * CHUNK_BYTES])

    @functools.cached_property
    def piece(self) -> int:
        """How many elements of a chunk an asynchronous copy takes at a time, 0 if it takes none.

        So many neighbours in the tile are neighbours in the tensor, aligned as a copy of 16, 8 or
        4 bytes wants them.
        """
        size = tvm.DataType(self.operand.dtype).itemsize
        counts = [copied // size for copied in (16, 8, 4)]
        return next((n for n in counts if self.operand.contiguous(self.along_steps, n)), 0)

    @property
    def _wide(self) -> str:
        """The type in which elements that are loaded one by one wait to be packed."""
        return "int32" if self.operand.dtype in ("int8", "uint8") else "float32"

    @property
    def are_neighbours(self) -> bool:
        """Whether neighbours in the tile are neighbours in the tensor, wherever they begin."""
        return self.operand.contiguous(self.along_steps, self.chunk, aligned=False)

    def fill(
        self,
        memory: Any,
        base: Expr,
        where: tuple[Expr, Expr, Expr],
        limits: tuple[Expr | int, Expr | int] | None,
        thread: Expr,
        threads: int,
    ) -> None:
        """Emit the copies by which all threads of a block fetch the tile.

        They are asynchronous, unless the elements can only be loaded one by one.

        Args:
            memory: The shared buffer, of bytes.
            base: Where in it the tile begins.
            where: Batch, and the first outer index and step of the tile.
            limits: How many outer indices and steps there are; zeros are copied beyond. None
                where the tile always lies within.
            thread: The number of the thread in its block.
            threads: How many there are.

        Raises:
            ValueError: If the chunks cannot be shared out evenly.
        """
        unit = self.piece or self.chunk  # elements that a thread fetches at a time
        trips, left = divmod(self.outer * self.depth // unit, threads)
        if left:
            raise ValueError("the elements of a tile are no multiple of the threads'")

        def fetch(at: Any, values: Any = None) -> None:
            row, column, places = self._places(where, thread + at * threads, unit)
            elements = [self._locate(where[0], *place, limits) for place in places]
            chunk, within = tirx.floordiv(column, self.chunk), tirx.floormod(column, self.chunk)
            if values is not None:
                self._load_elements(values, elements)
                self._store_chunk(values, self.address(memory, base, row, chunk))
                return
            start = base if unit == self.chunk else base + within * (CHUNK_BYTES // self.chunk)
            self._copy(self.address(memory, start, row, chunk), *elements[0])

        if unit == self.piece == self.chunk:
            for at in range(trips):
                fetch(at)
            return
        # Not unrolled: there are many, and each has an address of its own.
        values = None if self.piece else T.alloc_buffer((unit,), self._wide, scope="local")
        with T.serial(0, trips, unroll=False) as at:
            fetch(at, values)

    def _copy(self, target: Expr, load: TensorLoad, condition: Expr | None) -> None:
        """Emit the copy of neighbours that begin with an element, or zeros unless `condition`."""
        size = self.piece * CHUNK_BYTES // self.chunk
        past_l1 = "cg" if size == CHUNK_BYTES else "ca"  # shorter ones go through the L1 cache
        copy = T.ptx[f"cp.async.{past_l1}.shared.global.L2::128B"]
        source = load.source.ptr_to(list(load.indices))
        if condition is None:
            T.evaluate(copy(target, source, size))
        else:
            zero = tirx.const(0, "uint32")
            T.evaluate(
                copy(target, source, size, tirx.Select(condition, tirx.const(size, "uint32"), zero))
            )

    def _load_elements(self, values: Any, elements: Sequence[tuple[Expr, Expr | None]]) -> None:
        """Emit the loads of a chunk's elements, in float32 or, of integers, in int32."""
        for number, (load, condition) in enumerate(elements):
            value = cast(load, self._wide)
            if condition is not None:
                value = tirx.if_then_else(condition, value, tirx.const(0, self._wide))
            T.buffer_store(values, value, [number])

    def _locate(
        self,
        batch: Expr,
        outer: Expr,
        step: Expr,
        limits: tuple[Expr | int, Expr | int] | None,
    ) -> tuple[Expr, Expr | None]:
        """Return where an element is read, and under which condition it is not zero, if any."""
        load, condition = self.operand.locate(batch, outer, step)
        if limits is None:
            return load, condition
        inside = tirx.all(outer < limits[0], step < limits[1])
        return load, inside if condition is None else tirx.all(inside, condition)

    def _places(
        self, where: tuple[Expr, Expr, Expr], number: Expr, unit: int
    ) -> tuple[Expr, Expr, list[tuple[Expr, Expr]]]:
        """Return a unit's row and first column, and the outer index and step of each element.

        Threads take a row one after the other; where its elements are apart in memory, a column.
        """
        rows, columns = (self.outer, self.depth) if self.along_steps else (self.depth, self.outer)
        units = columns // unit
        if self.piece or self.are_neighbours:
            row, column = tirx.floordiv(number, units), tirx.floormod(number, units) * unit
        else:
            row, column = tirx.floormod(number, rows), tirx.floordiv(number, rows) * unit
        along = [column + at for at in range(unit)]
        pairs = [(row, at) if self.along_steps else (at, row) for at in along]
        return row, column, [(where[1] + outer, where[2] + step) for outer, step in pairs]

    def _store_chunk(self, values: Any, address: Expr) -> None:
        """Emit the store of a chunk whose elements are given as `_load_elements` loads them."""
        if self.operand.dtype == "float32":
            T.evaluate(T.ptx["st.shared.v4.f32"](address, *(values[at] for at in range(4))))
            return
        words = T.alloc_buffer((4,), "uint32", scope="local")
        for at in range(4):
            if self._wide == "int32":
                T.buffer_store(
                    words, word_of_bytes([values[4 * at + place] for place in range(4)]), [at]
                )
            else:
                pack = T.ptx[f"cvt.rn.{_PAIRS[self.operand.dtype]}.f32"]
                T.evaluate(pack(words[at], values[2 * at + 1], values[2 * at]))
        T.evaluate(T.ptx["st.shared.v4.u32"](address, *(words[at] for at in range(4))))

    def fragment(
        self, memory: Any, base: Expr, outer: Expr, step: Any, lane: Expr, outer_first: bool
    ) -> tuple[str, Expr]:
        """Return the `ldmatrix` that loads 16 outer indices by 16 steps, and a lane's address.

        Of float32 it loads 8 steps, a register each, of bytes 32, a register for four of them;
        these must lie side by side.

        The four 8 x 8 matrices come in the order (0, 0), (1, 0), (0, 1), (1, 1) of outer and step
        blocks where `outer_first`, as the left operand of `mma` wants them, else transposed.
        """
        matrix, line = tirx.floordiv(lane, 8), tirx.floormod(lane, 8)
        inner, other = tirx.floormod(matrix, 2), tirx.floordiv(matrix, 2)
        outer_block, step_block = (inner, other) if outer_first else (other, inner)
        if self.along_steps:
            row, chunk = outer + outer_block * 8 + line, step // self.chunk + step_block
        else:
            row, chunk = step + step_block * 8 + line, tirx.floordiv(outer, 8) + outer_block
        address = self.address(memory, base, row, chunk)
        trans = "" if self.along_steps else ".trans"
        return f"ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16", address
