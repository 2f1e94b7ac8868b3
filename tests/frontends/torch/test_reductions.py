"""Reductions and scans against eager."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.frontends.torch.eager_comparison import assert_matches_eager, operators  # noqa: E402

X = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(8))


@pytest.mark.parametrize("keepdim", [True, False])
@pytest.mark.parametrize("dim", [0, -1, (0, 2)])
def test_reductions_along_axes(dim, keepdim):
    assert_matches_eager(
        lambda x: [
            x.sum(dim, keepdim),
            x.mean(dim, keepdim),
            x.amax(dim, keepdim),
            x.amin(dim, keepdim),
        ],
        X,
    )


def test_reductions_of_everything():
    """T9: sum() without dim."""
    assert_matches_eager(
        lambda x: [x.sum(), x.mean(), x.max(), x.min(), x.prod(), x.amax(), x.argmax()], X
    )


def test_variance_and_deviation():
    """T9: var(correction=0), std keepdim."""
    assert_matches_eager(
        lambda x: [
            x.var(1), x.var((0, 2), correction=0), x.std(-1, keepdim=True), x.var(), x.std(0),
        ],
        X,
    )  # fmt: skip


def test_integers_and_booleans_sum_to_int64():
    """T4: bool sum."""
    assert_matches_eager(lambda x: [x.sum(), x.sum(0), x.prod(1), x.cumsum(1)], (X[0] * 3).int())
    assert_matches_eager(lambda x: [x.sum(0), x.any(), x.all(1), x.any(0, keepdim=True)], X > 0)
    assert_matches_eager(lambda x: [x.any(1), x.all(0)], (X * 1.5).int())


def test_extrema_with_places():
    assert_matches_eager(lambda x: [*x.max(1), *x.min(-1, keepdim=True), x.argmin(0)], X)


def test_scans():
    assert_matches_eager(lambda x: [x.cumsum(1), x.cumprod(-1)], X)


def test_amax_is_the_relax_operator():
    """T5: NaN behaviour is the lowering's."""
    assert operators(assert_matches_eager(lambda x: x.amax(1), X)) == {"max": 1}


@pytest.mark.parametrize("order", [2, 1, 0, 3, 0.5, -1, float("inf"), -float("inf")])
def test_vector_norms(order):
    x = torch.randn(3, 4)
    x[0, 0] = 0 if order >= 0 else 1
    assert_matches_eager(
        lambda x: (
            torch.linalg.vector_norm(x, order, dim=1),
            torch.linalg.vector_norm(x, order, keepdim=True),
            torch.linalg.vector_norm(x[0, 1], order),
        ),
        x,
    )


def test_weight_norm_as_a_parametrization():
    layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 3)).eval()
    assert_matches_eager(layer, torch.randn(2, 4))
