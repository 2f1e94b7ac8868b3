"""Inverses, linear systems, Cholesky's factors and determinants against eager's LAPACK."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from frontends.torch import import_torch  # noqa: E402
from tests.frontends.torch.eager_comparison import (  # noqa: E402
    Lambda,
    assert_matches_eager,
    run,
)

linalg = torch.linalg


def matrices():
    torch.manual_seed(0)
    return torch.randn(2, 5, 5), torch.randn(2, 5, 4)


def test_systems_and_inverses():
    def function(a, b):
        systems = (
            linalg.solve(a, b),
            linalg.solve(a[0], b),
            linalg.solve(a, b[..., 0]),
            linalg.solve(a, b[0]),
            linalg.solve(a, b.mT, left=False),
        )
        return [*systems, linalg.inv(a), a.inverse(), linalg.matrix_power(a, -2)]

    assert_matches_eager(function, *(x.double() for x in matrices()), tolerance=1e-10)


def test_triangular_systems():
    def function(a, b):
        return [
            linalg.solve_triangular(a, b, upper=True),
            linalg.solve_triangular(a, b[0], upper=False, unitriangular=True),
            linalg.solve_triangular(a, b.mT, upper=True, left=False),
        ]

    a, b = matrices()
    assert_matches_eager(function, a + 3 * torch.eye(5), b, tolerance=1e-4)


def test_cholesky_and_what_is_solved_by_it():
    def function(p, b):
        lower = linalg.cholesky(p)
        return [
            *(lower, torch.cholesky(p, upper=True), linalg.cholesky_ex(p, upper=True)[0]),
            *(torch.cholesky_solve(b, lower), torch.cholesky_solve(b[0], lower.mT, upper=True)),
            torch.cholesky_inverse(lower),
        ]

    a, b = matrices()
    assert_matches_eager(function, a @ a.mT + torch.eye(5), b, tolerance=1e-4)


def test_logarithms_of_determinants():
    def function(a):
        return [*linalg.slogdet(a), torch.logdet(a), linalg.det(a)]

    a, _ = matrices()
    mixed = torch.cat([a, -a, torch.ones(1, 5, 5)]).double()
    assert_matches_eager(function, mixed, tolerance=1e-10)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (linalg.inv, "a matrix is singular"),
        (lambda a: linalg.solve(a, a), "a matrix is singular"),
        (lambda a: linalg.cholesky(-a), "not positive definite"),
    ],
)
def test_a_matrix_that_will_not_do_fails_the_run(function, message):
    model = import_torch(Lambda(function), (torch.eye(3),))
    with pytest.raises(Exception, match=message):
        run(model, torch.ones(3, 3))


def test_what_is_found_is_told_where_nothing_has_to_fail():
    def function(a):
        return [linalg.inv_ex(a).info, linalg.cholesky_ex(a).info]

    assert_matches_eager(function, torch.stack([torch.eye(3), torch.ones(3, 3)]))
