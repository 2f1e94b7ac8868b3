"""Which elements are not zero: first how many, then where, since the number sizes a tensor."""

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
    product,
    serial,
    when,
)


def count_nonzero(x: te.Tensor, limit: Any = None) -> te.Tensor:
    """Return how many elements are not zero, as int64 of shape (1,).

    Args:
        x: A tensor of any shape; NaN is not zero.
        limit: Only the first so many elements count; all by default.
    """
    size = product(x.shape) if limit is None else tirx.min(product(x.shape), index(limit))

    def body(ins: list[Any], outs: list[Any]) -> None:
        count = Scalar(0)
        with serial(size) as place:
            count.set(count() + _is_nonzero(ins[0][place]).astype("int64"))
        outs[0][0] = count()

    return kernel([x], [((1,), "int64")], body, "count_nonzero")[0]


def nonzero(x: te.Tensor, count: Any, dims: Sequence[Any]) -> te.Tensor:
    """Return the coordinates of the first `count` elements that are not zero, in row-major order.

    Args:
        x: The elements, any shape.
        count: How many there are, as `count_nonzero` says.
        dims: The shape that coordinates refer to; of the size of `x`.

    Returns:
        int64 (rank of `dims`, count).
    """

    def body(ins: list[Any], outs: list[Any]) -> None:
        found = Scalar(0)
        with serial(product(x.shape)) as place:
            with when(tirx.all(found() < count, _is_nonzero(ins[0][place]))):
                rest = place
                for axis in range(len(dims) - 1, -1, -1):
                    quotient, remainder = divided(rest, dims[axis])
                    outs[0][axis, found()] = remainder if axis else rest
                    rest = quotient
                found.set(found() + 1)

    return kernel([x], [((len(dims), count), "int64")], body, "nonzero")[0]


def _is_nonzero(value: Any) -> Any:
    dtype = str(value.ty)
    if dtype == "bool":
        return value
    differs = value != as_dtype(0, dtype)
    if "float" not in dtype:
        return differs
    wide = "float32" if dtype in ("float16", "bfloat16") else dtype
    return tirx.any(differs, tirx.isnan(as_dtype(value, wide)))  # `!=` is false for NaN
