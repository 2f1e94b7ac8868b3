"""Greatest common divisors and least common multiples, with signs, zeros and the lowest integer."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.frontends.torch.eager_comparison import assert_matches_eager  # noqa: E402

DTYPES = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


def test_every_integer_type_equals_eager():
    def function(*pairs):
        return [
            f(*pairs[i : i + 2]) for i in range(0, len(pairs), 2) for f in (torch.gcd, torch.lcm)
        ]

    pairs = []
    for dtype in DTYPES:
        most = torch.iinfo(dtype).max
        left = torch.tensor([12, 0, 0, 7, 100, most, most - 1, 6], dtype=dtype)
        right = torch.tensor([18, 5, 0, 7, 75, 3, 2, 4], dtype=dtype)
        signs = -1 if dtype.is_signed else 1
        pairs += [left * signs, right, left, right * signs]
    assert_matches_eager(function, *pairs)


def test_broadcasting_and_promotion():
    x, y = torch.tensor([[12], [35]], dtype=torch.int32), torch.tensor([8, 10, 21])
    assert_matches_eager(lambda x, y: [torch.gcd(x, y), torch.lcm(x, y), torch.gcd(x, x)], x, y)


def test_the_lowest_integer_does_not_end_the_process():
    lowest = torch.tensor([torch.iinfo(torch.int64).min])
    assert_matches_eager(lambda x, y: [torch.gcd(x, y), torch.gcd(y, x)], lowest, lowest.sign())
