"""What TVM's own memory planner would take for the kernels that relaxc's planner gets."""

from __future__ import annotations

import math
from pathlib import Path


def tvm_planner_bytes(path: Path, threads: int) -> int:
    """Plan a model's fused module with `StaticPlanBlockMemory` and return the storage it allocates.

    The module is the same as relaxc's planner sees it, so only the planners differ.
    """
    import tvm
    from tvm import relax
    from tvm.relax import transform

    from relax_passes.pass_base import PassContext
    from relax_passes.pipeline import default_pipeline
    from relaxc.compiler import import_source
    from relaxc.targets import resolve_target
    from tir_schedules.machine import Machine

    target = resolve_target("llvm", threads)
    context = PassContext(target, Machine.from_target(target), threads)
    fused = default_pipeline().until("fuse").run(import_source(path).module, context)
    planned = tvm.transform.Sequential(
        [
            transform.RewriteDataflowReshape(),
            transform.ToNonDataflow(),
            transform.RemovePurityChecking(),
            transform.CallTIRRewrite(),
            transform.StaticPlanBlockMemory(),
        ]
    )(fused)
    total = 0
    for block in planned["main"].body.blocks:
        for binding in block.bindings:
            call = binding.value
            if isinstance(call, tvm.ir.Call) and _name(call) == "relax.memory.alloc_storage":
                total += _bytes(call.args[0])
    assert isinstance(planned["main"], relax.Function)
    return total


def _name(call: object) -> str:
    return getattr(getattr(call, "op", None), "name", "")


def _bytes(size: object) -> int:
    return math.prod(int(extent) for extent in getattr(size, "values", ()))
