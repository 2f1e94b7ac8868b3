"""Put kernels that share what they read into one with several results.

Kernels that read one tensor over the same rows (mean and maximum of a row, two maps of it), and a
kernel with the one that reads its result while others read it too, move fewer bytes together: what
they share is read once. `sibling_groups.py` decides which, and
`sibling_obstacles.py` which not; their schedules are the rules
`elementwise` and `row_results`. XLA calls this multi-output fusion.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import tvm
from tvm import relax

from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.fused_kernel import FusedGroup, FusedKernels
from relax_passes.fusion_groups import Categories, count_kernels
from relax_passes.memory.arena_peak import ArenaPeaks
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.pass_options import option
from relax_passes.sibling_groups import SiblingGroups
from relax_passes.sibling_kernels import RowSpaces, SiblingKernels
from relax_passes.sibling_obstacles import Limits, SiblingGroup

NAME = "fuse_siblings"
# How often groups that raise the arena's peak are taken back, before all of a function are.
_ROUNDS = 4


@dataclass(frozen=True)
class SiblingOptions:
    """How far kernels with several results go."""

    max_results: int = option(8, "most results of one kernel", at_least=1)
    max_blocks: int = option(
        48, "most compute blocks in one kernel, as in fuse_operators", at_least=1
    )
    least_bytes: int = option(1, "bytes that a kernel must save to take another in", at_least=1)


@graph_pass(
    name=NAME, phase="fuse", options=SiblingOptions, aliases=("multi_output_fusion", "siblings")
)
def fuse_siblings(
    mod: tvm.IRModule, ctx: PassContext, options: SiblingOptions
) -> tuple[tvm.IRModule, bool]:
    """Put kernels that read the same rows, or each other's, into one with several results."""
    siblings = _Siblings(mod, ctx, options)
    plans = siblings.plan()
    peaks = ArenaPeaks()
    before: dict[tvm.ir.GlobalVar, int] = {}
    for left in reversed(range(_ROUNDS + 1)):
        if not any(plan.joined for plan in plans.values()):
            break
        fused = siblings.apply(plans)
        higher: dict[relax.Var, str] = {}
        for var, plan in plans.items():
            if plan.joined:
                if var not in before:
                    before[var] = peaks.of(mod, mod[var]).bytes
                after = peaks.of(fused, fused[var])
                if after.bytes > before[var]:
                    blamed = plan.groups_that_make(after.alive if left else None)
                    text = f"{after.bytes - before[var]} bytes more would be alive at once"
                    higher.update(dict.fromkeys(blamed, text))
        if not higher:
            _report(plans.values(), ctx)
            ctx.log.metrics["kernel_count"] = count_kernels(fused)
            return fused, True
        siblings.ban(higher)
        plans = siblings.plan()
    _report(plans.values(), ctx)
    return mod, False


@dataclass
class _Plan:
    """What the blocks of one function become: bindings in order, groups with their kernels."""

    blocks: list[relax.BindingBlock | list[relax.Binding | FusedGroup]]
    groups: list[SiblingGroup]
    results: list[tuple[relax.Var, ...]]
    declined: dict[str, str]

    @property
    def joined(self) -> int:
        return sum(len(group.nodes) - 1 for group in self.groups)

    def groups_that_make(self, alive: frozenset[relax.Var] | None) -> set[relax.Var]:
        """Return the results of the groups that make one of `alive`; of all where none does."""
        making = [r for r in self.results if alive is None or not alive.isdisjoint(r)]
        return {var for results in making or self.results for var in results}


class _Siblings:
    """Plans and rewrites the functions of one module."""

    def __init__(self, mod: tvm.IRModule, ctx: PassContext, options: SiblingOptions) -> None:
        self._mod, self._ctx = mod, ctx
        self._limits = Limits(options.max_blocks, options.max_results, options.least_bytes)
        self._categories, self._spaces = Categories(mod), RowSpaces(mod)
        self._kernels: FusedKernels  # of the last plan
        self._banned: dict[relax.Var, str] = {}

    def ban(self, variables: dict[relax.Var, str]) -> None:
        """Keep the kernels that make these variables out of all groups, for the reasons given."""
        self._banned.update(variables)

    def plan(self) -> dict[tvm.ir.GlobalVar, _Plan]:
        """Return what each function becomes."""
        self._kernels = FusedKernels(self._mod)
        return {
            var: self._plan_function(func)
            for var, func in self._mod.functions.items()
            if isinstance(func, relax.Function)
        }

    def _plan_function(self, func: relax.Function) -> _Plan:
        plan = _Plan([], [], [], {})
        for block in func.body.blocks:
            if not isinstance(block, relax.DataflowBlock) or not self._plan_block(block, plan):
                plan.blocks.append(block)
        names = {b.var for block in func.body.blocks for b in block.bindings}
        plan.declined.update(
            {var.name: reason for var, reason in self._banned.items() if var in names}
        )
        return plan

    def _plan_block(self, block: relax.DataflowBlock, plan: _Plan) -> bool:
        """Add a block to a plan; return whether anything joins in it."""
        while True:
            kernels = SiblingKernels(block.bindings, self._categories, self._spaces, self._banned)
            siblings = SiblingGroups(kernels, self._ctx.machine, self._limits)
            siblings.grow()
            placed: list[relax.Binding | FusedGroup] = []
            refused: dict[relax.Var, str] = {}
            for item in siblings.in_order():
                if isinstance(item, SiblingGroup):
                    members = [kernels.bindings[node] for node in item.nodes]
                    fused = self._kernels.add(members, kernels.results(item.nodes))
                    if fused is None:
                        why = "a symbolic size cannot be handed over"
                        refused.update({member.var: why for member in members})
                        continue
                    placed.append(fused)
                else:
                    placed.append(item)
            if not refused:
                break
            self.ban(refused)
        plan.declined.update(siblings.declined)
        groups = siblings.groups()
        if groups:
            plan.blocks.append(placed)
            plan.groups += groups
            plan.results += [item.results for item in placed if isinstance(item, FusedGroup)]
        return bool(groups)

    def apply(self, plans: dict[tvm.ir.GlobalVar, _Plan]) -> tvm.IRModule:
        """Return the module as planned."""
        self._kernels.finish()
        builder = relax.BlockBuilder(self._mod)
        for var, plan in plans.items():
            if plan.joined:
                func = self._mod[var]
                blocks = [self._block(part, builder) for part in plan.blocks]
                body = relax.SeqExpr(blocks, func.body.body)
                fused = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
                builder.update_func(var, builder.normalize(fused))
        return remove_dead_bindings(builder.finalize())

    def _block(
        self,
        part: relax.BindingBlock | list[relax.Binding | FusedGroup],
        builder: relax.BlockBuilder,
    ) -> relax.BindingBlock:
        if isinstance(part, relax.BindingBlock):
            return part
        bindings: list[relax.Binding] = []
        for item in part:
            if isinstance(item, FusedGroup):
                bindings += self._kernels.bindings(item, builder)
            else:
                bindings.append(item)
        return relax.DataflowBlock(bindings)


def _report(plans: Iterable[_Plan], ctx: PassContext) -> None:
    plans = list(plans)
    for plan in plans:
        for name, reason in plan.declined.items():
            ctx.log.decline(NAME, name, reason)
    if joined := sum(plan.joined for plan in plans):
        saved = sum(group.saved for plan in plans for group in plan.groups)
        ctx.log.fire(NAME, f"{joined} kernels joined others, which saves {saved} bytes of traffic")
