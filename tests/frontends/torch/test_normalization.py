"""Normalizations and softmax against eager."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.frontends.torch.eager_comparison import assert_matches_eager, operators  # noqa: E402

X = torch.randn(2, 6, 5, 4, generator=torch.Generator().manual_seed(6))


def randomized(layer: nn.Module) -> nn.Module:
    """Give every parameter and statistic a value that shows."""
    generator = torch.Generator().manual_seed(7)
    for tensor in [*layer.parameters(), *layer.buffers()]:
        if tensor.is_floating_point():
            tensor.data.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
    return layer.eval()


def test_batch_norm_uses_the_running_statistics():
    model = assert_matches_eager(randomized(nn.BatchNorm2d(6)), X)
    assert operators(model) == {"nn.batch_norm": 1}
    assert_matches_eager(randomized(nn.BatchNorm1d(6, affine=False)), X[..., 0])


@pytest.mark.parametrize(
    ("layer", "operator"),
    [
        (nn.LayerNorm(4), "nn.layer_norm"),
        (nn.LayerNorm((5, 4), elementwise_affine=False), "nn.layer_norm"),
        (nn.LayerNorm(4, bias=False, eps=0.1), "nn.layer_norm"),
        (nn.GroupNorm(3, 6), "nn.group_norm"),
        (nn.RMSNorm(4), "nn.rms_norm"),
        (nn.RMSNorm(4, eps=0.1, elementwise_affine=False), "nn.rms_norm"),
    ],
    ids=str,
)
def test_normalization_stays_one_operator(layer, operator):
    model = assert_matches_eager(randomized(layer), X)
    assert operators(model) == {operator: 1}


def test_instance_norm():
    model = assert_matches_eager(randomized(nn.InstanceNorm2d(6, affine=True)), X)
    assert operators(model) == {"nn.instance_norm": 1}
    tracked = nn.InstanceNorm2d(6, track_running_stats=True)
    assert_matches_eager(randomized(tracked), X)


@pytest.mark.parametrize("dim", [-1, 1, 0])
def test_softmax(dim):
    assert_matches_eager(lambda x: [x.softmax(dim), x.log_softmax(dim)], X * 20)
