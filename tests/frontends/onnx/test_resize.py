"""Resize: the modes of the specification, static and symbolic sizes (O2, O4)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from tests.frontends.onnx.run_model import assert_like_reference, make_model, run_imported

RNG = np.random.default_rng(3)


def _check(
    x: np.ndarray, sizes: list[int], shape: list[Any] | None = None, **attributes: Any
) -> None:
    model = make_model(
        [helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **attributes)],
        {"x": ("float32", shape or x.shape)},
        ["y"],
        {"sizes": np.asarray(sizes, "int64")},
        opset=19,
    )
    (want,) = ReferenceEvaluator(model).run(None, {"x": x})
    (got,) = run_imported(model, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_nearest_half_pixel_prefers_floor() -> None:
    x = np.arange(3, dtype="float32").reshape(1, 1, 3, 1)
    model = make_model(
        [helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="nearest")],
        {"x": ("float32", x.shape)},
        ["y"],
        {"scales": np.asarray([1, 1, 1.5, 1], "float32")},
    )
    (result,) = run_imported(model, {"x": x})
    np.testing.assert_array_equal(result.reshape(-1), [0, 0, 1, 2])


@pytest.mark.parametrize(
    "coordinates", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("symbolic", [False, True])
def test_modes(mode: str, coordinates: str, symbolic: bool) -> None:
    x = RNG.standard_normal((1, 2, 5, 6)).astype("float32")
    shape = [1, 2, "h", "w"] if symbolic else None
    _check(x, [1, 2, 8, 9], shape, mode=mode, coordinate_transformation_mode=coordinates)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialias(mode: str) -> None:
    x = RNG.standard_normal((1, 1, 9, 8)).astype("float32")
    _check(x, [1, 1, 4, 3], mode=mode, antialias=1)


def test_axes() -> None:
    x = RNG.standard_normal((1, 2, 5, 6)).astype("float32")
    _check(x, [3, 9], mode="linear", axes=[2, 3])


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_aspect_ratio(policy: str) -> None:
    x = RNG.standard_normal((1, 1, 4, 6)).astype("float32")
    _check(x, [7, 8], mode="linear", axes=[2, 3], keep_aspect_ratio_policy=policy)


def test_integer_scale_of_symbolic_size_keeps_the_relation() -> None:
    from frontends.onnx import import_onnx

    model = make_model(
        [
            helper.make_node(
                "Resize", ["x", "", "scales"], ["y"], mode="nearest", nearest_mode="floor",
                coordinate_transformation_mode="asymmetric",
            )
        ],
        {"x": ("float32", [1, 2, "h", "w"])},
        ["y"],
        {"scales": np.asarray([1, 1, 2, 2], "float32")},
    )  # fmt: skip
    assert import_onnx(model).outputs[0].shape == (1, 2, "h * 2", "w * 2")
    x = RNG.standard_normal((1, 2, 3, 4)).astype("float32")
    (result,) = run_imported(model, {"x": x})
    np.testing.assert_array_equal(result, x.repeat(2, 2).repeat(2, 3))


@pytest.mark.parametrize("symbolic", [False, True])
def test_integers_are_rounded_once_and_not_after_each_axis(symbolic: bool) -> None:
    x = RNG.integers(0, 255, (1, 1, 6, 5)).astype("uint8")
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")
    model = make_model(
        [node],
        {"x": ("uint8", [1, 1, "h", "w"] if symbolic else x.shape)},
        ["y"],
        {"scales": np.asarray([1, 1, 2, 4], "float32")},
        output_types={"y": TensorProto.UINT8},
    )
    assert_like_reference(model, {"x": x}, tolerance=0)
