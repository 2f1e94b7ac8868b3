"""Arithmetic, comparison, logic and casts against eager."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.frontends.torch.eager_comparison import (  # noqa: E402
    assert_matches_eager,
    operators,
)


def numbers(*shape: int) -> torch.Tensor:
    """Return values on both sides of zero, none of them zero."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)) + 0.01


def whole(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.randint(-9, 9, shape, generator=torch.Generator().manual_seed(2)).to(dtype)


def test_unary_float_functions():
    functions = [
        torch.abs, torch.neg, torch.exp, torch.sin, torch.cos, torch.tanh, torch.atan, torch.erf,
        torch.sigmoid, torch.floor, torch.ceil, torch.trunc, torch.sign, torch.reciprocal,
    ]  # fmt: skip
    assert_matches_eager(lambda x: [f(x) for f in functions], numbers(3, 5))


def test_functions_of_positive_numbers():
    functions = [torch.sqrt, torch.rsqrt, torch.log, torch.log2, torch.log10, torch.log1p]
    assert_matches_eager(lambda x: [f(x) for f in functions], numbers(3, 5).abs())


def test_log1p_and_expm1_keep_small_and_extreme_numbers():
    x = torch.tensor([1e-20, -1e-9, 1e-7, 3e-4, -0.3, 0.4, 0.6, 5.0, float("inf")])
    assert_matches_eager(lambda v: torch.log1p(v) / v, x[:-1])
    assert_matches_eager(lambda v: torch.expm1(v) / v, x[:-1])
    assert_matches_eager(lambda v: [torch.log1p(v), torch.expm1(v), torch.expm1(-v)], x)


def test_rounding_goes_to_even_and_leaves_integers_alone():
    halves = torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])
    assert_matches_eager(torch.round, halves)
    large = torch.tensor([2**53 + 1, -(2**53) - 1])  # float64 cannot hold these
    model = assert_matches_eager(lambda x: x.round() + x.floor(), large)
    assert operators(model)["round"] == operators(model)["floor"] == 0


def test_integers_divide_as_floats():
    """T4: int / 2 is a float."""
    assert_matches_eager(lambda x: x / 2, whole(7))
    assert_matches_eager(lambda x, y: x / y, whole(7), torch.tensor([1, 2, 3, -4, 5, -6, 7]))


@pytest.mark.parametrize("mode", ["floor", "trunc", None])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32])
def test_division_with_rounding_mode(mode, dtype):
    """T4: torch.div(int, 3, rounding_mode="floor") on negative numbers."""
    assert_matches_eager(lambda x: torch.div(x, 3, rounding_mode=mode), whole(20, dtype=dtype))


def test_remainders_take_the_divisors_or_the_dividends_sign():
    divisors = torch.tensor([3, -3, 4, -4])
    assert_matches_eager(lambda x, y: [x % y, torch.fmod(x, y)], whole(4), divisors)
    assert_matches_eager(lambda x, y: x % y, numbers(4), divisors.float())


def test_powers():
    """T4: integer powers stay exact integers."""
    assert_matches_eager(lambda x: [x**2, x**3, x**5, x**0], whole(6))
    assert_matches_eager(lambda x: [x**2, x**0.5, x**-1.5, 2.0**x], numbers(6).abs())


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (torch.int32, torch.int64),
        (torch.int64, torch.float32),
        (torch.bool, torch.int32),
        (torch.bool, torch.float32),
        (torch.uint8, torch.int8),
        (torch.float32, torch.float64),
    ],
)
def test_operands_promote(left, right):
    """T4: type promotion between tensors."""
    x, y = whole(8).abs().to(left), whole(8).abs().to(right)
    assert_matches_eager(lambda a, b: [a + b, a * b, torch.maximum(a, b), a < b, a == b], x, y)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.float32])
@pytest.mark.parametrize("scalar", [True, 3, 2.5])
def test_tensors_and_python_scalars_promote(dtype, scalar):
    """T4: a Python scalar raises the category, not the width."""
    x = whole(8).to(dtype)
    assert_matches_eager(lambda a: [a + scalar, a * scalar, a <= scalar], x)


def test_rank_0_tensors_do_not_widen_tensors_of_their_category():
    assert_matches_eager(lambda x, s: [x + s, x < s], whole(4, dtype=torch.int32), torch.tensor(2))


def test_numbers_beyond_the_range_of_a_tensors_dtype_wrap_around():
    x, u = whole(4, dtype=torch.int8), whole(4).abs().to(torch.uint8)
    assert_matches_eager(lambda a, b: [a + torch.tensor(300), a * 300, b + 256, b - (-1)], x, u)


def test_comparison_of_an_integer_with_a_fraction_is_not_truncated():
    assert_matches_eager(lambda x: [x < 2.5, x >= 1.5, x == 2.5], torch.arange(5))


def test_logic_on_booleans_and_numbers():
    x, y = torch.tensor([True, False, True, False]), torch.tensor([True, True, False, False])
    assert_matches_eager(lambda a, b: [a & b, a | b, a ^ b, ~a, a + b, a * b, a < b], x, y)
    assert_matches_eager(
        lambda a, b: [torch.logical_and(a, b), torch.logical_not(a)],
        torch.tensor([0.0, 2.0, -1.0]),
        torch.tensor([1, 0, 3]),
    )
    assert_matches_eager(lambda a, b: [a & b, a | b, a ^ b, ~a], whole(6), whole(6) + 3)


def test_alpha_of_add_and_sub():
    x, y = numbers(5), numbers(5) * 2
    assert_matches_eager(
        lambda a, b: [torch.add(a, b, alpha=3), torch.sub(a, b, alpha=0.5), 2 - a], x, y
    )


def test_clamp_keeps_nan():
    """T5: clamp of NaN is NaN, so it must not become a comparison that drops it."""
    model = assert_matches_eager(lambda x: x.clamp(-0.5, 0.5), numbers(9))
    assert operators(model) == {"maximum": 1, "minimum": 1}


def test_clamp_with_one_bound_and_tensor_bounds():
    assert_matches_eager(lambda x: [x.clamp(min=0.1), x.clamp(max=0.1)], numbers(9))
    assert_matches_eager(lambda x, y: x.clamp(max=y), numbers(3, 4), numbers(4).abs())
    assert_matches_eager(lambda x: x.clamp(0.5, 3.5), torch.arange(6))


def test_where_and_masked_fill():
    x = numbers(3, 4)
    assert_matches_eager(lambda a: torch.where(a > 0, a, -1.0), x)
    assert_matches_eager(lambda a: a.masked_fill(a > 0, float("-inf")), x)


def test_casts():
    x = torch.tensor([-1.7, -0.0, 0.3, 2.9])
    assert_matches_eager(lambda a: [a.int(), a.bool(), a.double(), a.bool().float()], x)


def test_in_place_operators_write_through_views():
    """T8: y[0] += 1 on a view changes what is read later, and not the input."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[0].add_(1)
        y[:, 1] *= 2
        return y + x

    assert_matches_eager(function, numbers(3, 4))


def test_an_output_that_is_an_input_and_an_output_given_twice():
    """T8: outputs that alias."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x + 1
        return x, y, y

    assert_matches_eager(function, numbers(3))


def test_constant_expressions_are_folded():
    model = assert_matches_eager(lambda x: x + torch.arange(4).float() * 2, numbers(4))
    assert operators(model) == {"add": 1}
