"""Reorder the kernels of a dataflow block where that lowers the peak of what is alive at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.relax import analysis as relax_analysis
from tvm.relax.analysis import tir_vars_in_type

from relax_passes.analysis.size_bounds import SizeBounds
from relax_passes.memory.greedy_offsets import Buffer
from relax_passes.memory.in_place import choose_in_place
from relax_passes.memory.join_parts import join_parts
from relax_passes.memory.live_ranges import LiveRanges, analyze_live_ranges
from relax_passes.memory.peak_order import Order, Step, order_for_peak
from relax_passes.memory.plan_offsets import max_live_bytes
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.pass_options import option

NAME = "order_bindings"


@dataclass(frozen=True)
class OrderOptions:
    """How long the best order is looked for."""

    states: int = option(4_000, "sets of executed kernels that the exact search may see")


@graph_pass(name=NAME, phase="memory", options=OrderOptions)
def order_bindings(
    mod: tvm.IRModule, ctx: PassContext, options: OrderOptions
) -> tuple[tvm.IRModule, bool]:
    """Run kernels in an order that lowers the peak of the arena, if there is one."""
    changed = {}
    for var, func in mod.functions.items():
        if isinstance(func, relax.Function):
            ordered = _order_function(mod, func, var.name_hint, ctx, options)
            if ordered is not None:
                changed[var] = ordered
    if not changed:
        return mod, False
    return tvm.IRModule({**mod.functions, **changed}, attrs=mod.attrs), True


def _order_function(
    mod: tvm.IRModule, func: relax.Function, name: str, ctx: PassContext, options: OrderOptions
) -> relax.Function | None:
    """Return the function with one of its blocks reordered, None if no block gains."""
    blocks = list(func.body.blocks)
    _, live = _analyze(func, blocks)
    ordered = None
    for place, block in enumerate(blocks):
        if not isinstance(block, relax.DataflowBlock) or len(block.bindings) < 3:
            continue
        if _defines_sizes(func, block):
            ctx.log.decline(NAME, name, "a cast defines sizes that other bindings use")
            continue
        first = sum(len(other.bindings) for other in blocks[:place])
        found = _order_block(block.bindings, first, live, options)
        if found.steps == tuple(range(len(block.bindings))):
            continue
        reordered = relax.DataflowBlock([block.bindings[k] for k in found.steps])
        trial = [*blocks[:place], reordered, *blocks[place + 1 :]]
        before, after = (_arena_bound(mod, func, tried) for tried in (blocks, trial))
        if after >= before:
            ctx.log.decline(NAME, name, "with results in place, the other order needs no less")
            continue
        limit = "no order needs less" if found.exact else f"no order needs under {found.bound}"
        ctx.log.fire(NAME, f"{name}: {before} -> {after} bytes alive at once; {limit}")
        blocks, ordered = trial, True
        _, live = _analyze(func, blocks)
    if ordered is None:
        return None
    body = relax.SeqExpr(blocks, func.body.body)
    moved = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
    return relax.BlockBuilder(mod).normalize(moved)


def _defines_sizes(func: relax.Function, block: relax.BindingBlock) -> bool:
    """Tell whether a cast names sizes; one that only states what holds of known ones does not."""
    known = {size for param in func.params for size in tir_vars_in_type(param.ty)}
    casts = (binding for binding in block.bindings if isinstance(binding, relax.MatchCast))
    return any(size not in known for cast in casts for size in tir_vars_in_type(cast.ty))


def _analyze(
    func: relax.Function, blocks: Sequence[relax.BindingBlock]
) -> tuple[list[relax.Binding], LiveRanges]:
    """Return the bindings and live ranges of a function whose blocks are these."""
    bindings = [binding for block in blocks for binding in block.bindings]
    return bindings, analyze_live_ranges(bindings, func.body.body, SizeBounds(func).bytes_of)


def _order_block(
    bindings: Sequence[relax.Binding], first: int, live: LiveRanges, options: OrderOptions
) -> Order:
    """Order the bindings of a block that starts at step `first` of its function."""
    position = {binding.var: k for k, binding in enumerate(bindings)}
    own = {i for b in bindings for i in live.results.get(b.var, ()) if live.storages[i].planned}
    numbers = {index: number for number, index in enumerate(sorted(own))}
    steps = [
        Step(
            frozenset(numbers[i] for i in live.of(binding.value) if i in own),
            frozenset(numbers[i] for i in live.results.get(binding.var, ()) if i in own),
            frozenset(
                position[var] for var in relax_analysis.free_vars(binding.value) if var in position
            ),
        )
        for binding in bindings
    ]
    sizes = [live.storages[index].arena_bytes for index in sorted(own)]
    end = first + len(bindings)
    kept = frozenset(numbers[i] for i in own if live.storages[i].upper > end)
    return order_for_peak(steps, sizes, kept, options.states)


def _arena_bound(
    mod: tvm.IRModule, func: relax.Function, blocks: Sequence[relax.BindingBlock]
) -> int:
    """Return the most bytes alive at once, with results in place and parts in their wholes."""
    bindings, live = _analyze(func, blocks)
    join_parts(bindings, live)
    choose_in_place(mod, bindings, live)
    placed = (live.storages[index] for index in live.placed())
    return max_live_bytes([Buffer(s.lower, s.upper, s.arena_bytes) for s in placed])
