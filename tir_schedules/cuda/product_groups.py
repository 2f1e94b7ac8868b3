"""Products in groups, such as a convolution's: channels become groups and the channels of one.

A group is then one of a batch of products, which `matrix_product` knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.sym import Analyzer
from tvm.tirx import IterVar, PrimFunc

from tir_schedules.blocks import (
    constant,
    inline_spatial,
    is_output,
    is_reduction,
    leaf_blocks,
    new_schedule,
)
from tir_schedules.cuda.threads import name_of
from tir_schedules.rule import Decline
from tir_schedules.variables import uses

_FEW_COLUMNS = 16  # narrower groups leave most of a tile idle: `window` takes them


def product_schedule(func: PrimFunc) -> s_tir.Schedule:
    """Return the schedule of a function whose one reduction may be a product in groups.

    Where an operand reads only which run of an axis is meant, the axis becomes two, in the
    reduction and in what reads its result: the channels of a convolution become groups, a batch
    axis, and the columns of one.

    Raises:
        Decline: If such a run is short.
    """
    sch = new_schedule(func)
    blocks = leaf_blocks(sch)
    reduction = next((block for block in blocks if is_reduction(sch, block)), None)
    run = None if reduction is None else _axis_of_runs(sch.get(reduction))
    if reduction is None or run is None:
        return sch
    at, size = run
    if size < _FEW_COLUMNS:
        raise Decline(f"a group has {size} columns")
    before = blocks[: [sch.get(b).name_hint for b in blocks].index(sch.get(reduction).name_hint)]
    inline_spatial(sch, keep=tuple(name_of(sch, block) for block in before))
    split = [reduction]
    if not is_output(sch, reduction):
        dims = len(sch.get(reduction).writes[0].region)
        sch.transform_layout(reduction, ("write", 0), _splitting(at, size, dims))
        split += sch.get_consumers(reduction)
    for block in split:
        sch.transform_block_layout(block, _splitting(at, size, len(sch.get(block).iter_vars)))
    return new_schedule(_divided(sch.mod["main"], [a for b in split for a in sch.get(b).iter_vars]))


def _axis_of_runs(stmt: Any) -> tuple[int, int] | None:
    """Return the position of the result's axis of which an operand reads runs, and their length."""
    for at, axis in enumerate(stmt.iter_vars):
        sizes = {size for read in stmt.reads if (size := _run_length(read, axis.var))}
        whole, index = constant(axis.dom.extent), stmt.writes[0].region
        if len(sizes) != 1 or whole is None or at >= len(index):
            continue
        (size,) = sizes
        if whole % size == 0 and 1 < size < whole and index[at].min.same_as(axis.var):
            return at, size
    return None


def _divided(func: PrimFunc, axes: Sequence[IterVar]) -> PrimFunc:
    """Return a function whose divisions are worked out for what the axes may be."""
    analyzer = Analyzer()
    for axis in axes:
        analyzer.bind(axis.var, axis.dom)
    divisions = (tirx.FloorDiv, tirx.FloorMod)
    return tvm_ffi.structural_map(func, (divisions, analyzer.simplify))


def _splitting(at: int, size: int, count: int) -> tirx.IndexMap:
    """Return the map of `count` axes that makes two of one: which run, and where in it."""

    def split(*axes: Any) -> list[Any]:
        parts = [tirx.floordiv(axes[at], size), tirx.floormod(axes[at], size)]
        return [*axes[:at], *parts, *axes[at + 1 :]]

    return tirx.IndexMap.from_func(split, ndim=count)


def _run_length(read: Any, var: tirx.Var) -> int | None:
    """Return the only divisor that an axis has wherever a region depends on it, None for none."""
    sizes: set[int] = set()

    def quotient(division: tirx.FloorDiv) -> tirx.Expr:
        size = constant(division.b)
        if size is None or not division.a.same_as(var):
            return division
        sizes.add(size)
        return tirx.IntImm(str(division.ty.dtype), 0)

    region = [rng.min for rng in read.region]
    rest = [tvm_ffi.structural_map(index, (tirx.FloorDiv, quotient)) for index in region]
    if len(sizes) != 1 or any(uses(index, var) for index in rest):
        return None
    return sizes.pop()
