"""Give each value of a function the layout with which all kernels and transforms cost least.

A value is a node whose alternatives are the layouts it may be computed in; their costs are the
cycles of its kernel. An edge to what reads it costs a transform where the reader does not take the
layout as it is, and a kernel more where the reader would have joined the value's own. What returns,
leaves the block, or goes to an operator of NCHW is read in NCHW. What several operators read has,
as an alternative of its node, a second layout that one transform makes for all of them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import tvm
from tvm import relax

from relax_passes.analysis.definitions import axes_of, operator_name
from relax_passes.analysis.readers import readers_of
from relax_passes.layout.blocked import dims_of, has_channels, is_one
from relax_passes.layout.channelwise_demands import is_mean_of_pixels
from relax_passes.layout.choice_problem import ChoiceProblem, solve
from relax_passes.layout.demand import CYCLES_PER_ELEMENT, PLAIN, Demand, elements
from relax_passes.layout.demands import cast_demand, demand_of
from relax_passes.layout.lanes import Lanes
from relax_passes.layout.transforms import TO_CHANNELS_LAST
from relax_passes.lowering.rule import is_float32
from tir_schedules.machine import Machine

# What calling one more kernel takes, however small it is.
_CALL_CYCLES = 5_000
# The layout that a value is computed in, and one it is transformed to; twice the one where none is.
Versions = tuple[int, int]


@dataclass
class LayoutPlan:
    """The layout of each value that is not in NCHW, and what is known of the choice.

    Attributes:
        layouts: Block of each value of blocks.
        cycles: What kernels and transforms cost by the model, on one core.
        is_optimal: Whether no other choice costs less.
    """

    layouts: dict[relax.Var, int] = field(default_factory=dict)
    cycles: float = 0.0
    is_optimal: bool = True


def plan_layouts(
    func: relax.Function, lanes: Lanes, machine: Machine, mod: tvm.IRModule
) -> LayoutPlan:
    """Choose the layout of each value that is bound in `func`, a function of `mod`."""
    plan = LayoutPlan()
    if isinstance(func.body, relax.SeqExpr):
        _plan_sequence(func.body, _Facts(lanes, machine, mod), plan)
    return plan


@dataclass(frozen=True)
class _Facts:
    lanes: Lanes
    machine: Machine
    mod: tvm.IRModule


def _plan_sequence(sequence: relax.SeqExpr, facts: _Facts, plan: LayoutPlan) -> None:
    """Plan the blocks of a function's body or of a branch, and of the branches within."""
    reads = [set(readers_of(block)) for block in sequence.blocks]
    count = Counter(var for read in reads for var in read)
    count.update(relax.analysis.free_vars(sequence.body))
    for block, read in zip(sequence.blocks, reads, strict=True):
        for binding in block.bindings:
            if isinstance(binding.value, relax.If):
                _plan_sequence(binding.value.true_branch, facts, plan)
                _plan_sequence(binding.value.false_branch, facts, plan)
        outside = {b.var for b in block.bindings if count[b.var] > (b.var in read)}
        _BlockPlan(block, outside, facts).add_to(plan)


def _demand_of(binding: relax.Binding, facts: _Facts) -> Demand | None:
    if isinstance(binding, relax.MatchCast):
        return cast_demand(binding, facts.lanes)
    value = binding.value
    if isinstance(value, tvm.ir.Call) and isinstance(value.op, tvm.ir.Op):
        return demand_of(value, facts.lanes, facts.machine.fma_units, facts.mod)
    return None


