"""RoiAlign, MaxRoiPool (O12), Col2Im, MaxUnpool, CenterCropPad: regions and blocks of images."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from frontends.errors import UnsupportedOperator
from frontends.onnx import import_onnx
from tests.frontends.onnx.many_nodes import check_variants, model_of, variant

RNG = np.random.default_rng(12)


def _floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


ROIS = np.array(
    [[0, 0, 9, 9], [1.3, 2.2, 6.9, 7.1], [5, 5, 5, 5], [-4, -3, 30, 30], [8, 8, 2, 3]], "float32"
)


def test_roi_align() -> None:
    """Regions outside, empty and turned inside out; images chosen at run time."""
    feeds = {
        "x": _floats(2, 3, 8, 9),
        "rois": ROIS,
        "images": np.array([0, 1, 1, 0, 1], "int64"),
    }
    nodes = [
        variant(
            "RoiAlign", "x rois images", mode=mode, coordinate_transformation_mode=coordinates,
            output_height=2, output_width=3, sampling_ratio=samples, spatial_scale=0.8,
        )
        for mode, coordinates, samples in itertools.product(
            ("avg", "max"), ("half_pixel", "output_half_pixel"), (0, 2)
        )
    ]  # fmt: skip
    symbolic = {"x": [2, 3, "h", "w"], "rois": ["r", 4], "images": ["r"]}
    check_variants(nodes, feeds, by="reference", symbolic=symbolic)


def test_roi_align_before_half_pixels() -> None:
    feeds = {"x": _floats(1, 2, 8, 9), "rois": ROIS[:3], "images": np.zeros(3, "int64")}
    check_variants([variant("RoiAlign", "x rois images", output_height=2)], feeds, opset=10)


def test_max_roi_pool() -> None:
    rois = np.concatenate([np.array([[0], [1], [0], [1]]), ROIS[:4]], axis=1).astype("float32")
    feeds = {"x": _floats(2, 3, 8, 9), "rois": rois}
    nodes = [
        variant("MaxRoiPool", "x rois", pooled_shape=[2, 3]),
        variant("MaxRoiPool", "x rois", pooled_shape=[4, 1], spatial_scale=0.5),
    ]
    check_variants(nodes, feeds, opset=21, symbolic={"rois": ["r", 5]})


def test_col2im() -> None:
    """Overlap, dilation, stride, asymmetric pads; three dimensions; sizes known at run time."""
    feeds = {
        "plane": _floats(2, 12, 12),
        "volume": _floats(1, 8, 4),
        "image": np.array([5, 6], "int64"),
        "block": np.array([2, 3], "int64"),
        "image3": np.array([3, 3, 2], "int64"),
        "block3": np.array([2, 2, 2], "int64"),
    }
    nodes = [
        variant("Col2Im", "plane image block", dilations=[2, 1], pads=[0, 0, 0, 0]),
        variant("Col2Im", "plane image block", strides=[2, 1], pads=[1, 0, 0, 0]),
        variant("Col2Im", "volume image3 block3"),
    ]
    constants = ["image3", "block3"]
    check_variants(nodes, feeds, by="reference", constants=constants)


def test_max_unpool_inverts_max_pool() -> None:
    x = _floats(2, 2, 7, 6)
    feeds = {"x": x}
    pool = model_of(
        [variant("MaxPool", "x", 2, kernel_shape=[3, 2], strides=[2, 2], pads=[0, 0, 0, 0])], feeds
    )
    from tests.frontends.onnx.run_model import run_reference

    values, places = run_reference(pool, feeds)
    feeds = {"v": values, "i": places, "shape": np.array([2, 2, 9, 8], "int64")}
    nodes = [
        variant("MaxUnpool", "v i", kernel_shape=[3, 2], strides=[2, 2]),
        variant("MaxUnpool", "v i shape", kernel_shape=[3, 2], strides=[2, 2]),
    ]
    check_variants(nodes, feeds, by="reference")


def test_center_crop_pad() -> None:
    """Odd differences on both sides, sizes read at run time, any dtype."""
    feeds = {
        "x": _floats(5, 8, 3),
        "b": RNG.random((4, 5)) < 0.5,
        "shape": np.array([8, 5, 3], "int64"),
        "two": np.array([7, 2], "int64"),
    }
    nodes = [
        variant("CenterCropPad", "x shape"),
        variant("CenterCropPad", "x two", axes=[-1, 1]),
        variant("CenterCropPad", "b two"),
    ]
    check_variants(nodes, feeds, by="reference", symbolic={"x": ["n", 8, 3]})


def test_image_files_are_refused() -> None:
    model = model_of([variant("ImageDecoder", "x")], {"x": np.zeros(8, "uint8")})
    with pytest.raises(UnsupportedOperator, match="decode before the model"):
        import_onnx(model)
