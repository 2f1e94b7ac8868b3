"""Store elements of a product, together with what the function does with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import tirx
from tvm.tirx.script import builder as T

from tir_schedules.blocks import constant
from tir_schedules.cuda.product_operands import flat_index
from tir_schedules.cuda.written_kernel import cast, word_of_bytes

VECTOR = 4


def store_sums(
    kernel: Any, total: Callable[[Any], Any], row: Any, column: Any, count: int = VECTOR
) -> None:
    """Store what the function makes of neighbours of a row, if they are within the result.

    Args:
        kernel: A `PipelinedProduct`.
        total: Returns the sum of the `at`-th neighbour.
        row: Of them, in the block's tile.
        column: Of the first one, in the block's tile.
        count: How many they are, stored as one vector where the result has whole ones.
    """
    product, tile = kernel.product, kernel.tile
    row, column = kernel.where[0] + row, kernel.where[1] + column
    height = constant(product.rows)
    ragged = height is None or height % tile.rows
    conditions = [row < product.rows] if ragged else []
    whole = product.columns % count == 0
    if whole and product.columns % tile.columns:
        conditions.append(column < product.columns)

    def store() -> None:
        if count == 1:
            return _store_one(kernel, row, column, total(0))
        if whole and count == VECTOR and _makes_words(product):
            return _store_word(kernel, row, column, total)
        if whole:
            with T.vectorized(0, count) as at:
                return _store_one(kernel, row, column + at, total(at))
        for at in range(count):
            with T.If(column + at < product.columns), T.Then():
                _store_one(kernel, row, column + at, total(at))
        return None

    if not conditions:
        return store()
    with T.If(tirx.all(*conditions)), T.Then():
        store()
    return None


def _makes_words(product: Any) -> bool:
    """Tell whether four neighbours are bytes that lie side by side from a multiple of 4 on."""
    batch, row, group = (tirx.Var(name, "int64") for name in "byg")
    zero = tirx.const(0, product.dtype)
    stores = [product.stores(batch, row, group * VECTOR + at, zero) for at in range(VECTOR)]
    if str(stores[0][0].dtype) not in ("int8", "uint8"):
        return False
    analyzer = tvm.sym.Analyzer()
    for var in (batch, row, group):
        analyzer.bind(var, tvm.ir.Range(0, 1 << 24))
    first, *others = [flat_index(indices, buffer.shape) for buffer, indices, _ in stores]
    return analyzer.can_prove_equal(tirx.floormod(first, VECTOR), 0) and all(
        analyzer.can_prove_equal(other - first, at) for at, other in enumerate(others, 1)
    )


def _store_word(kernel: Any, row: Any, column: Any, total: Callable[[Any], Any]) -> None:
    """Store four bytes as one word: rounding, as they mostly end with, is no vector operation."""
    product = kernel.product
    values = T.alloc_buffer((VECTOR,), "int32", scope="local")
    places = []
    for at in range(VECTOR):
        value = cast(total(at), product.dtype)
        buffer, indices, stored = product.stores(kernel.batch, row, column + at, value)
        T.buffer_store(values, cast(stored, "int32"), [at])
        places.append(buffer.ptr_to(indices))
    word = word_of_bytes([values[at] for at in range(VECTOR)])
    T.evaluate(T.ptx["st.global.u32"](places[0], word))


def _store_one(kernel: Any, row: Any, column: Any, total: Any) -> None:
    product = kernel.product
    value = cast(total, product.dtype)
    buffer, indices, stored = product.stores(kernel.batch, row, column, value)
    T.buffer_store(buffer, stored, indices)
