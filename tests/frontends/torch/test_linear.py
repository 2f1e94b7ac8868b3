"""Matrix products and attention against eager."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as attention  # noqa: E402

from frontends import UnsupportedOperator  # noqa: E402
from tests.frontends.torch.eager_comparison import assert_matches_eager, operators  # noqa: E402


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear(shape, bias):
    model = assert_matches_eager(nn.Linear(5, 7, bias=bias).eval(), numbers(*shape))
    assert operators(model)["matmul"] == 1


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 4), (4, 5)),
        ((4,), (4,)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((2, 3, 4), (2, 4, 5)),
        ((6, 1, 3, 4), (2, 4, 5)),
    ],
)
def test_matmul_follows_numpys_rules(left, right):
    model = assert_matches_eager(torch.matmul, numbers(*left), numbers(*right))
    assert operators(model) == {"matmul": 1}


def test_addmm_with_factors():
    bias, x, y = numbers(5), numbers(3, 4), numbers(4, 5)
    assert_matches_eager(lambda b, p, q: torch.addmm(b, p, q, beta=2, alpha=0.5), bias, x, y)
    assert_matches_eager(lambda b, p, q: torch.addmm(b, p, q, beta=0), bias * math.nan, x, y)


def test_einsum():
    assert_matches_eager(
        lambda x, y: torch.einsum("bik,bkj->bji", x, y), numbers(2, 3, 4), numbers(2, 4, 5)
    )


Q, K, V = numbers(2, 4, 6, 8), numbers(2, 4, 9, 8), numbers(2, 4, 9, 8)


def test_attention_without_mask():
    model = assert_matches_eager(attention, Q, K, V)
    assert operators(model) == {"permute_dims": 1, "matmul": 2, "multiply": 1, "nn.softmax": 1}


def test_attention_with_scale_and_causal():
    assert_matches_eager(lambda q, k, v: attention(q, k, v, scale=0.3), Q, K, V)
    assert_matches_eager(lambda q, k, v: attention(q, k, v, is_causal=True), Q, K, V)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_attention_rows_that_are_fully_masked_give_zeros(kind, known):
    mask = torch.ones(6, 9, dtype=torch.bool).tril()
    mask[2] = False
    if kind == "float":
        mask = torch.zeros(6, 9).masked_fill(~mask, -math.inf)
    if known:
        assert_matches_eager(lambda q, k, v: attention(q, k, v, attn_mask=mask), Q, K, V)
    else:
        assert_matches_eager(lambda q, k, v, m: attention(q, k, v, attn_mask=m), Q, K, V, mask)
    assert not attention(Q, K, V, attn_mask=mask)[:, :, 2].any()


def test_attention_adds_a_finite_mask():
    bias = numbers(6, 9)
    model = assert_matches_eager(lambda q, k, v: attention(q, k, v, attn_mask=bias), Q, K, V)
    assert operators(model)["where"] == 0


def test_attention_with_grouped_heads():
    k, v = numbers(2, 2, 9, 8), numbers(2, 2, 9, 8)
    assert_matches_eager(lambda q, k, v: attention(q, k, v, enable_gqa=True), Q, k, v)


def test_attention_of_unknown_length_cannot_be_causal():
    length = torch.export.Dim("length")
    shapes = {"tensors": tuple({2: length} for _ in range(3))}
    with pytest.raises(UnsupportedOperator, match="symbolic size length"):
        assert_matches_eager(
            lambda q, k, v: attention(q, k, v, is_causal=True), Q, Q, Q, dynamic_shapes=shapes
        )
