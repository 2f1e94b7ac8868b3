"""Counts of equal elements, and numbers taken apart, against eager."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from frontends.torch import import_torch  # noqa: E402
from tests.frontends.torch.eager_comparison import (  # noqa: E402
    Lambda,
    assert_matches_eager,
    assert_same,
    run,
)

NUMBERS = torch.tensor([1, 2, 2, 0, 3, 3, 3, 9])
TABLE = torch.tensor([[1.0, 1.0, 2.0, 0.0], [1.0, 1.0, 2.0, 0.0], [3.0, 0.0, 3.0, 0.0]])


def test_how_often_numbers_occur():
    def function(x):
        least = torch.bincount(x, minlength=15)
        return [torch.bincount(x), least, torch.bincount(x, x * 0.5), torch.bincount(x, x)]

    model = assert_matches_eager(function, NUMBERS)
    assert_same(run(model, NUMBERS * 3), function(NUMBERS * 3))
    with pytest.raises(Exception, match="non-negative integral"):
        run(model, -NUMBERS)


def test_histograms():
    torch.manual_seed(0)

    def function(x):
        own = torch.histc(x, 50), torch.histc(x * 0, 3)
        return [*own, torch.histc(x, 16, -1, 1)]

    model = assert_matches_eager(function, torch.randn(40, 9))
    for number in (float("nan"), float("inf")):
        with pytest.raises(Exception, match="range of the elements is not finite"):
            run(model, torch.full((40, 9), number))


def test_the_most_frequent_element():
    def function(x):
        return [*x.mode(1), *x.mode(0, keepdim=True), *x[0, 0].mode()]

    assert_matches_eager(function, TABLE)


@pytest.mark.parametrize("dim", [None, 0, 1])
def test_runs_of_equal_elements(dim):
    def function(x):
        return torch.unique_consecutive(x, return_inverse=True, return_counts=True, dim=dim)

    model = assert_matches_eager(function, TABLE)
    other = TABLE.flip(0, 1) + 1
    assert_same(run(model, other), function(other))


def test_runs_of_nothing_and_of_truth_values():
    assert_matches_eager(torch.unique_consecutive, TABLE > 1)
    assert_matches_eager(
        lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True), TABLE[:0]
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_mantissas_and_exponents(dtype):
    nan, inf = float("nan"), float("inf")
    info = torch.finfo(dtype)
    numbers = [0.0, -0.0, 1.0, -3.5, inf, -inf, nan, 0.75, info.max, info.tiny, info.tiny / 8]
    assert_matches_eager(lambda x: [*torch.frexp(x)], torch.tensor(numbers, dtype=dtype))


def test_bits_as_elements_of_another_size():
    def function(x):
        small = x.view(torch.int16)
        return [small, x.view(torch.uint8), x.view(torch.int64), small.view(torch.int32)]

    assert_matches_eager(function, torch.randn(2, 4))
    with pytest.raises(Exception, match="bool"):
        import_torch(Lambda(lambda x: x.view(torch.bool)), (torch.ones(2, dtype=torch.uint8),))
