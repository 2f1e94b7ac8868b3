"""Build an imported module with TVM's own pipeline: what a frontend made, without our passes."""

from __future__ import annotations

import tvm

from relax_passes.lowering.attention import lower_attentions
from relax_passes.pass_base import PassContext
from tests.plain_build import build_plainly
from tir_schedules import Machine, host_target


def plainly_built(module: tvm.IRModule) -> tvm.runtime.Executable:
    """Return the executable of `module`.

    TVM's own lowering of attention knows neither shared keys nor rows that are all masked, so ours
    lowers that operator.
    """
    target = host_target(threads=1)
    lowered, _ = lower_attentions(module, PassContext(target, Machine.from_target(target)))
    return build_plainly(lowered)
