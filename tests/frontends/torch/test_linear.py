"""Matrix products against eager."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from frontends.errors import InvalidModel  # noqa: E402
from frontends.torch import import_torch  # noqa: E402
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


def test_vectors_and_sums_of_products():
    def function(v, bias, x, y):
        return [
            *(torch.addmv(v, x[0], y[0, :, 0], beta=2, alpha=0.5), torch.det(x[..., :3])),
            torch.addbmm(bias, x, y, beta=0.5, alpha=2),
        ]

    assert_matches_eager(function, numbers(3), numbers(3, 5), numbers(2, 3, 4), numbers(2, 4, 5))


def test_matrices_of_different_dtypes_are_refused_with_the_users_line():
    with pytest.raises(InvalidModel, match=r"aten.linear.*int64 and float32.*linear\.py") as told:
        import_torch(nn.Linear(4, 2).eval(), (torch.ones(3, 4, dtype=torch.int64),))
    assert told.value.node == "linear"


def test_einsum():
    assert_matches_eager(
        lambda x, y: torch.einsum("bik,bkj->bji", x, y), numbers(2, 3, 4), numbers(2, 4, 5)
    )


def test_a_bilinear_layer():
    torch.manual_seed(0)
    layer = torch.nn.Bilinear(3, 4, 5).eval()
    model = assert_matches_eager(layer, torch.randn(2, 6, 3), torch.randn(2, 6, 4))
    assert operators(model)["matmul"]
