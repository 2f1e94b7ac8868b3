"""Conv, ConvTranspose (O3) and pooling (O10): ranks, automatic padding, groups, run-time sizes."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from frontends.computations.window_pool import Windows
from frontends.errors import InvalidModel
from frontends.onnx import import_onnx
from tests.frontends.onnx.many_nodes import check_variants, model_of, variant

RNG = np.random.default_rng(14)


def _floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


CONV = {
    "x1": _floats(2, 4, 11), "w1": _floats(6, 2, 3), "x2": _floats(2, 4, 7, 10),
    "w2": _floats(6, 2, 3, 2), "x3": _floats(1, 4, 5, 6, 4), "w3": _floats(4, 4, 2, 3, 1),
    "b": _floats(6),
}  # fmt: skip
CONV_NODES = [
    variant("Conv", "x1 w1 b", group=2, strides=[2], dilations=[2], pads=[2, 1]),
    variant("Conv", "x1 w1", group=2, auto_pad="SAME_LOWER", strides=[3]),
    variant("Conv", "x2 w2 b", group=2, auto_pad="SAME_UPPER", strides=[2, 3]),
    variant("Conv", "x2 w2", group=2, auto_pad="VALID", dilations=[2, 3]),
    variant("Conv", "x3 w3", pads=[1, 0, 0, 0, 2, 1], strides=[1, 2, 1]),
]


@pytest.mark.parametrize("known", [True, False])
def test_conv(known: bool) -> None:
    """Weights are constants, or inputs; sizes are known, or not."""
    symbolic = {"x1": ["n", 4, "t"], "x2": ["n", 4, "h", "w"]}
    constants = ["w1", "w2", "w3", "b"] if known else []
    nodes = CONV_NODES if known else CONV_NODES[1:3]
    feeds = CONV if known else {name: CONV[name] for name in ("x1", "w1", "x2", "w2", "b")}
    check_variants(
        nodes, feeds, constants=constants, symbolic=None if known else symbolic, tolerance=1e-4
    )


def test_four_spatial_dimensions() -> None:
    """Against the convolution of three dimensions, summed over the fourth."""
    import relaxc

    x, w = _floats(1, 2, 4, 3, 5, 4), _floats(4, 1, 2, 1, 3, 2)
    model = model_of(
        [variant("Conv", "x w", group=2, strides=[1, 1, 2, 1], pads=[0, 1, 0, 0, 0, 0, 1, 1])],
        {"x": x, "w": w},
    )
    got = np.asarray(relaxc.compile(model, threads=1, progress=False)(x=x, w=w))
    padded = np.pad(x, [(0, 0), (0, 0), (0, 0), (1, 0), (0, 1), (0, 1)])
    want = np.zeros((1, 4, 3, 4, 2, 4), "float32")
    for place in np.ndindex(*want.shape[1:]):
        f, a, b, c, d = place
        window = padded[0, f // 2, a : a + 2, b : b + 1, 2 * c : 2 * c + 3, d : d + 2]
        want[0][place] = (window * w[f, 0]).sum()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


TRANSPOSED = {
    "x1": _floats(1, 4, 5), "w1": _floats(4, 3, 3), "x2": _floats(2, 4, 4, 5),
    "w2": _floats(4, 3, 3, 2), "x3": _floats(1, 2, 3, 4, 2), "w3": _floats(2, 1, 2, 3, 2),
    "b": _floats(6),
}  # fmt: skip
TRANSPOSED_NODES = [
    variant("ConvTranspose", "x1 w1", strides=[2], output_padding=[1], pads=[1, 0]),
    variant("ConvTranspose", "x1 w1", strides=[2], output_shape=[12]),
    variant("ConvTranspose", "x2 w2 b", group=2, strides=[2, 3], dilations=[2, 1]),
    variant("ConvTranspose", "x2 w2", strides=[2, 1], auto_pad="SAME_UPPER"),
    variant("ConvTranspose", "x2 w2", strides=[3, 2], auto_pad="SAME_LOWER"),
    variant("ConvTranspose", "x2 w2", strides=[2, 2], output_shape=[8, 9]),
    variant("ConvTranspose", "x2 w2", strides=[2, 2], output_shape=[8, 9], auto_pad="SAME_UPPER"),
    variant("ConvTranspose", "x3 w3", strides=[2, 1, 2], pads=[1, 0, 0, 0, 1, 0]),
]


def test_conv_transpose() -> None:
    check_variants(TRANSPOSED_NODES, TRANSPOSED, constants=["w1", "w2", "w3"], tolerance=1e-4)


def test_conv_transpose_to_a_given_shape_of_symbolic_input() -> None:
    nodes = [node for node in TRANSPOSED_NODES if "output_shape" in node.attributes]
    feeds = {name: TRANSPOSED[name] for name in ("x1", "w1", "x2", "w2")}
    symbolic = {"x1": [1, 4, "t"], "x2": ["n", 4, "h", "w"]}
    check_variants(nodes, feeds, symbolic=symbolic, tolerance=1e-4)


POOL_NODES = [
    variant("MaxPool", "x", 2, kernel_shape=[3, 2], strides=[2, 3], pads=[1, 1, 0, 1], ceil_mode=1),
    variant("MaxPool", "x", 2, kernel_shape=[2, 3], dilations=[2, 1], storage_order=1),
    variant("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_LOWER"),
    variant("AveragePool", "x", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0] * 2, ceil_mode=1),
    variant(
        "AveragePool", "x", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1,
        count_include_pad=1,
    ),
    variant("AveragePool", "x", kernel_shape=[2, 3], strides=[3, 2], auto_pad="SAME_UPPER"),
    variant("LpPool", "x", kernel_shape=[3, 2], strides=[1, 2], pads=[1, 0, 0, 1], p=3),
]  # fmt: skip


@pytest.mark.parametrize("shape", [None, ["n", 3, "h", "w"]])
def test_pool(shape: list[str] | None) -> None:
    """Sizes are known, or only at run time: then ceil_mode and SAME padding are computed there."""
    feeds = {"x": _floats(2, 3, 8, 9)}
    nodes = POOL_NODES if shape is None else [POOL_NODES[place] for place in (0, 2, 4)]
    check_variants(nodes, feeds, opset=21, symbolic={"x": shape} if shape else None)


def test_a_window_far_larger_than_the_input_costs_no_more_than_the_input() -> None:
    """EfficientNet's mean is exported as a window of 1280 x 1280 over 7 x 7."""
    large = {"kernel_shape": [1280, 640], "strides": [1280, 640], "ceil_mode": 1}
    nodes = [
        variant("AveragePool", "x", count_include_pad=1, **large),
        variant("AveragePool", "x", kernel_shape=[9, 20], pads=[4, 9, 4, 9], ceil_mode=1),
    ]
    check_variants(nodes, {"x": _floats(1, 3, 7, 6)}, opset=21)
    x = te.placeholder((1, 3, 7, 6), "float32")
    windows = Windows([1280, 640], [1280, 640], [2, 1], [0, 3], [1, 1])
    assert [int(tap.dom.extent) for tap in windows.reaching_taps(x)] == [4, 9]


