"""Convolutions and transposed convolutions."""

from __future__ import annotations

import numpy as np
from tvm import relax, topi
from tvm.relax import op as R

from frontends.computations.convolution import convolve, convolve_transposed, pad_spatial
from frontends.computations.window_pool import Windows
from frontends.dims import Dim, all_static, dims_of, is_static
from frontends.errors import InvalidModel
from frontends.onnx.broadcasting import known_one
from frontends.onnx.op import Op
from frontends.onnx.registry import converter
from frontends.onnx.window import named_sizes, read_window, require_widths, state_that_it_fits
from frontends.sliding_window import Window

_CONV = {1: R.nn.conv1d, 2: R.nn.conv2d, 3: R.nn.conv3d}
_TRANSPOSE = {1: R.nn.conv1d_transpose, 2: R.nn.conv2d_transpose, 3: R.nn.conv3d_transpose}


def kernel_of(op: Op, place: int = 1) -> tuple[int, ...]:
    """Return the spatial sizes of a weight: its own, or those that the node declares."""
    declared = op.attr("kernel_shape")
    if not all_static(op.shape(place)[2:]):
        if not declared:
            raise op.unsupported("a kernel of symbolic size without the attribute kernel_shape")
        op.state(place, [*op.shape(place)[:2], *declared])
    sizes = op.shape(place)[2:]
    if declared and tuple(declared) != tuple(sizes):
        raise InvalidModel(f"kernel_shape {declared} differs from the weight's {list(sizes)}")
    return tuple(int(size) for size in sizes)


@converter("Conv")
def conv(op: Op) -> relax.Expr:
    """Convolve in any number of dimensions; the bias is a broadcast addition."""
    kernel = kernel_of(op)
    groups = op.count("group", 1)
    channels, taken = op.shape(0)[1], op.shape(1)[1]
    if is_static(channels) and is_static(taken) and channels != taken * groups:
        raise InvalidModel(
            f"{channels} input channels, but the weight takes {taken} in each of {groups} groups"
        )
    window = read_window(op, kernel, op.shape(0)[2:])
    result = convolution(op, window, op.x(0), op.shape(0), op.x(1), groups)
    return add_bias(op, result, len(kernel))


def convolution(
    op: Op,
    window: Window,
    x: relax.Expr,
    shape: tuple[Dim, ...],
    weight: relax.Expr,
    groups: int,
    dtype: str | None = None,
) -> relax.Expr:
    """Return the convolution of `x` with `weight`, both bound or constants.

    Args:
        op: The node.
        window: Where the kernel lies.
        x: (n, c, *spatial).
        shape: Its shape.
        weight: (filters, c / groups, *kernel), of the dtype of `x`.
        groups: Runs of channels that are convolved on their own.
        dtype: Of the result; by default that of `x`.

    Raises:
        InvalidModel: If the kernel does not fit a size that is known.
    """
    rank = len(window.kernel)
    outputs = window.outputs(op.arithmetic, shape[2:])
    state_that_it_fits(op, window, shape[2:], outputs)
    if rank not in _CONV:
        if dtype is not None:
            raise op.unsupported(f"{rank} spatial dimensions")
        filters, taken = dims_of(weight)[:2]
        _state_that_groups_are_equal(op, filters, groups)
        x = op.as_shape(x, [shape[0], op.arithmetic.simplify(taken * groups), *shape[2:]])
        return op.te(
            lambda data, kernel, dims: convolve(
                data, kernel, _windows(window, dims[:rank], dims[rank:]), groups
            ),
            x, weight, dims=[*window.begin, *outputs],
        )  # fmt: skip
    padding = window.padding if window.is_static else [0] * (2 * rank)
    if not window.is_static:
        x = _pad_symbolic(op, x, shape[2:], window)
    result = _CONV[rank](
        x, weight, list(window.strides), padding, list(window.dilations), groups, out_dtype=dtype
    )
    if window.is_static:
        return result
    result = op.emit(result)
    dims = [shape[0], dims_of(result)[1], *outputs]
    return op.match_shape(result, dims, dtype or op.dtype())


def _pad_symbolic(op: Op, x: relax.Expr, spatial: tuple[Dim, ...], window: Window) -> relax.Expr:
    """Emit `x` (n, c, *spatial) with zeros around it whose number is symbolic."""
    rank = len(spatial)
    sizes = [
        op.arithmetic.simplify(length + before + after)
        for length, before, after in zip(spatial, window.begin, window.end, strict=True)
    ]
    return op.te(
        lambda data, dims: pad_spatial(data, dims[:rank], dims[rank:]),
        x, name="pad", dims=named_sizes(op, [*window.begin, *sizes]),
    )  # fmt: skip


def _windows(window: Window, begin: list[Dim], outputs: list[Dim]) -> Windows:
    return Windows(window.kernel, window.strides, window.dilations, begin, outputs)


def add_bias(op: Op, result: relax.Expr, rank: int, place: int = 2) -> relax.Expr:
    """Add the bias, one number a channel, if the node has one."""
    if not op.has(place):
        return result
    known = op.constant(place)
    result = op.emit(result)
    if known is not None:
        bias: relax.Expr = op.const(known.reshape(1, -1, *([1] * rank)))
    else:
        channels = dims_of(result)[1]
        bias = op.as_shape(op.x(place), [channels])
        bias = op.emit(R.reshape(bias, relax.ShapeExpr([1, channels, *([1] * rank)])))
    return R.add(result, bias)


