"""Convolutions and transposed convolutions."""

from __future__ import annotations

import numpy as np
from tvm import relax, topi
from tvm.relax import op as R

from frontends.errors import InvalidModel
from frontends.onnx.dims import Dim, is_static
from frontends.onnx.op import Op
from frontends.onnx.registry import converter
from frontends.onnx.window import read_window

_CONV = {1: R.nn.conv1d, 2: R.nn.conv2d, 3: R.nn.conv3d}
_TRANSPOSE = {1: R.nn.conv1d_transpose, 2: R.nn.conv2d_transpose, 3: R.nn.conv3d_transpose}


def kernel_of(op: Op, place: int = 1) -> tuple[int, ...]:
    """Return the spatial sizes of a weight, which must be static."""
    sizes = op.shape(place)[2:]
    if not all(is_static(size) for size in sizes):
        raise op.unsupported("a kernel of symbolic size")
    declared = op.attr("kernel_shape")
    if declared and tuple(declared) != tuple(sizes):
        raise InvalidModel(f"kernel_shape {declared} differs from the weight's {list(sizes)}")
    return tuple(int(size) for size in sizes)


@converter("Conv")
def conv(op: Op) -> relax.Expr:
    """Convolve in 1, 2 or 3 spatial dimensions; the bias is a broadcast addition."""
    kernel = kernel_of(op)
    groups = int(op.attr("group", 1))
    channels, taken = op.shape(0)[1], op.shape(1)[1]
    if is_static(channels) and is_static(taken) and channels != taken * groups:
        raise InvalidModel(
            f"{channels} input channels, but the weight takes {taken} in each of {groups} groups"
        )
    if len(kernel) not in _CONV:
        raise op.unsupported(f"{len(kernel)} spatial dimensions")
    window = read_window(op, kernel, op.shape(0)[2:])
    result = _CONV[len(kernel)](
        op.x(0), op.x(1), list(window.strides), window.padding, list(window.dilations), groups
    )
    return add_bias(op, result, len(kernel))


def add_bias(op: Op, result: relax.Expr, rank: int, place: int = 2) -> relax.Expr:
    """Add the bias, one number a channel, if the node has one."""
    if not op.has(place):
        return result
    known = op.constant(place)
    if known is not None:
        bias: relax.Expr = op.const(known.reshape(1, -1, *([1] * rank)))
    else:
        bias = op.emit(
            R.reshape(op.x(place), relax.ShapeExpr([1, op.shape(place)[0], *([1] * rank)]))
        )
    return R.add(op.emit(result), bias)


@converter("ConvTranspose")
def conv_transpose(op: Op) -> relax.Expr:
    """Run a convolution backward; `output_shape` and `auto_pad` set the pads by ONNX's formula."""
    kernel = kernel_of(op)
    rank = len(kernel)
    if rank not in _TRANSPOSE:
        raise op.unsupported(f"{rank} spatial dimensions")
    strides = list(op.attr("strides") or [1] * rank)
    dilations = list(op.attr("dilations") or [1] * rank)
    extra = list(op.attr("output_padding") or [0] * rank)
    begin, end = _transpose_pads(op, kernel, strides, dilations, extra)
    weight = op.x(1)
    if any(dilation > 1 for dilation in dilations):
        known = op.constant(1)
        if known is not None:
            weight = op.const(_dilate(known, dilations))
        else:
            steps = [1, 1, *dilations]
            weight = op.te(lambda w: topi.nn.dilate(w, steps), weight, name="dilate_kernel")
    result = _TRANSPOSE[rank](
        op.x(0), weight, strides, [*begin, *end], extra, [1] * rank, int(op.attr("group", 1))
    )
    return add_bias(op, result, rank)


def _transpose_pads(
    op: Op, kernel: tuple[int, ...], strides: list[int], dilations: list[int], extra: list[int]
) -> tuple[list[int], list[int]]:
    """Return pads at the begin and end of each axis (they crop the output); may raise `extra`."""
    rank = len(kernel)
    pads = list(op.attr("pads") or [0] * (2 * rank))
    begin, end = pads[:rank], pads[rank:]
    auto = op.attr("auto_pad", "NOTSET") or "NOTSET"
    wanted: list[Dim] | None = op.attr("output_shape")
    spatial = op.shape(0)[2:]
    if wanted is None and auto not in ("SAME_UPPER", "SAME_LOWER"):
        return begin, end
    for axis in range(rank):
        length = spatial[axis]
        extent = (kernel[axis] - 1) * dilations[axis] + 1
        if wanted is not None:
            if not is_static(length):
                raise op.unsupported("output_shape over a symbolic size")
            target = int(wanted[-rank:][axis])
            total = strides[axis] * (int(length) - 1) + extra[axis] + extent - target
        else:
            total = extra[axis] + extent - strides[axis]
        if total < 0:
            extra[axis] -= total
            total = 0
        half = total // 2
        upper = auto == "SAME_UPPER"
        begin[axis], end[axis] = (half, total - half) if upper else (total - half, half)
    return begin, end


def _dilate(weight: np.ndarray, dilations: list[int]) -> np.ndarray:
    """Insert zeros between the elements of a kernel."""
    sizes = [(size - 1) * step + 1 for size, step in zip(weight.shape[2:], dilations, strict=True)]
    result = np.zeros((*weight.shape[:2], *sizes), dtype=weight.dtype)
    result[tuple(slice(None, None, step) for step in [1, 1, *dilations])] = weight
    return result
