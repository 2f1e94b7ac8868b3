"""The end of an attention kernel: warps that divided the keys join, and results are stored.

Joining needs no order of keys: sums are brought to the better of two best scores and added. As
every warp's lanes have the same places, what a lane hands over needs no index but its register's.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx import Expr
from tvm.tirx.script import builder as T

from tir_schedules.cuda.attention_softmax import combine_quad
from tir_schedules.cuda.warp_shuffle import shuffled

VECTOR = 4


def store_attention(kernel: Any) -> None:
    """Emit the end of an `AttentionKernel`."""
    if kernel.tile.key_warps == 1:
        _store(kernel)
        return
    T.evaluate(T.tvm_storage_sync("shared"))
    with T.If(kernel.key_warp > 0), T.Then():
        _hand_over(kernel)
    T.evaluate(T.tvm_storage_sync("shared"))
    with T.If(kernel.key_warp == 0), T.Then():
        for other in range(1, kernel.tile.key_warps):
            _join(kernel, other)
        _store(kernel)


def _slots(kernel: Any, key_warp: Any) -> Any:
    """Return the function that gives the address of a lane's `at`-th number of a warp."""
    first = (kernel.row_warp * (kernel.tile.key_warps - 1) + key_warp - 1) * kernel.tile.exchanged

    def address(at: Any) -> Expr:
        return kernel.shared.ptr_to([((first + at) * 32 + kernel.lane) * 4])

    return address


def _parts(kernel: Any) -> list[tuple[Any, int]]:
    rows = kernel.tile.row_tiles * 2
    sums = kernel.tile.row_tiles * kernel.column_tiles * 4
    return [(kernel.softmax.best, rows), (kernel.softmax.total, rows), (kernel.sums, sums)]


def _hand_over(kernel: Any) -> None:
    address, first = _slots(kernel, kernel.key_warp), 0
    for buffer, count in _parts(kernel):
        with T.unroll(0, count) as at:
            T.evaluate(T.ptx["st.shared.f32"](address(first + at), buffer[at]))
        first += count


def _join(kernel: Any, other: int) -> None:
    """Take in what another warp has summed over its keys."""
    softmax, address = kernel.softmax, _slots(kernel, other)
    rows = kernel.tile.row_tiles * 2
    theirs = T.alloc_buffer((2 * rows,), "float32", scope="local")
    shrink = T.alloc_buffer((2,), "float32", scope="local")
    value = T.alloc_buffer((1,), "float32", scope="local")
    with T.unroll(0, 2 * rows) as at:
        T.evaluate(T.ptx["ld.shared.f32"](theirs[at], address(at)))
    with T.unroll(0, rows) as row:
        T.buffer_store(softmax.new, tirx.max(softmax.best[row], theirs[row]), [0])
        for at, best in enumerate((softmax.best[row], theirs[row])):
            T.buffer_store(shrink, softmax.exp(best - softmax.new[0]), [at])
        T.buffer_store(softmax.best, softmax.new[0], [row])
        total = softmax.total[row] * shrink[0] + theirs[rows + row] * shrink[1]
        T.buffer_store(softmax.total, total, [row])
        with T.unroll(0, kernel.column_tiles) as tile, T.unroll(0, 2) as at:
            place = softmax.sum_place(row, tile, at)
            T.evaluate(T.ptx["ld.shared.f32"](value[0], address(2 * rows + place)))
            joined = kernel.sums[place] * shrink[0] + value[0] * shrink[1]
            T.buffer_store(kernel.sums, joined, [place])


def _store(kernel: Any) -> None:
    """Divide by the sums of weights and store four neighbours a lane.

    A lane has two neighbours in each of two tiles of columns; two lanes exchange pairs, so that
    four of them fill the 32 bytes of a sector in 16-bit floats.
    """
    softmax = kernel.softmax
    share = T.alloc_buffer((1,), "float32", scope="local")
    values = T.alloc_buffer((VECTOR,), "float32", scope="local")
    odd = tirx.floormod(kernel.lane, 2)
    with T.unroll(0, kernel.tile.row_tiles * 2) as row:
        combine_quad(softmax.total, row, lambda a, b: a + b)
        total = softmax.total[row]
        zero, one = (tirx.const(number, "float32") for number in (0, 1))
        # A query that sees no key has no weights, and gives zeros.
        T.buffer_store(share, tirx.Select(total == zero, zero, one / total), [0])
        softmax.scale_sums(row, share[0])
        with T.unroll(0, kernel.column_tiles // 2) as pair:
            left, right = (
                [kernel.sums[softmax.sum_place(row, pair * 2 + tile, at)] for at in range(2)]
                for tile in range(2)
            )
            for at in range(2):
                given = shuffled(tirx.Select(odd == 1, left[at], right[at]), 1)
                T.buffer_store(values, tirx.Select(odd == 1, given, left[at]), [at])
                T.buffer_store(values, tirx.Select(odd == 1, right[at], given), [2 + at])
            column = pair * 16 + odd * 8 + tirx.floordiv(tirx.floormod(kernel.lane, 4), 2) * 4
            _store_neighbours(kernel, kernel.first + softmax.row_of(row), column, values)


def _store_neighbours(kernel: Any, query: Expr, column: Expr, values: Any) -> None:
    nest = kernel.nest
    whole = kernel.columns % VECTOR == 0
    conditions = [query < kernel.queries] if kernel.ragged_queries else []
    if whole and kernel.columns % 16:
        conditions.append(column < kernel.columns)

    def store(at: Any) -> None:
        place = (kernel.b, query, kernel.h, column + at)
        indices = list(nest.result.at(*place).indices)
        T.buffer_store(nest.out, nest.stored_of(values[at], *place), indices)

    with T.If(tirx.all(*conditions) if conditions else tirx.const(True, "bool")), T.Then():
        if whole:
            with T.vectorized(0, VECTOR) as at:
                store(at)
            return
        for at in range(VECTOR):
            with T.If(column + at < kernel.columns), T.Then():
                store(at)
