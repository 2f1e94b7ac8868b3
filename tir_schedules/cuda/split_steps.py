"""The second kernel of a product whose steps are divided among blocks (split-K).

Few tiles of many steps leave most multiprocessors idle; so several blocks take a slice of the steps
of one tile each. Their sums meet in global memory rather than by atomic additions, which would
come in another order in each run and want zeros first: here slices are added up in their order, and
a result has the same bits every time. What the function does with the product happens here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx import Expr
from tvm.tirx.script import builder as T

from tir_schedules.blocks import constant
from tir_schedules.cuda.product_operands import Product
from tir_schedules.cuda.product_stores import VECTOR

_THREADS = 128  # few, so that few results have many blocks


def emit_slices(kernel: Any, emit: Callable[[], None]) -> None:
    """Emit the kernel of a product, and the one that adds up its slices where it has several.

    Args:
        kernel: Has `product`, which is stored, and `tile.slices`. The first kernel sets `slice`.
        emit: Emits the first kernel.
    """
    product, slices = kernel.product, kernel.tile.slices
    if slices == 1:
        return emit()
    shape = (slices, product.batch, product.rows, product.columns)
    sums = T.alloc_buffer(shape, "float32", scope="global")
    IRBuilder.name("sums_of_slices", sums)

    def stores(batch: Expr, row: Expr, column: Expr, value: Expr) -> tuple[Any, list[Expr], Expr]:
        return sums, [kernel.slice, batch, row, column], value

    kernel.product = replace(product, stores=stores, dtype="float32")
    emit()
    kernel.product = product
    return _join_slices(product, sums, slices)


def _join_slices(product: Product, sums: Any, slices: int) -> None:
    """Emit the kernel that adds up `sums` and stores what the function makes of them."""
    count = VECTOR if product.columns % VECTOR == 0 else 1
    groups = product.columns // count
    total = product.rows * groups
    with (
        T.launch_thread("blockIdx.z", product.batch) as batch,
        T.launch_thread("blockIdx.x", tirx.ceildiv(total, _THREADS)) as block,
        T.launch_thread("threadIdx.x", _THREADS) as thread,
    ):
        number = block * _THREADS + thread
        row = tirx.floordiv(number, groups)
        column = tirx.floormod(number, groups) * count
        known = constant(total)
        if known is not None and known % _THREADS == 0:
            _join(product, sums, slices, (batch, row, column), count)
            return
        with T.If(number < total), T.Then():
            _join(product, sums, slices, (batch, row, column), count)


def _join(
    product: Product, sums: Any, slices: int, place: tuple[Any, Any, Any], count: int
) -> None:
    batch, row, column = place
    total = T.alloc_buffer((count,), "float32", scope="local")
    with T.vectorized(0, count) as at:
        T.buffer_store(total, sums[0, batch, row, column + at], [at])
    with T.serial(1, slices) as part, T.vectorized(0, count) as at:
        T.buffer_store(total, total[at] + sums[part, batch, row, column + at], [at])
    with T.vectorized(0, count) as at:
        buffer, indices, stored = product.stores(batch, row, column + at, total[at])
        T.buffer_store(buffer, stored, indices)
