"""Inputs that stay from call to call: parameters that a caller owns, and may change in between."""

from __future__ import annotations

from collections.abc import Sequence

import tvm

# Attribute of `main`: the numbers of such parameters. What depends on them alone may be computed
# once, by a function of its own (`relax_passes.lift_preparation`).
FIXED_INPUTS = "relaxc.fixed_inputs"


def mark_fixed(mod: tvm.IRModule, inputs: Sequence[int]) -> tvm.IRModule:
    """Return `mod` with some inputs of its function `main`, by number, noted as fixed."""
    if not inputs:
        return mod
    main = mod.get_global_var("main")
    functions = {**mod.functions, main: mod["main"].with_attr(FIXED_INPUTS, list(inputs))}
    return tvm.IRModule(functions, attrs=mod.attrs)
