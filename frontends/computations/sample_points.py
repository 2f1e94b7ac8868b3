"""Read an image between its pixels: nearest, linear and cubic taps at real coordinates.

Three steps, each a tensor expression: `pixel_coordinates` maps a normalized grid to pixels, `taps`
says for each point and axis which pixels count and how much, `gather_taps` adds them up. The first
two do not depend on the channel, so that a wide image pays for them once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
_OUTSIDE = -1  # the place of a tap that reads zero


@dataclass(frozen=True)
class Sampling:
    """How to read between and outside of the pixels.

    Attributes:
        mode: nearest (ties to even), linear, or cubic (Keys, 1981).
        padding: zeros, border, or reflection.
        align_corners: Whether the outer pixels' centers, not their outer edges, are the ends of the
            image: what -1 and 1 of a grid mean, and where reflection mirrors.
        cubic: Keys' parameter.
    """

    mode: str = "linear"
    padding: str = "zeros"
    align_corners: bool = False
    cubic: float = -0.75


def wide_float(dtype: str) -> str:
    """Return the dtype in which to compute for data of `dtype`."""
    return "float64" if dtype == "float64" else "float32"


def pixel_coordinates(grid: te.Tensor, sizes: Sequence[Any], align_corners: bool) -> te.Tensor:
    """Return pixel coordinates of a normalized grid.

    Args:
        grid: (n, *points, r) with coordinates from -1 to 1, the last image axis first.
        sizes: The r sizes of the image.
        align_corners: What -1 and 1 mean, see `Sampling`.

    Returns:
        (n, *points, r) with the first image axis first, float32 or float64.
    """
    dtype = wide_float(str(grid.dtype))
    rank = len(sizes)
    one, half = tirx.const(1.0, dtype), tirx.const(0.5, dtype)

    def element(*place: Any) -> Any:
        axis = place[-1]
        length = _choose(axis, sizes).astype(dtype)
        at = grid(*place[:-1], rank - 1 - axis).astype(dtype) + one
        if align_corners:
            return at * half * (length - one)
        return (at * length - one) * half

    return te.compute(grid.shape, element, name="pixel_coordinates")


def taps(at: te.Tensor, sizes: Sequence[Any], sampling: Sampling) -> list[te.Tensor]:
    """Return places and weights of the pixels that make up each point, axis by axis.

    Args:
        at: Pixel coordinates (n, *points, r).
        sizes: The r sizes of the image.
        sampling: How to read.

    Returns:
        Places, int64 (n, *points, r, taps), -1 for one that reads zero, and weights of the dtype of
        `at`. NaN reads like a point far outside.
    """
    dtype = str(at.dtype)
    count = _TAPS[sampling.mode]

    def number(value: float) -> Any:
        return tirx.const(value, dtype)

    def limited(value: Any, low: Any, high: Any) -> Any:
        return tirx.min(tirx.max(value, low), high)

    def resolve(place: Any, length: Any) -> Any:
        """Bring a real coordinate into the image as `padding` says."""
        last = length - number(1)
        if sampling.padding == "border":
            return limited(place, number(0), last)
        if sampling.padding == "reflection":
            margin = number(0.0 if sampling.align_corners else 0.5)
            low, span = -margin, last + margin * number(2)
            # One pixel has nothing to reflect but itself.
            span = tirx.max(span, number(1e-6))
            distance = tirx.abs(place - low)
            turns = tirx.floor(distance / span)
            rest = distance - turns * span
            odd = turns - number(2) * tirx.floor(turns * number(0.5)) > number(0.5)
            mirrored = low + tirx.Select(odd, span - rest, rest)
            inside = tirx.all(place >= low, place <= last + margin)
            return limited(tirx.Select(inside, place, mirrored), low, last + margin)
        # Far away all the same: keeps the conversion to integers in range.
        return limited(place, number(-8), length + number(8))

    def parts(place: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Return size, first tap and fraction of a point."""
        axis = place[-2]
        length = _choose(axis, sizes).astype(dtype)
        coordinate = at(*place[:-1])
        if sampling.mode == "nearest":
            return length, resolve(tirx.nearbyint(coordinate), length), number(0)
        # Cubic taps are brought into the image one by one, as PyTorch and ONNX Runtime do.
        if count == 2 or sampling.padding == "zeros":
            coordinate = resolve(coordinate, length)
        base = tirx.floor(coordinate)
        first = base if count == 2 else base - number(1)
        return length, first, coordinate - base

    def position(*place: Any) -> Any:
        length, first, _ = parts(place)
        pixel = first + place[-1].astype(dtype)
        inside = tirx.all(pixel >= number(0), pixel <= length - number(1))
        if sampling.padding == "reflection":
            pixel = resolve(pixel, length)
        safe = limited(pixel, number(0), length - number(1)).astype("int64")
        if sampling.padding == "zeros":
            return tirx.Select(inside, safe, tirx.IntImm("int64", _OUTSIDE))
        return safe

    def weight(*place: Any) -> Any:
        if count == 1:
            return number(1)
        _, _, fraction = parts(place)
        tap = place[-1].astype(dtype)
        if count == 2:
            return number(1) - tirx.abs(fraction - tap)
        d = tirx.abs(fraction + number(1) - tap)
        a = sampling.cubic
        near = ((number(a + 2)) * d - number(a + 3)) * d * d + number(1)
        far = ((number(a) * d - number(5 * a)) * d + number(8 * a)) * d - number(4 * a)
        return tirx.Select(d <= number(1), near, far)

    shape = [*at.shape, count]
    return [
        te.compute(shape, position, name="tap_places"),
        te.compute(shape, weight, name="tap_weights"),
    ]


