"""Blocked 3x3 convolutions by Winograd's minimal filtering, where the cost model prefers it.

A constant kernel is transformed now, one that is an argument in each run, both in float64.
"""

from __future__ import annotations

import tvm
from tvm import relax, te

from relax_passes.constant_values import array_of, constant_from
from relax_passes.lowering.read_in_place import InPlace
from relax_passes.lowering.rule import static_shape
from relax_passes.pass_base import PassContext
from tir_schedules.questions import decide

# Rows and columns that a symbolic image is taken to have: networks that take any size, such as
# detectors, are given large ones.
_NOMINAL = 56


def winograd_outputs(call: tvm.ir.Call, ctx: PassContext) -> int | None:
    """Return m of the Winograd F(m, 3) that computes a convolution, None for direct sums."""
    # Imported here so that a target that needs no CPU schedule loads none.
    from tir_schedules.llvm.conv_algorithm import ConvAlgorithm

    kernel, out = static_shape(call.args[1]), _nominal_shape(call)
    attrs, lanes = call.attrs, ctx.machine.lanes()
    if kernel is None or kernel[2:] != (3, 3, lanes, lanes) or int(attrs.groups) != 1:
        return None
    if any(int(step) != 1 for step in (*attrs.strides, *attrs.dilation)):
        return None
    if ctx.precision == "strict":
        reason = 'Winograd\'s sums round otherwise than precision "strict" allows'
        ctx.log.decline("lower_operators", "conv2d", reason)
        return None
    if out is None:
        return None
    blocks, in_blocks = kernel[:2]
    size = (out[2], out[3])
    return decide(ConvAlgorithm(out[0], in_blocks * lanes, blocks, lanes, size), ctx.machine)


def _shown(call: tvm.ir.Call) -> str:
    return f"({', '.join(str(extent) for extent in call.ty.shape.values)})"


def _nominal_shape(call: tvm.ir.Call) -> tuple[int, ...] | None:
    """Return the shape of a result, symbolic extents as `_NOMINAL`; None of unknown rank.

    A symbolic batch is one image: more of them only favour Winograd's sums.
    """
    if not isinstance(call.ty.shape, relax.ShapeExpr):
        return None
    nominal = (1, None, _NOMINAL, _NOMINAL, None)
    sizes = [
        int(extent) if isinstance(extent, tvm.tirx.IntImm) else assumed
        for extent, assumed in zip(call.ty.shape.values, nominal, strict=True)
    ]
    known = tuple(size for size in sizes if size is not None)
    return known if len(known) == len(sizes) else None


def winograd_convolution(
    bb: relax.BlockBuilder, call: tvm.ir.Call, data: InPlace, outputs: int, ctx: PassContext
) -> relax.Expr:
    """Lower a blocked 3x3 convolution to F(outputs, 3)."""
    from tir_schedules.llvm.winograd_conv2d import (
        transform_weight,
        winograd_conv2d,
        winograd_weight,
    )

    weight = call.args[1]
    if isinstance(weight, tvm.ir.GenericConst):
        points: relax.Expr = constant_from(transform_weight(array_of(weight), outputs))
    else:
        points = bb.emit(bb.call_te(winograd_weight, weight, outputs))

    top, left, bottom, right = map(int, call.attrs.padding)

    def convolution(x: te.Tensor, kernel: te.Tensor) -> te.Tensor:
        border = (top, left, bottom, right)
        return winograd_conv2d(data.of(x), kernel, ctx.machine, padding=border)

    ctx.log.fire("lower_operators", f"conv2d of {_shown(call)} by Winograd F({outputs}, 3)")
    return bb.call_te(convolution, data.source, points, primfunc_name_hint="conv2d_winograd")
