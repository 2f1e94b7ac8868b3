"""Fuse lowered calls by category, in regions bounded by post-dominators.

`fusion_groups.py` decides which calls become one kernel; `fused_kernel.py` makes one PrimFunc of
each group.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax

from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.fused_kernel import FusedGroup, FusedKernels
from relax_passes.fusion_groups import Categories, Grouping, count_kernels
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.pass_options import option

NAME = "fuse_operators"


@dataclass(frozen=True)
class FuseOptions:
    """How far fusion goes.

    A fused kernel keeps its live values in registers; with too many compute blocks they spill and
    the generated code outgrows the instruction cache.
    """

    max_blocks: int = option(48, "most compute blocks in one kernel; 1 fuses nothing", at_least=1)


@graph_pass(name=NAME, phase="fuse", options=FuseOptions, aliases=("fuse",))
def fuse_operators(
    mod: tvm.IRModule, ctx: PassContext, options: FuseOptions
) -> tuple[tvm.IRModule, bool]:
    """Fuse call_tir bindings of each function into one PrimFunc per region."""
    categories = Categories(mod)
    kernels = FusedKernels(mod)
    plans: dict[tvm.ir.GlobalVar, list[relax.BindingBlock | _Plan]] = {}
    merged = 0
    for var, func in mod.functions.items():
        if isinstance(func, relax.Function):
            plans[var] = [
                _plan_block(block, kernels, categories, ctx, options)
                if isinstance(block, relax.DataflowBlock)
                else block
                for block in func.body.blocks
            ]
            merged += sum(plan.merged for plan in plans[var] if isinstance(plan, _Plan))
    if merged:
        kernels.finish()
        builder = relax.BlockBuilder(mod)
        for var, plan in plans.items():
            func = mod[var]
            blocks = [
                _apply(part, kernels, builder) if isinstance(part, _Plan) else part for part in plan
            ]
            body = relax.SeqExpr(blocks, func.body.body)
            fused = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
            builder.update_func(var, builder.normalize(fused))
        mod = remove_dead_bindings(builder.finalize())
        ctx.log.fire(NAME, f"{merged} calls joined others")
    ctx.log.metrics["kernel_count"] = count_kernels(mod)
    return mod, merged > 0


@dataclass
class _Plan:
    """What a dataflow block becomes: each binding kept, dropped, or replaced by a group's call."""

    bindings: list[relax.Binding]
    replaced: dict[int, FusedGroup | None]
    merged: int


def _plan_block(
    block: relax.DataflowBlock,
    kernels: FusedKernels,
    categories: Categories,
    ctx: PassContext,
    options: FuseOptions,
) -> _Plan:
    bindings, limit = list(block.bindings), ctx.machine.most_tensors
    grouping = Grouping(bindings, categories, options.max_blocks, limit)
    grouping.grow()
    plan = _Plan(grouping.bindings, {}, 0)
    for group in grouping.groups():
        if len(group.nodes) < 2:
            continue
        members = [grouping.bindings[n] for n in group.nodes]
        fused = kernels.add(members)
        if fused is None:
            ctx.log.decline(NAME, members[-1].var.name, "a symbolic size cannot be handed over")
            continue
        plan.merged += len(members) - 1
        plan.replaced.update({n: None for n in group.nodes})
        plan.replaced[group.nodes[-1]] = fused
    return plan


def _apply(plan: _Plan, kernels: FusedKernels, builder: relax.BlockBuilder) -> relax.DataflowBlock:
    bindings: list[relax.Binding] = []
    for index, binding in enumerate(plan.bindings):
        if index not in plan.replaced:
            bindings.append(binding)
        elif (group := plan.replaced[index]) is not None:
            bindings += kernels.bindings(group, builder)
    return relax.DataflowBlock(bindings)
