"""Gaussian elimination of one matrix, as statements of a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from frontends.computations.kernel import Scalar, as_dtype, serial, when


def copy_matrix(source: Any, target: Any, m: Any, rows: Any, columns: Any, dtype: str) -> None:
    """Copy matrix `m` of (number, rows, columns) elements, each as `dtype`."""
    with serial(rows) as i, serial(columns) as j:
        target[m, i, j] = as_dtype(source[m, i, j], dtype)


def eliminate(work: Any, m: Any, n: Any, swapped: Callable[[Any, Any], None]) -> None:
    """Factor a matrix in place, with partial pivoting: P A = L U.

    Args:
        work: (number, n, n) of float64: U, and below its diagonal L, whose diagonal is 1.
        m: Which of the matrices.
        n: Their size.
        swapped: States what else becomes of two rows that are swapped.
    """
    with serial(n) as k:
        pivot = Scalar(k)
        with serial(n - 1 - k) as below:
            i = k + 1 + below
            with when(tirx.abs(work[m, i, k]) > tirx.abs(work[m, pivot(), k])):
                pivot.set(i)
        with when(pivot() != k):
            swapped(k, pivot())
            swap_rows(work, m, n, k, pivot())
        with when(work[m, k, k] != 0.0), serial(n - 1 - k) as below:
            i = k + 1 + below
            factor = Scalar(work[m, i, k] / work[m, k, k], "float64")
            work[m, i, k] = factor()
            with serial(n - 1 - k) as right:
                j = k + 1 + right
                work[m, i, j] = work[m, i, j] - factor() * work[m, k, j]


def swap_rows(array: Any, m: Any, count: Any, one: Any, other: Any) -> None:
    """Swap two rows, of `count` elements of float64, of matrix `m`."""
    with serial(count) as j:
        kept = Scalar(array[m, one, j], "float64")
        array[m, one, j] = array[m, other, j]
        array[m, other, j] = kept()


def substitute(
    work: Any, right: Any, m: Any, n: Any, count: Any, *, upper: bool, unit: bool
) -> None:
    """Solve T X = Y in place of Y for one triangular matrix T.

    Args:
        work: (number, n, n) of float64; only the triangle is read.
        right: (number, n, count) of float64: Y, then X.
        m: Which of the matrices.
        n: Their size.
        count: How many columns Y has.
        upper: Whether the triangle is the upper one.
        unit: Whether its diagonal counts as 1.
    """
    with serial(n) as step:
        i = n - 1 - step if upper else step
        with serial(step) as done:
            k = n - 1 - done if upper else done
            with serial(count) as j:
                right[m, i, j] = right[m, i, j] - work[m, i, k] * right[m, k, j]
        if not unit:
            with serial(count) as j:
                right[m, i, j] = right[m, i, j] / work[m, i, i]