def gather_taps(x: te.Tensor, places: te.Tensor, weights: te.Tensor) -> te.Tensor:
    """Return the image at the points: the weighted sum of the taps over all axes.

    Args:
        x: (n, c, *image) with r image axes.
        places: int64 (n, *points, r, taps).
        weights: Shaped as `places`.

    Returns:
        (n, c, *points) of the dtype of `x`.
    """
    rank = len(x.shape) - 2
    dtype, wide = str(x.dtype), str(weights.dtype)
    count = int(places.shape[-1])
    shape = [x.shape[0], x.shape[1], *places.shape[1:-2]]

    def pixel(n: Any, c: Any, point: Sequence[Any], tap: Sequence[Any]) -> tuple[Any, Any]:
        index = [places(n, *point, axis, tap[axis]) for axis in range(rank)]
        safe = [tirx.max(i, tirx.IntImm("int64", 0)) for i in index]
        inside = tirx.all(*(i >= 0 for i in index))
        return inside, x(n, c, *safe)

    if count == 1:

        def nearest(n: Any, c: Any, *point: Any) -> Any:
            inside, value = pixel(n, c, point, [0] * rank)
            return tirx.Select(inside, value, tirx.const(0, dtype))

        return te.compute(shape, nearest, name="sample_nearest")

    axes = [te.reduce_axis((0, count), f"tap{axis}") for axis in range(rank)]

    def total(n: Any, c: Any, *point: Any) -> Any:
        inside, value = pixel(n, c, point, axes)
        product = tirx.Select(inside, value.astype(wide), tirx.const(0, wide))
        for axis in range(rank):
            product = product * weights(n, *point, axis, axes[axis])
        return te.sum(product, axis=axes)

    summed = te.compute(shape, total, name="sample")
    if dtype == wide:
        return summed
    return te.compute(shape, lambda *i: summed(*i).astype(dtype), name="sample_cast")


def _choose(axis: Any, sizes: Sequence[Any]) -> Any:
    """Return `sizes[axis]` for an index known only at run time."""
    chosen: Any = _index(sizes[-1])
    for number in range(len(sizes) - 2, -1, -1):
        chosen = tirx.Select(axis == number, _index(sizes[number]), chosen)
    return chosen


def _index(size: Any) -> Any:
    return tirx.IntImm("int64", size) if isinstance(size, int) else size.astype("int64")
