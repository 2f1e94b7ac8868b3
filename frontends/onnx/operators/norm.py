"""Normalizations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op as R

from frontends.onnx.op import Op
from frontends.onnx.registry import converter
from frontends.onnx.value import dtype_of


@converter("BatchNormalization")
def batch_norm(op: Op) -> relax.Expr:
    """Normalize with the running statistics, in the parameters' dtype where it is wider."""
    if op.attr("training_mode", 0) or (op.opset < 7 and not op.attr("is_test", 0)):
        raise op.unsupported("training mode")
    x, wide = op.x(0), op.dtype(3)
    if op.dtype(0) != wide:
        x = op.emit(R.astype(x, wide))
    parameters = [op.x(place) for place in range(1, 5)]
    for place in (1, 2):
        if op.dtype(place) != wide:
            parameters[place - 1] = op.emit(R.astype(parameters[place - 1], wide))
    triple = op.emit(
        R.nn.batch_norm(
            x, *parameters, axis=1, epsilon=float(op.attr("epsilon", 1e-5)), training=False
        )
    )
    result = triple[0]
    return result if op.dtype(0) == wide else R.astype(op.emit(result), op.dtype(0))


@converter("LayerNormalization")
def layer_norm(op: Op) -> Any:
    """Normalize over the axes from `axis` on; mean and 1/deviation only where they are read."""
    first, rank = op.axis(-1), op.ndim()
    axes = list(range(first, rank))
    epsilon = float(op.attr("epsilon", 1e-5))
    x = op.x()
    wanted = [bool(name) for name in op.node.output[1:]]
    sizes = op.shape()[first:]
    scale = _full_size(op, 1, sizes)
    bias = _full_size(op, 2, sizes) if op.has(2) else op.const(np.zeros([int(s) for s in sizes]))
    result = R.nn.layer_norm(x, scale, bias, axes, epsilon)
    if not any(wanted):
        return result
    wide = op.emit(R.astype(x, "float32")) if op.dtype() != "float32" else x
    average, inverse = _statistics(op, wide, axes, epsilon)
    return (result, average, inverse)[: 1 + len(wanted)]


def _full_size(op: Op, place: int, sizes: Sequence[Any]) -> relax.Expr:
    """Return a scale or bias with one element for each normalized one."""
    if list(op.shape(place)) == list(sizes):
        return op.x(place)
    known = op.constant(place)
    if known is not None:
        return op.const(np.broadcast_to(known, [int(size) for size in sizes]))
    return op.emit(R.broadcast_to(op.x(place), relax.ShapeExpr(list(sizes))))


def _statistics(
    op: Op, x: relax.Expr, axes: list[int], epsilon: float
) -> tuple[relax.Expr, relax.Expr]:
    average = op.emit(R.mean(x, axes, True))
    centered = op.emit(R.subtract(x, average))
    variance = op.emit(R.mean(op.emit(R.multiply(centered, centered)), axes, True))
    deviation = op.emit(R.sqrt(op.emit(R.add(variance, op.const(epsilon, dtype_of(x))))))
    return average, op.emit(R.divide(op.const(1.0, dtype_of(x)), deviation))


@converter("RMSNormalization", "SimplifiedLayerNormalization")
def rms_norm(op: Op) -> relax.Expr:
    """Divide by the root of the mean square over the axes from `axis` on."""
    first = op.axis(-1)
    axes = list(range(first, op.ndim()))
    scale = _full_size(op, 1, op.shape()[first:])
    return R.nn.rms_norm(op.x(), scale, axes, float(op.attr("epsilon", 1e-5)))


@converter("InstanceNormalization")
def instance_norm(op: Op) -> relax.Expr:
    """Normalize each channel of each sample over its spatial axes."""
    axes = list(range(2, op.ndim()))
    return _scaled(op, op.x(), axes, [1, op.shape(1)[0], *([1] * len(axes))])


