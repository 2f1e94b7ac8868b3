"""Activation functions against eager."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.frontends.torch.eager_comparison import assert_matches_eager, operators  # noqa: E402

X = torch.linspace(-25, 25, 101)


@pytest.mark.parametrize(
    ("module", "operator"),
    [
        (nn.ReLU(), "nn.relu"),
        (nn.GELU(), "nn.gelu"),
        (nn.GELU(approximate="tanh"), "nn.gelu_tanh"),
        (nn.SiLU(), "nn.silu"),
        (nn.ReLU6(), "clip"),
        (nn.Hardtanh(-2, 3), "clip"),
        (nn.LeakyReLU(0.2), "nn.leakyrelu"),
    ],
)
def test_activation_is_the_relax_operator(module, operator):
    """The operator stays whole: NaN behaviour (T5) is then the lowering's, in one place."""
    model = assert_matches_eager(module.eval(), X)
    assert operators(model) == {operator: 1}


@pytest.mark.parametrize(
    "module",
    [
        nn.Hardswish(), nn.Hardsigmoid(), nn.ELU(1.5), nn.SELU(), nn.Softplus(), nn.Softplus(2, 5),
        nn.Mish(), nn.Sigmoid(), nn.LogSigmoid(), nn.PReLU(), nn.GLU(),
    ],
)  # fmt: skip
def test_composed_activation(module):
    assert_matches_eager(module.eval(), X[:100].reshape(2, 50))
