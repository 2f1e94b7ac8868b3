"""Replay a planned function: which bytes each variable holds, and who writes and reads them when.

A tensor cut from the arena is a run of bytes. A view names all of it, `R.memory.view` some of it,
as do the parts of a concatenation; so what is written, overwritten and read is known by the byte.
Tensors from the run-time pool are followed in the same way; they may leave the function. So are
the parameters and the constants, which live for ever and which nothing may write.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import DataType, relax, tirx
from tvm.ir import Call, GlobalVar
from tvm.sym import Analyzer
from tvm.tirx import IntImm

from relax_passes.analysis.size_bounds import SizeBounds
from relax_passes.memory.arena_tensor import ArenaTensor, Span, meet
from relax_passes.memory.verify_offsets import OverlapError

# Stated here again: the verifier trusts nothing of the planner.
_PACKED = ("relax.call_pure_packed", "relax.call_dps_packed", "relax.tensor_to_shape")
_VIEWS = ("relax.reshape", "relax.memory.view")
_WHOLE = 1 << 62  # bytes of a tensor that takes all of a storage of symbolic size


class Replay:
    """The bindings run once more, in thought: which bytes each variable holds, and their uses."""

    def __init__(self, func: relax.Function, mod: tvm.IRModule | None) -> None:
        """Start with nothing allocated; kernels are looked up in `mod`, where it is given."""
        self._bounds = SizeBounds(func)
        self.tensors: list[ArenaTensor] = []
        self._mod = mod
        self._holds: dict[relax.Var, dict[int, Span]] = {}
        self._sizes: dict[relax.Var, Any] = {}  # of storages: bytes, an expression if symbolic
        self._now = 0
        # For a tensor overwritten in place: the name it was written by, and those from before.
        self._stale: dict[int, dict[relax.Var, relax.Var]] = {}
        self._constants = self._fix("a constant", _WHOLE)
        # What the caller gave away: its next value is written over it, and returned.
        states = set(map(int, (func.attrs or {}).get("relaxc.states", [])))
        for number, param in enumerate(func.params):
            if not _returns_scalar(param):
                size = self._bounds.bytes_of(param.ty) or _WHOLE
                fixed = number not in states
                self._holds[param] = self._fix(f"parameter {param.name}", size, fixed)

    def _fix(self, name: str, size: int, fixed: bool = True) -> dict[int, Span]:
        """Take in what was there before, `fixed` where nothing may write it; return its names."""
        self.tensors.append(ArenaTensor(name, None, 0, size, fixed=fixed, written=[(0, size)]))
        return {len(self.tensors) - 1: (0, size)}

    def held(self, expr: relax.Expr) -> dict[int, Span]:
        """Return the tensors that an expression may read, and the bytes of each."""
        found: dict[int, Span] = {}
        for var in relax.analysis.free_vars(expr):
            for index, span in self._holds.get(var, {}).items():
                begin, end = found.get(index, span)
                found[index] = (min(begin, span[0]), max(end, span[1]))
        if _has_constant(expr):
            found.update(self._constants)
        return found

    def in_arena(self, expr: relax.Expr) -> list[str]:
        """Return the names of the arena tensors that an expression may read."""
        held = (self.tensors[index] for index in self.held(expr))
        return [tensor.name for tensor in held if tensor.storage is not None]

    def step(self, binding: relax.Binding) -> None:
        """Take in one binding.

        Raises:
            OverlapError: If it breaks what `verify_plan` checks.
        """
        self._now += 1
        var, value = binding.var, binding.value
        op = getattr(getattr(value, "op", None), "name", "") if isinstance(value, Call) else ""
        if op == "relax.memory.alloc_storage":
            self._sizes[var] = value.args[0].values[0]
            return
        if op in ("relax.memory.alloc_tensor", "relax.builtin.alloc_tensor"):
            self._allocate(binding, op == "relax.memory.alloc_tensor")
            return
        used = self.held(value)
        for index in used:
            self.tensors[index].last = self._now
        self._check_names(value)
        if isinstance(value, relax.If) or op in _PACKED or self._is_function(value):
            for name in self.in_arena(value):
                raise OverlapError(f"{name} lies in the arena but leaves it")
        if isinstance(value, Call) and _is_kernel(value, op):
            self._run_kernel(value)
        elif op not in _VIEWS and not isinstance(value, (relax.Tuple, relax.TupleGetItem)):
            self._check_written(used)
        if op == "relax.memory.view":
            used = self._part(binding, used)
        elif self._is_function(value):
            used = self._as_large_as(var, used)
        if not _returns_scalar(var):
            self._holds[var] = used

    def _allocate(self, binding: relax.VarBinding, in_arena: bool) -> None:
        tensor = self._arena_tensor(binding) if in_arena else _pool_tensor(binding)
        if tensor is not None:
            self._holds[binding.var] = {len(self.tensors): (0, tensor.size)}
            self.tensors.append(tensor)

    def _arena_tensor(self, binding: relax.VarBinding) -> ArenaTensor:
        storage, offset_expr = binding.value.args[:2]
        offset, name = _constant(offset_expr), binding.var.name
        if storage not in self._sizes:
            raise OverlapError(f"{name} is cut from something that is not a storage")
        room = self._sizes[storage]
        if not isinstance(room, IntImm):
            return self._symbolic_tensor(binding, room, offset)
        size = self._bounds.bytes_of(binding.var.ty)
        if size is None:
            raise OverlapError(f"{name} lies in the arena, but its size has no bound")
        if offset % 64 or offset < 0 or offset + size > int(room.value):
            raise OverlapError(f"{name} at {offset} is misaligned or outside {room} bytes")
        return ArenaTensor(name, storage, offset, size)

    def _symbolic_tensor(self, binding: relax.VarBinding, room: Any, offset: int) -> ArenaTensor:
        """Return a tensor that takes all of a storage whose size is symbolic."""
        storage, _, shape, dtype = binding.value.args[:4]
        size: Any = IntImm("int64", (DataType(str(dtype.value)).bits + 7) // 8)
        for dim in shape.values:
            size = size * dim
        if offset or not Analyzer().can_prove_equal(size, room):
            raise OverlapError(f"{binding.var.name} may not fit its storage of {room} bytes")
        return ArenaTensor(binding.var.name, storage, 0, _WHOLE)

    def _part(self, binding: relax.VarBinding, used: dict[int, Span]) -> dict[int, Span]:
        """Return the bytes that a view at an offset holds; it must lie within its source.

        What a function returns may be any of its arguments, but none with fewer bytes than that.
        """
        source, offset = binding.value.args[0], binding.value.args[3]
        shift, parts = _constant(getattr(offset, "value", offset)), {}
        size, whole = (self._bounds.bytes_of(var.ty) or 0 for var in (binding.var, source))
        for index, (begin, end) in used.items():
            if end - begin < whole:
                continue
            parts[index] = (begin + shift, begin + shift + size)
            if shift < 0 or begin + shift + size > end:
                raise OverlapError(
                    f"{binding.var.name} lies outside {self.tensors[index].name}, whose part it is"
                )
        return parts

    def _as_large_as(self, result: relax.Var, given: dict[int, Span]) -> dict[int, Span]:
        """Return those of a function's operands that its result may be: not smaller than it."""
        if not isinstance(result.ty, relax.TensorType):
            return given
        size = self._bounds.bytes_of(result.ty) or 0
        return {index: (a, b) for index, (a, b) in given.items() if b - a >= size}

    def _is_function(self, value: relax.Expr) -> bool:
        """Tell whether a value calls a Relax function, whose result may be what it was given."""
        if self._mod is None or not isinstance(value, Call) or not isinstance(value.op, GlobalVar):
            return False
        return isinstance(self._mod[value.op], relax.Function)

    def _run_kernel(self, call: Call) -> None:
        """Note what a kernel writes: what nobody has written yet, and what its loops store to."""
        stored = self._stored_arguments(call)
        writes: list[tuple[int, Span]] = []
        for position, arg in enumerate(call.args):
            for index, span in self.held(arg).items():
                tensor = self.tensors[index]
                if tensor.fixed and stored is not None and position in stored:
                    raise OverlapError(f"a kernel writes over {tensor.name}")
                if stored is None:
                    if not tensor.is_written(span):
                        writes.append((index, span))
                elif position not in stored:
                    if not tensor.is_written(span):
                        raise OverlapError(f"{tensor.name} is read before it is written")
                else:
                    if tensor.is_touched(span):
                        self._overwrite(call, position, index, span)
                    writes.append((index, span))
        fresh = {index for index, _ in writes if not self.tensors[index].written}
        for index in fresh:
            self.tensors[index].first = self._now
        for index, span in writes:
            self.tensors[index].write(span)

    def _overwrite(self, call: Call, position: int, index: int, span: Span) -> None:
        """Note a result in place: no other argument, and no other name later, may be its bytes."""
        name = self.tensors[index].name
        for other, arg in enumerate(call.args):
            held = self._holds.get(arg, {}).get(index)
            if other != position and held is not None and meet(held, span):
                raise OverlapError(f"a kernel overwrites {name} and reads it as another argument")
        written = call.args[position]
        stale = self._stale.setdefault(index, {})
        for var, spans in self._holds.items():
            if index in spans and var != written and meet(spans[index], span):
                stale[var] = written
        stale.pop(written, None)

    def _check_names(self, value: relax.Expr) -> None:
        for var in relax.analysis.free_vars(value):
            for index in self._holds.get(var, {}):
                if var in self._stale.get(index, {}):
                    raise OverlapError(
                        f"{self.tensors[index].name} is read as {var.name} after it was "
                        f"overwritten as {self._stale[index][var].name}"
                    )

    def _check_written(self, used: dict[int, Span]) -> None:
        for index, span in used.items():
            if not self.tensors[index].is_written(span):
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


