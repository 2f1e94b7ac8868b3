"""Resampling of one axis at run time: sizes, scales and regions need not be known before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from frontends.computations.kernel import Scalar, as_dtype, index, kernel, serial, when
from frontends.computations.resample_tables import CEIL_WHERE_SHRINKING, Mode

NO_SIZE = -1  # a size that cannot be


def _number(value: float) -> Any:
    return tirx.const(value, "float64")


def _real(value: Any) -> Any:
    return index(value).astype("float64")


def coordinates(numbers: te.Tensor, length: Any, output: Any, mode: Mode) -> te.Tensor:
    """Return the input coordinate of each output element.

    Args:
        numbers: float64 (3,): scale (output / input), then begin and end of the cropped region.
        length: Input elements.
        output: Output elements.
        mode: How to resample.

    Returns:
        float64 (output,).
    """
    scale, low, high = (numbers(place) for place in range(3))
    last, out, half = _real(length) - _number(1), _real(output), _number(0.5)
    span = scale * _real(length) - _number(1)  # need not be an integer where a scale is given
    kind = mode.coordinates

    def element(o: Any) -> Any:
        place = o.astype("float64")
        centered = (place + half) / scale - half
        if kind == "asymmetric":
            return place / scale
        if kind == "align_corners":
            return tirx.Select(out > _number(1), place * last / span, _number(0))
        if kind == "half_pixel":
            return centered
        if kind == "pytorch_half_pixel":
            return tirx.Select(out > _number(1), centered, _number(0))
        if kind == "half_pixel_symmetric":
            adjustment = out / (scale * _real(length))
            return _real(length) * half * (_number(1) - adjustment) + centered
        if kind == "tf_half_pixel_for_nn":
            return (place + half) / scale
        if kind == "tf_crop_and_resize":
            spread = place * (high - low) * last / span
            middle = half * (low + high) * last
            return tirx.Select(out > _number(1), low * last + spread, middle)
        raise ValueError(f"unknown coordinate_transformation_mode {kind!r}")

    return te.compute([index(output)], element, name="resize_coordinates")


def count_taps(numbers: te.Tensor, mode: Mode) -> te.Tensor:
    """Return the number of taps of an antialiased kernel, int64 (1,); `numbers` as above."""

    def element(_: Any) -> Any:
        shrink = tirx.min(numbers(0), _number(1))
        return tirx.ceil(_number(mode.support) / shrink).astype("int64") * 2

    return te.compute([1], element, name="count_taps")


def tables(
    at: te.Tensor, numbers: te.Tensor, length: Any, count: Any, mode: Mode, dtype: str
) -> list[te.Tensor]:
    """Return indices, int64 (output, taps), and but for nearest weights of `dtype`.

    Args:
        at: The coordinates.
        numbers: As for `coordinates`.
        length: Input elements.
        count: Number of taps.
        mode: How to resample.
        dtype: Of the weights.
    """
    last = _real(length) - _number(1)
    shape = [at.shape[0], index(count)]

    def limited(place: Any) -> Any:
        return tirx.min(tirx.max(place, _number(0)), last).astype("int64")

    if mode.kind == "nearest":

        def by_scale(x: Any) -> Any:
            single = x.astype("float32")
            return tirx.Select(
                numbers(0) < _number(1), tirx.ceil(single), tirx.floor(single)
            ).astype("float64")

        def nearest(o: Any, _: Any) -> Any:
            rounded = {
                "floor": lambda x: tirx.floor(x),
                "ceil": lambda x: tirx.ceil(x),
                "round_prefer_floor": lambda x: tirx.ceil(x - _number(0.5)),
                "round_prefer_ceil": lambda x: tirx.floor(x + _number(0.5)),
                CEIL_WHERE_SHRINKING: by_scale,
            }[mode.rounding]
            return limited(rounded(at(o)))

        return [te.compute(shape, nearest, name="resize_indices")]

    def base(o: Any) -> Any:
        return tirx.ceil(at(o)) - _number(1) if mode.antialias else tirx.floor(at(o))

    def place(o: Any, k: Any) -> Any:
        return base(o) + (k - tirx.floordiv(index(count), 2) + 1).astype("float64")

    def raw(o: Any, k: Any) -> Any:
        d = tirx.abs(place(o, k) - at(o))
        if mode.antialias:
            d = d * tirx.min(numbers(0), _number(1))
        if mode.kind == "linear":
            weight = tirx.max(_number(1) - d, _number(0))
        else:
            a = mode.cubic
            near = (_number(a + 2) * d - _number(a + 3)) * d * d + _number(1)
            far = ((_number(a) * d - _number(5 * a)) * d + _number(8 * a)) * d - _number(4 * a)
            weight = tirx.Select(d < _number(2), far, _number(0))
            weight = tirx.Select(d <= _number(1), near, weight)
        if mode.exclude_outside:
            inside = tirx.all(place(o, k) >= _number(0), place(o, k) <= last)
            weight = tirx.Select(inside, weight, _number(0))
        return weight

    indices = te.compute(shape, lambda o, k: limited(place(o, k)), name="resize_indices")
    weights = te.compute(shape, raw, name="resize_weights")
    if mode.antialias or mode.exclude_outside:
        k = te.reduce_axis((0, index(count)), "k")
        total = te.compute(shape[:1], lambda o: te.sum(weights(o, k), axis=k), name="resize_total")
        shared = te.compute(
            shape, lambda o, k: (weights(o, k) / total(o)).astype(dtype), name="resize_shares"
        )
        return [indices, shared]
    return [
        indices,
        te.compute(shape, lambda o, k: weights(o, k).astype(dtype), name="resize_cast"),
    ]


def outside(at: te.Tensor, length: Any) -> te.Tensor:
    """Tell for each coordinate whether it lies outside of the input, bool (output,)."""
    last = _real(length) - _number(1)
    return te.compute(
        at.shape, lambda o: tirx.any(at(o) < _number(0), at(o) > last), name="resize_outside"
    )


def combine(
    x: te.Tensor,
    axis: int,
    indices: te.Tensor,
    weights: te.Tensor | None,
    dtype: str | None = None,
) -> te.Tensor:
    """Return `x` resampled along `axis` from tables (output, taps); no weights mean one tap.

    Weighted sums are made in float32 (float64 if `x` is) and rounded to `dtype`, by default that of
    `x`; integers toward zero, within their type.
    """
    dims = list(x.shape)
    dims[axis] = indices.shape[0]
    wide = summing_dtype(str(x.dtype))
    dtype = dtype or str(x.dtype)

    def tap(i: Sequence[Any], k: Any) -> Any:
        places = list(i)
        places[axis] = indices(i[axis], k)
        value = x(*places)
        if weights is None:
            return value
        return value.astype(wide) * weights(i[axis], k).astype(wide)

    if weights is None:
        return te.compute(dims, lambda *i: tap(i, 0), name="resize")

    def rounded(total: Any) -> Any:
        if "int" in dtype:  # a cubic kernel overshoots
            kind = tirx.const(0, dtype).ty
            low, high = tirx.min_value(kind).value, tirx.max_value(kind).value
            total = tirx.max(tirx.const(float(low), wide), total)
            total = tirx.min(tirx.const(float(high), wide), total)
        return total.astype(dtype)

    count = indices.shape[1]
    if isinstance(count, int | tirx.IntImm) and int(count) <= 4:

        def pick(*i: Any) -> Any:
            total = tap(i, 0)
            for k in range(1, int(count)):
                total = total + tap(i, k)
            return rounded(total)

        return te.compute(dims, pick, name="resize")
    k = te.reduce_axis((0, count), "k")
    summed = te.compute(dims, lambda *i: te.sum(tap(i, k), axis=k), name="resize")
    if wide == dtype:
        return summed
    return te.compute(dims, lambda *i: rounded(summed(*i)), name="resize_cast")


def summing_dtype(dtype: str) -> str:
    """Return the dtype that samples of `dtype` are weighted and summed in."""
    return dtype if dtype in ("float32", "float64") else "float32"


def scaled_sizes(scales: te.Tensor, lengths: Sequence[Any]) -> te.Tensor:
    """Return floor(length * scale), taken in float32, for each axis: int64 (axes,).

    A scale that is not positive, a NaN too, gives `NO_SIZE`; a size beyond any tensor's, 2^60.
    """

    def body(ins: list[Any], outs: list[Any]) -> None:
        for place, length in enumerate(lengths):
            scale = ins[0][place].astype("float32")
            size = tirx.floor(as_dtype(index(length), "float32") * scale)
            outs[0][place] = index(NO_SIZE)
            with when(scale > tirx.const(0, "float32")):
                outs[0][place] = tirx.min(size, tirx.const(2.0**60, "float32")).astype("int64")

    return kernel([scales], [((len(lengths),), "int64")], body, "scaled_sizes")[0]


def fitted_sizes(sizes: Sequence[Any], lengths: Sequence[Any], *, larger: bool) -> list[te.Tensor]:
    """Return sizes in the proportions of `lengths`, at most or at least `sizes`.

    Args:
        sizes: The wanted sizes.
        lengths: The present ones.
        larger: Whether no size may be smaller than wanted; else none is larger.

    Returns:
        The sizes, int64 (axes,), and the scale, float64 (1,).
    """

    def body(ins: list[Any], outs: list[Any]) -> None:
        # An axis without elements has no proportion.
        best = Scalar(_number(0.0 if larger else math.inf), "float64")
        choose = tirx.max if larger else tirx.min
        for size, length in zip(sizes, lengths, strict=True):
            with when(index(length) > 0):
                best.set(choose(best(), _real(size) / _real(tirx.max(index(length), 1))))
        for place, length in enumerate(lengths):
            outs[0][place] = index(0)
            with when(index(length) > 0):
                rounded = tirx.floor(best() * _real(length) + _number(0.5))
                outs[0][place] = rounded.astype("int64")
        with serial(1) as only:
            outs[1][only] = best()

    return kernel([], [((len(sizes),), "int64"), ((1,), "float64")], body, "fitted_sizes")
