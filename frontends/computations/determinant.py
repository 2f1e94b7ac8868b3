"""Determinants by elimination."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from frontends.computations.kernel import Scalar, as_dtype, kernel, parallel, serial, when


def determinant(x: te.Tensor) -> te.Tensor:
    """Return the determinant of each matrix: Gaussian elimination in float64, partial pivoting.

    Args:
        x: (number, n, n), a float type.

    Returns:
        (number,) of the same type.
    """
    number, n, _ = x.shape

    def body(ins: list[Any], outs: list[Any]) -> None:
        data, (result, work) = ins[0], outs
        with parallel(number) as m:
            with serial(n) as i, serial(n) as j:
                work[m, i, j] = as_dtype(data[m, i, j], "float64")
            total = Scalar(1.0, "float64")
            with serial(n) as k:
                pivot = Scalar(k)
                with serial(n - 1 - k) as below:
                    i = k + 1 + below
                    greater = tirx.abs(work[m, i, k]) > tirx.abs(work[m, pivot(), k])
                    with when(greater):
                        pivot.set(i)
                with when(pivot() != k):
                    total.set(-total())
                    with serial(n) as j:
                        kept = Scalar(work[m, k, j], "float64")
                        work[m, k, j] = work[m, pivot(), j]
                        work[m, pivot(), j] = kept()
                total.set(total() * work[m, k, k])
                with when(work[m, k, k] != 0.0):
                    with serial(n - 1 - k) as below:
                        i = k + 1 + below
                        factor = Scalar(work[m, i, k] / work[m, k, k], "float64")
                        with serial(n - 1 - k) as right:
                            j = k + 1 + right
                            work[m, i, j] = work[m, i, j] - factor() * work[m, k, j]
            result[m] = as_dtype(total(), str(x.dtype))

    shapes = [((number,), str(x.dtype)), (x.shape, "float64")]
    return kernel([x], shapes, body, "determinant")[0]
