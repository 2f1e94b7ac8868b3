"""Blocked convolutions on a CPU: NCHW[x]c data and packed weights, as `assign_layout` leaves them.

Anything in plain NCHW (run-time weights, symbolic channels) takes TVM's computation.
"""

from __future__ import annotations

import tvm
from tvm import relax

from relax_passes.lowering.rule import LoweringRule, default_lowering, is_float32, static_shape
from relax_passes.pass_base import PassContext


def _four(padding: list[int]) -> tuple[int, int, int, int]:
    """Return padding as (top, left, bottom, right)."""
    if len(padding) == 1:
        return (padding[0], padding[0], padding[0], padding[0])
    if len(padding) == 2:
        return (padding[0], padding[1], padding[0], padding[1])
    return (padding[0], padding[1], padding[2], padding[3])


def _conv2d(bb: relax.BlockBuilder, call: tvm.ir.Call) -> relax.Expr:
    """Lower R.nn.conv2d; `OIHW1i8o` kernels are depthwise, other blocked ones direct."""
    attrs = call.attrs
    data, weight = call.args
    blocked = str(attrs.data_layout).endswith("c") and str(attrs.out_layout).endswith("c")
    if not blocked or not is_float32(data, weight):
        return default_lowering(bb, call)
    # Imported here so that a target that needs no CPU schedule loads none.
    from tir_schedules.llvm.conv2d_nchwc import conv2d_nchwc
    from tir_schedules.llvm.depthwise_conv2d import depthwise_conv2d_nchwc

    groups = int(attrs.groups)
    shape = static_shape(weight)
    assert shape is not None, "assign_layout packs constant weights only"
    depthwise = groups > 1 and groups == shape[0] * shape[5] and shape[1] * shape[4] == 1
    compute = depthwise_conv2d_nchwc if depthwise else conv2d_nchwc
    return bb.call_te(
        compute,
        data,
        weight,
        strides=tuple(int(s) for s in attrs.strides),
        padding=_four([int(p) for p in attrs.padding]),
        dilation=tuple(int(d) for d in attrs.dilation),
        groups=groups,
        primfunc_name_hint="depthwise_conv2d" if depthwise else "conv2d",
    )


def lowerings(ctx: PassContext) -> dict[str, LoweringRule]:
    """Return the rules for convolutions."""
    return {"relax.nn.conv2d": _conv2d} if ctx.machine.kind == "llvm" else {}
