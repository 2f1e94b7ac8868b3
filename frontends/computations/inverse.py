"""Inverses of matrices by Gauss-Jordan elimination."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from frontends.computations.kernel import Scalar, as_dtype, kernel, parallel, serial, when


def inverse(x: te.Tensor) -> te.Tensor:
    """Return the inverse of each matrix: Gauss-Jordan in float64, partial pivoting.

    Args:
        x: (number, n, n), a float type. A singular matrix gives infinities or NaN.

    Returns:
        A tensor shaped and typed as x.
    """
    number, n, _ = x.shape
    dtype = str(x.dtype)

    def body(ins: list[Any], outs: list[Any]) -> None:
        data, (result, work, right) = ins[0], outs

        def swap(array: Any, m: Any, one: Any, other: Any) -> None:
            with serial(n) as j:
                kept = Scalar(array[m, one, j], "float64")
                array[m, one, j] = array[m, other, j]
                array[m, other, j] = kept()

        with parallel(number) as m:
            with serial(n) as i, serial(n) as j:
                work[m, i, j] = as_dtype(data[m, i, j], "float64")
                right[m, i, j] = tirx.Select(
                    i == j, tirx.const(1, "float64"), tirx.const(0, "float64")
                )
            with serial(n) as k:
                pivot = Scalar(k)
                with serial(n - 1 - k) as below:
                    i = k + 1 + below
                    with when(tirx.abs(work[m, i, k]) > tirx.abs(work[m, pivot(), k])):
                        pivot.set(i)
                with when(pivot() != k):
                    swap(work, m, k, pivot())
                    swap(right, m, k, pivot())
                scale = Scalar(tirx.const(1, "float64") / work[m, k, k], "float64")
                with serial(n) as j:
                    work[m, k, j] = work[m, k, j] * scale()
                    right[m, k, j] = right[m, k, j] * scale()
                with serial(n) as i, when(i != k):
                    factor = Scalar(work[m, i, k], "float64")
                    with serial(n) as j:
                        work[m, i, j] = work[m, i, j] - factor() * work[m, k, j]
                        right[m, i, j] = right[m, i, j] - factor() * right[m, k, j]
            with serial(n) as i, serial(n) as j:
                result[m, i, j] = as_dtype(right[m, i, j], dtype)

    outputs = [(x.shape, dtype), (x.shape, "float64"), (x.shape, "float64")]
    return kernel([x], outputs, body, "inverse")[0]
