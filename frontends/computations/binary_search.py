"""Where numbers stand among sorted ones, by binary search."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from frontends.computations.kernel import Scalar, divided, kernel, parallel, product


def insertion_places(
    bounds: te.Tensor, x: te.Tensor, shared: int, right: bool, dtype: str
) -> te.Tensor:
    """Return for each number before which bound it would be inserted.

    The steps are those of torch's binary search: where the bounds are not in order, or some are
    NaN, its result depends on which of them it meets. NaN is greater than all bounds.

    Args:
        bounds: (..., n), sorted along the last axis; its first `shared` axes are those of x, and
            it has no others before the last.
        x: Of the same dtype, any shape.
        shared: How many axes x and bounds share.
        right: Behind equal bounds, not before them.
        dtype: Of the places.

    Returns:
        Places in [0, n] in the shape of x.
    """
    count = bounds.shape[-1]
    rows, columns = product(x.shape[:shared]), product(x.shape[shared:])

    def body(ins: list[Any], outs: list[Any]) -> None:
        limits, numbers = ins
        with parallel(rows * columns) as k:
            row = divided(k, columns)[0]
            number = numbers[k]
            low, high = Scalar(0), Scalar(count)
            with T.While(low() < high()):
                middle = Scalar(tirx.floordiv(low() + high(), 2))
                limit = limits[row * count + middle()]
                # Not `limit <= number`: of NaN neither that nor its opposite holds.
                with T.If(limit > number if right else limit >= number):
                    with T.Then():
                        high.set(middle())
                    with T.Else():
                        low.set(middle() + 1)
            outs[0][k] = low().astype(dtype)

    return kernel([bounds, x], [(tuple(x.shape), dtype)], body, "insertion_places")[0]
