"""Store elements of a product, together with what the function does with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tir_schedules.blocks import constant

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


def _store_one(kernel: Any, row: Any, column: Any, total: Any) -> None:
    product = kernel.product
    value = total if product.dtype == "float32" else tirx.Cast(product.dtype, total)
    buffer, indices, stored = product.stores(kernel.batch, row, column, value)
    T.buffer_store(buffer, stored, indices)
