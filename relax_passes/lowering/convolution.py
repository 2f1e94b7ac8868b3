"""Convolutions as `assign_layout` leaves them: NCHW[x]c on a CPU, with a result in NHWC on a GPU.

Anything in plain NCHW (symbolic channels or kernels) takes TVM's computation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import tvm
from tvm import relax, te
from tvm.relax.expr_functor import mutator

from relax_passes.analysis.definitions import axes_of, operator_name
from relax_passes.layout.convolution_demands import FEW_CHANNELS
from relax_passes.lowering.read_in_place import InPlace, LookUp, read_in_place, transpose_step
from relax_passes.lowering.rule import (
    LoweringRule,
    default_lowering,
    dtype_of,
    is_float32,
    static_shape,
)
from relax_passes.lowering.winograd import winograd_convolution, winograd_outputs
from relax_passes.pass_base import PassContext
from relax_passes.rewrite_functions import CallRewriter, rewrite_functions

_CHANNELS_LAST = [0, 1, 3, 4, 2]  # of (N, C/x, x, H, W), which is NCHW cut into blocks


def _two(values: Sequence[int]) -> tuple[int, int]:
    """Return values of the vertical and the horizontal axis."""
    vertical, horizontal = values
    return int(vertical), int(horizontal)


def lower_sliced_convolutions(mod: tvm.IRModule, ctx: PassContext) -> tvm.IRModule:
    """Lower the convolutions of slices and of images: they read their operand where it lies.

    This runs on graph operators, before the general lowering makes kernels of the slices.
    """
    if ctx.machine.kind != "llvm":
        return mod
    lowering = _SlicedConvolutions(mod, ctx)
    rewrite_functions(lowering, mod)
    return lowering.builder_.get() if lowering.count else mod


@mutator
class _SlicedConvolutions(CallRewriter):
    def __init__(self, mod: tvm.IRModule, ctx: PassContext) -> None:
        super().__init__(mod)
        self.ctx = ctx

    def replacement(self, call: tvm.ir.Call) -> relax.Expr | None:
        if operator_name(call) != "nn.conv2d" or not _is_blocked(call):
            return None
        data = _unblocked_image(self.look_up, call, read_in_place(self.look_up, call.args[0]))
        if not data.steps:
            return None
        return _blocked_conv2d(self.builder_, call, data, self.ctx)


def _unblocked_image(look_up: LookUp, call: tvm.ir.Call, data: InPlace) -> InPlace:
    """Look through the transform of a network's input to a blocked layout of few channels.

    A stem convolution then takes the image as it is, and its border is the only copy of it.
    """
    blocked = look_up(data.source)
    if int(call.attrs.groups) != 1 or operator_name(blocked) != "permute_dims":
        return data
    shape = blocked.ty.shape
    few = isinstance(shape[-1], tvm.tirx.IntImm) and int(shape[-1]) <= FEW_CHANNELS
    if blocked.ty.ndim != 5 or axes_of(blocked) != _CHANNELS_LAST or not few:
        return data
    return InPlace(blocked.args[0], (*data.steps, transpose_step(_CHANNELS_LAST)))


def _conv2d(bb: relax.BlockBuilder, call: tvm.ir.Call, ctx: PassContext) -> relax.Expr:
    """Lower R.nn.conv2d."""
    if not _is_blocked(call):
        return default_lowering(bb, call)
    return _blocked_conv2d(bb, call, InPlace(call.args[0]), ctx)


def _is_blocked(call: tvm.ir.Call) -> bool:
    layouts = (str(call.attrs.data_layout), str(call.attrs.out_layout))
    return all(layout.endswith("c") for layout in layouts) and is_float32(*call.args)


def _blocked_conv2d(
    bb: relax.BlockBuilder, call: tvm.ir.Call, data: InPlace, ctx: PassContext
) -> relax.Expr:
    """Lower a convolution in NCHW[x]c; kernels whose groups lie within a block have their own.

    Others are direct sums, or Winograd's where that is faster.
    """
    attrs = call.attrs
    weight = call.args[1]
    # Imported here so that a target that needs no CPU schedule loads none.
    from tir_schedules.llvm.conv2d_nchwc import conv2d_nchwc
    from tir_schedules.llvm.depthwise_conv2d import depthwise_conv2d_nchwc

    groups = int(attrs.groups)
    shape = static_shape(weight)
    assert shape is not None, "assign_layout packs weights of static shape only"
    per_group, block = int(shape[1] * shape[4]), int(shape[5])
    square = groups > 1 and groups * per_group == shape[0] * block
    in_lanes = square and (per_group == 1 or per_group < block == int(call.args[0].ty.shape[4]))
    outputs = winograd_outputs(call, ctx)
    if outputs is not None:
        return winograd_convolution(bb, call, data, outputs, ctx)
    compute = depthwise_conv2d_nchwc if in_lanes else partial(conv2d_nchwc, machine=ctx.machine)

    top, left, bottom, right = map(int, attrs.padding)

    def convolution(x: te.Tensor, kernel: te.Tensor) -> te.Tensor:
        return compute(
            data.of(x),
            kernel,
            strides=_two(attrs.strides),
            padding=(top, left, bottom, right),
            dilation=_two(attrs.dilation),
            groups=groups,
        )

    name = "depthwise_conv2d" if in_lanes else "conv2d"
    return bb.call_te(convolution, data.source, weight, primfunc_name_hint=name)


def _channels_last(bb: relax.BlockBuilder, call: tvm.ir.Call) -> relax.Expr:
    """Lower a convolution on a GPU; its result is in NHWC, its image in NHWC or in NCHW."""
    attrs = call.attrs
    if str(attrs.out_layout) != "NHWC":
        return default_lowering(bb, call)
    if static_shape(call.args[1]) is None:
        return default_lowering(bb, call)
    from tir_schedules.cuda.conv2d import conv2d_channels_last

    top, left, bottom, right = map(int, attrs.padding)
    return bb.call_te(
        conv2d_channels_last,
        *call.args,
        strides=_two(attrs.strides),
        padding=(top, left, bottom, right),
        dilation=_two(attrs.dilation),
        groups=int(attrs.groups),
        channels_first=str(attrs.data_layout) == "NCHW",
        kernel_layout=str(attrs.kernel_layout),
        out_dtype=dtype_of(call),
        primfunc_name_hint="conv2d",
    )


def lowerings(ctx: PassContext) -> dict[str, LoweringRule]:
    """Return the rules for convolutions."""
    if ctx.machine.is_gpu:
        return {"relax.nn.conv2d": _channels_last}
    if ctx.machine.kind != "llvm":
        return {}
    return {"relax.nn.conv2d": partial(_conv2d, ctx=ctx)}
