"""A contraction as one batched matrix product, whatever its axes and layouts are.

A contraction accumulates the product of two operands. Each of its result axes is named by one
operand (a row or a column axis) or by both (a batch axis). Fusing each kind gives one batched
matrix product `C[b, y, x] += A[b, y, k] * B[b, k, x]`; for a convolution the operand read through
a sliding window thereby becomes its im2col matrix, of which only a tile exists at a time, in
shared memory (implicit GEMM, Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.s_tir.schedule import SBlockRV
from tvm.sym import Analyzer
from tvm.tirx import IterVar

from tir_schedules.blocks import (
    constant,
    inline_spatial,
    is_output,
    is_reduction,
    is_spatial,
    leaf_blocks,
    points,
)
from tir_schedules.cuda.threads import name_of
from tir_schedules.rule import Decline

Groups = tuple[tuple[int, ...], ...]
_SUMS = ("float32", "int32")  # what products are added up in


@dataclass(frozen=True)
class Contraction:
    """Which axes of a block, by position, are batch, row, column and accumulation axes.

    Columns are the group that holds the last axis of the result, along which neighbouring
    threads should store; the operand that names columns is `column_operand`.
    """

    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    steps: tuple[int, ...]
    column_operand: int
    sizes: tuple[int | None, ...]

    def groups(self) -> Groups:
        """Return the axis groups of the batched matrix product, in loop order."""
        return tuple(g for g in (self.batch, self.rows, self.columns, self.steps) if g)

    def operand_groups(self, operand: int) -> Groups:
        """Return the groups of an operand's matrix: columns lie side by side, rows along k."""
        if operand == self.column_operand:
            return (self.batch, self.steps, self.columns)
        return (self.batch, self.rows, self.steps)

    def size(self, axes: tuple[int, ...]) -> int | None:
        """Return the number of points of an axis group, None when symbolic."""
        sizes = [self.sizes[at] for at in axes]
        return None if None in sizes else points(sizes)


def axes_used(stmt: Any, read: int) -> set[int]:
    """Return the positions of the axes of a block that appear in one of the regions it reads."""
    axes = [axis.var for axis in stmt.iter_vars]
    found: set[int] = set()

    def visit(var: tirx.Var) -> None:
        found.update(at for at, axis in enumerate(axes) if axis.same_as(var))

    for rng in stmt.reads[read].region:
        tvm_ffi.structural_walk(rng.min, (tirx.Var, visit), order="pre")
    return found


def find_contraction(sch: s_tir.Schedule) -> tuple[SBlockRV, Contraction]:
    """Return the one reduction of a function, which is a sum of products.

    Raises:
        Decline: If the function has another number of reductions, or it is something else.
    """
    reductions = [block for block in leaf_blocks(sch) if is_reduction(sch, block)]
    if len(reductions) != 1:
        raise Decline(f"has {len(reductions)} reductions")
    return reductions[0], match_contraction(sch, reductions[0])


def match_contraction(sch: s_tir.Schedule, block: SBlockRV) -> Contraction:
    """Recognise a sum of products of two operands.

    Raises:
        Decline: If the block is something else.
    """
    stmt = sch.get(block)
    if len(stmt.reads) != 2 or len(stmt.writes) != 1 or not _sums_products(stmt):
        raise Decline("the reduction is no sum of products of two operands")
    kinds = [int(axis.iter_type) for axis in stmt.iter_vars]
    sizes = tuple(constant(axis.dom.extent) for axis in stmt.iter_vars)
    used = [axes_used(stmt, at) for at in (0, 1)]
    result = [at for at, kind in enumerate(kinds) if kind == IterVar.DataPar]
    steps = tuple(at for at, kind in enumerate(kinds) if kind == IterVar.CommReduce)
    only = [{at for at in result if at in used[i] and at not in used[1 - i]} for i in (0, 1)]
    long = [[at for at in only[i] if sizes[at] != 1] for i in (0, 1)]
    last = max((at for side in long for at in side), default=None)
    if last is None:
        raise Decline("each product feeds one result: nothing to reuse")
    column = 0 if last in only[0] else 1
    if not only[0] or not only[1]:
        raise Decline("each product feeds one result: nothing to reuse")
    rows, columns = (_fusible(sorted(only[side]), sizes) for side in (1 - column, column))
    batch = tuple(at for at in result if at not in rows and at not in columns)
    return Contraction(batch, rows, columns, steps, column, sizes)


def _fusible(axes: list[int], sizes: tuple[int | None, ...]) -> tuple[int, ...]:
    """Return the trailing axes that fuse: a symbolic extent only as the outermost of them.

    The axes before become batch axes, which one operand ignores.
    """
    for start, at in reversed(list(enumerate(axes))):
        if sizes[at] is None:
            return tuple(axes[start:])
    return tuple(axes)


