"""Resize by scales, sizes and regions that are read at run time, and old Upsample (O2, O4)."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import relaxc
from frontends.errors import InvalidModel
from frontends.onnx import import_onnx
from tests.frontends.onnx.many_nodes import check_variants, model_of, variant
from tests.frontends.onnx.run_model import make_model, run_imported, run_reference

RNG = np.random.default_rng(16)


def _floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def test_scales_read_at_run_time() -> None:
    feeds = {
        "x": _floats(1, 2, 5, 6),
        "s": np.array([1, 1, 0.6, 1.5], "float32"),
        "two": np.array([1.5, 0.75], "float32"),
    }
    nodes = [
        variant("Resize", "x - s", mode="nearest", coordinate_transformation_mode="asymmetric"),
        variant("Resize", "x - two", mode="linear", axes=[2, 3], antialias=1),
        variant("Resize", "x - two", mode="cubic", axes=[2, 3], exclude_outside=1),
    ]
    check_variants(nodes, feeds, by="reference", opset=19, tolerance=1e-4)


def test_sizes_and_regions_read_at_run_time() -> None:
    feeds = {
        "x": _floats(1, 2, 5, 6),
        "roi": np.array([0.4, 0.1, 0.9, 1.2], "float32"),
        "size": np.array([3, 4], "int64"),
    }
    nodes = [
        variant(
            "Resize", "x roi - size", mode="linear", axes=[2, 3], extrapolation_value=7.0,
            coordinate_transformation_mode="tf_crop_and_resize",
        ),
        variant("Resize", "x - - size", mode="cubic", axes=[2, 3], antialias=1),
        variant(
            "Resize", "x - - size", mode="linear", axes=[2, 3],
            keep_aspect_ratio_policy="not_larger",
        ),
    ]  # fmt: skip
    symbolic = {"x": [1, 2, "h", "w"]}
    check_variants(nodes, feeds, by="reference", opset=19, symbolic=symbolic, tolerance=1e-4)


def test_scales_that_leave_a_fraction() -> None:
    """Aligned corners and the symmetric center lie where scale * length ends, not the size."""
    feeds = {"x": _floats(1, 1, 5, 4), "s": np.array([1, 1, 0.7, 1.7], "float32")}
    nodes = [
        variant("Resize", "x - s", mode=mode, coordinate_transformation_mode=coordinates)
        for mode in ("linear", "cubic")
        for coordinates in ("align_corners", "half_pixel_symmetric")
    ]
    check_variants(nodes, feeds, by="reference", opset=19, constants=["s"], tolerance=1e-4)


@pytest.mark.parametrize("opset", [7, 9])
def test_upsample(opset: int) -> None:
    feeds = {"x": _floats(1, 2, 3, 4)}
    scales = np.array([1, 1, 2, 3], "float32")
    if opset == 7:
        nodes = [variant("Upsample", "x", mode="nearest", scales=scales.tolist())]
    else:
        feeds["s"] = scales
        nodes = [variant("Upsample", "x s", mode=mode) for mode in ("nearest", "linear")]
    check_variants(nodes, feeds, opset=opset)


def test_upsample_of_opset_1() -> None:
    x = _floats(1, 2, 3, 4)
    node = variant("Upsample", "x", height_scale=2.0, width_scale=1.5)
    model = model_of([node], {"x": x}, opset=1)
    got = np.asarray(relaxc.compile(model, threads=1, progress=False)(x=x))
    np.testing.assert_array_equal(got, x.repeat(2, 2)[..., [0, 0, 1, 2, 2, 3]])


def test_unknown_modes_are_refused() -> None:
    feeds = {"x": _floats(1, 1, 3, 3), "s": np.array([1, 1, 2, 2], "float32")}
    model = model_of([variant("Resize", "x - s", mode="lanczos")], feeds, opset=19)
    with pytest.raises(InvalidModel, match="lanczos"):
        import_onnx(model)


@pytest.mark.parametrize("known", [True, False])
def test_nearest_before_opset_11_rounds_up_where_the_axis_shrinks(known: bool) -> None:
    """The case of ONNX's own opset 10, and scales whose quotients only float32 rounds to 10."""
    scales = np.asarray([1, 1, 0.6, 0.7, 1.2], "float32")
    x = np.arange(4 * 12 * 7, dtype="float32").reshape(1, 1, 4, 12, 7)
    feeds = {"x": x, "s": scales}
    model = model_of(
        [variant("Resize", "x s", mode="nearest")], feeds, ["s"] if known else [], opset=10
    )
    (got,) = run_imported(model, feeds)
    places = ([0, 2], [0, 2, 3, 5, 6, 8, 9, 10], [0, 0, 1, 2, 3, 4, 5, 5])
    np.testing.assert_array_equal(got[0, 0], x[0, 0][np.ix_(*places)])


@pytest.mark.parametrize(("scale", "height"), [(1.2, "h * 6 // 5"), (1.3, None)])
def test_windows_of_windows_over_a_size_by_a_fraction(scale: float, height: str | None) -> None:
    """Sizes from which a kernel's follow, of no tensor that it reads: no bound of TVM's is known.

    1.3 in float32 is below 13 / 10, so that height is computed in floats.
    """
    nodes = [
        helper.make_node("Resize", ["x", "", "s"], ["r"], mode="linear"),
        helper.make_node("Conv", ["r", "w"], ["a"], strides=[2, 2]),
        helper.make_node("Conv", ["a", "w"], ["b"], strides=[3, 2]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 1], strides=[2, 1]),
        helper.make_node("Flatten", ["c"], ["y"], axis=2),
    ]
    known = {"s": np.array([1, 1, scale, 1], "float32"), "w": _floats(3, 3, 3, 3)}
    model = make_model(nodes, {"x": ("float32", [1, 3, "h", 11])}, ["r", "y"], known)
    compiled = relaxc.compile(model, threads=1, progress=False)
    found = compiled.outputs[0].shape[2]
    assert found == height or (height is None and "floor" in str(found))
    for size in (17, 20, 30):
        x = _floats(1, 3, size, 11)
        for got, want in zip(compiled(x), run_reference(model, {"x": x}), strict=True):
            assert np.asarray(got).shape == want.shape
            np.testing.assert_allclose(np.asarray(got), want, rtol=1e-4, atol=1e-4)
