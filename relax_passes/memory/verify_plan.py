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
import tvm_ffi
from tvm import DataType, relax, tirx
from tvm.ir import Call, GlobalVar
from tvm.tirx import IntImm


class OverlapError(ValueError):
    """Two buffers that are alive together share bytes."""


# Stated here again: the verifier trusts nothing of the planner.
_PACKED = ("relax.call_pure_packed", "relax.call_dps_packed", "relax.tensor_to_shape")


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


def verify_plan(func: relax.Function, mod: tvm.IRModule | None = None) -> None:
    """Check that no two live tensors of a planned function overlap in the arena.

    Args:
        func: A planned function.
        mod: Its module. What a kernel writes is then read from its loops, and a result in place is
            checked against the other names of its bytes.

    Raises:
        OverlapError: Naming the two tensors and the bytes they share, or a tensor that lies
            outside its storage, is misaligned, is read before it is written, is read by another
            name after it was overwritten, or leaves the function.
    """
    replay = _Replay(mod)
    for block in func.body.blocks:
        for binding in block.bindings:
            replay.step(binding)
    for index in replay.held(func.body.body):
        raise OverlapError(f"{replay.tensors[index].name} lies in the arena but is returned")
    _check_pairs(replay.tensors)


class _Replay:
    """The bindings run once more, in thought: which tensor each variable holds, and its uses."""

    def __init__(self, mod: tvm.IRModule | None) -> None:
        self.tensors: list[_ArenaTensor] = []
        self._mod = mod
        self._holds: dict[relax.Var, frozenset[int]] = {}
        self._sizes: dict[relax.Var, int] = {}
        self._now = 0
        # For a tensor overwritten in place: the name it was written by, and those from before.
        self._stale: dict[int, dict[relax.Var, relax.Var]] = {}

    def held(self, expr: relax.Expr) -> frozenset[int]:
        """Return the arena tensors that an expression may read."""
        found: frozenset[int] = frozenset()
        for var in relax.analysis.free_vars(expr):
            found |= self._holds.get(var, frozenset())
        return found

    def step(self, binding: relax.Binding) -> None:
        """Take in one binding."""
        self._now += 1
        var, value = binding.var, binding.value
        op = getattr(getattr(value, "op", None), "name", "") if isinstance(value, Call) else ""
        if op == "relax.memory.alloc_storage":
            self._sizes[var] = _constant(value.args[0].values[0])
            return
        if op == "relax.memory.alloc_tensor":
            self.tensors.append(_arena_tensor(binding, self._sizes))
            self._holds[var] = frozenset({len(self.tensors) - 1})
            return
        used = self.held(value)
        for index in used:
            self.tensors[index].last = self._now
        self._check_names(value)
        if isinstance(value, relax.If) or op in _PACKED or self._is_function(value):
            for index in used:
                raise OverlapError(f"{self.tensors[index].name} lies in the arena but leaves it")
        if isinstance(value, Call) and self._is_kernel(value, op):
            self._run_kernel(value, used)
        elif op != "relax.reshape" and not isinstance(value, (relax.Tuple, relax.TupleGetItem)):
            self._check_written(used)
        if not _returns_scalar(var):
            self._holds[var] = used

    def _is_kernel(self, call: Call, op: str) -> bool:
        effect = isinstance(call.op, (GlobalVar, relax.ExternFunc))
        return effect or op == "relax.vm.call_tir_dyn"

    def _is_function(self, value: relax.Expr) -> bool:
        """Tell whether a value calls a Relax function, whose result may be what it was given."""
        if self._mod is None or not isinstance(value, Call) or not isinstance(value.op, GlobalVar):
            return False
        return isinstance(self._mod[value.op], relax.Function)

    def _run_kernel(self, call: Call, used: frozenset[int]) -> None:
        """Note what a kernel writes: what nobody has written yet, and what its loops store to."""
        fresh = {i for i in used if not self.tensors[i].written}
        stored = self._stored_arguments(call)
        for position, arg in enumerate(call.args):
            for index in self._holds.get(arg, frozenset()):
                if stored is not None and index in fresh and position not in stored:
                    raise OverlapError(f"{self.tensors[index].name} is read before it is written")
                if stored is not None and position in stored and index not in fresh:
                    self._overwrite(call, position, index)
        for index in fresh:
            tensor = self.tensors[index]
            tensor.written, tensor.first, tensor.inputs = True, self._now, set(used - fresh)

    def _overwrite(self, call: Call, position: int, index: int) -> None:
        """Note a result in place: no other argument, and no other name later, may be its bytes."""
        name = self.tensors[index].name
        for other, arg in enumerate(call.args):
            if other != position and index in self._holds.get(arg, frozenset()):
                raise OverlapError(f"a kernel overwrites {name} and reads it as another argument")
        written = call.args[position]
        stale = self._stale.setdefault(index, {})
        for var, indices in self._holds.items():
            if index in indices and var != written:
                stale[var] = written
        stale.pop(written, None)

    def _check_names(self, value: relax.Expr) -> None:
        for var in relax.analysis.free_vars(value):
            for index in self._holds.get(var, frozenset()):
                if var in self._stale.get(index, {}):
                    raise OverlapError(
                        f"{self.tensors[index].name} is read as {var.name} after it was "
                        f"overwritten as {self._stale[index][var].name}"
                    )

    def _check_written(self, used: frozenset[int]) -> None:
        for index in used:
            if not self.tensors[index].written:
                raise OverlapError(f"{self.tensors[index].name} is read before it is written")

    def _stored_arguments(self, call: Call) -> set[int] | None:
        """Return the positions of the arguments that a kernel stores to, None if unknown."""
        func = self._mod[call.op] if self._mod and isinstance(call.op, GlobalVar) else None
        if not isinstance(func, tirx.PrimFunc):
            return None
        stores: list[tirx.BufferStore] = []
        tvm_ffi.structural_walk(func.body, (tirx.BufferStore, stores.append))
        stored = {
            position
            for position, param in enumerate(func.params)
            if any(store.buffer.same_as(param) for store in stores)
        }
        return stored or None


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


def _returns_scalar(var: relax.Var) -> bool:
    return not isinstance(var.ty, (relax.TensorType, tvm.ir.TupleType, relax.AnyType))


def _constant(expr: object) -> int:
    if isinstance(expr, int):
        return expr
    if isinstance(expr, IntImm):
        return int(expr.value)
    raise OverlapError(f"expected a constant, got {expr}")
