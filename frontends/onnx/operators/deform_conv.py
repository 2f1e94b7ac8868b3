"""Deformable convolution: sampled columns, then a matrix product."""

from __future__ import annotations

import math

from tvm import relax
from tvm.relax import op as R

from frontends.computations.deformable import deformed_coordinates, masked_columns
from frontends.computations.sample_points import Sampling
from frontends.onnx.op import Op
from frontends.onnx.operators.conv import add_bias, kernel_of
from frontends.onnx.operators.grid import sample
from frontends.onnx.registry import converter


@converter("DeformConv", since=19)
def deform_conv(op: Op) -> relax.Expr:
    """Convolve with kernel elements moved by offsets, each modulated by a mask."""
    kernel = kernel_of(op)
    rank = len(kernel)
    elements = math.prod(kernel)
    strides = op.attr("strides") or [1] * rank
    dilations = op.attr("dilations") or [1] * rank
    pads = op.attr("pads") or [0] * (2 * rank)
    groups, movers = int(op.attr("group", 1)), int(op.attr("offset_group", 1))
    batch, channels, *sizes = op.shape()
    filters, taken = op.shape(1)[:2]
    outputs = [
        op.arithmetic.truncdiv(
            sizes[a] + pads[a] + pads[rank + a] - dilations[a] * (kernel[a] - 1) - 1, strides[a]
        )
        + 1
        for a in range(rank)
    ]
    op.require_equal(channels, op.arithmetic.product([taken, groups]), "channels_of_the_weight")
    op.state(2, [batch, movers * elements * rank, *outputs])
    if op.has(4):
        op.state(4, [batch, movers * elements, *outputs])
    at = op.te(
        lambda offset: deformed_coordinates(
            offset, kernel, movers, strides, dilations, pads[:rank]
        ),
        op.x(2), name="deformed_coordinates",
    )  # fmt: skip
    divide, product = op.arithmetic.truncdiv, op.arithmetic.product
    images = product([batch, movers])
    grouped = op.emit(
        R.reshape(op.x(), relax.ShapeExpr([images, divide(channels, movers), *sizes]))
    )
    columns = sample(op, grouped, at, sizes, Sampling())
    if op.has(4):
        columns = op.te(
            lambda sampled, mask: masked_columns(sampled, mask, movers),
            columns, op.x(4), name="masked_columns",
        )  # fmt: skip
    points = product(outputs)
    depth = product([taken, elements])
    columns = op.emit(R.reshape(columns, relax.ShapeExpr([batch, groups, depth, points])))
    weight = op.emit(
        R.reshape(op.x(1), relax.ShapeExpr([1, groups, divide(filters, groups), depth]))
    )
    result = op.emit(R.matmul(weight, columns))
    result = op.emit(R.reshape(result, relax.ShapeExpr([batch, filters, *outputs])))
    return add_bias(op, result, rank, place=3)
