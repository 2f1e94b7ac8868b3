"""Interpolation against eager."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.nn.functional import interpolate  # noqa: E402

from tests.frontends.torch.eager_comparison import assert_matches_eager  # noqa: E402

X = torch.randn(1, 2, 5, 6, generator=torch.Generator().manual_seed(9))


@pytest.mark.parametrize("size", [(10, 12), (7, 4), (3, 3)])
@pytest.mark.parametrize(
    "options",
    [
        {"mode": "nearest"},
        {"mode": "bilinear", "align_corners": False},
        {"mode": "bilinear", "align_corners": True},
        {"mode": "bicubic", "align_corners": False},
        {"mode": "bicubic", "align_corners": True},
    ],
    ids=str,
)
def test_interpolate_to_a_size(size, options):
    """T2: nearest, bilinear align_corners."""
    assert_matches_eager(lambda x: interpolate(x, size=size, **options), X, tolerance=1e-5)


def test_interpolate_by_a_whole_scale():
    assert_matches_eager(lambda x: interpolate(x, scale_factor=2, mode="nearest"), X)
    assert_matches_eager(lambda x: interpolate(x, scale_factor=3, mode="bilinear"), X)


@pytest.mark.parametrize("scale", [1.3, 0.7, 2.1])
def test_interpolate_by_a_scale_the_sizes_do_not_give(scale):
    """T2: torch samples at 1 / scale then, which the sizes alone do not tell."""
    assert_matches_eager(lambda x: interpolate(x, scale_factor=scale, mode="bilinear"), X)


def test_scales_that_leave_a_size_as_it_is():
    """torch then copies along that axis, in some modes."""
    line, image = torch.randn(1, 2, 3), torch.randn(1, 2, 3, 3)
    wide, volume = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 3, 2, 4)

    def resized(x, *modes, **options):
        return [interpolate(x, scale_factor=1.3, mode=mode, **options) for mode in modes]

    def function(a, b, c, d):
        return [
            *resized(a, "linear", "nearest", "nearest-exact"),
            *resized(b, "bilinear", "bicubic", "nearest", "nearest-exact"),
            *resized(c, "bilinear", "bicubic", "nearest", "nearest-exact"),
            *resized(b, "bilinear", "bicubic", antialias=True),
            *resized(c, "bilinear", "bicubic", antialias=True),
            *resized(d, "trilinear", "nearest"),
            interpolate(c, scale_factor=(2.3, 2.1), mode="nearest"),  # 3 x 8 to 6 x 16
        ]

    assert_matches_eager(function, line, image, wide, volume)
