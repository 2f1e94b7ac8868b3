"""Convolutions of integers: ConvInteger and QLinearConv."""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.relax import op as R

from frontends.dims import Dim, is_static
from frontends.errors import InvalidModel
from frontends.onnx.integer_operands import broadcastable, centered, requantize, scale
from frontends.onnx.op import Op
from frontends.onnx.operators.conv import convolution, kernel_of
from frontends.onnx.registry import converter
from frontends.onnx.window import read_window

MICROSOFT = "com.microsoft"


@converter("ConvInteger")
def conv_integer(op: Op) -> relax.Expr:
    """Convolve 8-bit integers into int32, zero points taken off first; padding counts as zero."""
    return _integer_conv(op, centered(op, 0, 2), op.shape(0), 1, 3)


@converter("QLinearConv")
@converter("QLinearConv", domain=MICROSOFT)
def qlinear_conv(op: Op) -> Any:
    """Convolve quantized tensors: exact int32 sums, rescaled in float32, rounded and saturated.

    Scale and zero point of the weight may differ by output channel. The bias is int32 in units of
    the product of the operands' scales. With `channels_last` (com.microsoft) the data is N...C.
    """
    rank = op.ndim(3) - 2
    x, shape = centered(op, 0, 2), op.shape(0)
    last = bool(op.attr("channels_last", 0))
    if last:
        x = op.emit(R.permute_dims(x, [0, rank + 1, *range(1, rank + 1)]))
        shape = (shape[0], shape[-1], *shape[1:-1])
    column = [op.shape(3)[0], *([1] * rank)]
    total = op.emit(_integer_conv(op, x, shape, 3, 5))
    if op.has(8):
        bias = op.as_shape(op.x(8), column[:1])
        bias = op.emit(R.reshape(bias, relax.ShapeExpr([1, *column])))
        total = op.emit(R.add(total, bias))
    for place in (4, 5):
        _check_per_channel(op, place, column[0])
    ratio = op.emit(R.multiply(scale(op, 1), scale(op, 4, column)))
    ratio = op.emit(R.divide(ratio, scale(op, 6)))
    result = requantize(op, total, ratio, broadcastable(op, 7), op.dtype(7))
    if last:
        return R.permute_dims(op.emit(result.expr), [0, *range(2, rank + 2), 1])
    return result


def _integer_conv(
    op: Op, x: relax.Expr, shape: tuple[Dim, ...], weight: int, zero: int
) -> relax.Expr:
    """Return the int32 convolution of centered data with the integer input `weight`."""
    sizes = kernel_of(op, weight)
    groups = op.count("group", 1)
    channels, taken = shape[1], op.shape(weight)[1]
    if is_static(channels) and is_static(taken) and channels != taken * groups:
        raise InvalidModel(
            f"{channels} input channels, but the weight takes {taken} in each of {groups} groups"
        )
    column = [op.shape(weight)[0], *([1] * (len(sizes) + 1))]
    kernel = centered(op, weight, zero, column)
    window = read_window(op, sizes, shape[2:])
    return convolution(op, window, x, shape, kernel, groups, "int32")


def _check_per_channel(op: Op, place: int, channels: Dim) -> None:
    """Check that a parameter of the weight is one number or has one an output channel."""
    shape = op.shape(place)
    fits = len(shape) <= 1 and (not shape or shape[0] == 1 or shape[0] == channels)
    if not fits:
        raise InvalidModel(f"input {place} has shape {list(shape)} for {channels} channels")
