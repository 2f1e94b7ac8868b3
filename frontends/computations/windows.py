"""Window functions and mel filters of signal processing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from frontends.computations.kernel import index


def cosine_window(
    size: Any, coefficients: Sequence[float], periodic: bool, dtype: str
) -> te.Tensor:
    """Return a sum of cosines over one period: c0 - c1 cos(t) + c2 cos(2 t) - ...

    Args:
        size: Number of elements, an int or an int64 expression.
        coefficients: c0, c1, ...
        periodic: Whether the period has `size` elements, not `size` - 1.
        dtype: Of the result, (size,).
    """
    length = index(size) if periodic else index(size) - 1

    def element(place: Any) -> Any:
        t = place.astype("float64") * tirx.const(2 * math.pi, "float64")
        t = t / length.astype("float64")
        total = tirx.const(coefficients[0], "float64")
        for order, coefficient in enumerate(coefficients[1:], 1):
            wave = tirx.cos(t * tirx.const(float(order), "float64"))
            total = total + wave * tirx.const(coefficient * (-1.0) ** order, "float64")
        return total.astype(dtype)

    return te.compute([index(size)], element, name="cosine_window")


def mel_filters(
    bands: Any, length: Any, rate: te.Tensor, low: te.Tensor, high: te.Tensor, dtype: str
) -> te.Tensor:
    """Return triangular filters, evenly spaced on the mel scale, over the bins of a spectrum.

    Args:
        bands: Number of filters.
        length: Of the Fourier transform; it has length // 2 + 1 bins.
        rate: Samples a second, one number.
        low: Lower edge of the first filter in hertz, one number.
        high: Upper edge, one number.
        dtype: Of the result, (bins, bands).
    """

    def number(value: float) -> Any:
        return tirx.const(value, "float64")

    def scalar(x: te.Tensor) -> Any:
        return x(*([0] * len(x.shape))).astype("float64")

    def mel(hertz: Any) -> Any:
        return number(2595.0 / math.log(10)) * tirx.log(number(1) + hertz / number(700))

    def edge(place: Any) -> Any:
        step = (mel(scalar(high)) - mel(scalar(low))) / (index(bands) + 2).astype("float64")
        at = place.astype("float64") * step + mel(scalar(low))
        hertz = number(700) * (tirx.exp(at * number(math.log(10) / 2595.0)) - number(1))
        bins = tirx.floor((index(length) + 1).astype("float64") * hertz / scalar(rate))
        return bins.astype("int64")

    edges = te.compute([index(bands) + 2], edge, name="mel_edges")

    def weight(j: Any, i: Any) -> Any:
        left, middle, right = edges(i), edges(i + 1), edges(i + 2)

        def ratio(a: Any, b: Any) -> Any:
            return a.astype("float64") / tirx.max(b, index(1)).astype("float64")

        rising = tirx.Select(
            tirx.all(j >= left, j <= middle),
            tirx.Select(left == middle, number(1), ratio(j - left, middle - left)),
            number(0),
        )
        falling = tirx.all(j >= middle, j < right)
        return tirx.Select(falling, ratio(right - j, right - middle), rising).astype(dtype)

    shape = [tirx.floordiv(index(length), 2) + 1, index(bands)]
    return te.compute(shape, weight, name="mel_filters")
