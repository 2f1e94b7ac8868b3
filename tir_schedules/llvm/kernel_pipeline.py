"""How kernels are lowered: as TVM does, and what it leaves undone before the end.

TVM looks for common subexpressions while expressions still bind names. It counts no use in the body
of such an expression, yet replaces it there, by a name that may be defined only later. So that pass
waits until `lower_math` has made statements of the names. What runs on a device keeps its names,
and its compiler finds common subexpressions itself.
"""

from __future__ import annotations

import tvm
from tvm import tirx
from tvm.ir.transform import PassContext

from tir_schedules.llvm.lower_math import lower_math
from tir_schedules.llvm.settle_tiles import settle_tiles
from tir_schedules.llvm.stack_allocation import allocate_on_stack

# Pass it as `tir_pipeline` to `tvm.compile`.
KERNEL_PIPELINE = "relaxc"


def _pipeline() -> tuple:
    kernels, host, device = tirx.get_tir_pipeline("s_tir")
    last = [lower_math, tirx.transform.CommonSubexprElim(), settle_tiles, allocate_on_stack]
    return _keeping_expressions(kernels), lambda: tvm.transform.Sequential([*last, host()]), device


def _keeping_expressions(kernels: tvm.transform.Pass) -> tvm.transform.Pass:
    """Return the lowering of kernels without the pass that names common subexpressions."""

    @tvm.transform.module_pass(opt_level=0)
    def lower(mod: tvm.IRModule, ctx: PassContext) -> tvm.IRModule:
        config = {**ctx.config, "tirx.disable_cse_tir": True}
        options = (ctx.opt_level, ctx.required_pass, ctx.disabled_pass)
        with PassContext(*options, config=config):
            return kernels(mod)

    return lower


tirx.register_tir_pipeline(KERNEL_PIPELINE, _pipeline)
