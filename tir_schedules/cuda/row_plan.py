"""Functions over rows: reductions of each row, and maps that read the row and its reductions.

Softmax, norms and sums over some axes have this form. A row is numbered `y`, a place in it `x`. A
reduction's axes are those that number the row, then those within it; a map's are in any order: it
reads the reductions at those that number the row. Size-1 axes are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.s_tir.schedule import SBlockRV
from tvm.tirx import Expr, IterVar

from tir_schedules.blocks import constant, is_output, is_reduction, is_spatial, leaf_blocks
from tir_schedules.loads import loads_in
from tir_schedules.rule import Decline
from tir_schedules.variables import substitute

Combine = Callable[[Expr, Expr], Expr]
_COMBINES: dict[type, Combine] = {
    tirx.Add: lambda a, b: a + b,
    tirx.Max: tirx.max,
    tirx.Min: tirx.min,
    tirx.Mul: lambda a, b: a * b,
}


@dataclass(frozen=True)
class RowStep:
    """One block of the function: a reduction of the row, or a map that is stored.

    `value` is in terms of `y` and, if `across`, of `x`. A reduction starts with `first` and takes
    in `value` by `combine`.
    """

    buffer: Any
    indices: list[Expr]
    value: Expr
    across: bool
    stored: bool
    first: Expr | None = None
    combine: Combine | None = None


@dataclass(frozen=True)
class RowPlan:
    """The steps of a function over rows, in order, and the variables they are in terms of.

    `columns` tells that neighbours in memory are places of different rows.
    """

    y: tirx.Var
    x: tirx.Var
    rows: Expr
    width: int
    steps: list[RowStep]
    columns: bool


def read_rows(sch: s_tir.Schedule) -> RowPlan:
    """Recognise a function over rows.

    Raises:
        Decline: If it is something else.
    """
    blocks = leaf_blocks(sch)
    reductions = [block for block in blocks if is_reduction(sch, block)]
    if not reductions:
        raise Decline("has no reduction")
    if any(not is_spatial(sch, b) and b not in reductions for b in blocks):
        raise Decline("has a block that is neither a map nor a reduction")
    shape = _Shape(sch, reductions[0])
    steps: list[RowStep] = []
    for block in blocks:
        step = _step(sch, block, shape, [made.buffer for made in steps])
        if not step.stored and step.combine is None:
            raise Decline("keeps a row of intermediate results")
        _check_reads(step, steps, shape)
        steps.append(step)
    columns = any(_reads_columns(sch, block) for block in reductions)
    return RowPlan(shape.y, shape.x, shape.rows, shape.width, steps, columns)


def _reads_columns(sch: s_tir.Schedule, reduction: SBlockRV) -> bool:
    """Tell whether the last index that a reduction reads a tensor at numbers its rows."""
    stmt = sch.get(reduction)
    axes = {axis.var: int(axis.iter_type) for axis in stmt.iter_vars}
    reads = [region for region in stmt.reads if not region.source.same_as(stmt.writes[0].source)]
    widest = max(reads, key=lambda region: len(region.region), default=None)
    if widest is None:
        return False
    dims = zip(widest.region, widest.source.shape, strict=True)
    long = [rng.min for rng, size in dims if constant(size) != 1]
    return bool(long) and axes.get(long[-1]) == IterVar.DataPar


class _Shape:
    """The axes of a row and those within it, as the first reduction has them."""

    def __init__(self, sch: s_tir.Schedule, reduction: SBlockRV) -> None:
        axes = sch.get(reduction).iter_vars
        self.kept = _long(ax for ax in axes if int(ax.iter_type) == IterVar.DataPar)
        self.reduced = _long(ax for ax in axes if int(ax.iter_type) != IterVar.DataPar)
        sizes = [constant(size) for size in self.reduced]
        if None in sizes:
            raise Decline("its rows have a symbolic length")
        self.width = 1
        for size in sizes:
            self.width *= size or 1
        self.rows: Expr = tirx.IntImm("int64", 1)
        for extent in self.kept:
            self.rows = self.rows * extent
        self.y, self.x = tirx.Var("y", "int64"), tirx.Var("x", "int64")
        self.of_row = unravel(self.y, self.kept)
        self.within = unravel(self.x, self.reduced)

    def places(
        self, axes: Sequence[Any], numbering: Sequence[Expr] = ()
    ) -> tuple[dict[tirx.Var, Expr], bool]:
        """Return where each axis of a block is in terms of y and x, and whether x is among them.

        Args:
            axes: Of the block.
            numbering: The variables of those that number the row; none where they come first.

        Raises:
            Decline: If the axes are not those of a row.
        """
        long = [axis for axis in axes if constant(axis.dom.extent) != 1]
        if numbering:
            first = [axis for var in numbering for axis in long if axis.var.same_as(var)]
            long = [*first, *(axis for axis in long if axis not in first)]
        wanted = [*self.kept, *self.reduced]
        across = len(long) == len(wanted)
        wanted = wanted if across else self.kept
        same = len(long) == len(wanted) and all(
            tvm_ffi.structural_equal(axis.dom.extent, extent)
            for axis, extent in zip(long, wanted, strict=True)
        )
        if not same:
            raise Decline("a block is not over the rows of the first reduction")
        values = iter([*self.of_row, *self.within])
        zero = tirx.IntImm("int64", 0)
        places = {axis.var: zero for axis in axes}
        places.update({axis.var: next(values) for axis in long})
        return places, across


def _long(axes: Any) -> list[Expr]:
    return [axis.dom.extent for axis in axes if constant(axis.dom.extent) != 1]


def unravel(index: Expr, extents: Sequence[Expr]) -> list[Expr]:
    """Return the indices of axes of the given extents, row-major."""
    found: list[Expr] = []
    for at in range(len(extents) - 1, -1, -1):
        found.insert(0, tirx.floormod(index, extents[at]) if at else index)
        index = tirx.floordiv(index, extents[at])
    return found


def _step(sch: s_tir.Schedule, block: SBlockRV, shape: _Shape, made: Sequence[tirx.Var]) -> RowStep:
    stmt = sch.get(block)
    store = stmt.body
    if not isinstance(store, tirx.BufferStore):
        raise Decline("a block stores several values")
    axes = list(stmt.iter_vars)
    numbering: list[Expr] = []
    if is_reduction(sch, block):  # results first, whatever the order of its axes
        axes.sort(key=lambda axis: int(axis.iter_type) != IterVar.DataPar)
    else:
        numbering = _numbering(store.value, axes, made)
    mapping, across = shape.places(axes, numbering)
    if is_reduction(sch, block) and not across:
        raise Decline("a reduction is over other axes")
    indices = [substitute(index, mapping) for index in store.indices]
    stored = is_output(sch, block)
    if not is_reduction(sch, block):
        value = substitute(store.value, mapping)
        return RowStep(store.buffer, indices, value, across, stored)
    combine, value = combination(store)
    first = stmt.init.value
    value = substitute(value, mapping)
    return RowStep(store.buffer, indices, value, True, stored, first, combine)


def _numbering(value: Expr, axes: Sequence[Any], made: Sequence[tirx.Var]) -> list[Expr]:
    """Return the axes at which a map reads what reductions made, none where it reads nothing."""
    own = [axis.var for axis in axes if constant(axis.dom.extent) != 1]
    for load in loads_in(value):
        if any(load.source.same_as(buffer) for buffer in made):
            return [index for index in load.indices if any(index.same_as(var) for var in own)]
    return []


def combination(store: tirx.BufferStore) -> tuple[Combine, Expr]:
    """Return how a reduction takes in a value, and the value."""
    combine = _COMBINES.get(type(store.value))
    if combine is not None:
        for total, value in ((store.value.a, store.value.b), (store.value.b, store.value.a)):
            if isinstance(total, TensorLoad) and total.source.same_as(store.buffer):
                return combine, value
    raise Decline("a reduction combines in its own way")


def _check_reads(step: RowStep, before: Sequence[RowStep], shape: _Shape) -> None:
    """Let a step read earlier results where they were made, and nothing else it makes.

    Raises:
        Decline: If it reads another row's result, or a map's.
    """
    for load in loads_in(step.value):
        for made in before:
            if not load.source.same_as(made.buffer):
                continue
            same = all(
                tvm_ffi.structural_equal(index, place)
                for index, place in zip(load.indices, made.indices, strict=True)
            )
            if made.combine is None or not same:
                raise Decline("a step reads what another row or a map made")