def test_pool_of_other_ranks_and_bytes() -> None:
    feeds = {
        "line": _floats(2, 3, 10),
        "volume": _floats(1, 2, 5, 6, 4),
        "byte": RNG.integers(0, 255, (1, 2, 5, 6)).astype("uint8"),
        "signed": RNG.integers(-128, 127, (1, 2, 5, 6)).astype("int8"),
    }
    nodes = [
        variant("MaxPool", "line", 2, kernel_shape=[3], strides=[2], pads=[1, 1]),
        variant("AveragePool", "line", kernel_shape=[4], strides=[3], ceil_mode=1),
        variant("MaxPool", "volume", kernel_shape=[2, 3, 2], strides=[1, 2, 2], pads=[1] * 6),
        variant("AveragePool", "volume", kernel_shape=[2, 2, 2], dilations=[2, 1, 1]),
        variant("LpPool", "volume", kernel_shape=[2, 2, 2], strides=[2, 2, 2]),
        variant("GlobalLpPool", "volume", p=1),
        variant("GlobalMaxPool", "line"),
        variant("MaxPool", "byte", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        variant("MaxPool", "signed", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
    ]
    check_variants(nodes, feeds, opset=21)


def test_contradictory_attributes_are_refused() -> None:
    feeds = {"x": _floats(1, 2, 5, 5), "w": _floats(2, 2, 3, 3)}
    with pytest.raises(InvalidModel):
        import_onnx(model_of([variant("Conv", "x w", strides=[0, 1])], feeds))
    with pytest.raises(InvalidModel):
        import_onnx(model_of([variant("MaxPool", "x", kernel_shape=[3])], feeds))
