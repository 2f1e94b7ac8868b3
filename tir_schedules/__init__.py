"""Loop nest to fast loop nest: schedule rules for each kind of target, and the hardware model."""

from __future__ import annotations

from collections.abc import Collection

from tvm.target import Target
from tvm.tirx import PrimFunc

from tir_schedules.machine import GPU_KINDS, Machine, host_target
from tir_schedules.rule import Decline, Rule, Scheduled, apply_rules

__all__ = ["Decline", "Machine", "Rule", "Scheduled", "host_target", "rules_of", "schedule_func"]


def schedule_func(
    func: PrimFunc,
    target: Target,
    machine: Machine | None = None,
    *,
    without: Collection[str] = (),
) -> Scheduled:
    """Schedule `func` with the first rule for `target`'s kind that does not decline.

    Args:
        func: An unscheduled TensorIR function, possibly fused from several operators.
        target: The target it will be built for; its kind picks the rule list.
        machine: The hardware model; derived from `target` by default.
        without: Names of rules not to ask.

    Raises:
        RuntimeError: If every rule declines, because the one that takes anything is not asked.
        ValueError: If there is no rule list for the target's kind.
    """
    machine = machine or Machine.from_target(target)
    rules = [rule for rule in rules_of(target) if rule.name not in without]
    return apply_rules(func, machine, rules)


def rules_of(target: Target) -> list[Rule]:
    """Return the rules of a target's kind in the order they are asked; the last takes anything.

    Raises:
        ValueError: If there is no rule list for the target's kind.
    """
    if target.kind.name == "llvm":
        from tir_schedules.llvm import rules as llvm

        return llvm.llvm_rules()
    if target.kind.name in GPU_KINDS:
        from tir_schedules.cuda import rules as cuda

        return cuda.cuda_rules()
    raise ValueError(f"no schedule rules for target kind {target.kind.name!r}")
