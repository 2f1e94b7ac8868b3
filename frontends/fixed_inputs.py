"""Inputs that stay from call to call: parameters that a caller owns, and may change in between."""

from __future__ import annotations

from collections.abc import Sequence

import tvm

from frontends.main_attributes import with_main_attributes

# Attribute of `main`: the numbers of such parameters. What depends on them alone may be computed
# once, by a function of its own (`relax_passes.lift_preparation`).
FIXED_INPUTS = "relaxc.fixed_inputs"


def mark_fixed(mod: tvm.IRModule, inputs: Sequence[int]) -> tvm.IRModule:
    """Return `mod` with some inputs of its function `main`, by number, noted as fixed."""
    if not inputs:
        return mod
    return with_main_attributes(mod, {FIXED_INPUTS: list(inputs)})
