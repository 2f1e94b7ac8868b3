"""Store elements of a product, together with what the function does with them."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tir_schedules.blocks import constant

VECTOR = 4


def store_vector(kernel: Any, values: Any, first: int, row: Any, column: Any) -> None:
    """Store what the function makes of `VECTOR` neighbours, if they are within the result.

    Args:
        kernel: A `PipelinedProduct`.
        values: A local buffer of sums.
        first: Where in it the neighbours begin.
        row: Of them, in the block's tile.
        column: Of the first one, in the block's tile.
    """
    product, tile = kernel.product, kernel.tile
    row, column = kernel.where[0] + row, kernel.where[1] + column
    conditions = row_conditions(kernel, row)
    whole = product.columns % VECTOR == 0
    if whole and product.columns % tile.columns:
        conditions.append(column < product.columns)

    def store() -> None:
        if whole:
            with T.vectorized(0, VECTOR) as at:
                store_one(kernel, row, column + at, values[first + at])
            return
        for at in range(VECTOR):
            with T.If(column + at < product.columns), T.Then():
                store_one(kernel, row, column + at, values[first + at])

    if not conditions:
        return store()
    with T.If(tirx.all(*conditions)), T.Then():
        store()
    return None


def row_conditions(kernel: Any, row: Any) -> list[Any]:
    """Return the condition under which a row of the block's tile is one of the result."""
    height = constant(kernel.product.rows)
    ragged = height is None or height % kernel.tile.rows
    return [row < kernel.product.rows] if ragged else []


def store_one(kernel: Any, row: Any, column: Any, total: Any) -> None:
    """Store what the function makes of one element of the product."""
    product = kernel.product
    value = total if product.dtype == "float32" else tirx.Cast(product.dtype, total)
    buffer, indices, stored = product.stores(kernel.batch, row, column, value)
    T.buffer_store(buffer, stored, indices)
