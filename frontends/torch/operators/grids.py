"""Sampling of images at grids of points, and images from overlapping blocks."""

from __future__ import annotations

from typing import Any

from tvm import relax, te

from frontends.computations.column_image import columns_to_image
from frontends.computations.sample_points import Sampling, gather_taps, pixel_coordinates, taps
from frontends.dims import DimArithmetic
from frontends.sliding_window import Window
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter

_MODES = ("linear", "nearest", "cubic")  # torch numbers them in this order
_PADDINGS = ("zeros", "border", "reflection")


@converter("aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default")
def grid_sampler(
    b: GraphBuilder, x: Value, grid: Value, mode: int, padding: int, align_corners: bool
) -> relax.Expr:
    """Read images [N, C, *spatial] at the points of a grid [N, *points, r], last axis first."""
    sampling = Sampling(_MODES[mode], _PADDINGS[padding], align_corners)
    data = b.tensor(x)
    sizes = b.shape(data)[2:]
    at = b.te(
        lambda g, dims: pixel_coordinates(g, dims, align_corners),
        b.tensor(grid), name="pixel_coordinates", dims=sizes,
    )  # fmt: skip
    found = b.te(
        lambda place, dims: taps(place, dims, sampling), at, name="sample_taps", dims=sizes
    )
    places, weights = b.parts(found, 2)
    return b.te(gather_taps, data, places, weights, name="sample")


@converter("aten.col2im.default")
def col2im(
    b: GraphBuilder,
    x: Value,
    output_size: Any,
    kernel_size: Any,
    dilation: Any,
    padding: Any,
    stride: Any,
) -> relax.Expr:
    """Add up blocks [N, C * kernel, L], written as columns, into images [N, C, *output_size]."""
    data = b.tensor(x)
    shape = b.shape(data)
    batched = data if len(shape) == 3 else b.reshape(data, [1, *shape])
    image = b.result_shape[-2:]
    edges = tuple(padding)
    window = Window(tuple(kernel_size), tuple(stride), tuple(dilation), edges, edges)
    counts = window.outputs(DimArithmetic(), tuple(image))

    def compute(t: te.Tensor, dims: list[Any]) -> te.Tensor:
        return columns_to_image(
            t, dims[:2], window.kernel, dims[2:], window.strides, window.dilations, edges
        )

    return b.reshape(b.te(compute, batched, dims=[*image, *counts]), b.result_shape)
