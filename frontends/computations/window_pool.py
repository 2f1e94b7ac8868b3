"""Pooling over windows of any rank whose padding and sizes may be known only at run time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from frontends.computations.kernel import index, product
from frontends.computations.not_a_number import is_nan
from frontends.computations.sample_points import wide_float


@dataclass(frozen=True)
class Windows:
    """Where windows lie, one entry a spatial axis.

    Attributes:
        kernel: Elements of a window.
        strides: From window to window.
        dilations: From element to element.
        begin: Padding before the first element; an int or an int64 expression.
        outputs: Number of windows.
    """

    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    begin: Sequence[Any]
    outputs: Sequence[Any]

    def place(self, axis: int, output: Any, tap: Any) -> Any:
        """Return the input place of an element of a window; it may lie in the padding."""
        return output * self.strides[axis] + tap * self.dilations[axis] - self.begin[axis]

    def read(self, x: te.Tensor, i: Sequence[Any], taps: Sequence[Any], outside: Any) -> Any:
        """Return an element of `x` (n, c, *spatial) for window `i`, `outside` in the padding."""
        n, c, *output = i
        places = [self.place(a, o, k) for a, (o, k) in enumerate(zip(output, taps, strict=True))]
        inside = [
            tirx.all(place >= 0, place < size)
            for place, size in zip(places, x.shape[2:], strict=True)
        ]
        return tirx.if_then_else(tirx.all(*inside), x(n, c, *places), outside)

    def taps(self) -> list[Any]:
        """Return reduction axes over a window."""
        return [te.reduce_axis((0, size), f"k{a}") for a, size in enumerate(self.kernel)]

    def reaching_taps(self, x: te.Tensor) -> list[Any]:
        """Return reduction axes over those taps of a window that may lie in `x`.

        Exporters write kernels far larger than the input for a mean over all of it. The first
        window reaches the last tap that counts: all others start further on.
        """
        ends = []
        for a, (kernel, size) in enumerate(zip(self.kernel, x.shape[2:], strict=True)):
            begin, known = self.begin[a], isinstance(size, tirx.IntImm)
            if not known or not isinstance(begin, int | tirx.IntImm):
                ends.append(kernel)
                continue
            reached = (int(size) + int(begin) - 1) // self.dilations[a] + 1
            ends.append(min(int(kernel), max(reached, 1)))
        return [te.reduce_axis((0, end), f"k{a}") for a, end in enumerate(ends)]

    def count(self, axis: int, output: Any, low: Any, high: Any) -> Any:
        """Return how many elements of a window have a place in [low, high)."""
        step = self.dilations[axis]
        start = output * self.strides[axis] - self.begin[axis]
        first = tirx.floordiv(tirx.max(index(low) - start, index(0)) + step - 1, step)
        end = tirx.floordiv(tirx.max(index(high) - start, index(0)) + step - 1, step)
        return tirx.min(end, index(self.kernel[axis])) - first


def max_pool(x: te.Tensor, windows: Windows) -> te.Tensor:
    """Return the maximum of each window, (n, c, *outputs); NaN is greater than any number.

    A window without elements gives the least number of the dtype.
    """
    dtype = str(x.dtype)
    kind = tirx.const(0, dtype).ty
    least = tirx.const(float("-inf"), dtype) if "float" in dtype else tirx.min_value(kind)

    def greater(a: Any, b: Any) -> Any:
        keep = a > b
        if "float" in dtype:
            keep = tirx.any(keep, is_nan(a))
        return tirx.Select(keep, a, b)

    greatest = te.comm_reducer(greater, lambda _: least, name="greatest")
    taps = windows.reaching_taps(x)
    return te.compute(
        [x.shape[0], x.shape[1], *windows.outputs],
        lambda *i: greatest(windows.read(x, i, taps, least), axis=taps),
        name="max_pool",
    )


def sum_pool(x: te.Tensor, windows: Windows) -> te.Tensor:
    """Return the sum of each window, (n, c, *outputs), float32 or float64."""
    wide = wide_float(str(x.dtype))
    taps = windows.reaching_taps(x)
    zero = tirx.const(0.0, wide)

    def total(*i: Any) -> Any:
        n, c, *output = i
        places = [windows.place(a, o, k) for a, (o, k) in enumerate(zip(output, taps, strict=True))]
        inside = [tirx.all(p >= 0, p < size) for p, size in zip(places, x.shape[2:], strict=True)]
        value = tirx.if_then_else(tirx.all(*inside), x(n, c, *places).astype(wide), zero)
        return te.sum(value, axis=taps)

    return te.compute([x.shape[0], x.shape[1], *windows.outputs], total, name="sum_pool")


def average_pool(
    x: te.Tensor, windows: Windows, low: Sequence[Any], high: Sequence[Any]
) -> te.Tensor:
    """Return the sum of each window over the number of its places in [low, high).

    Args:
        x: (n, c, *spatial).
        windows: Where windows lie.
        low: First place that counts on each axis: 0, or less where padding counts.
        high: One past the last place that counts.
    """
    total, dtype = sum_pool(x, windows), str(x.dtype)

    def element(*i: Any) -> Any:
        number: Any = index(1)
        for axis, output in enumerate(i[2:]):
            number = number * windows.count(axis, output, low[axis], high[axis])
        number = tirx.max(number, index(1))
        return (total(*i) / number.astype(str(total.dtype))).astype(dtype)

    return te.compute(total.shape, element, name="average_pool")


def max_places(
    x: te.Tensor, maxima: te.Tensor, windows: Windows, *, column_major: bool
) -> te.Tensor:
    """Return the flat place of each maximum in `x`: the first one in its window.

    Args:
        x: (n, c, *spatial).
        maxima: What `max_pool` gave.
        windows: Where windows lie.
        column_major: Whether the first spatial axis, not the last, is the fastest.

    Returns:
        int64, shaped as `maxima`. Batch and channel count as the slowest axes either way.
    """
    spatial = list(x.shape[2:])
    order = list(range(len(spatial)))
    is_float = "float" in str(x.dtype)

    def flat(n: Any, c: Any, places: Sequence[Any]) -> Any:
        offset: Any = n * x.shape[1] + c
        for size in spatial:
            offset = offset * size
        inner: Any = index(0)
        for axis in reversed(order) if column_major else order:
            inner = inner * spatial[axis] + places[axis]
        return offset + inner

    def earlier(a: Any, b: Any) -> Any:
        return tirx.min(a, b)

    taps = windows.taps()
    none = tirx.max_value(tirx.IntImm("int64", 0).ty)
    first = te.comm_reducer(earlier, lambda _: none, name="first")

    def tap_number(*i: Any) -> Any:
        """Return the number of the first element of the window that is the maximum."""
        n, c, *output = i
        places = [windows.place(a, o, k) for a, (o, k) in enumerate(zip(output, taps, strict=True))]
        inside = [tirx.all(p >= 0, p < size) for p, size in zip(places, spatial, strict=True)]
        safe = [tirx.max(tirx.min(p, size - 1), 0) for p, size in zip(places, spatial, strict=True)]
        value, best = x(n, c, *safe), maxima(*i)
        hit = value == best
        if is_float:
            hit = tirx.any(hit, tirx.all(is_nan(value), is_nan(best)))
        number: Any = index(0)
        for tap, size in zip(taps, windows.kernel, strict=True):
            number = number * size + tap
        return first(tirx.Select(tirx.all(hit, *inside), number, none), axis=taps)

    chosen = te.compute(maxima.shape, tap_number, name="max_taps")

    def element(*i: Any) -> Any:
        n, c, *output = i
        rest = chosen(*i)
        places: list[Any] = []
        for axis in reversed(order):
            tap = tirx.floormod(rest, windows.kernel[axis])
            rest = tirx.floordiv(rest, windows.kernel[axis])
            places.insert(0, windows.place(axis, output[axis], tap))
        return flat(n, c, places)

    return te.compute(maxima.shape, element, name="max_places")


def within_plane(places: te.Tensor, x: te.Tensor) -> te.Tensor:
    """Return flat places in `x` (n, c, *spatial) as flat places in their own plane."""
    size = product(x.shape[2:])
    return te.compute(places.shape, lambda *i: tirx.floormod(places(*i), size), name="within_plane")


def scaled_sum_pool(x: te.Tensor, windows: Windows, divisor: int) -> te.Tensor:
    """Return the sum of each window over a number, (n, c, *outputs)."""
    total, dtype = sum_pool(x, windows), str(x.dtype)
    return te.compute(
        total.shape,
        lambda *i: (total(*i) / tirx.const(divisor, str(total.dtype))).astype(dtype),
        name="scaled_sum_pool",
    )
