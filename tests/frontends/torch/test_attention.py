"""Attention against eager: masks, shared keys, ranks, unknown lengths."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from torch.nn.functional import scaled_dot_product_attention as attention  # noqa: E402

from frontends.torch import import_torch  # noqa: E402
from tests.frontends.torch.eager_comparison import (  # noqa: E402
    Lambda,
    assert_matches_eager,
    operators,
    run,
)


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


Q, K, V = numbers(2, 4, 6, 8), numbers(2, 4, 9, 8), numbers(2, 4, 9, 8)


def test_without_mask():
    model = assert_matches_eager(attention, Q, K, V)
    assert operators(model) == {"permute_dims": 4, "nn.attention": 1}


def test_scale_and_causal():
    assert_matches_eager(lambda q, k, v: attention(q, k, v, scale=0.3), Q, K, V)
    assert_matches_eager(lambda q, k, v: attention(q, k, v, is_causal=True), Q, K, V)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_rows_that_are_fully_masked_give_zeros(kind, known):
    mask = torch.ones(6, 9, dtype=torch.bool).tril()
    mask[2] = False
    if kind == "float":
        mask = torch.zeros(6, 9).masked_fill(~mask, -math.inf)
    if known:
        assert_matches_eager(lambda q, k, v: attention(q, k, v, attn_mask=mask), Q, K, V)
    else:
        assert_matches_eager(lambda q, k, v, m: attention(q, k, v, attn_mask=m), Q, K, V, mask)
    assert not attention(Q, K, V, attn_mask=mask)[:, :, 2].any()


@pytest.mark.parametrize(
    "shape", [(6, 9), (1, 9), (6, 1), (2, 1, 1, 9), (1, 4, 6, 9), (4, 1, 9), (2, 4, 6, 1)]
)
def test_a_finite_mask_of_any_shape(shape):
    bias = numbers(*shape)
    model = assert_matches_eager(lambda q, k, v: attention(q, k, v, attn_mask=bias), Q, K, V)
    assert operators(model)["where"] == 0


@pytest.mark.parametrize("leading", [(), (3,), (2, 3, 2)])
def test_other_ranks(leading):
    q, k, v = numbers(*leading, 6, 8), numbers(*leading, 9, 8), numbers(*leading, 9, 5)
    bias = numbers(*leading[-1:], 6, 9)
    assert_matches_eager(attention, q, k, v)
    assert_matches_eager(lambda q, k, v, m: attention(q, k, v, attn_mask=m), q, k, v, bias)


def test_operands_that_broadcast():
    k, v = numbers(1, 4, 9, 8), numbers(4, 9, 8)
    assert_matches_eager(attention, Q, k, v)
    assert_matches_eager(attention, Q[0], K, V)


@pytest.mark.parametrize("causal", [True, False])
def test_dropout_zeros_weights_and_scales_the_rest(causal):
    q, k, weights = Q[0], K[0], torch.eye(9).expand(4, 9, 9)
    every = attention(q, k, weights, is_causal=causal)
    model = import_torch(
        Lambda(lambda q, k, v: attention(q, k, v, dropout_p=0.25, is_causal=causal)),
        (q, k, weights),
    )
    (kept,) = run(model, q, k, weights)
    zeros = kept == 0
    torch.testing.assert_close(torch.from_numpy(kept), every / 0.75 * torch.from_numpy(~zeros))
    assert 0.1 < zeros[every.numpy() > 0].mean() < 0.4


def test_grouped_heads():
    k, v = numbers(2, 2, 9, 8), numbers(2, 2, 9, 8)
    model = assert_matches_eager(lambda q, k, v: attention(q, k, v, enable_gqa=True), Q, k, v)
    assert operators(model) == {"permute_dims": 4, "nn.attention": 1}


def test_causal_attention_of_unknown_length():
    length = torch.export.Dim("length")
    shapes = {"tensors": tuple({2: length} for _ in range(3))}
    assert_matches_eager(
        lambda q, k, v: attention(q, k, v, is_causal=True), Q, Q, Q, dynamic_shapes=shapes
    )
