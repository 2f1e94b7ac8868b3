"""Shifts and bits against eager: also past all bits, where C says nothing."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.frontends.torch.eager_comparison import assert_matches_eager  # noqa: E402


def test_shifts_by_numbers_and_tensors():
    def function(i, u, by):
        small = by.to(torch.uint8)
        return [
            *(i << 2, i >> 1, u << 3, u >> 2, i << by, i >> by, i << 40, i >> 40),
            *(u << small, u >> small, i << -1, i >> -1),
            *(torch.bitwise_left_shift(3, by), torch.bitwise_right_shift(-9, by)),
        ]

    i = torch.tensor([-7, -1, 0, 5, 2**30], dtype=torch.int32)
    by = torch.tensor([0, 1, 31, 32, 7], dtype=torch.int32)
    assert_matches_eager(function, i, torch.tensor([255, 128, 1, 77, 9], dtype=torch.uint8), by)


def test_bits_of_a_number_and_a_tensor():
    def function(i, b):
        return [
            *(torch.bitwise_and(6, i), torch.bitwise_or(6, i), torch.bitwise_xor(6, i)),
            *(torch.bitwise_and(True, b), torch.bitwise_or(True, b), torch.bitwise_xor(True, b)),
        ]

    assert_matches_eager(function, torch.tensor([-3, 0, 9]), torch.tensor([True, False]))


def test_unsigned_numbers_have_no_negative_ones():
    def function(u):
        return [-u, u.sign(), u.relu(), u.abs(), ~u, 5 - u]

    assert_matches_eager(function, torch.tensor([0, 1, 255], dtype=torch.uint8))