def _is_kernel(call: Call, op: str) -> bool:
    effect = isinstance(call.op, (GlobalVar, relax.ExternFunc))
    return effect or op == "relax.vm.call_tir_dyn"


def _has_constant(expr: relax.Expr) -> bool:
    """Tell whether an expression is a constant tensor, is made with one, or may compute one."""
    if isinstance(expr, relax.If):
        return True
    if isinstance(expr, Call):
        return any(_has_constant(arg) for arg in expr.args)
    if isinstance(expr, relax.Tuple):
        return any(_has_constant(field) for field in expr.fields)
    # A data type or a string, too, is a constant, but not a tensor.
    return isinstance(expr, tvm.ir.GenericConst) and isinstance(expr.ty, relax.TensorType)


def _pool_tensor(binding: relax.VarBinding) -> ArenaTensor | None:
    """Return a tensor of the run-time pool, None for one of a symbolic size."""
    size = (DataType(str(binding.var.ty.dtype)).bits + 7) // 8
    for dim in binding.value.args[0].values:
        if not isinstance(dim, IntImm):
            return None
        size *= int(dim.value)
    return ArenaTensor(binding.var.name, None, 0, size)


def _returns_scalar(var: relax.Var) -> bool:
    return not isinstance(var.ty, (relax.TensorType, tvm.ir.TupleType, relax.AnyType))


def _constant(expr: object) -> int:
    if isinstance(expr, int):
        return expr
    if isinstance(expr, IntImm):
        return int(expr.value)
    raise OverlapError(f"expected a constant, got {expr}")
