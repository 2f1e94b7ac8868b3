"""Loop nest to fast loop nest: schedule rules for each kind of target, and the hardware model."""

from __future__ import annotations

from tvm.target import Target
from tvm.tirx import PrimFunc

from tir_schedules.machine import Machine, host_target
from tir_schedules.rule import Decline, Rule, Scheduled, apply_rules

__all__ = ["Decline", "Machine", "Rule", "Scheduled", "host_target", "schedule_func"]


def schedule_func(func: PrimFunc, target: Target, machine: Machine | None = None) -> Scheduled:
    """Schedule `func` with the first rule for `target`'s kind that does not decline.

    Args:
        func: An unscheduled TensorIR function, possibly fused from several operators.
        target: The target it will be built for; its kind picks the rule list.
        machine: The hardware model; derived from `target` by default.

    Raises:
        ValueError: If there is no rule list for the target's kind.
    """
    machine = machine or Machine.from_target(target)
    if target.kind.name == "llvm":
        from tir_schedules.llvm.rules import llvm_rules

        return apply_rules(func, machine, llvm_rules())
    if target.kind.name == "cuda":
        from tir_schedules.cuda.rules import cuda_rules

        return apply_rules(func, machine, cuda_rules())
    raise ValueError(f"no schedule rules for target kind {target.kind.name!r}")
