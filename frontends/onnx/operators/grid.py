"""Sampling of images at grids of points, and the grids of affine maps."""

from __future__ import annotations

from tvm import relax

from frontends.computations.affine_grid import affine_grid
from frontends.computations.sample_points import Sampling, gather_taps, pixel_coordinates, taps
from frontends.dims import Dim
from frontends.errors import InvalidModel
from frontends.onnx.op import Op
from frontends.onnx.operators.run_time_size import parts
from frontends.onnx.registry import converter

_MODES = {"bilinear": "linear", "bicubic": "cubic"}  # the names of opset 16


@converter("GridSample", since=16)
def grid_sample(op: Op) -> relax.Expr:
    """Read an image of any rank at the points of a grid, (n, *points, r), last axis first."""
    rank = op.ndim() - 2
    if rank < 1 or op.ndim(1) != op.ndim():
        raise InvalidModel("input and grid differ in rank")
    mode = op.attr("mode", "linear")
    sampling = Sampling(
        mode=_MODES.get(mode, mode),
        padding=op.attr("padding_mode", "zeros"),
        align_corners=bool(op.attr("align_corners", 0)),
    )
    sizes = list(op.shape()[2:])
    op.state(1, [op.shape()[0], *op.shape(1)[1:-1], rank])
    at = op.te(
        lambda grid, dims: pixel_coordinates(grid, dims, sampling.align_corners),
        op.x(1), name="pixel_coordinates", dims=sizes,
    )  # fmt: skip
    return sample(op, op.x(), at, sizes, sampling)


def sample(
    op: Op, x: relax.Expr, at: relax.Expr, sizes: list[Dim], sampling: Sampling
) -> relax.Expr:
    """Emit the image `x` (n, c, *sizes) read at pixel coordinates `at` (n, *points, r)."""
    found = op.te(
        lambda place, dims: taps(place, dims, sampling), at, name="sample_taps", dims=sizes
    )
    places, weights = parts(op, found, 2)
    return op.te(gather_taps, x, places, weights, name="sample")


@converter("AffineGrid", since=20)
def affine(op: Op) -> relax.Expr:
    """Map the pixels of an image, whose shape the second input gives, by affine matrices."""
    batch, _, *sizes = op.runtime_dims(1)
    align = bool(op.attr("align_corners", 0))
    if len(sizes) not in (2, 3):
        raise InvalidModel(f"an image of {len(sizes)} dimensions")
    op.require_equal(batch, op.shape()[0], "a_map_for_each_image")
    op.state(0, [op.shape()[0], len(sizes), len(sizes) + 1])
    return op.te(lambda theta, dims: affine_grid(theta, dims, align), op.x(), dims=sizes)
