"""Convolutions against eager."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.frontends.torch.eager_comparison import assert_matches_eager, operators  # noqa: E402


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv1d(3, 4, 3, padding=1), (2, 3, 11)),
        (nn.Conv2d(3, 4, 3), (1, 3, 9, 8)),
        (nn.Conv2d(3, 4, (3, 2), stride=(2, 1), padding=(1, 0), bias=False), (1, 3, 9, 8)),
        (nn.Conv2d(4, 4, 3, groups=4, padding=2, dilation=2), (1, 4, 9, 8)),
        (nn.Conv2d(4, 6, 1, groups=2), (2, 4, 5, 5)),
        (nn.Conv2d(3, 4, 4, padding="same"), (1, 3, 9, 8)),
        (nn.Conv2d(3, 4, 3), (3, 9, 8)),
        (nn.Conv3d(2, 3, 2), (1, 2, 4, 5, 3)),
        (nn.ConvTranspose1d(3, 4, 3, stride=2), (1, 3, 6)),
        (nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1), (1, 3, 5, 4)),
        (nn.ConvTranspose3d(2, 3, 2, stride=2), (1, 2, 2, 3, 2)),
    ],
    ids=str,
)
def test_convolution(layer, shape):
    """T6 for ConvTranspose3d; "same" padding of an even kernel is one longer at the far end."""
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(4))
    model = assert_matches_eager(layer.eval(), x)
    assert sum(n for name, n in operators(model).items() if "conv" in name) == 1
