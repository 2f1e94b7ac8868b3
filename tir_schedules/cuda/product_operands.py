"""What a batched matrix product reads and what becomes of it, as expressions of its indices.

A kernel that is written out rather than scheduled (`tensor_core_matmul`) asks here: where in which
tensor an element of an operand lies, along which index neighbours lie side by side, and what the
function stores, given an element of the product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, TensorLoad
from tvm.s_tir.schedule import SBlockRV
from tvm.tirx import Expr

from tir_schedules.blocks import constant, leaf_blocks
from tir_schedules.cuda.matrix_product import (
    Contraction,
    MatrixProduct,
    as_matrix_product,
    axes_used,
)
from tir_schedules.loads import loads_in
from tir_schedules.rule import Decline
from tir_schedules.variables import substitute


@dataclass(frozen=True)
class Operand:
    """A matrix whose elements lie in one tensor, or are computed from elements of several.

    `locate(batch, outer, step)` returns the element at a row (or column) and a step, a load of the
    tensor's or what is computed, and the condition under which it is that, None for always; it is
    zero otherwise.
    """

    dtype: str
    locate: Callable[[Expr, Expr, Expr], tuple[Expr, Expr | None]]

    def contiguous(self, along_steps: bool, count: int, *, aligned: bool = True) -> bool:
        """Tell whether groups of `count` neighbours lie side by side, all or none zero.

        Computed ones do not lie anywhere, but may be computed of what lies side by side: such
        neighbours never count as aligned.

        Args:
            along_steps: Whether neighbours differ in their step, else in their outer index.
            count: How many they are.
            aligned: Whether they must begin at a multiple of `count`.
        """
        group, other = tirx.Var("g", "int64"), tirx.Var("o", "int64")
        batch = tirx.Var("b", "int64")

        def at(offset: int) -> tuple[Expr, list[Expr], Expr | None]:
            inner = group * count + offset
            outer, step = (other, inner) if along_steps else (inner, other)
            value, condition = self.locate(batch, outer, step)
            return value, [flat_position(load) for load in loads_in(value)], condition

        value, starts, zero_unless = at(0)
        analyzer = tvm.sym.Analyzer()
        for var in (group, other, batch):
            analyzer.bind(var, tvm.ir.Range(0, 1 << 24))
        if aligned and not (
            isinstance(value, TensorLoad)
            and analyzer.can_prove_equal(tirx.floormod(starts[0], count), 0)
        ):
            return False
        for offset in range(1, count):
            _, positions, condition = at(offset)
            moved = [place - start for place, start in zip(positions, starts, strict=True)]
            # Of what is computed, a part may be the same for all, such as the scale of a column.
            steps = (offset,) if isinstance(value, TensorLoad) else (offset, 0)
            if not all(any(analyzer.can_prove_equal(by, n) for n in steps) for by in moved):
                return False
            if zero_unless is not None and not analyzer.can_prove_equal(condition, zero_unless):
                return False
        return True


@dataclass(frozen=True)
class Product:
    """`C[b, y, x] = sum over k of A[b, y, k] B[b, k, x]`, and what is stored of each C.

    `stores(batch, row, column, value)` returns a buffer, its indices and the value for it.
    """

    rows: Expr
    columns: int
    steps: int
    batch: Expr
    left: Operand
    right: Operand
    stores: Callable[[Expr, Expr, Expr, Expr], tuple[Any, list[Expr], Expr]]
    dtype: str  # of the product

    def batches(self) -> int:
        """Return how many products there are, 1 where that is symbolic."""
        return constant(self.batch) or 1


def read_product(sch: s_tir.Schedule, block: SBlockRV, plan: Contraction) -> Product:
    """Rewrite the function around a contraction and return its pieces.

    Raises:
        Decline: If other blocks remain, or the columns or steps are symbolic.
    """
    before = sch.get(block)
    product = as_matrix_product(sch, block, plan)
    if len(leaf_blocks(sch)) != 4:
        raise Decline("has more than a product and maps around it")
    shape = [axis.dom.extent for axis in sch.get(product.block).iter_vars]
    batch = shape.pop(0) if plan.batch else tirx.IntImm("int64", 1)
    if len(shape) != 3:
        raise Decline("a side of the product is empty")
    columns, steps = (constant(size) for size in shape[1:])
    if columns is None or steps is None:
        raise Decline("columns or steps are symbolic")
    sides = [_operand(sch, product, plan, before, at) for at in (0, 1)]
    return Product(
        shape[0],
        columns,
        steps,
        batch,
        left=sides[1 - plan.column_operand],
        right=sides[plan.column_operand],
        stores=_stores(sch, product, plan),
        dtype=str(sch.get(product.block).writes[0].source.dtype),
    )


def _operand(
    sch: s_tir.Schedule, product: MatrixProduct, plan: Contraction, before: Any, at: int
) -> Operand:
    """Return one operand, in the order of the block's reads; `before` is the block as it was."""
    stmt = sch.get(product.operands[at])
    value, axes = stmt.body.value, [axis.var for axis in stmt.iter_vars]
    used = axes_used(before, at)
    batch_axes = [axis for axis in plan.batch if axis in used]

    def locate(batch: Expr, outer: Expr, step: Expr) -> tuple[Expr, Expr | None]:
        matrix = [step, outer] if at == plan.column_operand else [outer, step]
        if batch_axes:
            matrix.insert(0, _part_of(batch, plan.batch, batch_axes, before))
        return _element(substitute(value, dict(zip(axes, matrix, strict=True))))

    return Operand(str(stmt.body.buffer.dtype), locate)


