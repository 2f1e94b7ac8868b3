"""Pooling against eager."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.frontends.torch.eager_comparison import assert_matches_eager, operators  # noqa: E402

X = torch.randn(1, 3, 11, 9, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize(
    "layer",
    [
        nn.MaxPool2d(3),
        nn.MaxPool2d((3, 2), stride=(2, 1), padding=(1, 0)),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.MaxPool2d(3, stride=3, padding=1, ceil_mode=True),
        nn.MaxPool2d(3, stride=2, dilation=2),
    ],
    ids=str,
)
def test_max_pool(layer):
    model = assert_matches_eager(layer.eval(), X)
    assert operators(model)["nn.max_pool2d"] == 1


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("ceil", [True, False])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [(3, 2, 1), ((2, 3), 3, (1, 0)), (4, 3, 2)]
)
def test_average_pool(kernel, stride, padding, ceil, include):
    """T3: ceil_mode, whose last window counts only what lies within the padding."""
    layer = nn.AvgPool2d(kernel, stride, padding, ceil_mode=ceil, count_include_pad=include)
    assert_matches_eager(layer.eval(), X)


@pytest.mark.parametrize("ceil", [True, False])
def test_average_pool_with_divisor_override(ceil):
    """T3: AvgPool2d(divisor_override=3)."""
    assert_matches_eager(nn.AvgPool2d(2, ceil_mode=ceil, divisor_override=3).eval(), X)


@pytest.mark.parametrize("size", [1, (3, 2), (None, 4), (11, 9)])
def test_adaptive_average_pool(size):
    assert_matches_eager(nn.AdaptiveAvgPool2d(size).eval(), X)


def test_global_pooling_stays_one_operator():
    model = assert_matches_eager(nn.AdaptiveAvgPool2d(1).eval(), X)
    assert operators(model) == {"nn.adaptive_avg_pool2d": 1}


def test_pooling_without_a_batch_and_over_one_axis():
    assert_matches_eager(nn.MaxPool2d(2).eval(), X[0])
    assert_matches_eager(nn.AvgPool2d(2).eval(), X[0])
    assert_matches_eager(nn.AdaptiveAvgPool1d(4).eval(), X[0])
    assert_matches_eager(nn.MaxPool1d(2).eval(), X[0])
    assert_matches_eager(nn.AvgPool1d(2).eval(), X[0])
