"""Pool regions of interest of a feature map into blocks of one size."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from frontends.computations.kernel import (
    Scalar,
    as_dtype,
    divided,
    index,
    kernel,
    parallel,
    serial,
    when,
)


def roi_align(
    x: te.Tensor,
    rois: te.Tensor,
    images: te.Tensor,
    *,
    output: tuple[int, int],
    scale: float,
    samples: int,
    half_pixel: bool,
    greatest: bool,
) -> te.Tensor:
    """Sample each bin of each region linearly at regular points; take their mean or maximum.

    The maximum is that of the four weighted pixels of each point, as ONNX defines it.

    Args:
        x: (n, c, height, width), float32 or float64.
        rois: (regions, 4): left, top, right, bottom, of the dtype of `x`.
        images: int64 (regions,): the image of each region.
        output: Bins down and across.
        scale: From the coordinates of `rois` to pixels of `x`.
        samples: Points of a bin along an axis; 0 chooses one a pixel, rounded up.
        half_pixel: Whether pixel centers are at .5; else regions are at least one pixel wide.
        greatest: Maximum instead of mean.

    Returns:
        (regions, c, *output) of the dtype of `x`. Points more than a pixel outside count as zero.
    """
    dtype = str(x.dtype)
    _, channels, height, width = x.shape
    regions = rois.shape[0]
    down, across = output

    def number(value: float) -> Any:
        return tirx.const(value, dtype)

    def body(ins: list[Any], outs: list[Any]) -> None:
        data, boxes, owner = ins
        result = outs[0]
        with parallel(regions * down * across) as flat:
            r = tirx.floordiv(flat, down * across)
            bin_place = (
                tirx.floormod(tirx.floordiv(flat, across), down),
                tirx.floormod(flat, across),
            )
            offset = number(0.5 if half_pixel else 0.0)
            starts, steps, counts = [], [], []
            for axis in range(2):  # down, then across; boxes give across first
                low = boxes[r, 1 - axis] * number(scale) - offset
                extent = boxes[r, 3 - axis] * number(scale) - offset - low
                if not half_pixel:
                    extent = tirx.max(extent, number(1))
                step = Scalar(extent / number(output[axis]), dtype)
                steps.append(step)
                starts.append(Scalar(low + as_dtype(bin_place[axis], dtype) * step(), dtype))
                points = index(samples) if samples else tirx.ceil(step()).astype("int64")
                counts.append(Scalar(points))
            with serial(channels) as c:
                result[r, c, bin_place[0], bin_place[1]] = number(0)
            with serial(counts[0]()) as iy, serial(counts[1]()) as ix:
                places = [
                    Scalar(
                        starts[axis]()
                        + (as_dtype(i, dtype) + number(0.5))
                        * steps[axis]()
                        / as_dtype(counts[axis](), dtype),
                        dtype,
                    )
                    for axis, i in enumerate((iy, ix))
                ]
                inside = Scalar(
                    tirx.all(
                        places[0]() >= number(-1),
                        places[0]() <= as_dtype(index(height), dtype),
                        places[1]() >= number(-1),
                        places[1]() <= as_dtype(index(width), dtype),
                    ),
                    "bool",
                )
                pixels, shares = [], []
                for place, size in zip(places, (height, width), strict=True):
                    last = index(size) - 1
                    real = tirx.max(place(), number(0))
                    real = tirx.Select(inside(), real, number(0))
                    low_pixel = Scalar(tirx.min(real.astype("int64"), last))
                    high_pixel = Scalar(tirx.min(low_pixel() + 1, last))
                    share = Scalar(real - as_dtype(low_pixel(), dtype), dtype)
                    with when(low_pixel() >= last):
                        share.set(number(0))
                    pixels.append((low_pixel, high_pixel))
                    shares.append((number(1) - share(), share()))
                weights = [
                    Scalar(tirx.Select(inside(), shares[0][a] * shares[1][b], number(0)), dtype)
                    for a in range(2)
                    for b in range(2)
                ]
                with serial(channels) as c:
                    parts = [
                        weights[2 * a + b]() * data[owner[r], c, pixels[0][a](), pixels[1][b]()]
                        for a in range(2)
                        for b in range(2)
                    ]
                    where = (r, c, bin_place[0], bin_place[1])
                    if greatest:
                        best = Scalar(parts[0], dtype)
                        for part in parts[1:]:
                            best.set(tirx.max(best(), part))
                        is_first = tirx.all(iy == 0, ix == 0)
                        result[where] = tirx.Select(
                            is_first, best(), tirx.max(result[where], best())
                        )
                    else:
                        result[where] = result[where] + parts[0] + parts[1] + parts[2] + parts[3]
            if not greatest:
                total = tirx.max(counts[0]() * counts[1](), index(1))
                with serial(channels) as c:
                    where = (r, c, bin_place[0], bin_place[1])
                    result[where] = result[where] / as_dtype(total, dtype)

    shape = (regions, channels, down, across)
    return kernel([x, rois, images], [(shape, dtype)], body, "roi_align")[0]


def roi_max_pool(
    x: te.Tensor, rois: te.Tensor, images: te.Tensor, *, output: tuple[int, int], scale: float
) -> te.Tensor:
    """Return the maximum of each bin of each region (Girshick, "Fast R-CNN", ICCV 2015).

    Args:
        x: (n, c, height, width), float32 or float64.
        rois: (regions, 5): image, left, top, right, bottom; both ends belong to the region.
        images: int64 (regions,): the image of each region, in range.
        output: Bins down and across.
        scale: From the coordinates of `rois` to pixels of `x`.

    Returns:
        (regions, c, *output) of the dtype of `x`; a bin without pixels gives zero.
    """
    dtype = str(x.dtype)
    _, channels, height, width = x.shape
    regions = rois.shape[0]

    def pixel(value: Any) -> Any:
        scaled, half = value * tirx.const(scale, dtype), tirx.const(0.5, dtype)
        away = tirx.Select(
            scaled >= tirx.const(0.0, dtype), tirx.floor(scaled + half), tirx.ceil(scaled - half)
        )
        return away.astype("int64")

    def body(ins: list[Any], outs: list[Any]) -> None:
        data, boxes, owner = ins
        with parallel(regions * channels) as flat:
            r, c = divided(flat, channels)
            image = owner[r]
            with serial(output[0]) as ph, serial(output[1]) as pw:
                ends = []
                for axis, (place, size) in enumerate(((ph, height), (pw, width))):
                    start = Scalar(pixel(boxes[r, 2 - axis]))
                    extent = tirx.max(pixel(boxes[r, 4 - axis]) - start() + 1, index(1))
                    step = as_dtype(extent, dtype) / tirx.const(float(output[axis]), dtype)
                    low = tirx.floor(as_dtype(place, dtype) * step).astype("int64") + start()
                    high = tirx.ceil(as_dtype(place + 1, dtype) * step).astype("int64") + start()
                    limits = [
                        Scalar(tirx.min(tirx.max(end, index(0)), index(size)))
                        for end in (low, high)
                    ]
                    ends.append(limits)
                best = Scalar(tirx.const(0.0, dtype), dtype)
                (top, bottom), (left, right) = ends
                with serial(tirx.max(bottom() - top(), index(0))) as dy:
                    with serial(tirx.max(right() - left(), index(0))) as dx:
                        value = data[image, c, top() + dy, left() + dx]
                        is_first = tirx.all(dy == 0, dx == 0)
                        best.set(tirx.Select(is_first, value, tirx.max(best(), value)))
                outs[0][r, c, ph, pw] = best()

    shape = (regions, channels, *output)
    return kernel([x, rois, images], [(shape, dtype)], body, "roi_max_pool")[0]
