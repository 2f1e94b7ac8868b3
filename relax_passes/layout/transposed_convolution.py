"""A transposed convolution as one ordinary convolution and a shuffle of its channels to pixels.

With stride s, output row s*q + r takes only the kernel rows r, r+s, r+2s, ..., so the s*s phases
(r_y, r_x) of the output are s*s stride-1 convolutions of the same input. They become the output
channels of one convolution; no multiplication by an inserted zero is left. Shi et al.: Is the
deconvolution layer the same as a convolutional layer?, arXiv 1609.07009.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm


@dataclass(frozen=True)
class AxisPhases:
    """The geometry of one spatial axis.

    Attributes:
        stride: Number of phases.
        taps: Kernel size of the ordinary convolution.
        before: Zeros the ordinary convolution needs in front of the input.
        after: Zeros it needs behind.
        crop: Leading rows of the shuffled result that are not part of the output.
    """

    stride: int
    taps: int
    before: int
    after: int
    crop: int


def axis_phases(
    kernel: int, stride: int, before: int, after: int, output_padding: int
) -> AxisPhases | None:
    """Return the geometry of one axis, or None where padding removes more than the kernel adds."""
    taps = -(-kernel // stride)
    pad_before = taps - 1 - before // stride
    pad_after = (kernel - after + output_padding - 1) // stride
    if pad_before < 0 or pad_after < 0:
        return None
    return AxisPhases(stride, taps, pad_before, pad_after, before % stride)


def phase_kernel(weight: np.ndarray, y: AxisPhases, x: AxisPhases) -> np.ndarray:
    """Return the OIHW kernel of all phases, its output channels in the order (r_y, r_x, o).

    Args:
        weight: Kernel of the transposed convolution, layout IOHW.
        y: Geometry of the rows.
        x: Geometry of the columns.
    """
    i, o, kh, kw = weight.shape
    full = np.zeros((i, o, y.taps * y.stride, x.taps * x.stride), weight.dtype)
    full[:, :, :kh, :kw] = weight
    split = full.reshape(i, o, y.taps, y.stride, x.taps, x.stride)
    flipped = split[:, :, ::-1, :, ::-1, :]
    return flipped.transpose(3, 5, 1, 0, 2, 4).reshape(y.stride * x.stride * o, i, y.taps, x.taps)


def phases_of(call: tvm.ir.Call) -> tuple[AxisPhases, AxisPhases] | None:
    """Return the geometry of the rows and the columns of a transposed convolution."""
    attrs = call.attrs
    kernel = [int(d) for d in call.args[1].ty.shape.values[2:]]
    (sh, sw), (ph, pw) = map(int, attrs.strides), map(int, attrs.output_padding)
    top, left, bottom, right = map(int, attrs.padding)
    y = axis_phases(kernel[0], sh, top, bottom, ph)
    x = axis_phases(kernel[1], sw, left, right, pw)
    return None if y is None or x is None else (y, x)
