"""Evenly spaced numbers whose bounds are known only at run time."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

_TOO_MANY = 1 << 60


def arange_length(start: te.Tensor, limit: te.Tensor, step: te.Tensor) -> te.Tensor:
    """Return how many numbers start, start + step, ... lie before `limit`: int64[1].

    The arguments hold one number each: [1], of one dtype. A step of zero never arrives: -1, and
    more than memory can hold is 2^60: neither is a size, and a run refuses them.
    """
    floating = "float" in str(start.dtype)

    def count(_: Any) -> Any:
        if floating:
            first, last, by = (t(0).astype("float64") for t in (start, limit, step))
            steps = tirx.ceil((last - first) / by)
            usable = tirx.Select(steps > 0.0, steps, tirx.const(0.0, "float64"))  # not a NaN
            length = tirx.min(usable, tirx.const(float(_TOO_MANY), "float64")).astype("int64")
            return tirx.Select(by == 0.0, tirx.const(-1, "int64"), length)
        first, last, by = (t(0).astype("int64") for t in (start, limit, step))
        stride = tirx.max(tirx.Select(by < 0, -by, by), 1)
        span = tirx.Select(by < 0, first - last, last - first)
        steps = tirx.max(tirx.floordiv(span + stride - 1, stride), 0)
        # The span of bounds far apart is no int64.
        distance = last.astype("float64") - first.astype("float64")
        distance = tirx.Select(by < 0, -distance, distance)
        too_many = distance / stride.astype("float64") > float(1 << 50)
        steps = tirx.Select(too_many, tirx.const(_TOO_MANY, "int64"), steps)
        return tirx.Select(by == 0, tirx.const(-1, "int64"), steps)

    return te.compute((1,), count, name="arange_length")


def arange(start: te.Tensor, step: te.Tensor, length: Any) -> te.Tensor:
    """Return `length` numbers: start + i * step, half precision computed in float32."""
    dtype = str(start.dtype)
    wide = "float32" if dtype in ("float16", "bfloat16") else dtype
    return te.compute(
        (length,),
        lambda i: (start(0).astype(wide) + i.astype(wide) * step(0).astype(wide)).astype(dtype),
        name="arange",
    )
