"""Gamma functions, erfinv and nextafter against eager, at poles and at the ends of their range."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.frontends.torch.eager_comparison import assert_matches_eager  # noqa: E402

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gamma_functions(dtype):
    x = torch.tensor([0.1, 0.5, 0.7, 1.5, 3.0, 20.25, 1e3, -0.5, -3.7, -40.25, INF, NAN, 0.0, -0.0])

    def function(x):
        return [torch.digamma(x), torch.lgamma(x), torch.mvlgamma(x.abs() + 1, 2)]

    # At a whole number the reflected sine is 0: a pole.
    x = torch.cat([x, torch.tensor([1.0, 2.0, -1.0, -7.0])]).to(dtype)
    assert_matches_eager(function, x, tolerance=1e-12 if dtype is torch.float64 else 1e-5)


def test_the_inverse_of_erf():
    x = torch.tensor([0.0, -0.0, 1e-8, 0.3, -0.9, 0.9999, -0.99999994, 1.0, -1.0, 1.5, NAN])
    assert_matches_eager(torch.erfinv, x, tolerance=1e-5)
    assert_matches_eager(torch.erfinv, x.double().clamp(-0.999, 0.999), tolerance=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_next_number(dtype):
    x = torch.tensor([[0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, INF, -INF, 3.4e38, NAN, 2.0]]).to(dtype)
    y = torch.tensor([[2.0], [-2.0], [0.0], [INF], [-INF], [NAN]]).to(dtype)
    assert_matches_eager(torch.nextafter, x, y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_erf_leaves_to_one(dtype):
    """Where it is small, too: the quotient by eager's is near 1, not only the difference near 0."""
    x = torch.linspace(-6, 9, 400, dtype=dtype)
    exact = torch.erfc(x)
    assert_matches_eager(
        lambda x: [torch.erfc(x) / exact, torch.erfc(x[:3] * INF)], x, tolerance=3e-6
    )
