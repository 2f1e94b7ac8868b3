"""Columns of a deformable convolution (Dai et al., "Deformable Convolutional Networks", 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from frontends.computations.kernel import index
from frontends.computations.sample_points import wide_float


def deformed_coordinates(
    offset: te.Tensor,
    kernel: Sequence[int],
    groups: int,
    strides: Sequence[int],
    dilations: Sequence[int],
    begin: Sequence[int],
) -> te.Tensor:
    """Return the pixel coordinates that each kernel element reads.

    Args:
        offset: (n, groups * elements * r, *outputs): how far each element is moved.
        kernel: The r sizes of the kernel.
        groups: Offset groups; each moves a run of the channels.
        strides: Steps between windows.
        dilations: Steps between kernel elements.
        begin: Padding before the image.

    Returns:
        (n * groups, elements, *outputs, r), float32 or float64.
    """
    rank = len(kernel)
    dtype = wide_float(str(offset.dtype))
    elements = 1
    for size in kernel:
        elements *= size
    outputs = offset.shape[2:]

    def element(image: Any, k: Any, *place: Any) -> Any:
        point, axis = place[:-1], place[-1]
        n, group = tirx.floordiv(image, groups), tirx.floormod(image, groups)
        start: Any = index(0)
        inner = elements
        for a in range(rank):
            inner //= kernel[a]
            own = tirx.floormod(tirx.floordiv(k, inner), kernel[a])
            along = point[a] * strides[a] - begin[a] + own * dilations[a]
            start = along if a == 0 else tirx.Select(axis == a, along, start)
        moved = offset(n, (group * elements + k) * rank + axis, *point)
        return start.astype(dtype) + moved.astype(dtype)

    shape = [offset.shape[0] * groups, elements, *outputs, rank]
    return te.compute(shape, element, name="deformed_coordinates")


def masked_columns(sampled: te.Tensor, mask: te.Tensor, groups: int) -> te.Tensor:
    """Return sampled columns times their modulation.

    Args:
        sampled: (n * groups, channels of a group, elements, *outputs).
        mask: (n, groups * elements, *outputs).
        groups: Offset groups.
    """
    elements = sampled.shape[2]

    def element(image: Any, c: Any, k: Any, *point: Any) -> Any:
        n, group = tirx.floordiv(image, groups), tirx.floormod(image, groups)
        return sampled(image, c, k, *point) * mask(n, group * elements + k, *point)

    return te.compute(sampled.shape, element, name="masked_columns")
