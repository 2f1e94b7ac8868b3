"""Add up sliding blocks, written as columns, into the image that they overlap in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from frontends.computations.kernel import index, product
from frontends.computations.sample_points import wide_float


def columns_to_image(
    x: te.Tensor,
    image: Sequence[Any],
    block: Sequence[Any],
    counts: Sequence[Any],
    strides: Sequence[int],
    dilations: Sequence[int],
    begin: Sequence[int],
) -> te.Tensor:
    """Return the sum, at each pixel, of the block elements that lie on it.

    Args:
        x: (n, c * elements of a block, number of blocks).
        image: The r sizes of the result.
        block: The r sizes of a block, at least 1.
        counts: How many blocks there are along each axis of the padded image.
        strides: Steps between blocks.
        dilations: Steps between the elements of a block.
        begin: Padding before the image.

    Returns:
        (n, c, *image) of the dtype of `x`.
    """
    rank = len(image)
    dtype = str(x.dtype)
    wide = wide_float(dtype) if "float" in dtype else dtype
    elements = product(block)
    channels = tirx.floordiv(index(x.shape[1]), tirx.max(elements, 1))
    axes = [te.reduce_axis((0, index(block[a])), f"k{a}") for a in range(rank)]

    def total(n: Any, c: Any, *pixel: Any) -> Any:
        element, column, inside = index(0), index(0), []
        for a in range(rank):
            reach = pixel[a] + begin[a] - axes[a] * dilations[a]
            place = tirx.floordiv(reach, strides[a])
            inside += [reach >= 0, place < index(counts[a]), tirx.floormod(reach, strides[a]) == 0]
            element = element * index(block[a]) + axes[a]
            column = column * index(counts[a]) + place
        value = tirx.if_then_else(
            tirx.all(*inside),
            x(n, c * elements + element, column).astype(wide),
            tirx.const(0, wide),
        )
        return te.sum(value, axis=axes)

    shape = [x.shape[0], channels, *(index(size) for size in image)]
    summed = te.compute(shape, total, name="columns_to_image")
    if wide == dtype:
        return summed
    return te.compute(shape, lambda *i: summed(*i).astype(dtype), name="image_cast")
