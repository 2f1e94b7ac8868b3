"""Determinants by elimination."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from frontends.computations.elimination import copy_matrix, eliminate
from frontends.computations.kernel import Scalar, as_dtype, kernel, parallel, serial


def determinant(x: te.Tensor) -> te.Tensor:
    """Return the determinant of each matrix: Gaussian elimination in float64, partial pivoting.

    Args:
        x: (number, n, n), a float type.

    Returns:
        (number,) of the same type.
    """

    def reduce(diagonal: Any, n: Any, sign: Scalar, results: list[Any], m: Any) -> None:
        with serial(n) as k:
            sign.set(sign() * diagonal(k))
        results[0][m] = as_dtype(sign(), str(x.dtype))

    return _of_diagonals(x, 1, reduce, "determinant")[0]


def log_determinant(x: te.Tensor) -> list[te.Tensor]:
    """Return the sign of each matrix's determinant and the logarithm of its absolute value.

    Args:
        x: (number, n, n), a float type. A singular matrix gives 0 and -infinity.

    Returns:
        Two tensors (number,) of the same type.
    """

    def reduce(diagonal: Any, n: Any, sign: Scalar, results: list[Any], m: Any) -> None:
        total = Scalar(0.0, "float64")
        zero = tirx.const(0, "float64")
        with serial(n) as k:
            total.set(total() + tirx.log(tirx.abs(diagonal(k))))
            is_positive, is_zero = diagonal(k) > zero, diagonal(k) == zero
            flipped = tirx.Select(is_zero, zero, tirx.Select(is_positive, sign(), -sign()))
            sign.set(flipped)
        for result, value in zip(results, (sign(), total()), strict=True):
            result[m] = as_dtype(value, str(x.dtype))

    return _of_diagonals(x, 2, reduce, "log_determinant")[:2]


def _of_diagonals(x: te.Tensor, count: int, reduce: Any, name: str) -> list[te.Tensor]:
    """Return `count` results of each matrix, which `reduce` states from U's diagonal and a sign."""
    number, n, _ = x.shape

    def body(ins: list[Any], outs: list[Any]) -> None:
        *results, work = outs
        with parallel(number) as m:
            copy_matrix(ins[0], work, m, n, n, "float64")
            sign = Scalar(1.0, "float64")
            eliminate(work, m, n, lambda one, other: sign.set(-sign()))
            reduce(lambda k: work[m, k, k], n, sign, results, m)

    shapes = [((number,), str(x.dtype))] * count + [(x.shape, "float64")]
    return kernel([x], shapes, body, name)
