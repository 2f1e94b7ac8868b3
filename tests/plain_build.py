"""Build a module with TVM's own pipeline, for its numbers alone."""

from __future__ import annotations

import tvm
from tvm import relax

# Nothing is measured on this code and it runs once: LLVM's optimizations would be most of the time.
UNOPTIMIZED = {"opt-level": 0}


def build_plainly(mod: tvm.IRModule, *, checked: bool = True) -> relax.VMExecutable:
    """Return the executable that TVM makes of `mod`, whose machine code is not optimized.

    Args:
        mod: Operators, or kernels without a schedule.
        checked: Keep assertions: those of kernels, and those of what they are called with, which
            are more code than most kernels have.
    """
    target = tvm.target.Target({"kind": "llvm", **UNOPTIMIZED})
    with tvm.transform.PassContext(config={"tirx.disable_assert": not checked}):
        return tvm.compile(mod, target=target)
