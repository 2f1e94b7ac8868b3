"""Running sums and products along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from frontends.computations.kernel import (
    Scalar,
    as_dtype,
    divided,
    index,
    kernel,
    parallel,
    product,
    serial,
)


def cumulate(
    x: te.Tensor,
    dims: Sequence[Any],
    axis: int | te.Tensor,
    *,
    multiply: bool,
    exclusive: bool,
    reverse: bool,
) -> te.Tensor:
    """Return the running sum (or product) along an axis of a tensor given flat.

    Args:
        x: (size of `dims`,); float16 and bfloat16 are summed in float32.
        dims: The shape that `x` has by meaning.
        axis: The axis, or a tensor of one integer that holds it, perhaps counted from the end.
        multiply: A product, not a sum.
        exclusive: Leave each element itself out.
        reverse: From the end.
    """
    dtype = str(x.dtype)
    wide = "float32" if dtype in ("float16", "bfloat16") else dtype
    tensors = [x] if isinstance(axis, int) else [x, axis]

    def body(ins: list[Any], outs: list[Any]) -> None:
        data, out = ins[0], outs[0]
        if isinstance(axis, int):
            n, inner = index(dims[axis]), product(dims[axis + 1 :])
        else:
            number = as_dtype(ins[1][(0,) * len(axis.shape)], "int64")
            number = tirx.Select(number < 0, number + len(dims), number)
            n, inner = _split(dims, number)
        with parallel(_rows(dims, axis, n)) as row:
            outer, offset = divided(row, inner)
            start = outer * n * inner + offset
            total = Scalar(1 if multiply else 0, wide)
            with serial(n) as step:
                place = start + (n - 1 - step if reverse else step) * inner
                element = as_dtype(data[place], wide)
                if exclusive:
                    out[place] = as_dtype(total(), dtype)
                total.set(total() * element if multiply else total() + element)
                if not exclusive:
                    out[place] = as_dtype(total(), dtype)

    return kernel(tensors, [(x.shape, dtype)], body, "cumulate")[0]


def _split(dims: Sequence[Any], axis: Any) -> tuple[Any, Any]:
    """Return the length of an axis known at run time, and the product of those behind it."""
    n, inner = index(dims[-1]), index(1)
    for place in range(len(dims) - 1):
        here = axis == place
        n = tirx.Select(here, index(dims[place]), n)
        inner = tirx.Select(here, product(dims[place + 1 :]), inner)
    return n, inner


def _rows(dims: Sequence[Any], axis: int | te.Tensor, n: Any) -> Any:
    if isinstance(axis, int):
        return product([dim for place, dim in enumerate(dims) if place != axis])
    # An empty axis makes the whole tensor empty: there is no row to run.
    return tirx.floordiv(product(dims), tirx.max(n, index(1)))
