"""Whole quotients and remainders against eager: rounding, infinities, zeros."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import relaxc  # noqa: E402
from tests.frontends.torch.eager_comparison import Lambda, assert_matches_eager  # noqa: E402

NAN, INF = float("nan"), float("inf")


def bits(values) -> list[str]:
    """Return floats as text, which tells -0.0 from 0.0."""
    return [str(float(v)) for v in values.flatten()]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_floats_divide_down_by_their_exact_remainder(dtype):
    a = [1.0, 5.0, -5.0, 5.0, 0.0, -0.0, -1.0, 3e4, 7.0, INF, NAN, 2.0, -4.0, 4.0, -1e-7]
    b = [0.1, INF, INF, 0.0, 0.0, 5.0, 0.1, 0.3, -INF, 2.0, 1.0, NAN, 2.0, -2.0, 3.0]
    x, y = (torch.tensor(v).to(getattr(torch, dtype)) for v in (a, b))

    def function(p, q):
        return [
            torch.floor_divide(p, q).double(),
            torch.div(p, q, rounding_mode="floor").double(),
            torch.remainder(p, q).double(),
        ]

    model = relaxc.compile(Lambda(function), (x, y))
    for have, want in zip(model(x, y), function(x, y), strict=True):
        assert bits(np.asarray(have)) == bits(want)


def test_floats_broadcast_over_rows_and_by_a_number():
    x, y = torch.linspace(-3, 3, 12).reshape(3, 4), torch.tensor([[0.3], [-0.7], [2.0]])
    assert_matches_eager(lambda p, q: [p // q, p % q, p // 0.3, p % -0.3, 5.0 // p, 5.0 % p], x, y)


def test_integers_that_wrap_around_do_not_end_the_process():
    low = torch.tensor([-(2**63), -(2**63), 7, -7])
    by = torch.tensor([-1, 2, -1, 3])
    model = relaxc.compile(
        Lambda(lambda i, j: [i // j, torch.div(i, j, rounding_mode="trunc"), i % j]), (low, by)
    )
    down, cut, rest = (np.asarray(v).tolist() for v in model(low, by))
    assert down == [-(2**63), -(2**62), -7, -3]
    assert cut == [-(2**63), -(2**62), -7, -2]
    assert rest == [0, 0, 0, 2]


def test_an_integer_divided_by_zero_ends_the_run_and_not_the_process():
    def function(i, *by):
        cut = torch.div(i, by[3], rounding_mode="trunc")
        return [i // by[0], i % by[1], torch.fmod(i, by[2]), cut]

    i, by = torch.tensor([[1, 2], [3, -4]]), [torch.tensor([2, 3]) for _ in range(4)]
    model = relaxc.compile(Lambda(function), (i, *by))
    for have, want in zip(model(i, *by), function(i, *by), strict=True):
        assert np.asarray(have).tolist() == want.tolist()
    for place in range(4):
        zeroed = [b * (n != place) for n, b in enumerate(by)]
        with pytest.raises(relaxc.RunError, match="divided by zero"):
            model(i, *zeroed)
