"""Softmax on a CPU, and normalizations over all axes of a tensor, which TVM's lowering refuses."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax, te, topi

from relax_passes.lowering.rule import LoweringRule, default_lowering, is_float32
from relax_passes.pass_base import PassContext
from tir_schedules.softmax import log_softmax, softmax


def lowerings(ctx: PassContext) -> dict[str, LoweringRule]:
    """Return the rules for rms_norm and, on a CPU, for softmax and its logarithm."""
    rules: dict[str, LoweringRule] = {"relax.nn.rms_norm": _rms_norm}
    if ctx.machine.kind == "llvm":
        rules["relax.nn.softmax"] = _along_axis(softmax)
        rules["relax.nn.log_softmax"] = _along_axis(log_softmax)
    return rules


def _along_axis(compute: Callable[[te.Tensor, int], te.Tensor]) -> LoweringRule:
    """Return the rule of a float32 operator with an axis."""

    def lower(bb: relax.BlockBuilder, call: tvm.ir.Call) -> relax.Expr:
        (x,) = call.args
        if not is_float32(x) or x.ty.ndim == 0:
            return default_lowering(bb, call)
        axis = int(call.attrs.axis) % x.ty.ndim
        return bb.call_te(compute, x, axis, primfunc_name_hint=compute.__name__)

    return lower


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