def _sums_products(stmt: Any) -> bool:
    """Tell whether the block is `C += A * B`, casts aside, for accumulators in `_SUMS`."""
    body = stmt.body
    value = getattr(body, "value", None)
    if not isinstance(value, tirx.Add) or str(stmt.writes[0].source.dtype) not in _SUMS:
        return False
    product = value.b if isinstance(value.a, TensorLoad) else value.a
    while isinstance(product, tirx.Cast):
        product = product.value
    return isinstance(product, tirx.Mul)


def _fusing_map(
    stmt: Any, given: tuple[int, ...], among: set[int], groups: Groups
) -> tirx.IndexMap:
    """Return the map from the axes at positions `given` to one row-major index a group.

    Axes outside `among` are left out, and so are groups that this empties.
    """

    def fuse(*values: Any) -> list[Any]:
        value = dict(zip(given, values, strict=True))
        indices = []
        for group in groups:
            index = None
            for at in group:
                if at in among:
                    size = stmt.iter_vars[at].dom.extent
                    index = value[at] if index is None else index * size + value[at]
            if index is not None:
                indices.append(index)
        return indices

    return tirx.IndexMap.from_func(fuse, ndim=len(given))


def _reads_in_place(sch: s_tir.Schedule, block: SBlockRV, buffer: Any) -> bool:
    """Tell whether a map reads `buffer` at its axes, and writes in their order."""
    stmt = sch.get(block)
    axes = stmt.iter_vars
    if len(stmt.writes) != 1 or len(axes) != len(buffer.shape):
        return False
    regions = [r for r in [*stmt.reads, *stmt.writes] if r.source.same_as(buffer)]
    same = all(
        tvm_ffi.structural_equal(rng.min, axis.var) or constant(axis.dom.extent) == 1
        for region in regions
        for rng, axis in zip(region.region, axes, strict=True)
    )
    return (
        same
        and all(
            tvm_ffi.structural_equal(axis.dom.extent, size)
            for axis, size in zip(axes, buffer.shape, strict=True)
        )
        and _writes_in_order(stmt)
    )


def _writes_in_order(stmt: Any) -> bool:
    """Tell whether a map writes its results one after the other, as its axes are."""
    (write,), analyzer = stmt.writes, Analyzer()
    place: tirx.Expr = tirx.IntImm("int64", 0)
    for axis in stmt.iter_vars:
        analyzer.bind(axis.var, axis.dom)
        place = place * axis.dom.extent + axis.var
    position: tirx.Expr = tirx.IntImm("int64", 0)
    for rng, size in zip(write.region, write.source.shape, strict=True):
        position = position * size + rng.min
    return bool(analyzer.can_prove_equal(position, place))


@dataclass(frozen=True)
class MatrixProduct:
    """The blocks of a function whose contraction is a batched matrix product.

    `operands` write the matrices, `block` multiplies them, `result` reads the product.
    """

    operands: list[SBlockRV]
    block: SBlockRV
    result: SBlockRV


def as_matrix_product(sch: s_tir.Schedule, block: SBlockRV, plan: Contraction) -> MatrixProduct:
    """Rewrite the block over fused axes `[batch,] row, column, step`.

    Operands become matrices written by maps of their own, and everything elementwise around the
    block is inlined into those maps or into the one that reads the result.
    """
    stmt = sch.get(block)
    every = tuple(range(len(stmt.iter_vars)))
    used = [axes_used(stmt, at) for at in (0, 1)]
    spatial = set(every) - set(plan.steps)
    operands = [
        sch.reindex_cache_read(
            block, at, "global", _fusing_map(stmt, every, used[at], plan.operand_groups(at))
        )
        for at in (0, 1)
    ]
    result = sch.reindex_cache_write(
        block, 0, "global", _fusing_map(stmt, every, spatial, plan.groups())
    )
    inline_spatial(sch, keep=tuple(name_of(sch, kept) for kept in [*operands, result]))
    consumers = sch.get_consumers(result)
    if not is_output(sch, result) and len(consumers) == 1 and is_output(sch, consumers[0]):
        written = sch.get(result).writes[0].source
        if is_spatial(sch, consumers[0]) and _reads_in_place(sch, consumers[0], written):
            sch.compute_inline(result)
            (result,) = consumers
    for moved, among, groups in [
        (operands[0], used[0], plan.operand_groups(0)),
        (operands[1], used[1], plan.operand_groups(1)),
        (result, spatial, plan.groups()),
        (block, set(every), plan.groups()),
    ]:
        given = tuple(sorted(among))
        sch.transform_block_layout(moved, _fusing_map(stmt, given, among, groups))
    return MatrixProduct(operands, block, result)
