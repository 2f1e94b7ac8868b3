"""Evenly spaced numbers whose bounds are known only at run time."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx


def arange_length(start: te.Tensor, limit: te.Tensor, step: te.Tensor) -> te.Tensor:
    """Return how many numbers start, start + step, ... lie before `limit`: int64[1].

    The arguments hold one number each: [1], of one dtype. A step of zero gives none.
    """
    floating = "float" in str(start.dtype)

    def count(_: Any) -> Any:
        if floating:
            first, last, by = (t(0).astype("float64") for t in (start, limit, step))
            steps = tirx.ceil((last - first) / by)
            usable = tirx.all(by != 0.0, steps > 0.0)
            return tirx.Select(usable, steps, tirx.const(0.0, "float64")).astype("int64")
        first, last, by = (t(0).astype("int64") for t in (start, limit, step))
        stride = tirx.max(tirx.Select(by < 0, -by, by), 1)
        span = tirx.Select(by < 0, first - last, last - first)
        steps = tirx.max(tirx.floordiv(span + stride - 1, stride), 0)
        return tirx.Select(by == 0, tirx.const(0, "int64"), steps)

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
