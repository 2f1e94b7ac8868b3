"""Convolutions of any rank, forward and backward, whose sizes may be known only at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from frontends.computations.kernel import index
from frontends.computations.sample_points import wide_float
from frontends.computations.window_pool import Windows


def convolve(x: te.Tensor, weight: te.Tensor, windows: Windows, groups: int) -> te.Tensor:
    """Return the convolution of `x` with a kernel.

    Args:
        x: (n, c, *spatial), a float dtype.
        weight: (filters, c / groups, *kernel).
        windows: Where the kernel lies; outside of `x` there are zeros.
        groups: Runs of channels that are convolved on their own.

    Returns:
        (n, filters, *outputs) of the dtype of `x`.
    """
    dtype = str(x.dtype)
    wide = wide_float(dtype)
    filters, depth = weight.shape[0], weight.shape[1]
    each = tirx.floordiv(index(filters), groups)
    taps = windows.taps()
    channel = te.reduce_axis((0, depth), "c")
    zero = tirx.const(0, dtype)

    def total(n: Any, f: Any, *output: Any) -> Any:
        place = (n, tirx.floordiv(f, each) * depth + channel, *output)
        value = windows.read(x, place, taps, zero).astype(wide)
        return te.sum(value * weight(f, channel, *taps).astype(wide), axis=[channel, *taps])

    result = te.compute([x.shape[0], filters, *windows.outputs], total, name="convolve")
    return _rounded(result, dtype)


def convolve_transposed(
    x: te.Tensor, weight: te.Tensor, windows: Windows, groups: int
) -> te.Tensor:
    """Return the gradient of a convolution with respect to its input.

    Args:
        x: (n, c, *spatial), a float dtype.
        weight: (c, filters / groups, *kernel).
        windows: Of the convolution that is run backward; `outputs` are the sizes of the result.
        groups: Runs of channels that are convolved on their own.

    Returns:
        (n, filters, *outputs) of the dtype of `x`: each element adds the kernel, scaled by it, at
        its place times the stride.
    """
    dtype = str(x.dtype)
    wide = wide_float(dtype)
    each, depth = weight.shape[1], tirx.floordiv(index(x.shape[1]), groups)
    taps = windows.taps()
    channel = te.reduce_axis((0, depth), "c")

    def total(n: Any, f: Any, *output: Any) -> Any:
        places, inside = [], []
        for axis, (o, tap) in enumerate(zip(output, taps, strict=True)):
            reach = o + windows.begin[axis] - tap * windows.dilations[axis]
            place = tirx.floordiv(reach, windows.strides[axis])
            inside += [
                reach >= 0,
                place < x.shape[2 + axis],
                tirx.floormod(reach, windows.strides[axis]) == 0,
            ]
            places.append(place)
        c = tirx.floordiv(f, each) * depth + channel
        value = tirx.if_then_else(tirx.all(*inside), x(n, c, *places), tirx.const(0, dtype))
        kernel = weight(c, tirx.floormod(f, each), *taps).astype(wide)
        return te.sum(value.astype(wide) * kernel, axis=[channel, *taps])

    shape = [x.shape[0], index(each) * groups, *windows.outputs]
    return _rounded(te.compute(shape, total, name="convolve_transposed"), dtype)


def pad_spatial(
    x: te.Tensor, begin: Sequence[Any], sizes: Sequence[Any], fill: float = 0.0
) -> te.Tensor:
    """Return `x` (n, c, *spatial) in the middle of a tensor (n, c, *sizes), `fill` around it."""

    def element(n: Any, c: Any, *place: Any) -> Any:
        source = [p - low for p, low in zip(place, begin, strict=True)]
        inside = [tirx.all(p >= 0, p < size) for p, size in zip(source, x.shape[2:], strict=True)]
        outside = tirx.const(fill, str(x.dtype))
        return tirx.if_then_else(tirx.all(*inside), x(n, c, *source), outside)

    return te.compute([x.shape[0], x.shape[1], *sizes], element, name="pad_spatial")


def _rounded(x: te.Tensor, dtype: str) -> te.Tensor:
    if str(x.dtype) == dtype:
        return x
    return te.compute(x.shape, lambda *i: x(*i).astype(dtype), name="round")
