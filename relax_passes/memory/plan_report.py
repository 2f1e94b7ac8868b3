"""What the report says of a memory plan: bytes, buffers for the picture, allocations of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tvm import relax
from tvm.relax import analysis as relax_analysis
from tvm.tirx import IntImm

from relax_passes.memory.function_arenas import Totals
from relax_passes.memory.live_ranges import LiveRanges, bindings_of, is_call_to
from relax_passes.pass_base import PassContext

NAME = "plan_memory"


@dataclass
class PlanTotals:
    """What one run takes, and counts over all functions."""

    of_run: Totals = Totals()
    planned: int = 0
    in_place: int = 0
    part_copies: int = 0
    shared: int = 0
    parallel_safe: bool = False
    parallel_cost: int = 0
    buffers: list[dict[str, Any]] = field(default_factory=list)
    allocations: dict[str, int] = field(default_factory=dict)

    def add(self, planned: int, in_place: int) -> None:
        """Count in one function's plan: how many tensors it places, how many run in place."""
        self.planned += planned
        self.in_place += in_place

    def report(self, ctx: PassContext) -> None:
        """Leave the totals in the pass log."""
        ctx.log.metrics["arena_bytes"] = self.of_run.peak
        ctx.log.metrics["lower_bound_bytes"] = self.of_run.bound
        ctx.log.metrics["naive_bytes"] = self.of_run.naive
        ctx.log.metrics["memory_plan"] = self.buffers
        ctx.log.fire(
            NAME,
            f"{self.planned} tensors in {self.of_run.peak} bytes (bound {self.of_run.bound}, naive "
            f"{self.of_run.naive}), {self.in_place} results in place",
        )
        ctx.log.metrics["part_copies"] = self.part_copies
        if self.part_copies:
            ctx.log.fire(NAME, f"{self.part_copies} parts are copied into concatenations")
        if self.shared:
            ctx.log.fire(NAME, f"{self.shared} tensors of symbolic size lie where others lay")
        ctx.log.metrics["allocations_per_run"] = self.allocations
        if self.parallel_safe:
            ctx.log.metrics["parallel_safe_cost_bytes"] = self.parallel_cost
            ctx.log.fire(NAME, f"branches share nothing, at the cost of {self.parallel_cost} bytes")


def describe_buffers(
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


def count_allocations(main: relax.Function) -> dict[str, int]:
    """Count what one run asks the run-time pool for, which hands out again what came back to it."""
    bindings = bindings_of(main)
    returned = set(relax_analysis.free_vars(main.body.body))
    for binding in reversed(bindings):
        if binding.var in returned and is_call_to(binding.value, "relax.reshape"):
            returned.update(relax_analysis.free_vars(binding.value))
    fresh = [
        binding.var in returned
        for binding in bindings
        if is_call_to(binding.value, "relax.builtin.alloc_tensor")
    ]
    storages = [b.value for b in bindings if is_call_to(b.value, "relax.memory.alloc_storage")]
    arenas = sum(all(isinstance(n, IntImm) for n in call.args[0].values) for call in storages)
    return {
        "arenas": arenas,
        "outputs": sum(fresh),
        "storages of symbolic size": len(storages) - arenas,
        "tensors of symbolic size": len(fresh) - sum(fresh),
    }
