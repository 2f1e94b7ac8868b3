"""Systems of linear equations and Cholesky's factors, computed in float64."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from frontends.computations.elimination import copy_matrix, eliminate, substitute, swap_rows
from frontends.computations.kernel import Scalar, as_dtype, kernel, parallel, serial, when


def solve(x: te.Tensor, y: te.Tensor) -> list[te.Tensor]:
    """Solve X R = Y: LU factors with partial pivoting.

    Args:
        x: (number, n, n), a float type.
        y: (number, n, count) of the same type.

    Returns:
        R, shaped and typed as y; and for each matrix 0, or the number from 1 on of the first pivot
        that is 0, int32 (number,): R holds infinities or NaN then.
    """
    number, n, _ = x.shape
    count = y.shape[2]

    def body(ins: list[Any], outs: list[Any]) -> None:
        result, info, work, right = outs
        with parallel(number) as m:
            copy_matrix(ins[0], work, m, n, n, "float64")
            copy_matrix(ins[1], right, m, n, count, "float64")
            eliminate(work, m, n, lambda one, other: swap_rows(right, m, count, one, other))
            info[m] = _first_that_fails(n, lambda k: work[m, k, k] == 0.0)
            substitute(work, right, m, n, count, upper=False, unit=True)
            substitute(work, right, m, n, count, upper=True, unit=False)
            copy_matrix(right, result, m, n, count, str(y.dtype))

    wide = [(x.shape, "float64"), (y.shape, "float64")]
    shapes = [(y.shape, str(y.dtype)), ((number,), "int32"), *wide]
    return kernel([x, y], shapes, body, "solve")[:2]


def inverse(x: te.Tensor) -> list[te.Tensor]:
    """Return the inverse of each matrix (number, n, n), and what `solve` says of it."""
    one, zero = (tirx.const(number, str(x.dtype)) for number in (1, 0))
    identity = te.compute(x.shape, lambda m, i, j: tirx.Select(i == j, one, zero), name="identity")
    return solve(x, identity)


def solve_triangular(x: te.Tensor, y: te.Tensor, *, upper: bool, unit: bool) -> te.Tensor:
    """Solve X R = Y, where X is triangular: only that triangle is read.

    Args:
        x: (number, n, n), a float type.
        y: (number, n, count) of the same type.
        upper: Whether the triangle is the upper one.
        unit: Whether its diagonal counts as 1.

    Returns:
        R, shaped and typed as y.
    """
    number, n, _ = x.shape
    count = y.shape[2]

    def body(ins: list[Any], outs: list[Any]) -> None:
        result, work, right = outs
        with parallel(number) as m:
            copy_matrix(ins[0], work, m, n, n, "float64")
            copy_matrix(ins[1], right, m, n, count, "float64")
            substitute(work, right, m, n, count, upper=upper, unit=unit)
            copy_matrix(right, result, m, n, count, str(y.dtype))

    shapes = [(y.shape, str(y.dtype)), (x.shape, "float64"), (y.shape, "float64")]
    return kernel([x, y], shapes, body, "solve_triangular")[0]


def cholesky(x: te.Tensor) -> list[te.Tensor]:
    """Return the lower triangular L of each symmetric matrix X = L L^T.

    Args:
        x: (number, n, n), a float type; only the lower triangle is read.

    Returns:
        L, shaped and typed as x, with zeros above; and for each matrix 0, or the size of the first
        leading part that is not positive definite, int32 (number,): L holds NaN then.
    """
    number, n, _ = x.shape
    zero = tirx.const(0, "float64")

    def body(ins: list[Any], outs: list[Any]) -> None:
        result, info, work = outs
        with parallel(number) as m:
            with serial(n) as i, serial(n) as j:
                kept = as_dtype(ins[0][m, i, j], "float64")
                work[m, i, j] = tirx.Select(j <= i, kept, zero)
            first = Scalar(0, "int32")
            with serial(n) as k:
                with serial(k) as done:
                    work[m, k, k] = work[m, k, k] - work[m, k, done] * work[m, k, done]
                with when(tirx.all(first() == 0, tirx.Not(work[m, k, k] > zero))):
                    first.set(k + 1)
                work[m, k, k] = tirx.sqrt(work[m, k, k])
                with serial(n - 1 - k) as below:
                    i = k + 1 + below
                    with serial(k) as done:
                        work[m, i, k] = work[m, i, k] - work[m, i, done] * work[m, k, done]
                    work[m, i, k] = work[m, i, k] / work[m, k, k]
            info[m] = first()
            copy_matrix(work, result, m, n, n, str(x.dtype))

    shapes = [(x.shape, str(x.dtype)), ((number,), "int32"), (x.shape, "float64")]
    return kernel([x], shapes, body, "cholesky")[:2]


def _first_that_fails(n: Any, fails: Any) -> Any:
    """Return the number from 1 on of the first step that fails, 0 if none does."""
    first = Scalar(0, "int32")
    with serial(n) as k, when(tirx.all(first() == 0, fails(k))):
        first.set(k + 1)
    return first()