@converter("ConvTranspose")
def conv_transpose(op: Op) -> relax.Expr:
    """Run a convolution backward; `output_shape` and `auto_pad` set the pads by ONNX's formula."""
    kernel = kernel_of(op)
    rank = len(kernel)
    strides = list(op.attr("strides") or [1] * rank)
    dilations = list(op.attr("dilations") or [1] * rank)
    extra = list(op.attr("output_padding") or [0] * rank)
    if not len(strides) == len(dilations) == len(extra) == rank == op.ndim() - 2:
        raise InvalidModel("strides, dilations, output_padding and the kernel differ in rank")
    require_widths(op.attr("pads") or [])
    begin, end = _transpose_pads(op, kernel, strides, dilations, extra)
    groups, weight = op.count("group", 1), op.x(1)
    shape, channels = op.shape(0), known_one([op.shape(0)[1], op.shape(1)[0]])
    x = op.as_shape(op.x(0), [shape[0], channels, *shape[2:]])
    weight = op.as_shape(weight, [channels, *op.shape(1)[1:]])
    _state_that_groups_are_equal(op, channels, groups)
    # Relax takes no longer output than the convolution run forward could have had as input.
    usual = all(more < stride for more, stride in zip(extra, strides, strict=True))
    # Nor does it group channels whose number is unknown.
    usual = usual and (groups == 1 or is_static(channels))
    if rank not in _TRANSPOSE or not usual or not all_static([*begin, *end]):
        outputs = [
            op.arithmetic.simplify(
                strides[a] * (shape[2 + a] - 1)
                + extra[a] + (kernel[a] - 1) * dilations[a] + 1 - begin[a] - end[a]
            )
            for a in range(rank)
        ]  # fmt: skip
        result: relax.Expr = op.te(
            lambda data, w, dims: convolve_transposed(
                data, w, Windows(kernel, strides, dilations, dims[:rank], dims[rank:]), groups
            ),
            x, weight, dims=[*begin, *outputs],
        )  # fmt: skip
        return add_bias(op, result, rank)
    if any(dilation > 1 for dilation in dilations):
        known = op.constant(1)
        if known is not None:
            weight = op.const(_dilate(known, dilations))
        else:
            steps = [1, 1, *dilations]
            weight = op.te(lambda w: topi.nn.dilate(w, steps), weight, name="dilate_kernel")
    pads = [int(width) for width in (*begin, *end)]
    result = _TRANSPOSE[rank](x, weight, strides, pads, extra, [1] * rank, groups)
    return add_bias(op, result, rank)


def _state_that_groups_are_equal(op: Op, channels: Dim, groups: int) -> None:
    """State that channels divide into groups: a kernel would read beyond the last one."""
    op.require_equal(op.arithmetic.floormod(channels, groups), 0, "channels_fill_the_groups")


def _transpose_pads(
    op: Op, kernel: tuple[int, ...], strides: list[int], dilations: list[int], extra: list[int]
) -> tuple[list[Dim], list[Dim]]:
    """Return pads at the begin and end of each axis (they crop the output); may raise `extra`."""
    rank = len(kernel)
    pads: list[Dim] = list(op.attr("pads") or [0] * (2 * rank))
    begin, end = pads[:rank], pads[rank:]
    auto = op.attr("auto_pad", "NOTSET") or "NOTSET"
    wanted: list[int] | None = op.attr("output_shape")
    spatial, arithmetic = op.shape(0)[2:], op.arithmetic
    if wanted is None and auto not in ("SAME_UPPER", "SAME_LOWER"):
        return ([0] * rank, [0] * rank) if auto == "VALID" else (begin, end)
    for axis in range(rank):
        extent = (kernel[axis] - 1) * dilations[axis] + 1
        if wanted is not None:
            target = int(wanted[-rank:][axis])
            total = strides[axis] * (spatial[axis] - 1) + extra[axis] + extent - target
            total = arithmetic.simplify(total)
        else:
            total = extra[axis] + extent - strides[axis]
        if is_static(total) and total < 0:
            extra[axis] -= total
            total = 0
        # Where a symbolic total is below zero, the end pad is: the output gets longer there.
        positive = arithmetic.maximum(total, 0)
        half = arithmetic.truncdiv(positive, 2)
        before = half if auto == "SAME_UPPER" else arithmetic.simplify(positive - half)
        begin[axis], end[axis] = before, arithmetic.simplify(total - before)
    return begin, end


def _dilate(weight: np.ndarray, dilations: list[int]) -> np.ndarray:
    """Insert zeros between the elements of a kernel."""
    sizes = [(size - 1) * step + 1 for size, step in zip(weight.shape[2:], dilations, strict=True)]
    result = np.zeros((*weight.shape[:2], *sizes), dtype=weight.dtype)
    result[tuple(slice(None, None, step) for step in [1, 1, *dilations])] = weight
    return result
