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
from frontends.onnx.window import read_window, state_that_it_fits


@converter("DeformConv", since=19)
def deform_conv(op: Op) -> relax.Expr:
    """Convolve with kernel elements moved by offsets, each modulated by a mask."""
    kernel = kernel_of(op)
    rank = len(kernel)
    elements = math.prod(kernel)
    groups, movers = op.count("group", 1), op.count("offset_group", 1)
    batch, channels, *sizes = op.shape()
    filters, taken = op.shape(1)[:2]
    window = read_window(op, kernel, tuple(sizes))
    outputs = window.outputs(op.arithmetic, tuple(sizes))
    state_that_it_fits(op, window, tuple(sizes), outputs)
    op.require_equal(channels, op.arithmetic.product([taken, groups]), "channels_of_the_weight")
    op.state(2, [batch, movers * elements * rank, *outputs])
    if op.has(4):
        op.state(4, [batch, movers * elements, *outputs])
    at = op.te(
        lambda offset: deformed_coordinates(
            offset, kernel, movers, window.strides, window.dilations, window.begin
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
