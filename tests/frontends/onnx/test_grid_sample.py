"""GridSample and AffineGrid in every mode, and what is built on sampling: DeformConv."""

from __future__ import annotations

import numpy as np
import pytest

from frontends.errors import InvalidModel
from frontends.onnx import import_onnx
from tests.frontends.onnx.many_nodes import check_variants, model_of, variant

RNG = np.random.default_rng(11)
PADDINGS = ("zeros", "border", "reflection")


def _floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_planes(mode: str) -> None:
    """Grids reach far outside, so that reflection turns several times."""
    feeds = {"x": _floats(2, 3, 5, 4), "grid": _floats(2, 3, 6, 2) * 2}
    nodes = [
        variant("GridSample", "x grid", mode=mode, padding_mode=padding, align_corners=align)
        for padding, align in zip((*PADDINGS, "reflection"), (0, 1, 0, 1), strict=True)
    ]
    check_variants(nodes, feeds, tolerance=1e-4)


def test_volumes() -> None:
    feeds = {"x": _floats(1, 2, 3, 4, 5), "grid": _floats(1, 2, 3, 2, 3) * 2}
    nodes = [
        variant("GridSample", "x grid", mode=mode, padding_mode=padding, align_corners=align)
        for mode, padding, align in zip(
            ("linear", "nearest"), ("zeros", "reflection"), (0, 1), strict=True
        )
    ]  # fmt: skip
    check_variants(nodes, feeds, tolerance=1e-4)


def test_old_mode_names_and_symbolic_sizes() -> None:
    feeds = {"x": _floats(2, 2, 5, 4), "grid": _floats(2, 3, 3, 2)}
    nodes = [
        variant("GridSample", "x grid", mode="bilinear", padding_mode="border"),
        variant("GridSample", "x grid", mode="bicubic", align_corners=1),
        variant("GridSample", "x grid"),
    ]
    symbolic = {"x": ["n", 2, "h", "w"], "grid": ["n", "p", "q", 2]}
    check_variants(nodes, feeds, opset=16, symbolic=symbolic, tolerance=1e-4)


def test_a_grid_of_not_a_number_reads_nothing_out_of_bounds() -> None:
    grid = np.array([[[[np.nan, 0.0], [1e30, -1e30], [np.inf, 0.0]]]], "float32")
    feeds = {"x": np.ones((1, 1, 3, 3), "float32"), "grid": grid}
    model = model_of([variant("GridSample", "x grid", padding_mode="zeros")], feeds)
    import relaxc

    result = np.asarray(relaxc.compile(model, threads=1, progress=False)(**feeds))
    assert result.shape == (1, 1, 1, 3)
    assert result[0, 0, 0, 1] == 0.0


def test_unknown_modes_are_refused() -> None:
    feeds = {"x": _floats(1, 1, 3, 3), "grid": _floats(1, 2, 2, 2)}
    model = model_of([variant("GridSample", "x grid", mode="area")], feeds)
    with pytest.raises(InvalidModel, match="area"):
        import_onnx(model)


@pytest.mark.parametrize("align", [0, 1])
def test_affine_grid(align: int) -> None:
    """The size is read at run time for the plane, and known for the volume."""
    feeds = {
        "plane": _floats(2, 2, 3),
        "volume": _floats(2, 3, 4),
        "size": np.array([2, 1, 3, 4], "int64"),
        "size3": np.array([2, 1, 3, 4, 2], "int64"),
    }
    nodes = [
        variant("AffineGrid", "plane size", align_corners=align),
        variant("AffineGrid", "volume size3", align_corners=align),
    ]
    check_variants(nodes, feeds, by="reference", constants=["size3"], opset=20)


def test_deform_conv() -> None:
    """Groups, offset groups, dilations, strides, asymmetric pads, mask and bias."""
    feeds = {
        "x": _floats(2, 4, 6, 5),
        "w": _floats(6, 2, 3, 2),
        "offset": _floats(2, 24, 3, 4) * 0.7,
        "mask": RNG.random((2, 12, 3, 4)).astype("float32"),
        "b": _floats(6),
        "offset1": _floats(2, 12, 5, 4),
    }
    nodes = [
        variant(
            "DeformConv", "x w offset b mask", group=2, offset_group=2, kernel_shape=[3, 2],
            strides=[2, 1], pads=[1, 0, 1, 1], dilations=[1, 2],
        ),
        variant("DeformConv", "x w offset1", group=2, pads=[1, 0, 0, 0]),
    ]  # fmt: skip
    check_variants(nodes, feeds, by="reference", opset=19, tolerance=1e-4)
