"""The two products of an attention kernel on Tensor Cores: queries by keys, weights by values.

A lane's part of the scores of 16 queries and 8 keys is, as `mma` leaves it, what `mma` takes as its
left operand in the second product: weights never leave the registers (Dao, "FlashAttention-2",
2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tvm import tirx
from tvm.tirx import Expr
from tvm.tirx.script import builder as T

from tir_schedules.cuda.attention_tile import AttentionTile
from tir_schedules.cuda.shared_tile import CHUNK_BYTES, SharedTile, swizzled

_KINDS = {"float16": ("f16", "f16x2"), "bfloat16": ("bf16", "bf16x2")}
_KEPT_FRAGMENTS = 8  # of a lane's queries, that registers hold


class Products(Protocol):
    """What a kernel asks of the products; `kernel` has `shared`, `lane`, `scores` and `sums`."""

    def begin(self) -> None:
        """Emit the registers, once the queries are in shared memory."""

    def score(self, base: Expr) -> None:
        """Add the products of queries and the keys at byte `base` to the scores."""

    def weigh(self, base: Expr) -> None:
        """Add the products of the weights and the values at byte `base` to the sums."""


class HalfProducts:
    """Products of 16-bit floats, 16 steps at a time; weights are rounded to the same type."""

    def __init__(self, kernel: Any, dtype: str) -> None:
        self.kernel, self.tile = kernel, kernel.tile
        kind, self.pair = _KINDS[dtype]
        self._multiply = T.ptx[f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32"]

    def begin(self) -> None:
        """Load the queries into registers, if they are not too many; else at each use."""
        kernel, tile = self.kernel, self.tile
        self.fragments = -(-kernel.size // 16)
        self.kept = self.fragments * tile.row_tiles <= _KEPT_FRAGMENTS
        count = self.fragments if self.kept else 1
        self.left = T.alloc_buffer((tile.row_tiles, count * 4), "uint32", scope="local")
        self.right = T.alloc_buffer((4,), "uint32", scope="local")
        self.packed = T.alloc_buffer((4,), "uint32", scope="local")
        if self.kept:
            with T.unroll(0, self.fragments) as at:
                self._load_queries(at, at)

    def _load_queries(self, at: Any, into: Any) -> None:
        with T.unroll(0, self.tile.row_tiles) as row:
            registers = [self.left[row, into * 4 + r] for r in range(4)]
            load_queries(self.kernel, row, at * 16, registers)

    def score(self, base: Expr) -> None:
        """Emit `mma` for 16 elements of 16 keys at a time."""
        kernel, tile = self.kernel, self.tile
        with T.unroll(0, self.fragments) as at:
            if not self.kept:
                self._load_queries(at, 0)
            first = at * 4 if self.kept else 0
            with T.unroll(0, tile.warp_keys // 16) as pair:
                outer, into = kernel.first_key + pair * 16, [self.right[r] for r in range(4)]
                load_fragment(kernel, kernel.key, base, outer, at * 16, into)
                with T.unroll(0, tile.row_tiles) as row:
                    left = [self.left[row, first + r] for r in range(4)]
                    for half in range(2):
                        sums = kernel.score_registers(row, pair * 2 + half)
                        right = [self.right[half * 2 + r] for r in range(2)]
                        T.evaluate(self._multiply(*sums, *left, *right, *sums))

    def weigh(self, base: Expr) -> None:
        """Emit `mma` for the weights of 16 keys at a time."""
        kernel, tile = self.kernel, self.tile
        convert = T.ptx[f"cvt.rn.{self.pair}.f32"]
        with T.unroll(0, tile.warp_keys // 16) as pair:
            with T.unroll(0, tile.row_tiles) as row:
                for at in range(4):
                    low, high = kernel.score_registers(row, pair * 2 + at // 2)[at % 2 * 2 :][:2]
                    T.evaluate(convert(self.packed[at], high, low))
                with T.unroll(0, -(-kernel.columns // 16)) as column:
                    step = kernel.first_key + pair * 16
                    into = [self.right[r] for r in range(4)]
                    load_fragment(kernel, kernel.value, base, column * 16, step, into)
                    left = [self.packed[r] for r in range(4)]
                    for half in range(2):
                        sums = kernel.sum_registers(row, column * 2 + half)
                        right = [self.right[half * 2 + r] for r in range(2)]
                        T.evaluate(self._multiply(*sums, *left, *right, *sums))


class SplitProducts:
    """Products of float32 as three of tf32, which together keep all but two bits of the mantissa.

    x is big + small, each with the 11 bits that tf32 has; the product of two small parts is left
    out (Markidis et al., "NVIDIA Tensor Core Programmability, Performance & Precision", 2018).
    """

    def __init__(self, kernel: Any) -> None:
        self.kernel, self.tile = kernel, kernel.tile
        self._multiply = T.ptx["mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"]

    def begin(self) -> None:
        """Emit the registers of one fragment of each operand, in two parts."""
        self.raw = T.alloc_buffer((4,), "uint32", scope="local")
        self.left = T.alloc_buffer((2, 4), "uint32", scope="local")
        self.right = T.alloc_buffer((2, 4), "uint32", scope="local")
        self.element = T.alloc_buffer((1,), "float32", scope="local")

    def score(self, base: Expr) -> None:
        """Emit three `mma` for 8 elements of 8 keys at a time."""
        kernel, tile = self.kernel, self.tile
        # Not unrolled: loads of later steps would take the registers.
        with T.serial(0, -(-kernel.size // 8)) as step:
            with T.unroll(0, tile.row_tiles) as row:
                load_queries(kernel, row, step * 8, [self.raw[r] for r in range(4)])
                for at in range(4):
                    self._split(T.reinterpret("float32", self.raw[at]), self.left, at)
                with T.unroll(0, tile.warp_keys // 16) as pair:
                    outer = kernel.first_key + pair * 16
                    into = [self.raw[r] for r in range(4)]
                    load_fragment(kernel, kernel.key, base, outer, step * 8, into)
                    for at in range(4):
                        self._split(T.reinterpret("float32", self.raw[at]), self.right, at)
                    for half in range(2):
                        self._accumulate(kernel.score_registers(row, pair * 2 + half), half)

    def weigh(self, base: Expr) -> None:
        """Emit three `mma` for the weights of 8 keys at a time.

        A lane's weights are those of neighbouring keys, where `mma` has keys four apart: keys are
        taken in the order that makes them the same, since a sum has none.
        """
        kernel, tile = self.kernel, self.tile
        with T.unroll(0, tile.warp_keys // 8) as group:
            first = kernel.first_key + group * 8 + tirx.floormod(kernel.lane, 4) * 2
            with T.unroll(0, tile.row_tiles) as row:
                for at, weight in zip(
                    (0, 2, 1, 3), kernel.score_registers(row, group), strict=True
                ):
                    self._split(weight, self.left, at)
                with T.unroll(0, -(-kernel.columns // 8)) as column:
                    for at in range(2):
                        self._load_value(base, first + at, column * 8)
                        self._split(self.element[0], self.right, at)
                    self._accumulate(kernel.sum_registers(row, column), 0)

    def _load_value(self, base: Expr, key: Expr, column: Any) -> None:
        kernel = self.kernel
        place = column + tirx.floordiv(kernel.lane, 4)
        chunk, within = tirx.floordiv(place, 4), tirx.floormod(place, 4)
        element = swizzled(key, chunk, kernel.value.chunks) * CHUNK_BYTES + within * 4
        address = kernel.shared.ptr_to([base + element])
        T.evaluate(T.ptx["ld.shared.f32"](self.element[0], address))

    def _split(self, value: Any, into: Any, at: int) -> None:
        convert = T.ptx["cvt.rna.tf32.f32"]
        T.evaluate(convert(into[0, at], value))
        T.evaluate(convert(into[1, at], value - T.reinterpret("float32", into[0, at])))

    def _accumulate(self, sums: Sequence[Any], half: int) -> None:
        for left, right in ((1, 0), (0, 1), (0, 0)):
            a = [self.left[left, r] for r in range(4)]
            b = [self.right[right, half * 2 + r] for r in range(2)]
            T.evaluate(self._multiply(*sums, *a, *b, *sums))


def load_queries(kernel: Any, row: Any, step: Any, into: Sequence[Any]) -> None:
    """Load a fragment of a warp's queries, `row` tiles from its first one."""
    outer = kernel.first_row + row * 16
    name, address = kernel.query.fragment(
        kernel.shared, 0, outer, step, kernel.lane, outer_first=True
    )
    T.evaluate(T.ptx[name](*into, address))


def load_fragment(
    kernel: Any, tile: SharedTile, base: Expr, outer: Any, step: Any, into: Sequence[Any]
) -> None:
    """Load 16 keys or columns by the steps of one `mma` as the right operand of two."""
    name, address = tile.fragment(kernel.shared, base, outer, step, kernel.lane, outer_first=False)
    T.evaluate(T.ptx[name](*into, address))


def products_of(kernel: Any, dtype: str) -> Products:
    """Return the products for operands of a type that `attention_tile.TYPES` has."""
    return SplitProducts(kernel) if dtype == "float32" else HalfProducts(kernel, dtype)


def steps_of(tile: AttentionTile) -> int:
    """Return how many elements of a query one `mma` takes."""
    return 32 // tile.element_bytes
