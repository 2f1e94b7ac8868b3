"""The computation of a convolution whose result is in NHWC, as the rules for products take it."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import te, tirx, topi


def conv2d_channels_last(
    data: te.Tensor,
    kernel: te.Tensor,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    channels_first: bool,
    out_dtype: str,
    kernel_layout: str = "HWIO",
) -> te.Tensor:
    """Return a convolution [n, y, x, o] of `data` with a kernel.

    Args:
        data: An image [n, h, w, c], or [n, c, h, w] where `channels_first`.
        kernel: Of the type of `data` and of static shape, or of bytes as `data` is.
        strides: Of rows and columns.
        padding: Zeros above, left, below and right.
        dilation: Of rows and columns.
        groups: Into which the channels of data and result are divided.
        channels_first: Whether the image is in NCHW. The sum then goes along its rows first, whose
            pixels lie side by side.
        out_dtype: Of the sums.
        kernel_layout: The order of the kernel's axes: rows H, columns W, channels of a group I, and
            results O.
    """
    top, left, bottom, right = padding
    spatial = (2, 3) if channels_first else (1, 2)
    before, after = [0, 0, 0, 0], [0, 0, 0, 0]
    before[spatial[0]], before[spatial[1]] = top, left
    after[spatial[0]], after[spatial[1]] = bottom, right
    padded = topi.nn.pad(data, before, after, name="pad_temp") if any(padding) else data
    sizes = dict(zip(kernel_layout, kernel.shape, strict=True))
    height, width, per_group, out = (sizes[axis] for axis in "HWIO")
    ry = te.reduce_axis((0, height), "ry")
    rx = te.reduce_axis((0, width), "rx")
    rc = te.reduce_axis((0, per_group), "rc")

    def product(n: te.Var, y: te.Var, x: te.Var, f: te.Var) -> te.Tensor:
        row, column = y * strides[0] + ry * dilation[0], x * strides[1] + rx * dilation[1]
        channel = rc if groups == 1 else tirx.floordiv(f, out // groups) * per_group + rc
        pixel = (channel, row, column) if channels_first else (row, column, channel)
        tap = dict(zip("HWIO", (ry, rx, rc, f), strict=True))
        weight = kernel(*(tap[axis] for axis in kernel_layout))
        value = padded(n, *pixel).astype(out_dtype) * weight.astype(out_dtype)
        return te.sum(value, axis=[rc, ry, rx] if channels_first else [ry, rx, rc])

    def positions(at: int) -> object:
        reach = ((height, width)[at] - 1) * dilation[at] + 1
        return (padded.shape[spatial[at]] - reach) // strides[at] + 1

    shape = (data.shape[0], positions(0), positions(1), out)
    return te.compute(shape, product, name="conv2d_nhwc")