class _BlockPlan:
    """The problem of one block: what comes from outside, or is read there, is in NCHW."""

    def __init__(self, block: relax.BindingBlock, outside: set[relax.Var], facts: _Facts) -> None:
        self.lanes = facts.lanes
        self.problem = ChoiceProblem()
        self.versions: dict[relax.Var, list[Versions]] = {}
        self.reads: dict[relax.Var, set[str]] = {}  # what reads a value in one layout only
        self._outside = outside
        self._readers = readers_of(block)
        for binding in block.bindings:
            demand = _demand_of(binding, facts)
            if demand is None:
                self._read_plain(binding)
                continue
            self._add(binding.var, demand)
            self._read(binding.value, {operand.value for operand in demand.operands}, "plain")
            if binding.var in outside:
                self.reads[binding.var].add("plain")

    def add_to(self, plan: LayoutPlan) -> None:
        """Solve the problem and enter what is not in NCHW into `plan`."""
        for var, readers in self.reads.items():
            self.problem.costs[var] = self.problem.costs[var] + self._reading(var, readers)
        solution = solve(self.problem)
        chosen = {var: self.versions[var][i][0] for var, i in solution.chosen.items()}
        plan.layouts.update({var: layout for var, layout in chosen.items() if layout != PLAIN})
        plan.cycles += solution.cost
        plan.is_optimal &= solution.is_optimal

    def _add(self, var: relax.Var, demand: Demand) -> None:
        self._node(var, demand.results)
        self.reads[var] = set()
        for operand in {operand.value: operand for operand in demand.operands}.values():
            value, moving = operand.value, _transform_cycles(operand.value)
            if value not in self.versions:  # from outside, or by an operator of NCHW
                self._node(value, {PLAIN: 0.0})
            elif demand.joins and len(self._readers[value]) == 1 and value not in self._outside:
                # Alone, the reader loads and stores what it would have had in registers.
                moving *= 2
            takes = operand.takes
            costs = [
                [0.0 if any(takes(v, r) for v in mine) else moving for r, _ in self.versions[var]]
                for mine in self.versions[value]
            ]
            self.problem.edge(value, var, np.array(costs))

    def _node(self, var: relax.Var, results: dict[int, float]) -> None:
        """Add a value; one that several read may be transformed once for all of them."""
        others: list[int] = []
        reads = len(self._readers.get(var, ())) + (var in self._outside)
        if reads > 1 and has_channels(var):
            others = [PLAIN, *self.lanes.blocks(int(dims_of(var)[1]))]
        moving = _transform_cycles(var)
        costs = {(layout, layout): cost for layout, cost in results.items()}
        for layout, cost in results.items():
            costs.update({(layout, other): cost + moving for other in others if other != layout})
        self.versions[var] = list(costs)
        self.problem.node(var, list(costs.values()))

    def _read_plain(self, binding: relax.Binding) -> None:
        """Note that an operator of NCHW reads its operands."""
        reader = "plain"
        call = binding.value
        if operator_name(call) == "permute_dims" and axes_of(call) == TO_CHANNELS_LAST:
            reader = "channels last"
        elif isinstance(call, tvm.ir.Call) and operator_name(call) == "mean":
            reader = "blocks" if is_mean_of_pixels(call) else "plain"
        self._read(call, set(), reader)

    def _read(self, value: relax.Expr, besides: set[relax.Var], reader: str) -> None:
        """Note what reads variables in one layout: one transform serves all such readers."""
        for var in relax.analysis.free_vars(value):
            if var in self.reads and var not in besides:
                self.reads[var].add(reader)

    def _reading(self, var: relax.Var, readers: set[str]) -> np.ndarray:
        """Return what each layout of `var` costs by the readers that take one layout only."""
        moving = _transform_cycles(var)
        last = int(dims_of(var)[1])
        costs = np.zeros(len(self.versions[var]))
        for i, versions in enumerate(self.versions[var]):
            if "plain" in readers and PLAIN not in versions:
                costs[i] += moving
            if "channels last" in readers and last not in versions:
                costs[i] += moving
            if "blocks" in readers and all(map(self.lanes.is_channels_last, versions)):
                costs[i] += moving
        return costs


def _transform_cycles(value: relax.Var) -> float:
    """Return what a transform of a value between two layouts takes."""
    if not is_float32(value) or not has_channels(value):
        return 0.0
    _, channels, height, width = dims_of(value)
    if is_one(channels) or (is_one(height) and is_one(width)):
        # Both layouts hold the same bytes, but a view keeps two operators out of one kernel.
        return _CALL_CYCLES
    return elements(value) * CYCLES_PER_ELEMENT + _CALL_CYCLES
