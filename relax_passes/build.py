"""The last step: what is left of Relax becomes VM instructions, the kernels become machine code."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import tvm
from tvm import relax

from relax_passes.capture_cuda_graphs import record_marked_graphs
from relax_passes.lift_weights import LiftedWeights
from relax_passes.pass_base import PassContext
from tir_schedules.llvm.kernel_pipeline import KERNEL_PIPELINE


def build_executable(
    mod: tvm.IRModule, ctx: PassContext, weights: LiftedWeights | None = None
) -> relax.VMExecutable:
    """Build a module whose memory is explicit and whose kernels are scheduled.

    Args:
        mod: The module after the last phase of the pipeline.
        ctx: Gives the target.
        weights: Receives the large constants, which are arguments then; None leaves all of them in
            the executable.

    Raises:
        RuntimeError: If code generation fails.
    """
    lower_to_vm = tvm.transform.Sequential(
        [
            relax.transform.ToNonDataflow(),
            relax.transform.RemovePurityChecking(),
            relax.transform.CallTIRRewrite(),
            relax.transform.LowerAllocTensor(),
            relax.transform.KillAfterLastUse(),
            relax.transform.LowerRuntimeBuiltin(),
            relax.transform.ComputePrimValue(),
            relax.transform.VMShapeLower(),
            _lifting(weights),
            relax.transform.AttachGlobalSymbol(),
        ]
    )
    mod = record_marked_graphs(mod)
    with _libraries_of(ctx.machine.kind):
        return tvm.compile(
            mod, target=ctx.target, relax_pipeline=lower_to_vm, tir_pipeline=KERNEL_PIPELINE
        )


def _lifting(weights: LiftedWeights | None) -> tvm.transform.Pass:
    """Return the step that lifts constants: behind the last that checks what arguments are."""

    def lift(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return mod if weights is None else weights.lift(mod)

    return tvm.transform.module_pass(lift, opt_level=0, name="lift_weights")


def _libraries_of(kind: str) -> AbstractContextManager[None]:
    """Return the context in which kernels of a target's kind can be generated here."""
    if kind == "rocm":
        from relax_passes.rocm_libraries import has_rocm, unlinked_kernels

        if not has_rocm():
            return unlinked_kernels()
    return nullcontext()
