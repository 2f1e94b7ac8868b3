"""Adaptive pooling: windows that tile an image in a given number, of any rank.

Window o of n over length L covers [floor(o L / n), ceil((o + 1) L / n)), as PyTorch defines it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from tvm import te, tirx

from frontends.computations.kernel import (
    Scalar,
    as_dtype,
    index,
    kernel,
    parallel,
    product,
    serial,
    when,
)
from frontends.computations.not_a_number import is_nan
from frontends.computations.sample_points import wide_float


def adaptive_average(x: te.Tensor, outputs: Sequence[Any]) -> te.Tensor:
    """Return the mean of each window, (n, c, *outputs), of the dtype of `x` (n, c, *spatial)."""
    dtype = str(x.dtype)
    wide = wide_float(dtype)

    def body(ins: list[Any], outs: list[Any]) -> None:
        def window(place: Any, each: Callable[..., None]) -> None:
            total, count = Scalar(0.0, wide), Scalar(0)

            def add(at: tuple[Any, ...]) -> None:
                total.set(total() + as_dtype(ins[0][at], wide))
                count.set(count() + 1)

            each(add)
            mean = total() / as_dtype(tirx.max(count(), index(1)), wide)
            outs[0][place] = as_dtype(mean, dtype)

        _windows(x, outputs, window)

    shape = [*x.shape[:2], *outputs]
    return kernel([x], [(shape, dtype)], body, "adaptive_average")[0]


def adaptive_maximum(x: te.Tensor, outputs: Sequence[Any]) -> list[te.Tensor]:
    """Return the maximum of each window, (n, c, *outputs), and its place in the plane, int64.

    Of equal elements the first one counts; NaN is greater than any number.
    """
    dtype = str(x.dtype)

    def body(ins: list[Any], outs: list[Any]) -> None:
        def window(place: Any, each: Callable[..., None]) -> None:
            best = Scalar(index(-1))

            def keep(at: tuple[Any, ...]) -> None:
                flat: Any = index(0)
                for i, size in zip(at[2:], x.shape[2:], strict=True):
                    flat = flat * index(size) + i
                value = ins[0][at]
                greater = value > outs[0][place]
                if "float" in dtype:
                    greater = tirx.any(greater, is_nan(value))
                with when(tirx.any(best() < 0, greater)):
                    best.set(flat)
                    outs[0][place] = value

            outs[0][place] = as_dtype(0, dtype)
            each(keep)
            outs[1][place] = best()

        _windows(x, outputs, window)

    shape = [*x.shape[:2], *outputs]
    return kernel([x], [(shape, dtype), (shape, "int64")], body, "adaptive_maximum")


def _windows(
    x: te.Tensor, outputs: Sequence[Any], window: Callable[[Any, Callable[..., None]], None]
) -> None:
    """State a loop over all windows; `window` gets its flat place and a loop over its elements."""
    sizes, rank = x.shape[2:], len(outputs)
    with parallel(product([*x.shape[:2], *outputs])) as place:
        rest = place
        bounds: list[tuple[Scalar, Scalar]] = []
        for axis in reversed(range(rank)):
            number, length = index(outputs[axis]), index(sizes[axis])
            o = tirx.floormod(rest, number)
            rest = tirx.floordiv(rest, number)
            start = tirx.floordiv(o * length, number)
            end = tirx.floordiv((o + 1) * length + number - 1, number)
            bounds.insert(0, (Scalar(start), Scalar(end)))
        channels = index(x.shape[1])
        n, c = Scalar(tirx.floordiv(rest, channels)), Scalar(tirx.floormod(rest, channels))

        def each(use: Callable[[tuple[Any, ...]], None]) -> None:
            with ExitStack() as loops:
                at = [
                    start() + loops.enter_context(serial(end() - start())) for start, end in bounds
                ]
                use((n(), c(), *at))

        window(place, each)
