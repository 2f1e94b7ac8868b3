"""NaN, signs of zero and overflow against eager."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.frontends.torch.eager_comparison import assert_matches_eager  # noqa: E402

NAN, INF = float("nan"), float("inf")


def test_greater_and_smaller_numbers_beside_nan():
    def function(x, y, i):
        return [torch.fmax(x, y), torch.fmin(x, y), torch.fmax(i, i * 2), torch.fmin(x, i)]

    x, y = torch.tensor([NAN, 1.0, NAN, -INF]), torch.tensor([2.0, NAN, NAN, 3.0])
    assert_matches_eager(function, x, y, torch.tensor([-1, 2, 3, 0]))


def test_signs_of_zeros_and_integers():
    def function(x, y, i):
        return [
            *(torch.signbit(x), torch.signbit(y.double()), torch.signbit(i), torch.signbit(i > 0)),
            *(torch.copysign(y, x), torch.copysign(y, -2.0), torch.copysign(i, x)),
            torch.signbit(x.bfloat16()),
        ]

    x, y = torch.tensor([-0.0, 0.0, -INF, 5.0]), torch.tensor([1.0, -2.0, 3.0, -0.0])
    assert_matches_eager(function, x, y, torch.tensor([-1, 2, 0, -7]))


def test_nan_has_the_sign_zero():
    x = torch.tensor([NAN, -0.0, 0.0, INF, -2.0])
    assert_matches_eager(lambda v: [torch.sign(v), torch.sgn(v), 1 / v.sign()], x)


def test_lengths_that_would_overflow_and_powers_of_two():
    def function(x, y):
        return [torch.hypot(x, y), torch.hypot(x * 1e-30, y * 1e-30) * 1e30, torch.exp2(y)]

    assert_matches_eager(function, torch.tensor([3e30, 0.0, 5.0]), torch.tensor([4e30, 0.0, -12.0]))
    infinite = torch.tensor([INF, 1.0, -INF, INF, NAN]), torch.tensor([1.0, -INF, INF, NAN, -INF])
    assert_matches_eager(torch.hypot, *infinite)


def test_a_running_logsumexp_keeps_nan():
    x = torch.tensor([[1.0, NAN, -INF, INF, 0.0], [-INF, INF, 2.0, NAN, -INF]])
    assert_matches_eager(lambda x: [x.logcumsumexp(0), x.logcumsumexp(1)], x)


def test_angles_and_bits():
    def function(x, i):
        return [
            *(x.angle(), i.angle(), torch.ldexp(x, i), torch.dist(x, x * 2 + 1, 3)),
            *(x.view(torch.int32), i.view(torch.float64), (x > 0).view(torch.uint8)),
        ]

    x = torch.tensor([-1.5, 0.0, 2.0, INF])
    assert_matches_eager(function, x, torch.tensor([3, -2, 0, 1]))
    assert_matches_eager(
        lambda x: [x.angle(), x.view(torch.int32)], torch.tensor([NAN, -INF, -0.0])
    )
