"""Grids of normalized coordinates under an affine map, for sampling images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from frontends.computations.sample_points import wide_float


def affine_grid(theta: te.Tensor, sizes: Sequence[Any], align_corners: bool) -> te.Tensor:
    """Return the mapped coordinates of every pixel.

    Args:
        theta: (n, r, r + 1): a matrix and a translation for each image.
        sizes: The r sizes of the image.
        align_corners: Whether -1 and 1 are the outer pixels' centers, not their outer edges. An
            axis of one pixel has its center at 0 either way.

    Returns:
        (n, *sizes, r), the coordinate along the last image axis first, of the dtype of `theta`.
    """
    dtype = str(theta.dtype)
    wide = wide_float(dtype)
    rank = len(sizes)
    one, two = tirx.const(1.0, wide), tirx.const(2.0, wide)

    def coordinate(place: Any, size: Any) -> Any:
        length = size.astype(wide) if not isinstance(size, int) else tirx.const(float(size), wide)
        pixel = place.astype(wide)
        if align_corners:
            spread = pixel * two / tirx.max(length - one, one) - one
            return tirx.Select(length > one, spread, tirx.const(0.0, wide))
        return (pixel * two + one) / length - one

    def element(*place: Any) -> Any:
        n, pixel, row = place[0], place[1:-1], place[-1]
        total = theta(n, row, rank).astype(wide)
        for column in range(rank):
            axis = rank - 1 - column
            total = total + theta(n, row, column).astype(wide) * coordinate(
                pixel[axis], sizes[axis]
            )
        return total.astype(dtype)

    return te.compute([theta.shape[0], *sizes, rank], element, name="affine_grid")
