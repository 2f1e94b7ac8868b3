"""Make memory explicit: one arena a call, an offset for each intermediate, fresh outputs.

`call_tir` becomes a call of the PrimFunc for effect, on tensors cut from the arena by
`R.memory.alloc_tensor(storage, offset)`. What has a symbolic size, or is returned to the caller,
comes from the run-time pool instead, so both kinds of tensor may live in one function.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax
from tvm.relax import analysis as relax_analysis

from relax_passes.memory.buffer_offsets import accept_offsets
from relax_passes.memory.function_rewriter import FunctionRewriter
from relax_passes.memory.in_place import choose_in_place
from relax_passes.memory.live_ranges import (
    CALL_TIR,
    LiveRanges,
    analyze_live_ranges,
    bindings_of,
    is_call_to,
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

NAME = "plan_memory"


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
    if not main.is_pure and not any(is_call_to(b.value, CALL_TIR) for b in bindings_of(main)):
        return mod, False  # planned before: kernels are called for effect already
    planned = accept_offsets(flat)
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
    calls = [binding.value for binding in bindings_of(main)]
    returned = {var.name for var in relax_analysis.free_vars(main.body.body)}
    fresh = [
        binding.var.name in returned
        for binding in bindings_of(main)
        if is_call_to(binding.value, "relax.builtin.alloc_tensor")
    ]
    return {
        "arenas": sum(is_call_to(call, "relax.memory.alloc_storage") for call in calls),
        "outputs": sum(fresh),
        "tensors of symbolic size": len(fresh) - sum(fresh),
    }


def _plan_function(
    mod: tvm.IRModule, name: str, ctx: PassContext, totals: _Totals, options: MemoryOptions
) -> tvm.IRModule:
    """Plan one function; each call of it allocates an arena of its own."""
    func = mod[name]
    bindings = bindings_of(func)
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
    return FunctionRewriter(mod, ctx, live, in_place, offsets, plan.peak, options.poison).rewrite(
        name
    )


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
