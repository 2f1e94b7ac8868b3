"""Buckets and places among sorted numbers against eager."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.frontends.torch.eager_comparison import assert_matches_eager  # noqa: E402


def test_buckets_and_sorted_sequences():
    def function(x, bounds, rows):
        return [
            *(torch.bucketize(x, bounds), torch.bucketize(x, bounds, right=True, out_int32=True)),
            *(torch.searchsorted(rows, x), torch.searchsorted(rows, x, side="right")),
            *(torch.searchsorted(bounds, 2.0), torch.bucketize(x.long(), bounds)),
        ]

    x = torch.tensor([[0.0, 1.0, 2.5, 9.0], [-1.0, 2.0, float("nan"), 1.0]])
    rows = torch.tensor([[0.0, 1.0, 1.0], [1.0, 2.0, 3.0]])
    assert_matches_eager(function, x, torch.tensor([0.0, 1.0, 2.0]), rows)


@pytest.mark.parametrize("right", [False, True])
def test_bounds_that_are_not_numbers_or_not_in_order(right):
    """torch's result is that of its binary search, whichever bounds that meets."""

    def function(x, *tables):
        buckets = [torch.bucketize(x, table, right=right) for table in tables]
        return [*buckets, torch.searchsorted(torch.stack(tables, 0)[:2, None], x[:2, None, None])]

    nan, inf = float("nan"), float("inf")
    x = torch.tensor([nan, 0.0, 2.0, 2.5, 3.0, inf, -inf, 5.0])
    tables = [[1.0, 2.0, 3.0, nan, nan], [nan, 1.0, 2.0, nan, 3.0], [3.0, 1.0, 2.0, 5.0, 0.0]]
    assert_matches_eager(function, x, *map(torch.tensor, tables))


def test_no_bounds_and_nothing_to_search():
    def function(x, bounds):
        return [torch.bucketize(x, bounds[:0]), torch.bucketize(x[:0], bounds)]

    assert_matches_eager(function, torch.ones(3), torch.arange(2.0))


def test_a_sequence_that_an_order_sorts():
    def function(x, rows, order, numbers):
        at = torch.searchsorted(numbers, x[0], sorter=numbers.argsort())
        return [torch.searchsorted(rows, x, sorter=order), at]

    rows = torch.tensor([[1.0, 0.0, 3.0], [3.0, 2.0, 1.0]])
    x = torch.tensor([[0.5, 1.0, 9.0], [2.5, 3.0, -1.0]])
    assert_matches_eager(function, x, rows, rows.argsort(-1), rows[0])


def test_tables_of_numbers_alone_are_evaluated_by_torch():
    def function(x):
        return x[:, torch.tril_indices(2, 3)[1]] + torch.hann_window(3) + torch.vander(x[0])

    assert_matches_eager(function, torch.arange(9.0).view(3, 3))
