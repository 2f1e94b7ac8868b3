"""Pooling of regions of interest."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax, te
from tvm.relax import op as R

from frontends.computations.exact_reshape import exact_reshape
from frontends.computations.region_pooling import roi_align, roi_max_pool
from frontends.computations.sample_points import wide_float
from frontends.onnx.indices import checked, indices_within
from frontends.onnx.op import Op
from frontends.onnx.registry import converter


@converter("RoiAlign", since=10)
def roi_align_edges(op: Op) -> relax.Expr:
    """Sample regions whose coordinates count pixel edges (opset 10)."""
    return _roi_align(op, half_pixel=False)


@converter("RoiAlign", since=16)
def roi_align_mode(op: Op) -> relax.Expr:
    """Sample regions in the coordinates that an attribute selects (opset 16 on)."""
    mode = op.attr("coordinate_transformation_mode", "half_pixel")
    return _roi_align(op, half_pixel=mode == "half_pixel")


def _roi_align(op: Op, half_pixel: bool) -> relax.Expr:
    mode = str(op.attr("mode", "avg")).lower()
    op.state(1, [op.shape(1)[0], 4])
    op.state(2, [op.shape(1)[0]])
    images = indices_within(op, 2, [op.shape()[0]])
    if op.dtype(2) != "int64":
        images = op.emit(R.astype(images, "int64"))
    output = (int(op.attr("output_height", 1)), int(op.attr("output_width", 1)))
    return _in_wide(
        op,
        lambda x, rois, owner: roi_align(
            x,
            rois,
            owner,
            output=output,
            scale=float(op.attr("spatial_scale", 1.0)),
            samples=int(op.attr("sampling_ratio", 0)),
            half_pixel=half_pixel,
            greatest=mode == "max",
        ),
        images,
    )


@converter("MaxRoiPool")
def max_roi_pool(op: Op) -> relax.Expr:
    """Take the maximum of each bin of each region."""
    down, across = (int(size) for size in op.attr("pooled_shape"))
    op.state(1, [op.shape(1)[0], 5])
    scale = float(op.attr("spatial_scale", 1.0))
    column = op.emit(R.strided_slice(op.x(1), [1], [0], [1], assume_inbound=False))
    column = op.emit(exact_reshape(column, relax.ShapeExpr([op.shape(1)[0]])))
    images = checked(op, column, [op.shape()[0]], op.value(1).name or "rois")
    return _in_wide(
        op,
        lambda x, rois, owner: roi_max_pool(x, rois, owner, output=(down, across), scale=scale),
        images,
    )


def _in_wide(op: Op, compute: Callable[..., te.Tensor], *more: relax.Expr) -> relax.Expr:
    """Emit `compute` of inputs 0 and 1 and `more`, in float32 for narrower types."""
    wide = wide_float(op.dtype())
    tensors = [
        op.x(place) if op.dtype(place) == wide else op.emit(R.astype(op.x(place), wide))
        for place in range(2)
    ]
    result = op.te(compute, *tensors, *more)
    return result if op.dtype() == wide else R.astype(result, op.dtype())
