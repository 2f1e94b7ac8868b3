"""Normalizations over all axes of a tensor, which TVM's own lowering refuses."""

from __future__ import annotations

import tvm
from tvm import relax, topi

from relax_passes.lowering.rule import LoweringRule, default_lowering
from relax_passes.pass_base import PassContext


def lowerings(ctx: PassContext) -> dict[str, LoweringRule]:
    """Return the rule for rms_norm."""
    del ctx  # the same on every target
    return {"relax.nn.rms_norm": _rms_norm}


def _rms_norm(bb: relax.BlockBuilder, call: tvm.ir.Call) -> relax.Expr:
    """Give a tensor that is normalized as a whole an outer axis of 1: TVM's rule needs one."""
    data, weight = call.args
    rank, axes = data.ty.ndim, list(call.attrs.axes)
    shape = data.ty.shape
    if len(axes) != rank or not isinstance(shape, relax.ShapeExpr):
        return default_lowering(bb, call)
    rows = bb.emit(relax.op.reshape(data, relax.ShapeExpr([1, *shape.values])))
    inner = [axis + 1 for axis in range(rank)]
    epsilon = float(call.attrs.epsilon)
    normal = bb.call_te(
        topi.nn.rms_norm, rows, weight, inner, epsilon, primfunc_name_hint="rms_norm"
    )
    return relax.op.reshape(bb.emit(normal), shape)
