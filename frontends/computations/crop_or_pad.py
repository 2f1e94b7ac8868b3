"""Cut out or surround the middle of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from frontends.computations.kernel import index


def center_crop_or_pad(x: te.Tensor, axes: Sequence[int], sizes: Sequence[Any]) -> te.Tensor:
    """Return `x` with `axes` cropped, or padded with zeros, to `sizes` around the middle.

    Where the middle falls between two elements, the smaller half is at the front.

    Args:
        x: Any shape and dtype.
        axes: The axes to change, counted from the front.
        sizes: Their new sizes.
    """
    shape = list(x.shape)
    shifts: dict[int, Any] = {}
    for axis, size in zip(axes, sizes, strict=True):
        shifts[axis] = tirx.truncdiv(index(x.shape[axis]) - index(size), index(2))
        shape[axis] = index(size)

    def element(*place: Any) -> Any:
        source, inside = list(place), []
        for axis, shift in shifts.items():
            source[axis] = place[axis] + shift
            inside += [source[axis] >= 0, source[axis] < x.shape[axis]]
        if not inside:
            return x(*place)
        return tirx.if_then_else(tirx.all(*inside), x(*source), tirx.const(0, str(x.dtype)))

    return te.compute(shape, element, name="center_crop_or_pad")
