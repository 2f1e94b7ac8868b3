"""What TVM's own planner would need for the same module: the figure to compare an arena with."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.ir import Call
from tvm.tirx import IntImm


def tvm_planner_bytes(mod: tvm.IRModule) -> int:
    """Return the bytes that `StaticPlanBlockMemory` allocates for the intermediates of `main`.

    Args:
        mod: A module after the schedule phase, its kernels still called by `call_tir`.

    Storages of a symbolic size count as nothing, as they do in our own arena.
    """
    lowered = tvm.transform.Sequential(
        [
            relax.transform.LegalizeOps(),  # concatenations that we write part by part
            relax.transform.ToNonDataflow(),
            relax.transform.RemovePurityChecking(),
            relax.transform.CallTIRRewrite(),
            relax.transform.StaticPlanBlockMemory(),
        ]
    )(mod)
    total = 0
    for block in lowered["main"].body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, Call) and value.op == tvm.ir.Op.get("relax.memory.alloc_storage"):
                sizes = value.args[0].values
                total += sum(int(size.value) for size in sizes if isinstance(size, IntImm))
    return total
