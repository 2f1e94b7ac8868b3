"""Images: overlapping blocks put together, cropping and padding around the middle, decoding."""

from __future__ import annotations

from typing import Any

from tvm import relax

from frontends.computations.column_image import columns_to_image
from frontends.computations.crop_or_pad import center_crop_or_pad
from frontends.errors import InvalidModel
from frontends.onnx.op import Op, normalize_axis
from frontends.onnx.registry import converter, refuse
from frontends.onnx.window import read_window


@converter("Col2Im", since=18)
def col2im(op: Op) -> relax.Expr:
    """Add up blocks, written as columns, into images."""
    image, block = op.runtime_dims(1), op.runtime_dims(2)
    rank, product = len(image), op.arithmetic.product
    window = read_window(op, tuple(block), tuple(image))
    counts = window.outputs(op.arithmetic, tuple(image))
    for size, count in zip(block, counts, strict=True):
        op.require_at_most(1, size, "blocks_have_elements")
        op.require_at_most(0, count, "blocks_fit_the_image")
    batch, rows, _ = op.shape()
    channels = op.arithmetic.truncdiv(rows, product(block))
    op.require_equal(rows, product([channels, *block]), "rows_are_elements_of_blocks")
    op.state(0, [batch, rows, product(counts)])

    def compute(x: Any, dims: list[Any]) -> Any:
        return columns_to_image(
            x, dims[:rank], dims[rank : 2 * rank], dims[2 * rank :],
            window.strides, window.dilations, window.begin,
        )  # fmt: skip

    return op.te(compute, op.x(), dims=[*image, *block, *counts])


@converter("CenterCropPad", since=18)
def center_crop_pad(op: Op) -> Any:
    """Crop or pad axes around the middle to sizes known at run time."""
    axes = [normalize_axis(axis, op.ndim()) for axis in op.attr("axes") or range(op.ndim())]
    sizes = op.runtime_dims(1, len(axes))
    if len(axes) != len(sizes):
        raise InvalidModel(f"{len(sizes)} sizes for {len(axes)} axes")
    return op.te(lambda x, dims: center_crop_or_pad(x, axes, dims), op.x(), dims=sizes)


refuse(
    "ImageDecoder",
    reason="the decoder of a file format is no computation on tensors; decode before the model",
)
