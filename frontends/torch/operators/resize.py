"""Interpolation over two spatial axes."""

from __future__ import annotations

from typing import Any

from tvm import relax

from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter


@converter("aten.upsample_bilinear2d.vec")
def bilinear(
    b: GraphBuilder, x: Value, output_size: Any, align_corners: bool, scale_factors: Any
) -> relax.Expr:
    """Bilinear interpolation between the four nearest elements."""
    return _resize(b, x, "linear", align_corners, scale_factors)


@converter("aten.upsample_bicubic2d.vec")
def bicubic(
    b: GraphBuilder, x: Value, output_size: Any, align_corners: bool, scale_factors: Any
) -> relax.Expr:
    """Bicubic interpolation (a = -0.75) between the sixteen nearest elements."""
    return _resize(b, x, "cubic", align_corners, scale_factors)


@converter("aten.upsample_nearest2d.vec")
def nearest(b: GraphBuilder, x: Value, output_size: Any, scale_factors: Any) -> relax.Expr:
    """The element at floor(i * input / output)."""
    _require_exact_scale(b, x, scale_factors)
    return relax.op.image.resize2d(
        b.tensor(x),
        [b.static(size) for size in b.result_shape[-2:]],
        method="nearest_neighbor",
        coordinate_transformation_mode="asymmetric",
        rounding_method="floor",
    )


def _resize(
    b: GraphBuilder, x: Value, method: str, align_corners: bool, scale_factors: Any
) -> relax.Expr:
    if not align_corners:
        _require_exact_scale(b, x, scale_factors)
    return relax.op.image.resize2d(
        b.tensor(x),
        [b.static(size) for size in b.result_shape[-2:]],
        method=method,
        coordinate_transformation_mode="align_corners" if align_corners else "half_pixel",
        cubic_alpha=-0.75,
    )


def _require_exact_scale(b: GraphBuilder, x: Value, scale_factors: Any) -> None:
    """Refuse a scale that the sizes do not reproduce: torch samples at 1 / scale, not in / out."""
    for size, out, scale in zip(
        b.shape(b.tensor(x))[-2:], b.result_shape[-2:], scale_factors or (), strict=False
    ):
        if b.static(size) * scale != b.static(out):
            raise b.unsupported(f"scale {scale} of a size {size}, which is no whole number")
