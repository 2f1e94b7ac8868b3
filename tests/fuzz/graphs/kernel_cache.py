"""Schedule and compile each distinct kernel once a process, however many graphs use it.

Most of a small graph's compile time is scheduling and LLVM, and small graphs share kernels.
Here kernels are functions in TVM's global registry, named by their structure, and the virtual
machine calls them by that name; all else is what `relax_passes.build` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

from relax_passes.pass_base import GraphPass, PassContext
from relax_passes.pipeline import default_pipeline
from relax_passes.schedule_kernels import is_scheduled, schedule_kernels
from tir_schedules.llvm.kernel_pipeline import KERNEL_PIPELINE


@dataclass(frozen=True)
class KernelKind:
    """How kernels are compiled.

    Args:
        checked: Whether they check the sizes, the strides and the offset of what they are given,
            as those of a compiled model do. It is a third of their code.
        optimized: Whether LLVM optimizes them.
    """

    checked: bool
    optimized: bool


UNCHECKED = KernelKind(checked=False, optimized=True)
AS_SHIPPED = KernelKind(checked=True, optimized=True)
QUICK = KernelKind(checked=False, optimized=False)

_SCHEDULED: dict[tvm_ffi.StructuralKey, tirx.PrimFunc] = {}
_COMPILED: dict[tuple[tvm_ffi.StructuralKey, KernelKind], str] = {}
_KEPT: list[Any] = []  # libraries whose functions are in the registry


def _schedule(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Schedule the kernels that were not seen before; take the others from the cache."""
    functions = dict(mod.functions)
    keys = {}
    for var, func in functions.items():
        if isinstance(func, tirx.PrimFunc) and not is_scheduled(func):
            keys[var] = tvm_ffi.StructuralKey(func.without_attr("global_symbol"))
            functions[var] = _SCHEDULED.get(keys[var], func)
    mod, _ = schedule_kernels(tvm.IRModule(functions, attrs=mod.attrs), ctx)
    for var, func in mod.functions.items():
        if var in keys:
            _SCHEDULED.setdefault(keys[var], func)
    return mod, bool(keys)


cached_schedule = GraphPass("schedule_kernels", "schedule", _schedule, schedule_kernels.summary)


def cached_pipeline() -> Any:
    """Return the default pipeline with the scheduling that remembers kernels."""
    passes = [
        cached_schedule if p.name == cached_schedule.name else p
        for p in default_pipeline().phases["schedule"]
    ]
    return default_pipeline().with_phase("schedule", *passes)


def build_cached(
    mod: tvm.IRModule, ctx: PassContext, kind: KernelKind = UNCHECKED
) -> relax.VirtualMachine:
    """Build a module whose kernels are scheduled; return the machine that runs its functions."""
    mod = relax.transform.ToNonDataflow()(mod)
    mod = relax.transform.RemovePurityChecking()(mod)
    mod = relax.transform.CallTIRRewrite()(mod)
    names = _compiled(mod, ctx, kind)
    externs = {var: relax.ExternFunc(name) for var, name in names.items()}
    graphs = {
        var: tvm_ffi.structural_map(func, (tvm.ir.GlobalVar, lambda v: externs.get(v, v)))
        for var, func in mod.functions.items()
        if var not in names
    }
    from relax_passes.build import build_executable

    executable = build_executable(tvm.IRModule(graphs, attrs=mod.attrs), ctx)
    # Not the executable: TVM would run the C compiler on an empty file, since no kernel is in it.
    return relax.VirtualMachine(executable.mod, tvm.cpu())


def _compiled(mod: tvm.IRModule, ctx: PassContext, kind: KernelKind) -> dict[tvm.ir.GlobalVar, str]:
    """Return the registered name of each kernel, all new ones compiled together."""
    names: dict[tvm.ir.GlobalVar, str] = {}
    new: dict[str, tirx.PrimFunc] = {}
    for var, func in mod.functions.items():
        if not isinstance(func, tirx.PrimFunc):
            continue
        key = tvm_ffi.StructuralKey(func.without_attr("global_symbol")), kind
        if key not in _COMPILED:
            _COMPILED[key] = f"fuzz_kernel_{len(_COMPILED)}"
            new[_COMPILED[key]] = func.with_attr("global_symbol", _COMPILED[key])
        names[var] = _COMPILED[key]
    if new:
        target = ctx.target if kind.optimized else _without_optimizations(ctx.target)
        with tvm.transform.PassContext(config={"tirx.disable_assert": not kind.checked}):
            library = tvm.compile(tvm.IRModule(new), target=target, tir_pipeline=KERNEL_PIPELINE)
        _KEPT.append(library)
        for name in new:
            tvm_ffi.register_global_func(name, library[name], override=True)
    return names


def _without_optimizations(target: tvm.target.Target) -> tvm.target.Target:
    return tvm.target.Target({**target.export(), "opt-level": 0})
