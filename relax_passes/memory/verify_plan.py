"""Check a memory plan without trusting the planner: liveness is recomputed from the program.

The check reads the planned Relax function alone. It replays the allocations and calls of `main`,
finds for each arena tensor the span from its first write to the last read of it or of any view or
tuple that holds it, and reports every pair that shares bytes and time, unless one kernel call
reads the one and writes the other over exactly the same bytes (in-place).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import tvm
from tvm import DataType, relax
from tvm.ir import Call, GlobalVar
from tvm.tirx import IntImm


class OverlapError(ValueError):
    """Two buffers that are alive together share bytes."""


def verify_offsets(
    buffers: Iterable[tuple[int, int, int]],
    offsets: Sequence[int],
    arena_bytes: int,
    alignment: int = 64,
) -> None:
    """Check offsets against live ranges, (lower, upper, size) triples with `upper` exclusive.

    Raises:
        OverlapError: If two buffers alive together share bytes, or one leaves the arena or is
            not aligned.
    """
    given = list(buffers)
    if len(given) != len(offsets):
        raise OverlapError(f"{len(given)} buffers but {len(offsets)} offsets")
    for i, ((_, _, size), offset) in enumerate(zip(given, offsets, strict=True)):
        if offset < 0 or offset % alignment or offset + size > arena_bytes:
            raise OverlapError(f"buffer {i} at {offset} is misaligned or outside {arena_bytes}")
    alive: list[int] = []
    for i in sorted(range(len(given)), key=lambda k: given[k][0]):
        lower, _, size = given[i]
        alive = [j for j in alive if given[j][1] > lower]
        for j in alive:
            if offsets[i] < offsets[j] + given[j][2] and offsets[j] < offsets[i] + size:
                raise OverlapError(f"buffers {j} and {i} share bytes while both are live")
        alive.append(i)


@dataclass
class _ArenaTensor:
    name: str
    storage: relax.Var
    offset: int
    size: int
    first: int | None = None  # step of the first write
    last: int = -1  # step of the last use
    inputs: set[int] = field(default_factory=set)  # tensors read by the call that first writes it
    written: bool = False


def verify_plan(func: relax.Function) -> None:
    """Check that no two live tensors of a planned function overlap in the arena.

    Raises:
        OverlapError: Naming the two tensors and the bytes they share, or a tensor that lies
            outside its storage, is misaligned, or is returned to the caller.
    """
    tensors: list[_ArenaTensor] = []
    holds: dict[relax.Var, frozenset[int]] = {}
    sizes: dict[relax.Var, int] = {}
    step = 0
    for block in func.body.blocks:
        for binding in block.bindings:
            step += 1
            value = binding.value
            op = getattr(getattr(value, "op", None), "name", "") if isinstance(value, Call) else ""
            if op == "relax.memory.alloc_storage":
                sizes[binding.var] = _constant(value.args[0].values[0])
            elif op == "relax.memory.alloc_tensor":
                tensors.append(_arena_tensor(binding, sizes))
                holds[binding.var] = frozenset({len(tensors) - 1})
            else:
                used = _held(value, holds)
                _use(value, used, tensors, holds, step)
                if not _returns_scalar(binding.var):
                    holds[binding.var] = used
    for index in _held(func.body.body, holds):
        raise OverlapError(f"{tensors[index].name} lies in the arena but is returned")
    _check_pairs(tensors)


def _use(
    value: relax.Expr,
    used: frozenset[int],
    tensors: list[_ArenaTensor],
    holds: dict[relax.Var, frozenset[int]],
    step: int,
) -> None:
    for index in used:
        tensors[index].last = step
    if not isinstance(value, Call):
        return
    # A kernel called for effect writes the tensors that no one has written before.
    effect = isinstance(value.op, (GlobalVar, relax.ExternFunc)) or (
        getattr(value.op, "name", "") == "relax.vm.call_tir_dyn"
    )
    if effect:
        fresh = {i for i in used if not tensors[i].written}
        for index in fresh:
            tensors[index].written = True
            tensors[index].first = step
            tensors[index].inputs = set(used - fresh)


def _check_pairs(tensors: list[_ArenaTensor]) -> None:
    """Compare all pairs whose spans meet; views share a tensor's bytes and are merged first."""
    live = sorted((t for t in tensors if t.first is not None), key=lambda t: t.first or 0)
    position = {id(t): i for i, t in enumerate(tensors)}
    active: list[_ArenaTensor] = []
    for tensor in live:
        start = tensor.first or 0
        active = [t for t in active if t.last >= start]
        for other in active:
            if other.storage != tensor.storage:
                continue
            if other.offset >= tensor.offset + tensor.size:
                continue
            if tensor.offset >= other.offset + other.size:
                continue
            same = (other.offset, other.size) == (tensor.offset, tensor.size)
            # In-place: the writer reads the old tensor for the last time, over the same bytes.
            if same and other.last == start and position[id(other)] in tensor.inputs:
                continue
            raise OverlapError(
                f"{other.name} (live {other.first}..{other.last}) and {tensor.name} "
                f"(live {tensor.first}..{tensor.last}) share bytes from "
                f"{max(other.offset, tensor.offset)}"
            )
        active.append(tensor)


def _arena_tensor(binding: relax.VarBinding, sizes: dict[relax.Var, int]) -> _ArenaTensor:
    storage, offset_expr, shape, dtype = binding.value.args[:4]
    offset = _constant(offset_expr)
    size = tensor_bytes(shape, str(dtype.value))
    name = binding.var.name
    if storage not in sizes:
        raise OverlapError(f"{name} is cut from something that is not a storage")
    if offset % 64 or offset < 0 or offset + size > sizes[storage]:
        raise OverlapError(f"{name} at {offset} is misaligned or outside {sizes[storage]} bytes")
    return _ArenaTensor(name, storage, offset, size)


def tensor_bytes(shape: relax.ShapeExpr, dtype: str) -> int:
    """Return the bytes of a tensor with a constant shape."""
    count = math.prod(_constant(extent) for extent in shape.values)
    kind = DataType(dtype)
    return count * kind.lanes * ((kind.bits + 7) // 8)


def _held(expr: relax.Expr, holds: dict[relax.Var, frozenset[int]]) -> frozenset[int]:
    found: frozenset[int] = frozenset()
    for var in relax.analysis.free_vars(expr):
        found |= holds.get(var, frozenset())
    return found


def _returns_scalar(var: relax.Var) -> bool:
    return not isinstance(var.ty, (relax.TensorType, tvm.ir.TupleType, relax.AnyType))


def _constant(expr: object) -> int:
    if isinstance(expr, int):
        return expr
    if isinstance(expr, IntImm):
        return int(expr.value)
    raise OverlapError(f"expected a constant, got {expr}")