def _part_of(fused: Expr, axes: Sequence[int], kept: Sequence[int], stmt: Any) -> Expr:
    """Return the fused index of the axes `kept`, given that of all `axes`."""
    values: dict[int, Expr] = {}
    for axis in reversed(axes):
        size = stmt.iter_vars[axis].dom.extent
        values[axis] = fused if axis == axes[0] else tirx.floormod(fused, size)
        fused = tirx.floordiv(fused, size)
    index = values[kept[0]]
    for axis in kept[1:]:
        index = index * stmt.iter_vars[axis].dom.extent + values[axis]
    return index


def _element(value: Expr) -> tuple[Expr, Expr | None]:
    """Take apart an expression that is zero where a condition fails."""
    if isinstance(value, Call) and getattr(value.op, "name", "") == "prim.if_then_else":
        condition, inside, other = value.args
        if isinstance(other, tirx.IntImm | tirx.FloatImm) and float(other.value) == 0:
            return inside, condition
    return value, None


def _stores(sch: s_tir.Schedule, product: MatrixProduct, plan: Contraction) -> Any:
    """Return the function that gives what is stored for one element of the product.

    Raises:
        Decline: If the product is read elsewhere than where it was computed.
    """
    store = sch.get(product.result).body
    axes = [axis.var for axis in sch.get(product.result).iter_vars]
    source = sch.get(product.block).writes[0].source
    for load in loads_in(store.value, source):
        places = zip(load.indices, axes, strict=True)
        if not all(tvm_ffi.structural_equal(index, axis) for index, axis in places):
            raise Decline("the product is read elsewhere than where it was computed")

    def stores(batch: Expr, row: Expr, column: Expr, value: Expr) -> tuple[Any, list[Expr], Expr]:
        places = [batch, row, column] if plan.batch else [row, column]
        mapping = dict(zip(axes, places, strict=True))

        def read(load: TensorLoad) -> Expr:
            return value if load.source.same_as(source) else load

        result = tvm_ffi.structural_map(store.value, (TensorLoad, read))
        indices = [substitute(index, mapping) for index in store.indices]
        return store.buffer, indices, substitute(result, mapping)

    return stores


def flat_position(load: TensorLoad) -> Expr:
    """Return the position of an element in its tensor."""
    return flat_index(load.indices, load.source.shape)


def flat_index(indices: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """Return the position of the element at some indices of a tensor of a shape."""
    position: Expr = tirx.IntImm("int64", 0)
    for index, size in zip(indices, shape, strict=True):
        position = position * size + index
    return position
