"""How the kernels of a CPU are lowered: as TVM does, and what it leaves undone before the end."""

from __future__ import annotations

import tvm
from tvm import tirx

from tir_schedules.llvm.lower_math import lower_math
from tir_schedules.llvm.stack_allocation import allocate_on_stack

# Pass it as `tir_pipeline` to `tvm.compile`.
KERNEL_PIPELINE = "relaxc"


def _pipeline() -> tuple:
    kernels, host, device = tirx.get_tir_pipeline("s_tir")
    last = [lower_math, allocate_on_stack]
    return kernels, lambda: tvm.transform.Sequential([*last, host()]), device


tirx.register_tir_pipeline(KERNEL_PIPELINE, _pipeline)
