"""Schedule every PrimFunc: the first rule that does not decline wins, equal kernels become one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

from relax_passes.analysis.cost import kernel_cost
from relax_passes.analysis.overwrite import IN_PLACE_OPERANDS, overwritable_operands, row_operands
from relax_passes.analysis.overwrite_epilogue import epilogue_operands
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.pass_options import did_you_mean, option
from tir_schedules import Scheduled, rules_of, schedule_func
from tir_schedules.let_names import bind_names_once
from tir_schedules.roofline import roofline
from tir_schedules.rule import FAILED

NAME = "schedule_kernels"
SCHEDULED = "tirx.is_scheduled"
FALLBACK = "fallback"


class TooManyTensors(ValueError):
    """A kernel that the target cannot give all its tensors."""


@dataclass(frozen=True)
class ScheduleOptions:
    """Which schedule rules are asked."""

    without_rules: tuple[str, ...] = option((), "schedule rules not to ask, but for the fallback")


@graph_pass(name=NAME, phase="schedule", options=ScheduleOptions)
def schedule_kernels(
    mod: tvm.IRModule, ctx: PassContext, options: ScheduleOptions
) -> tuple[tvm.IRModule, bool]:
    """Schedule every PrimFunc by the target's rules; report the rule and each decline.

    Raises:
        ValueError: If an option names a rule that is not there or that takes what no other does.
        TooManyTensors: If a kernel is given more tensors than the target grants.
    """
    _check_rules(options.without_rules, ctx)
    mod, merged = merge_equal_kernels(mod)
    kernels: list[dict[str, Any]] = []
    calls = _count_calls(mod)
    for var, func in mod.functions.items():
        if not isinstance(func, tirx.PrimFunc) or is_scheduled(func):
            continue
        _check_tensors(var.name_hint, func, ctx)
        scheduled, result = schedule_kernel(func, ctx, options)
        mod.update_func(var, scheduled)
        flops, moved = kernel_cost(func)
        name = var.name_hint
        kernels.append(
            {
                "name": name,
                "rule": result.rule,
                "calls": calls[name],
                "flops": flops,
                "bytes": moved,
                **_estimate(scheduled, flops, moved, ctx),
            }
        )
        for rule, reason in result.declined:
            # A rule for another kind of kernel declines as a matter of course; what matters is a
            # rule that failed, and every reason where only the fallback was left.
            if result.rule == FALLBACK or reason.startswith(FAILED):
                ctx.log.decline(f"{NAME}/{rule}", name, reason)
    if kernels:
        ctx.log.metrics["kernels"] = kernels
        ctx.log.fire(NAME, f"{len(kernels)} kernels scheduled, {merged} equal ones shared")
    return mod, bool(kernels) or merged > 0


def _check_tensors(name: str, func: tirx.PrimFunc, ctx: PassContext) -> None:
    """Refuse what the device would: no pass puts so many tensors together, an operator may."""
    most = ctx.machine.most_tensors
    tensors = sum(hasattr(param, "shape") for param in func.params)
    if most is not None and tensors > most:
        kind = ctx.target.kind.name
        raise TooManyTensors(
            f"kernel {name} is given {tensors} tensors, {kind} grants a kernel {most}"
        )


def _estimate(scheduled: tirx.PrimFunc, flops: int, moved: int, ctx: PassContext) -> dict[str, Any]:
    """Return the report's entries on how fast a kernel can be at most, none of a processor's."""
    if ctx.machine.gpu is None:
        return {}
    found = roofline(scheduled, flops, moved, ctx.machine.gpu)
    ctx.log.metrics["gpu"] = ctx.machine.gpu.name
    return {"least_seconds": found.seconds, "bound": found.bound}


def _check_rules(names: tuple[str, ...], ctx: PassContext) -> None:
    known = [rule.name for rule in rules_of(ctx.target)]
    for name in names:
        if name not in known:
            raise ValueError(
                f"no schedule rule is called {name!r}; there are {known}{did_you_mean(name, known)}"
            )
        if name == known[-1]:
            raise ValueError(f"schedule rule {name!r} takes what no other does; it must stay")


def _count_calls(mod: tvm.IRModule) -> Counter[str]:
    """Count the places that call each function."""
    calls: Counter[str] = Counter()
    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            tvm_ffi.structural_walk(
                func.body,
                (tvm.ir.GlobalVar, lambda callee: calls.update([callee.name_hint])),
                order="pre",
            )
    return calls


def schedule_kernel(
    func: tirx.PrimFunc, ctx: PassContext, options: ScheduleOptions | None = None
) -> tuple[tirx.PrimFunc, Scheduled]:
    """Return the scheduled function, ready for code generation, and how it was scheduled."""
    operands = overwritable_operands(func)
    without = () if options is None else options.without_rules
    result = schedule_func(func, ctx.target, ctx.machine, without=without)
    scheduled = result.func
    if ctx.machine.kind == "llvm" and result.rule == "row_kernel":
        operands = operands or row_operands(func)
    operands = operands or epilogue_operands(scheduled)
    if ctx.machine.kind == "llvm":
        from tir_schedules.llvm.bfloat16 import compute_bfloat16_in_float32
        from tir_schedules.llvm.double_math import call_double_math
        from tir_schedules.llvm.unordered_comparison import compare_unordered

        scheduled = _without_scope_names(scheduled)
        scheduled = compute_bfloat16_in_float32(compare_unordered(scheduled))
        scheduled = call_double_math(scheduled)
    scheduled = bind_names_once(scheduled)
    if operands:
        scheduled = scheduled.with_attr(IN_PLACE_OPERANDS, [list(pair) for pair in operands])
    return scheduled.with_attr(SCHEDULED, 1), result


def _without_scope_names(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Drop the name that TVM gives the scope of a scatter, of which its LLVM backend warns."""

    def inner(scope: tirx.AttrStmt) -> tirx.Stmt:
        return scope.body if scope.attr_key == "pragma_scope" else scope

    return tvm_ffi.structural_map(func, (tirx.AttrStmt, inner))


def is_scheduled(func: tirx.PrimFunc) -> bool:
    """Tell whether a rule has scheduled `func`."""
    return func.attrs is not None and SCHEDULED in func.attrs


def merge_equal_kernels(mod: tvm.IRModule) -> tuple[tvm.IRModule, int]:
    """Let callers of equal PrimFuncs share one; return the module and how many were dropped.

    Comparing structure is safe here: a PrimFunc holds no tensor constants, weights are arguments.
    """
    first: dict[tvm_ffi.StructuralKey, tvm.ir.GlobalVar] = {}
    shared: dict[tvm.ir.GlobalVar, tvm.ir.GlobalVar] = {}
    for var, func in mod.functions.items():
        if isinstance(func, tirx.PrimFunc):
            kept = first.setdefault(tvm_ffi.StructuralKey(func.without_attr("global_symbol")), var)
            if kept != var:
                shared[var] = kept
    if not shared:
        return tvm.IRModule(dict(mod.functions), attrs=mod.attrs), 0
    functions = {}
    for var, func in mod.functions.items():
        if isinstance(func, relax.Function):
            body = tvm_ffi.structural_map(
                func.body, (tvm.ir.GlobalVar, lambda callee: shared.get(callee, callee))
            )
            func = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
        if var not in shared:
            functions[var] = func
    return tvm.IRModule(functions, attrs=mod.attrs), len(shared)
