"""Make memory explicit: one arena a call, an offset for each intermediate, fresh outputs.

`call_tir` becomes a call of the PrimFunc for effect, on tensors cut from the arena by
`R.memory.alloc_tensor(storage, offset)`. What has a symbolic size, or is returned to the caller,
comes from the run-time pool instead, so both kinds of tensor may live in one function.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import relax

from relax_passes.analysis.size_bounds import SizeBounds
from relax_passes.memory.buffer_offsets import accept_offsets
from relax_passes.memory.function_arenas import ArenaStack, FunctionArena, calls_of
from relax_passes.memory.function_rewriter import FunctionRewriter
from relax_passes.memory.in_place import InPlace, choose_in_place
from relax_passes.memory.join_parts import join_parts
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
from relax_passes.memory.plan_report import NAME, PlanTotals, count_allocations, describe_buffers
from relax_passes.memory.symbolic_storage import share_symbolic_storage
from relax_passes.memory.tvm_planner import tvm_planner_bytes
from relax_passes.memory.update_states import update_states
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.pass_options import option


@dataclass(frozen=True)
class MemoryOptions:
    """How the arena is packed."""

    strategy: Strategy = option("search", "how offsets are found")
    reuse: bool = option(True, "whether tensors may share bytes; false is for debugging")
    in_place: bool = option(True, "whether a result may overwrite an operand that dies there")
    arena: bool = option(True, "whether they lie in one block of memory, where the target can")
    join: bool = option(True, "whether what makes part of a concatenation writes it there")
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
    options = _possible(options, ctx)
    planned = accept_offsets(flat, ctx.machine.kind)
    totals = PlanTotals(parallel_safe=options.parallel_safe)
    if options.compare:
        ctx.log.metrics["tvm_planner_bytes"] = tvm_planner_bytes(mod)
    names = [v.name_hint for v, f in flat.functions.items() if isinstance(f, relax.Function)]
    plans = {name: _plan_function(planned, name, names, totals, options, ctx) for name in names}
    arenas = ArenaStack({name: plan.arena for name, plan in plans.items()})
    totals.of_run = arenas.totals()
    for name, plan in plans.items():
        rewriter = FunctionRewriter(
            *(planned, ctx, plan.live, plan.in_place, plan.copied, plan.offsets, plan.shared),
            *(arenas.bytes[name], options.poison),
        )
        planned = rewriter.rewrite(name)
    totals.allocations = count_allocations(planned["main"])
    totals.report(ctx)
    return planned, True


def _possible(options: MemoryOptions, ctx: PassContext) -> MemoryOptions:
    """Return the options that the target allows.

    WebGPU refuses a kernel that writes a buffer which it reads as another argument, too
    (WebGPU, "Programmable passes", writable buffer binding aliasing).
    """
    if ctx.machine.kind != "webgpu":
        return options
    ctx.log.decline(NAME, "one arena", "WebGPU's kernels read and write different buffers")
    return replace(options, arena=False, in_place=False, join=False)


@dataclass(frozen=True)
class _FunctionPlan:
    """What `FunctionRewriter` needs, and the arena that it makes of it."""

    live: LiveRanges
    in_place: dict[relax.Var, InPlace]
    copied: dict[relax.Var, list[int]]
    offsets: dict[int, int]
    shared: dict[int, int]
    arena: FunctionArena


def _plan_function(
    mod: tvm.IRModule,
    name: str,
    functions: Collection[str],
    totals: PlanTotals,
    options: MemoryOptions,
    ctx: PassContext,
) -> _FunctionPlan:
    """Plan one function of several; each call of it allocates an arena of its own."""
    func = mod[name]
    bindings = bindings_of(func)
    live = analyze_live_ranges(bindings, func.body.body, SizeBounds(func).bytes_of)
    naive = sum(_padded(s.arena_bytes) for s in live.storages)
    copied = join_parts(bindings, live, place=options.join and options.reuse)
    totals.part_copies += sum(map(len, copied.values()))
    allowed: dict[str, Any] = {}
    if options.parallel_safe:
        allowed = {"may_overwrite": may_overwrite(live, analyze_data_flow(bindings, live))}
    in_place = choose_in_place(mod, bindings, live, **allowed) if options.in_place else {}
    if name == "main" and options.in_place:
        in_place = {**in_place, **update_states(mod, live, ctx)}
    planned = live.placed() if options.arena else []
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
    totals.add(len(planned), len(in_place))
    totals.buffers += describe_buffers(name, bindings, live, offsets)
    # Without reuse, and where branches may run together, each has a storage of its own.
    shared = share_symbolic_storage(live) if options.reuse and not options.parallel_safe else {}
    totals.shared += len(shared) - len(set(shared.values()))
    alive = [(*r, _padded(b.arena_bytes)) for r, b in zip(ranges, buffers, strict=True)]
    calls = calls_of(bindings, functions)
    arena = FunctionArena(plan.peak, plan.lower_bound, naive, alive, calls)
    return _FunctionPlan(live, in_place, copied, offsets, shared, arena)


def _padded(size: int) -> int:
    return -(-size // 64) * 64
