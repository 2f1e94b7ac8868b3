"""Running extrema and log-sums along the middle axis."""

from __future__ import annotations

import math
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
from frontends.computations.not_a_number import is_nan
from frontends.computations.sample_points import wide_float


def running_extremum(x: te.Tensor, *, greatest: bool) -> list[te.Tensor]:
    """Return the extremum so far, and the last place where it is.

    Args:
        x: (outer, n, inner), any number type; a NaN is the extremum from where it stands.
        greatest: The maximum, not the minimum.

    Returns:
        Values of the dtype of `x` and places, int64, both shaped as `x`.
    """
    outer, n, inner = x.shape
    dtype = str(x.dtype)
    wide = "uint8" if dtype == "bool" else dtype

    def body(ins: list[Any], outs: list[Any]) -> None:
        with parallel(outer * inner) as row:
            o, i = divided(row, inner)
            best = Scalar(index(0))
            with serial(n) as j:
                new, old = as_dtype(ins[0][o, j, i], wide), as_dtype(ins[0][o, best(), i], wide)
                wins = new >= old if greatest else new <= old
                if "float" in dtype:
                    wins = tirx.any(wins, is_nan(new))
                    wins = tirx.all(wins, tirx.any(is_nan(new), tirx.Not(is_nan(old))))
                with when(wins):
                    best.set(j)
                outs[0][o, j, i] = ins[0][o, best(), i]
                outs[1][o, j, i] = best()

    return kernel([x], [(x.shape, dtype), (x.shape, "int64")], body, "running_extremum")


def running_logsumexp(x: te.Tensor) -> te.Tensor:
    """Return log(sum(exp)) of the elements so far; the greatest one is factored out.

    Args:
        x: (outer, n, inner), any float type; narrow ones are summed in float32.
    """
    outer, n, inner = x.shape
    dtype = str(x.dtype)
    wide = wide_float(dtype)

    def body(ins: list[Any], outs: list[Any]) -> None:
        with parallel(outer * inner) as row:
            o, i = divided(row, inner)
            top, total = Scalar(-math.inf, wide), Scalar(0.0, wide)
            with serial(n) as j:
                value = Scalar(as_dtype(ins[0][o, j, i], wide), wide)
                # Equal infinities have no difference: exp(0) stands for their ratio.
                higher = Scalar(tirx.max(top(), value()), wide)
                # A NaN stays; a maximum of it and a number is the number.
                higher.set(tirx.Select(is_nan(value()), value(), higher()))
                higher.set(tirx.Select(is_nan(top()), top(), higher()))
                zero = tirx.const(0.0, wide)
                kept = tirx.Select(top() == higher(), zero, top() - higher())
                added = tirx.Select(value() == higher(), zero, value() - higher())
                total.set(total() * tirx.exp(kept) + tirx.exp(added))
                top.set(higher())
                lowest = top() == tirx.const(-math.inf, wide)
                result = tirx.Select(lowest, top(), top() + tirx.log(total()))
                outs[0][o, j, i] = as_dtype(result, dtype)

    return kernel([x], [(x.shape, dtype)], body, "running_logsumexp")[0]
