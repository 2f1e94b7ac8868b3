"""A reduction over windows and what is stored of it, in terms of the places of its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, TensorLoad
from tvm.s_tir.schedule import SBlockRV
from tvm.tirx import Expr, IterVar, Var

from tir_schedules.blocks import constant, is_output, is_reduction, is_spatial, leaf_blocks
from tir_schedules.cuda.row_plan import Combine, combination
from tir_schedules.loads import loads_in
from tir_schedules.rule import Decline
from tir_schedules.variables import substitute


@dataclass(frozen=True)
class Window:
    """A reduction, in terms of the variables of its block, and what becomes of its results.

    Attributes:
        results: Axes of the results; the last but one are pixels, the last are channels.
        window: The axes that are reduced.
        combine: How a result takes in `value`, beginning with `first`.
        stores: Each buffer, indices and value that the function stores; in terms of `axes`, the
            value reads `source` for the result.
    """

    results: list[IterVar]
    window: list[IterVar]
    first: Expr
    value: Expr
    combine: Combine
    source: Any
    axes: list[Var]
    store: tirx.BufferStore


def read_window(sch: s_tir.Schedule) -> Window:
    """Recognise one reduction, and at most one map that reads its results where they are made.

    Raises:
        Decline: If the function is something else.
    """
    blocks = leaf_blocks(sch)
    reductions = [block for block in blocks if is_reduction(sch, block)]
    if len(reductions) != 1:
        raise Decline(f"has {len(reductions)} reductions")
    (block,) = reductions
    stmt = sch.get(block)
    if not isinstance(stmt.body, tirx.BufferStore) or len(stmt.writes) != 1:
        raise Decline("a block stores several values")
    results = [axis for axis in stmt.iter_vars if int(axis.iter_type) == IterVar.DataPar]
    window = [axis for axis in stmt.iter_vars if int(axis.iter_type) != IterVar.DataPar]
    if len(results) < 2 or any(constant(axis.dom.extent) is None for axis in window):
        raise Decline("its window is symbolic, or has no pixels")
    own = [axis.var for axis in results]
    if not _are(stmt.body.indices, own):
        raise Decline("results are stored in another order")
    combine, value = combination(stmt.body)
    units = {axis.var: tirx.IntImm("int64", 0) for axis in window if size_of(axis) == 1}
    value, window = substitute(value, units), [axis for axis in window if axis.var not in units]
    source = stmt.writes[0].source
    axes, store = own, stmt.body
    if not is_output(sch, block):
        axes, store = _only_reader(sch, blocks, block, source)
    elif len(blocks) != 1:
        raise Decline("has other blocks")
    return Window(results, window, stmt.init.value, value, combine, source, axes, store)


def _only_reader(
    sch: s_tir.Schedule, blocks: Sequence[SBlockRV], block: SBlockRV, source: Any
) -> tuple[list[Var], tirx.BufferStore]:
    readers = sch.get_consumers(block)
    if len(blocks) != 2 or len(readers) != 1 or not is_spatial(sch, readers[0]):
        raise Decline("has more than a reduction and a map of its results")
    stmt = sch.get(readers[0])
    axes = [axis.var for axis in stmt.iter_vars]
    if not isinstance(stmt.body, tirx.BufferStore) or not is_output(sch, readers[0]):
        raise Decline("a block stores several values")
    same = loads_in(stmt.body.value, source)
    if len(axes) != len(source.shape) or not all(_are(load.indices, axes) for load in same):
        raise Decline("its results are read elsewhere than where they are made")
    return axes, stmt.body


def _are(indices: Sequence[Expr], axes: Sequence[Var]) -> bool:
    return len(indices) == len(axes) and all(map(tvm_ffi.structural_equal, indices, axes))


@dataclass
class Part:
    """An element that a window reads, or a constant `unless` a condition holds.

    Attributes:
        name: What stands for it in the value.
        step: How far apart neighbouring channels lie in the tensor: 0 or 1.
    """

    whole: Expr
    load: TensorLoad
    condition: Expr | None
    unless: Expr | None
    name: Var
    step: int = 0


def take_apart(value: Expr) -> tuple[Expr, list[Part]]:
    """Return a value with a name for each element that it reads, and the elements.

    Raises:
        Decline: If it chooses between values that are computed.
    """
    parts: list[Part] = []

    def name(whole: Expr, load: TensorLoad, condition: Any = None, unless: Any = None) -> Var:
        part = Part(whole, load, condition, unless, Var(f"v{len(parts)}", str(load.ty.dtype)))
        parts.append(part)
        return part.name

    def choice(call: Call) -> Expr:
        if getattr(call.op, "name", "") != "prim.if_then_else":
            return call
        condition, load, other = call.args
        if not isinstance(load, TensorLoad) or loads_in(condition) or not _is_constant(other):
            raise Decline("chooses between values that are computed")
        return name(call, load, condition, other)

    # Choices first: the loads that are left are read whatever happens.
    value = tvm_ffi.structural_map(value, (Call, choice), order="pre")
    return tvm_ffi.structural_map(value, (TensorLoad, lambda load: name(load, load))), parts


def _is_constant(value: Expr) -> bool:
    return isinstance(value, tirx.IntImm | tirx.FloatImm)


def size_of(axis: IterVar) -> int:
    """Return the extent of an axis of fixed size."""
    return int(axis.dom.extent.value)
