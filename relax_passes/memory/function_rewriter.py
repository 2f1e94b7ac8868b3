"""Emit a function again with its plan: tensors cut from one arena, kernels called for effect."""

from __future__ import annotations

import math

import tvm
import tvm_ffi
from tvm import relax, te, tirx

from relax_passes.memory.buffer_offsets import with_offsets
from relax_passes.memory.in_place import InPlace, in_place_variant
from relax_passes.memory.live_ranges import (
    CALL_TIR,
    CONCAT,
    LiveRanges,
    bindings_of,
    is_call_to,
    result_types,
    static_bytes,
)
from relax_passes.memory.symbolic_storage import symbolic_bytes
from relax_passes.memory.update_states import STATES, overwritten_states
from relax_passes.pass_base import PassContext
from relax_passes.schedule_kernels import schedule_kernel

_DEVICE_INDEX = 0


class FunctionRewriter:
    """Emits a function again, with allocations and calls for effect."""

    def __init__(
        self,
        mod: tvm.IRModule,
        ctx: PassContext,
        live: LiveRanges,
        in_place: dict[relax.Var, InPlace],
        copied: dict[relax.Var, list[int]],
        offsets: dict[int, int],
        shared: dict[int, int],
        arena_bytes: int,
        poison: bool,
    ) -> None:
        self._builder = relax.BlockBuilder(mod)
        self._mod, self._ctx, self._live = mod, ctx, live
        self._in_place, self._offsets, self._arena_bytes = in_place, offsets, arena_bytes
        self._copied, self._poison = copied, poison
        self._poisons: dict[str, tvm.ir.GlobalVar] = {}
        self._arena: relax.Var | None = None
        self._shared = shared
        self._shared_storages: dict[int, relax.Var] = {}  # by the first tensor in each
        self._wholes: dict[int, relax.Var] = {}  # buffers of concatenations, by storage
        self._new: dict[relax.Expr, relax.Expr] = {}
        self._storages: dict[relax.Expr, frozenset[int]] = {}  # of the emitted variables
        self._variants: dict[tuple[tvm.ir.GlobalVar, InPlace], tvm.ir.GlobalVar] = {}

    def rewrite(self, name: str) -> tvm.IRModule:
        """Return the module with function `name` planned; its global variable stays the same."""
        builder, live = self._builder, self._live
        func = self._mod[name]
        public = func.attrs is not None and "global_symbol" in func.attrs
        attrs = dict(func.attrs or {})
        if not public:
            # Its callers see a pure function: what it writes is its own.
            attrs["relax.force_pure"] = True
        if self._ctx.states and (states := overwritten_states(func, self._in_place)):
            attrs[STATES] = states
        # Built under another name first: a function cannot be replaced while it is being read.
        draft_name = f"planned_{name}"
        with builder.function(
            draft_name, func.params, attrs=attrs, pure=not public, private=not public
        ):
            if self._offsets and self._arena_bytes:
                shape = relax.ShapeExpr([self._arena_bytes])
                storage = relax.op.memory.alloc_storage(shape, _DEVICE_INDEX, "global", "uint8")
                self._arena = builder.emit(storage, "arena")
            for step, binding in enumerate(bindings_of(func)):
                self._emit(binding)
                if self._poison:
                    self._poison_freed(step)
                self._storages.setdefault(self._new[binding.var], live.names[binding.var])
            result = self._map(func.body.body)
            draft = builder.emit_func_output(self._own_results(result) if public else result)
        mod = builder.finalize()
        functions = dict(mod.functions)
        if draft.name_hint == draft_name:
            planned = functions.pop(draft)
        else:  # The builder keeps one of equal functions; two may not share variables.
            planned = relax.utils.copy_with_new_vars(functions[draft])
        if public:
            planned = planned.with_attr("global_symbol", name)
        functions[mod.get_global_var(name)] = planned
        return tvm.IRModule(functions, attrs=mod.attrs)

    def _emit(self, binding: relax.Binding) -> None:
        var, value = binding.var, binding.value
        if isinstance(binding, relax.MatchCast):
            cast = relax.MatchCast(relax.Var(var.name, binding.ty), self._map(value), binding.ty)
            self._builder.emit_normalized(cast)
            self._new[var] = cast.var
        elif is_call_to(value, CALL_TIR):
            self._emit_kernel(var, value)
        elif is_call_to(value, CONCAT):
            self._emit_concat(var, value)
        elif isinstance(value, relax.Tuple):
            self._new[var] = self._map(value)
        elif isinstance(value, relax.TupleGetItem) and isinstance(
            self._map(value.tuple_value), relax.Tuple
        ):
            self._new[var] = self._map(value.tuple_value).fields[value.index]
        elif isinstance(value, relax.Var):
            self._new[var] = self._map(value)
        else:
            self._new[var] = self._builder.emit(self._map(value), var.name)

    def _emit_kernel(self, var: relax.Var, call: relax.Call) -> None:
        callee, packed, *symbols = call.args
        inputs = [self._map(arg) for arg in packed.fields]
        over = self._in_place.get(var)
        outputs = [
            inputs[over.operand]
            if over is not None and number == over.result
            else self._allocate(index, ty, var.name)
            for number, (index, ty) in enumerate(
                zip(self._live.results[var], result_types(var.ty), strict=True)
            )
        ]
        if over is not None:
            callee = self._variant(callee, over, len(inputs))
        stored = [o for k, o in enumerate(outputs) if over is None or k != over.result]
        shapes = [dim for symbol in symbols for dim in symbol.values]
        self._builder.emit(relax.Call(callee, [*inputs, *stored, *shapes]), "_")
        single = not isinstance(var.ty, relax.TupleType)
        self._new[var] = outputs[0] if single else relax.Tuple(outputs)

    def _emit_concat(self, var: relax.Var, concat: relax.Call) -> None:
        """Copy the operands that do not lie in the concatenation; the others are there already."""
        (index,) = self._live.results[var]
        begin = 0
        for number, operand in enumerate(concat.args[0].fields):
            if number in self._copied[var]:
                slot = self._slice(index, begin, operand.ty, f"{var.name}_part")
                source = self._map(operand)
                self._builder.emit(
                    relax.Call(self._copy_kernel(source, "copy_part"), [source, slot]), "_"
                )
            begin += static_bytes(operand.ty) or 0
        root, shift = self._live.place_of(index)
        whole = root == index and shift == 0
        self._new[var] = self._whole(root) if whole else self._slice(index, 0, var.ty, var.name)
        self._storages[self._new[var]] = frozenset([index])

    def _allocate(self, index: int, ty: relax.TensorType, name: str) -> relax.Var:
        # Only a part has a host here: a result in place allocates nothing.
        is_part = self._live.host_of(index) != index
        tensor = self._slice(index, 0, ty, name) if is_part else self._new_tensor(index, ty, name)
        self._storages[tensor] = frozenset([index])
        return tensor

    def _slice(self, index: int, begin: int, ty: relax.TensorType, name: str) -> relax.Var:
        """Return bytes of a storage, `begin` bytes from its start, as a tensor."""
        root, shift = self._live.place_of(index)
        view = relax.op.memory.view(self._whole(root), ty.shape, str(ty.dtype), shift + begin)
        return self._builder.emit(view, name)

    def _whole(self, root: int) -> relax.Var:
        """Return the buffer of a concatenation, allocated where its first part is made."""
        if root not in self._wholes:
            self._wholes[root] = self._new_tensor(root, self._live.storages[root].ty, "parts")
        return self._wholes[root]

    def _new_tensor(self, index: int, ty: relax.TensorType, name: str) -> relax.Var:
        if index in self._offsets and self._arena is not None:
            tensor = relax.op.memory.alloc_tensor(
                self._arena, self._offsets[index], ty.shape, str(ty.dtype)
            )
        elif index in self._shared:
            storage = self._shared_storage(self._shared[index], ty, name)
            tensor = relax.op.memory.alloc_tensor(storage, 0, ty.shape, str(ty.dtype))
        else:
            tensor = relax.op.builtin.alloc_tensor(ty.shape, str(ty.dtype), _DEVICE_INDEX, "global")
        return self._builder.emit(tensor, name)

    def _shared_storage(self, owner: int, ty: relax.TensorType, name: str) -> relax.Var:
        """Return the storage of tensors of one symbolic size, allocated for the first of them."""
        if owner not in self._shared_storages:
            size = relax.ShapeExpr([symbolic_bytes(ty)])
            storage = relax.op.memory.alloc_storage(size, _DEVICE_INDEX, "global", "uint8")
            self._shared_storages[owner] = self._builder.emit(storage, f"{name}_storage")
        return self._shared_storages[owner]

    def _variant(self, callee: tvm.ir.GlobalVar, over: InPlace, inputs: int) -> tvm.ir.GlobalVar:
        if (callee, over) not in self._variants:
            func = in_place_variant(self._mod[callee], over.operand, inputs + over.result)
            name = f"{callee.name_hint}_in_place"
            self._variants[callee, over] = self._builder.add_func(func, name)
        return self._variants[callee, over]

    def _map(self, expr: relax.Expr) -> relax.Expr:
        if expr in self._new:
            return self._new[expr]
        return tvm_ffi.structural_map(expr, (relax.Var, lambda v: self._new.get(v, v)))

    def _own_results(self, result: relax.Expr) -> relax.Expr:
        """Return the function's result, with a copy of each part that is not its own tensor.

        A part that is an input, a constant, or a second name of another part would otherwise
        change when its owner does. What another function returned may be any of these.
        """
        taken: set[int] = set()

        def own(part: relax.Expr) -> relax.Expr:
            if isinstance(part, relax.Tuple):
                return relax.Tuple([own(inner) for inner in part.fields])
            owned = self._storages.get(part, frozenset())
            foreign = any(self._live.storages[index].foreign for index in owned)
            fresh = owned and not owned & taken and not foreign
            if fresh or not isinstance(part.ty, relax.TensorType):
                taken.update(owned)
                return part
            return self._copy(part)

        return own(result)

    def _copy(self, value: relax.Expr) -> relax.Var:
        """Return a fresh tensor of the caller's with the same elements."""
        callee = self._copy_kernel(value, "copy")
        tensor = relax.op.builtin.alloc_tensor(
            value.ty.shape, str(value.ty.dtype), _DEVICE_INDEX, "global"
        )
        result = self._builder.emit(tensor, "copied")
        self._builder.emit(relax.Call(callee, [value, result]), "_")
        return result

    def _copy_kernel(self, value: relax.Expr, name: str) -> tvm.ir.GlobalVar:
        """Return a kernel that copies tensors of a value's type."""
        # A kernel's sizes are symbols of its own: those of the graph are not its to read.
        shape = [
            dim if isinstance(dim, tirx.IntImm) else tirx.Var(f"n{axis}", "int64")
            for axis, dim in enumerate(value.ty.shape)
        ]
        dtype = str(value.ty.dtype)
        source = te.placeholder(shape, dtype, name="source")
        copied = te.compute(shape, lambda *i: source(*i), name="copied")
        return self._add_kernel([source, copied], name)

    def _poison_freed(self, step: int) -> None:
        """Overwrite what was read for the last time: a stale read then shows in the results."""
        for index, offset in self._offsets.items():
            storage = self._live.storages[index]
            if storage.upper != step + 1 or not storage.arena_bytes:
                continue
            dtype = str(storage.ty.dtype)
            dtype = dtype if dtype in ("float16", "float32", "float64") else "uint8"
            if dtype not in self._poisons:
                self._poisons[dtype] = self._add_kernel([_poison(dtype)], f"poison_{dtype}")
            count = storage.arena_bytes // (tvm.runtime.DataType(dtype).bits // 8)
            shape = relax.ShapeExpr([count])
            freed = relax.op.memory.alloc_tensor(self._arena, offset, shape, dtype)
            target = self._builder.emit(freed, "freed")
            self._builder.emit(relax.Call(self._poisons[dtype], [target]), "_")

    def _add_kernel(self, tensors: list[te.Tensor], name: str) -> tvm.ir.GlobalVar:
        """Schedule a computation and add it to the module as a kernel."""
        func = te.create_prim_func(tensors).without_attr("global_symbol")
        func, _ = schedule_kernel(func, self._ctx)
        return self._builder.add_func(with_offsets(func, self._ctx.machine.kind), name)


def _poison(dtype: str) -> te.Tensor:
    """Return a computation that fills any number of elements with what no kernel means to read."""
    value = tirx.const(0xA5 if dtype == "uint8" else math.nan, dtype)
    return te.compute((tirx.Var("n", "int64"),), lambda i: value, name="filled")