def _scaled(op: Op, x: relax.Expr, axes: list[int], column: list[Any]) -> relax.Expr:
    """Normalize `x` over `axes`, then scale and shift by inputs 1 and 2 shaped as `column`."""
    average, inverse = _statistics(op, x, axes, float(op.attr("epsilon", 1e-5)))
    unit = op.emit(R.multiply(op.emit(R.subtract(x, average)), inverse))
    scale = op.emit(R.reshape(op.x(1), relax.ShapeExpr(column)))
    shift = op.emit(R.reshape(op.x(2), relax.ShapeExpr(column)))
    return R.add(op.emit(R.multiply(unit, scale)), shift)


@converter("GroupNormalization", since=18)
def group_norm_by_group(op: Op) -> relax.Expr:
    """Normalize groups of channels; scale and bias have one element a group (opset 18 to 20)."""
    groups = int(op.attr("num_groups"))
    grouped = _grouped(op, groups)
    axes = list(range(2, op.ndim() + 1))
    result = _scaled(op, grouped, axes, [1, groups, *([1] * len(axes))])
    return R.reshape(op.emit(result), relax.ShapeExpr(list(op.shape())))


@converter("GroupNormalization", since=21)
def group_norm_by_channel(op: Op) -> relax.Expr:
    """Normalize groups of channels; scale and bias have one element a channel (opset 21 on)."""
    groups = int(op.attr("num_groups"))
    return R.nn.group_norm(
        op.x(0),
        op.x(1),
        op.x(2),
        groups,
        1,
        list(range(2, op.ndim())),
        float(op.attr("epsilon", 1e-5)),
    )


def _grouped(op: Op, groups: int) -> relax.Expr:
    shape = op.shape()
    each = op.arithmetic.truncdiv(shape[1], groups)
    return op.emit(R.reshape(op.x(), relax.ShapeExpr([shape[0], groups, each, *shape[2:]])))


@converter("LRN")
def local_response_norm(op: Op) -> relax.Expr:
    """Divide by a power of the squares summed over neighbouring channels."""
    size = int(op.attr("size"))
    alpha, beta, bias = op.attr("alpha", 1e-4), op.attr("beta", 0.75), op.attr("bias", 1.0)
    x, shape = op.x(), op.shape()
    before, after = (size - 1) // 2, size // 2
    squares = op.emit(R.multiply(x, x))
    widths = [0, 0, before, after, *([0] * (2 * (op.ndim() - 2)))]
    padded = op.emit(R.nn.pad(squares, widths))
    total = None
    for offset in range(size):
        part = op.emit(R.strided_slice(padded, [1], [offset], [shape[1] + offset]))
        total = part if total is None else op.emit(R.add(total, part))
    scaled = op.emit(R.multiply(total, op.const(alpha / size)))
    base = op.emit(R.add(scaled, op.const(bias)))
    return R.divide(x, op.emit(R.power(base, op.const(beta))))


@converter("LpNormalization")
def lp_normalization(op: Op) -> relax.Expr:
    """Divide by the 1- or 2-norm along an axis; where the norm is 0 the result is 0."""
    axis, x = op.axis(-1), op.x()
    if int(op.attr("p", 2)) == 1:
        norm = op.emit(R.sum(op.emit(R.abs(x)), [axis], True))
    else:
        norm = op.emit(R.sqrt(op.emit(R.sum(op.emit(R.multiply(x, x)), [axis], True))))
    empty = op.emit(R.equal(norm, op.const(0)))
    return R.divide(x, op.emit(R.where(empty, op.const(1), norm)))


@converter("MeanVarianceNormalization")
def mean_variance_norm(op: Op) -> relax.Expr:
    """Take off the mean and divide by the deviation over `axes`."""
    axes = op.attr("axes") or [0, 2, 3]
    average, inverse = _statistics(op, op.x(), axes, 1e-9)
    return R.multiply(op.emit(R.subtract(op.x(), average)), inverse)
