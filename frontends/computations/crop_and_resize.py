"""Cut boxes out of images and resize each to the same size."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx


def crop_and_resize(
    x: te.Tensor,
    boxes: te.Tensor,
    images: te.Tensor,
    *,
    size: tuple[int, int],
    nearest: bool,
    outside: float,
) -> te.Tensor:
    """Return each box, sampled at `size` points that include its corners.

    Args:
        x: (images, channels, height, width), float32.
        boxes: (boxes, 4): y1, x1, y2, x2, where 0 and 1 are the centers of the border pixels; a box
            may be flipped and may reach outside.
        images: (boxes,): which image each box belongs to.
        size: Height and width of the result; a side of 1 samples the box's middle.
        nearest: Take the nearest pixel (halves away from zero), else interpolate linearly.
        outside: The value of points outside the image.

    Returns:
        (boxes, channels, *size).
    """
    height, width = x.shape[2], x.shape[3]
    one = tirx.const(1, "float32")

    def place(low: Any, high: Any, step: Any, count: int, length: Any) -> Any:
        last = (length - 1).astype("float32")
        if count == 1:
            return (low + high) * tirx.const(0.5, "float32") * last
        pace = (high - low) * last / tirx.const(count - 1, "float32")
        return low * last + step.astype("float32") * pace

    def element(b: Any, c: Any, i: Any, j: Any) -> Any:
        y = place(boxes[b, 0], boxes[b, 2], i, size[0], height)
        z = place(boxes[b, 1], boxes[b, 3], j, size[1], width)
        image = images(b).astype("int64")
        inside = tirx.all(
            y >= 0, y <= (height - 1).astype("float32"), z >= 0, z <= (width - 1).astype("float32")
        )

        def pixel(row: Any, column: Any) -> Any:
            row = tirx.min(row.astype("int64"), height - 1)
            return x(image, c, row, tirx.min(column.astype("int64"), width - 1))

        if nearest:
            half = tirx.const(0.5, "float32")
            value = pixel(tirx.floor(y + half), tirx.floor(z + half))
        else:
            top, left = tirx.floor(y), tirx.floor(z)
            down, right = y - top, z - left
            above = pixel(top, left) * (one - right) + pixel(top, left + one) * right
            below = pixel(top + one, left) * (one - right) + pixel(top + one, left + one) * right
            value = above * (one - down) + below * down
        return tirx.if_then_else(inside, value, tirx.const(outside, x.dtype))

    return te.compute((boxes.shape[0], x.shape[1], *size), element, name="crop_and_resize")
