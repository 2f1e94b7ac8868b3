"""O16: one model with its weights as constants and as arguments gives the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import helper

import relaxc
from tests.frontends.onnx.run_model import make_model, run_reference

Shape = tuple[int, ...]
SAME = {"pads": [1, 1, 1, 1]}
# operator, x, weight, bias, attributes
CASES: dict[str, tuple[str, Shape, Shape, int, dict[str, Any]]] = {
    "conv": ("Conv", (1, 16, 14, 14), (32, 16, 3, 3), 32, SAME),
    "winograd": ("Conv", (1, 32, 28, 28), (32, 32, 3, 3), 32, SAME),
    "odd channels": ("Conv", (1, 13, 9, 9), (7, 13, 3, 3), 7, SAME),
    "stem": ("Conv", (1, 3, 32, 32), (16, 3, 3, 3), 16, {**SAME, "strides": [2, 2]}),
    "dilated": ("Conv", (2, 24, 10, 10), (48, 24, 3, 3), 48, {**SAME, "dilations": [2, 2]}),
    "pointwise": ("Conv", (1, 64, 7, 7), (32, 64, 1, 1), 0, {}),
    "depthwise": ("Conv", (1, 16, 14, 14), (16, 1, 3, 3), 16, {**SAME, "group": 16}),
    "grouped": ("Conv", (1, 16, 14, 14), (32, 4, 3, 3), 32, {**SAME, "group": 4}),
    "one axis": ("Conv", (1, 16, 50), (32, 16, 5), 32, {"pads": [2, 2]}),
    "three axes": ("Conv", (1, 4, 6, 6, 6), (8, 4, 3, 3, 3), 8, {}),
    "transposed": ("ConvTranspose", (1, 16, 7, 7), (16, 8, 2, 2), 8, {"strides": [2, 2]}),
    "transposed, cropped": (
        *("ConvTranspose", (1, 16, 7, 7), (16, 8, 3, 3), 8),
        {**SAME, "strides": [2, 2]},
    ),
    "transposed, one plane": ("ConvTranspose", (1, 8, 5, 5), (8, 1, 3, 3), 1, {"strides": [2, 2]}),
    "transposed, grouped": ("ConvTranspose", (1, 16, 7, 7), (16, 2, 3, 3), 8, {"group": 4}),
    "transposed, one axis": ("ConvTranspose", (1, 16, 20), (16, 8, 4), 8, {"strides": [2]}),
    "gemm": ("Gemm", (5, 64), (33, 64), 33, {"transB": 1}),
    "scaled gemm": ("Gemm", (64, 5), (64, 33), 33, {"transA": 1, "alpha": 0.3, "beta": 0.7}),
    "matmul": ("MatMul", (2, 9, 100), (100, 17), 0, {}),
    "row": ("MatMul", (1, 300), (300, 40), 0, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_weights_as_arguments_give_the_same_bits(name: str) -> None:
    op, data, weight, bias, attributes = CASES[name]
    rng = np.random.default_rng(0)

    def normal(shape: Sequence[int]) -> np.ndarray:
        return rng.standard_normal(shape).astype("float32")

    x, known = normal(data), {"w": normal(weight)}
    if bias:
        known["b"] = normal([bias])
    node = helper.make_node(op, ["x", *known], ["y"], **attributes)
    given = {name: ("float32", array.shape) for name, array in known.items()}
    embedded = make_model([node], {"x": ("float32", data)}, ["y"], known)
    arguments = make_model([node], {"x": ("float32", data), **given}, ["y"])
    first = relaxc.compile(embedded, threads=1, progress=False)(x)
    second = relaxc.compile(arguments, threads=1, progress=False)(x=x, **known)
    np.testing.assert_array_equal(np.asarray(second), np.asarray(first))
    (expected,) = run_reference(embedded, {"x": x})
    np.testing.assert_allclose(np.asarray(first), expected, rtol=1e-4, atol=1e-4)


def test_a_weight_behind_a_linear_resampling_agrees_within_rounding() -> None:
    """The bits differ here: a known weight of one pixel is applied before the image grows."""
    rng = np.random.default_rng(2)
    x, w = (rng.standard_normal(shape).astype("float32") for shape in ((1, 8, 6, 7), (8, 8, 1, 1)))
    nodes = [
        helper.make_node("Resize", ["x", "", "scales"], ["larger"], mode="linear"),
        helper.make_node("Conv", ["larger", "w"], ["y"]),
    ]
    image, scales = {"x": ("float32", x.shape)}, {"scales": np.array([1, 1, 2, 2], "float32")}
    embedded = make_model(nodes, image, ["y"], {**scales, "w": w})
    arguments = make_model(nodes, {**image, "w": ("float32", w.shape)}, ["y"], scales)
    first = np.asarray(relaxc.compile(embedded, threads=1, progress=False)(x))
    second = np.asarray(relaxc.compile(arguments, threads=1, progress=False)(x=x, w=w))
    np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-5)
    (expected,) = run_reference(embedded, {"x": x})
    np.testing.assert_allclose(first, expected, rtol=1e-4, atol=1e-4)


def test_a_network_with_weights_as_arguments_gives_the_same_bits() -> None:
    """Convolutions, a residual, pooling and a classifier: fusion and layout are the same, too."""
    rng = np.random.default_rng(1)
    shapes = {"w0": (16, 3, 3, 3), "b0": (16,), "w1": (16, 16, 3, 3), "w2": (8, 16, 1, 1),
              "w3": (10, 8), "b3": (10,)}  # fmt: skip
    known = {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], strides=[2, 2], **SAME),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], **SAME),
        helper.make_node("Add", ["c1", "r0"], ["sum"]),
        helper.make_node("MaxPool", ["sum"], ["pool"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["pool", "w2"], ["c2"]),
        helper.make_node("GlobalAveragePool", ["c2"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w3", "b3"], ["y"], transB=1),
    ]
    x = rng.standard_normal((1, 3, 32, 32)).astype("float32")
    image = {"x": ("float32", x.shape)}
    given = {name: ("float32", array.shape) for name, array in known.items()}
    embedded = relaxc.compile(make_model(nodes, image, ["y"], known), threads=1, progress=False)
    arguments = relaxc.compile(
        make_model(nodes, {**image, **given}, ["y"]), threads=1, progress=False
    )
    np.testing.assert_array_equal(np.asarray(arguments(x=x, **known)), np.asarray(embedded(x)))
