"""Views: reshape, flatten, squeeze and expand_dims all end as R.reshape, which moves no data."""

from __future__ import annotations

import tvm
from tvm import relax

from relax_passes.lowering.rule import LoweringRule, default_lowering, has_no_elements
from relax_passes.pass_base import PassContext

# Operators whose output holds the input's elements in the same order.
VIEWS = ("relax.reshape", "relax.flatten", "relax.squeeze", "relax.expand_dims")


def to_reshape(bb: relax.BlockBuilder, call: tvm.ir.Call) -> relax.Expr:
    """Return the view `call` as an R.reshape to its own inferred shape."""
    shape = call.ty.shape
    if not isinstance(shape, relax.ShapeExpr) or has_no_elements(call):
        return default_lowering(bb, call)
    return relax.op.reshape(call.args[0], shape)


def lowerings(ctx: PassContext) -> dict[str, LoweringRule]:
    """Return the rules for views; R.reshape itself is left alone by the pass."""
    del ctx  # the same on every target
    return {name: to_reshape for name in VIEWS if name != "relax.reshape"}
