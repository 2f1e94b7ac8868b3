"""Make memory explicit: one arena a call, an offset for each intermediate, fresh outputs.

`call_tir` becomes a call of the PrimFunc for effect, on tensors cut from the arena by
`R.memory.alloc_tensor(storage, offset)`. What has a symbolic size, or is returned to the caller,
comes from the run-time pool instead, so both kinds of tensor may live in one function.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, te, tirx
from tvm.relax import analysis as relax_analysis
from tvm.tirx.buffer import BufferType

from relax_passes.memory.in_place import choose_in_place, in_place_variant
from relax_passes.memory.live_ranges import (
    CALL_TIR,
    LiveRanges,
    analyze_live_ranges,
    is_call_to,
    result_types,
)
from relax_passes.memory.parallel_safe import (
    analyze_data_flow,
    may_overwrite,
    place_longest_path_first,
)
from relax_passes.memory.plan_offsets import Plan, Strategy, plan_offsets
from relax_passes.memory.tvm_planner import tvm_planner_bytes
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.pass_options import option
from relax_passes.schedule_kernels import schedule_kernel

NAME = "plan_memory"
_DEVICE_INDEX = 0


@dataclass(frozen=True)
class MemoryOptions:
    """How the arena is packed."""

    strategy: Strategy = option("search", "how offsets are found")
    reuse: bool = option(True, "whether tensors may share bytes; false is for debugging")
    in_place: bool = option(True, "whether a result may overwrite an operand that dies there")
    parallel_safe: bool = option(False, "whether branches that may run together share no bytes")
    poison: bool = option(False, "whether freed bytes are overwritten with NaN or 0xA5")
    compare: bool = option(False, "whether TVM's planner runs too, for the report")


@graph_pass(name=NAME, phase="memory", options=MemoryOptions)
def plan_memory(
    mod: tvm.IRModule, ctx: PassContext, options: MemoryOptions
) -> tuple[tvm.IRModule, bool]:
    """Place the intermediates of each function in one arena, at offsets packed by live range."""
    flat = relax.transform.ToNonDataflow()(mod)
    main = flat["main"]
    if not main.is_pure and not any(is_call_to(b.value, CALL_TIR) for b in _bindings(main)):
        return mod, False  # planned before: kernels are called for effect already
    planned = _accept_offsets(flat)
    totals = _Totals(parallel_safe=options.parallel_safe)
    if options.compare:
        ctx.log.metrics["tvm_planner_bytes"] = tvm_planner_bytes(mod)
    for var, func in flat.functions.items():
        if isinstance(func, relax.Function):
            planned = _plan_function(planned, var.name_hint, ctx, totals, options)
    totals.allocations = _allocations(planned["main"])
    totals.report(ctx)
    return planned, True


def _allocations(main: relax.Function) -> dict[str, int]:
    """Count what one run asks the run-time pool for, which hands out again what came back to it."""
    calls = [binding.value for binding in _bindings(main)]
    returned = {var.name for var in relax_analysis.free_vars(main.body.body)}
    fresh = [
        binding.var.name in returned
        for binding in _bindings(main)
        if is_call_to(binding.value, "relax.builtin.alloc_tensor")
    ]
    return {
        "arenas": sum(is_call_to(call, "relax.memory.alloc_storage") for call in calls),
        "outputs": sum(fresh),
        "tensors of symbolic size": len(fresh) - sum(fresh),
    }


def _bindings(func: relax.Function) -> list[relax.Binding]:
    return [binding for block in func.body.blocks for binding in block.bindings]


def _plan_function(
    mod: tvm.IRModule, name: str, ctx: PassContext, totals: _Totals, options: MemoryOptions
) -> tvm.IRModule:
    """Plan one function; each call of it allocates an arena of its own."""
    func = mod[name]
    bindings = _bindings(func)
    live = analyze_live_ranges(bindings, func.body.body)
    totals.naive += sum(_padded(s.arena_bytes) for s in live.storages)
    allowed = {}
    if options.parallel_safe:
        allowed = {"may_overwrite": may_overwrite(live, analyze_data_flow(bindings, live))}
    in_place = choose_in_place(mod, bindings, live, **allowed) if options.in_place else {}
    planned = [i for i, s in enumerate(live.storages) if s.planned and s.host is None]
    buffers = [live.storages[i] for i in planned]
    # Without reuse every buffer lives as long as the function.
    ranges = [(b.lower, b.upper) if options.reuse else (-1, len(bindings) + 1) for b in buffers]
    plan = plan_offsets(
        [(*r, b.arena_bytes) for r, b in zip(ranges, buffers, strict=True)],
        strategy=options.strategy,
    )
    if options.parallel_safe and options.reuse:
        sizes = [_padded(b.arena_bytes) for b in buffers]
        found = place_longest_path_first(planned, sizes, analyze_data_flow(bindings, live))
        peak = max(map(sum, zip(found, sizes, strict=True)), default=0)
        totals.parallel_cost += peak - plan.peak
        plan = Plan(tuple(found), peak, plan.lower_bound)
    offsets = dict(zip(planned, plan.offsets, strict=True))
    totals.add(plan, len(planned), len(in_place))
    totals.buffers += _described(name, bindings, live, offsets)
    return _Rewriter(mod, ctx, live, in_place, offsets, plan.peak, options.poison).rewrite(name)


def _padded(size: int) -> int:
    return -(-size // 64) * 64


def _described(
    function: str, bindings: list[relax.Binding], live: LiveRanges, offsets: dict[int, int]
) -> list[dict[str, Any]]:
    """Return each buffer of the arena as the report keeps it; steps are bindings."""
    names = {
        index: binding.var.name
        for binding in bindings
        for index in live.results.get(binding.var, ())
    }
    return [
        {
            "function": function,
            "name": names[index],
            "lower": live.storages[index].lower,
            "upper": live.storages[index].upper,
            "offset": offset,
            "size": live.storages[index].arena_bytes,
        }
        for index, offset in offsets.items()
    ]


@dataclass
class _Totals:
    """What the arenas of all functions take together."""

    peak: int = 0
    bound: int = 0
    naive: int = 0
    planned: int = 0
    in_place: int = 0
    parallel_safe: bool = False
    parallel_cost: int = 0
    buffers: list[dict[str, Any]] = field(default_factory=list)
    allocations: dict[str, int] = field(default_factory=dict)

    def add(self, plan: Plan, planned: int, in_place: int) -> None:
        self.peak += plan.peak
        self.bound += plan.lower_bound
        self.planned += planned
        self.in_place += in_place

    def report(self, ctx: PassContext) -> None:
        ctx.log.metrics["arena_bytes"] = self.peak
        ctx.log.metrics["lower_bound_bytes"] = self.bound
        ctx.log.metrics["naive_bytes"] = self.naive
        ctx.log.metrics["memory_plan"] = self.buffers
        ctx.log.fire(
            NAME,
            f"{self.planned} tensors in {self.peak} bytes (bound {self.bound}, naive "
            f"{self.naive}), {self.in_place} results in place",
        )
        ctx.log.metrics["allocations_per_run"] = self.allocations
        if self.parallel_safe:
            ctx.log.metrics["parallel_safe_cost_bytes"] = self.parallel_cost
            ctx.log.fire(NAME, f"branches share nothing, at the cost of {self.parallel_cost} bytes")


def _accept_offsets(mod: tvm.IRModule) -> tvm.IRModule:
    """Let every PrimFunc take buffers that start anywhere in their storage.

    A TIR buffer is matched with a zero element offset unless it declares an offset factor.
    """
    functions = {}
    for var, func in mod.functions.items():
        if isinstance(func, tirx.PrimFunc):
            renamed = {
                p: tirx.decl_buffer(p.shape, p.dtype, p.name, offset_factor=1)
                for p in func.params
                if isinstance(p.ty, BufferType)
            }
            func = replace_buffers(func, renamed, [renamed.get(p, p) for p in func.params])
        functions[var] = func
    return tvm.IRModule(functions, attrs=mod.attrs)


def replace_buffers(
    func: tirx.PrimFunc, renamed: dict[tirx.Var, tirx.Var], params: list[tirx.Var]
) -> tirx.PrimFunc:
    """Return `func` with other parameters and each buffer replaced as `renamed` says."""
    body = tvm_ffi.structural_map(func.body, (tirx.Var, lambda v: renamed.get(v, v)))
    return tirx.PrimFunc(params, body, func.ret_type, func.attrs)


class _Rewriter:
    """Emits a function again, with allocations and calls for effect."""

    def __init__(
        self,
        mod: tvm.IRModule,
        ctx: PassContext,
        live: LiveRanges,
        in_place: dict[relax.Var, int],
        offsets: dict[int, int],
        arena_bytes: int,
        poison: bool,
    ) -> None:
        self._builder = relax.BlockBuilder(mod)
        self._mod, self._ctx, self._live = mod, ctx, live
        self._in_place, self._offsets, self._arena_bytes = in_place, offsets, arena_bytes
        self._poison = poison
        self._poisons: dict[str, tvm.ir.GlobalVar] = {}
        self._arena: relax.Var | None = None
        self._new: dict[relax.Expr, relax.Expr] = {}
        self._storages: dict[relax.Expr, frozenset[int]] = {}  # of the emitted variables
        self._variants: dict[tuple[tvm.ir.GlobalVar, int], tvm.ir.GlobalVar] = {}

    def rewrite(self, name: str) -> tvm.IRModule:
        """Return the module with function `name` planned; its global variable stays the same."""
        builder, live = self._builder, self._live
        func = self._mod[name]
        public = func.attrs is not None and "global_symbol" in func.attrs
        attrs = dict(func.attrs or {})
        if not public:
            # Its callers see a pure function: what it writes is its own.
            attrs["relax.force_pure"] = True
        # Built under another name first: a function cannot be replaced while it is being read.
        draft_name = f"planned_{name}"
        with builder.function(
            draft_name, func.params, attrs=attrs, pure=not public, private=not public
        ):
            if self._offsets and self._arena_bytes:
                shape = relax.ShapeExpr([self._arena_bytes])
                storage = relax.op.memory.alloc_storage(shape, _DEVICE_INDEX, "global", "uint8")
                self._arena = builder.emit(storage, "arena")
            for step, binding in enumerate(_bindings(func)):
                self._emit(binding)
                if self._poison:
                    self._poison_freed(step)
                self._storages.setdefault(self._new[binding.var], live.names[binding.var])
            result = self._map(func.body.body)
            draft = builder.emit_func_output(self._own_results(result) if public else result)
        mod = builder.finalize()
        functions = dict(mod.functions)
        # The builder keeps one of equal functions, so the draft may be one that was planned before.
        planned = functions.pop(draft) if draft.name_hint == draft_name else functions[draft]
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
        operand = self._in_place.get(var)
        if operand is not None:
            callee = self._variant(callee, operand)
            self._builder.emit(relax.Call(callee, [*inputs, *symbols]), "_")
            self._new[var] = inputs[operand]
            return
        outputs = [
            self._allocate(index, ty, var.name)
            for index, ty in zip(self._live.results[var], result_types(var.ty), strict=True)
        ]
        shapes = [dim for symbol in symbols for dim in symbol.values]
        self._builder.emit(relax.Call(callee, [*inputs, *outputs, *shapes]), "_")
        single = not isinstance(var.ty, relax.TupleType)
        self._new[var] = outputs[0] if single else relax.Tuple(outputs)
        for index, output in zip(self._live.results[var], outputs, strict=True):
            self._storages[output] = frozenset([index])

    def _allocate(self, index: int, ty: relax.TensorType, name: str) -> relax.Var:
        if index in self._offsets and self._arena is not None:
            tensor = relax.op.memory.alloc_tensor(
                self._arena, self._offsets[index], ty.shape, str(ty.dtype)
            )
        else:
            tensor = relax.op.builtin.alloc_tensor(ty.shape, str(ty.dtype), _DEVICE_INDEX, "global")
        return self._builder.emit(tensor, name)

    def _variant(self, callee: tvm.ir.GlobalVar, operand: int) -> tvm.ir.GlobalVar:
        if (callee, operand) not in self._variants:
            func = in_place_variant(self._mod[callee], operand)
            name = f"{callee.name_hint}_in_place"
            self._variants[callee, operand] = self._builder.add_func(func, name)
        return self._variants[callee, operand]

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
        # A kernel's sizes are symbols of its own: those of the graph are not its to read.
        shape = [
            dim if isinstance(dim, tirx.IntImm) else tirx.Var(f"n{axis}", "int64")
            for axis, dim in enumerate(value.ty.shape)
        ]
        dtype = str(value.ty.dtype)
        source = te.placeholder(shape, dtype, name="source")
        copied = te.compute(shape, lambda *i: source(*i), name="copied")
        callee = self._add_kernel([source, copied], "copy")
        tensor = relax.op.builtin.alloc_tensor(value.ty.shape, dtype, _DEVICE_INDEX, "global")
        result = self._builder.emit(tensor, "copied")
        self._builder.emit(relax.Call(callee, [value, result]), "_")
        return result

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
        func = list(_accept_offsets(tvm.IRModule({name: func})).functions.values())[0]
        return self._builder.add_func(func, name)


def _poison(dtype: str) -> te.Tensor:
    """Return a computation that fills any number of elements with what no kernel means to read."""
    value = tirx.const(0xA5 if dtype == "uint8" else math.nan, dtype)
    return te.compute((tirx.Var("n", "int64"),), lambda i: value, name="filled")
