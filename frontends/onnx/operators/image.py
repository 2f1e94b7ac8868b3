"""Images: overlapping blocks put together, cropping and padding around the middle, decoding."""

from __future__ import annotations

from typing import Any

from tvm import relax

from frontends.computations.column_image import columns_to_image
from frontends.computations.crop_or_pad import center_crop_or_pad
from frontends.errors import InvalidModel
from frontends.onnx.op import Op, normalize_axis
from frontends.onnx.registry import converter, refuse


@converter("Col2Im", since=18)
def col2im(op: Op) -> relax.Expr:
    """Add up blocks, written as columns, into images."""
    image, block = op.runtime_dims(1), op.runtime_dims(2)
    rank = len(image)
    if len(block) != rank:
        raise InvalidModel(f"blocks of rank {len(block)} in images of rank {rank}")
    strides = op.attr("strides") or [1] * rank
    dilations = op.attr("dilations") or [1] * rank
    pads = op.attr("pads") or [0] * (2 * rank)

    steps = [
        op.arithmetic.truncdiv(
            image[a] + pads[a] + pads[rank + a] - dilations[a] * (block[a] - 1) - 1, strides[a]
        )
        + 1
        for a in range(rank)
    ]
    op.state(0, [*op.shape()[:2], op.arithmetic.product(steps)])

    def compute(x: Any, dims: list[Any]) -> Any:
        return columns_to_image(
            x, dims[:rank], dims[rank:], strides, dilations, pads[:rank], pads[rank:]
        )

    return op.te(compute, op.x(), dims=[*image, *block])


@converter("CenterCropPad", since=18)
def center_crop_pad(op: Op) -> Any:
    """Crop or pad axes around the middle to sizes known at run time."""
    sizes = op.runtime_dims(1)
    axes = [normalize_axis(axis, op.ndim()) for axis in op.attr("axes") or range(op.ndim())]
    if len(axes) != len(sizes):
        raise InvalidModel(f"{len(sizes)} sizes for {len(axes)} axes")
    return op.te(lambda x, dims: center_crop_or_pad(x, axes, dims), op.x(), dims=sizes)


refuse(
    "ImageDecoder",
    reason="the decoder of a file format is no computation on tensors; decode before the model",
)
