"""com.microsoft operators on whole tensors against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from frontends.errors import UnsupportedOperator
from frontends.onnx import import_onnx
from tests.frontends.onnx.run_model import assert_like_reference, run_imported
from tests.frontends.onnx.test_microsoft_attention import _model

RNG = np.random.default_rng(3)


def _floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def _check(
    op: str, inputs: list[Any], fixed: tuple[int, ...] = (), kind: int = 1, **attrs: Any
) -> None:
    model, given = _model(op, inputs, fixed=fixed, **attrs)
    model.graph.output[0].type.tensor_type.elem_type = kind
    assert_like_reference(model, given, tolerance=2e-5)


def _run(op: str, inputs: list[Any], fixed: tuple[int, ...] = (), **attrs: Any) -> np.ndarray:
    model, given = _model(op, inputs, fixed=fixed, **attrs)
    return run_imported(model, given)[0]


def test_inverse() -> None:
    x = _floats(3, 4, 4) + 2 * np.eye(4, dtype="float32")
    x[0] = np.roll(x[0], 1, axis=0)  # needs pivots
    np.testing.assert_allclose(_run("Inverse", [x]), np.linalg.inv(x), rtol=1e-4, atol=1e-4)


def test_real_transform_and_back() -> None:
    x = _floats(2, 10)
    spectrum = np.fft.rfft(x)
    pairs = np.stack([spectrum.real, spectrum.imag], -1).astype("float32")
    options = {"signal_ndim": 1, "normalized": 0, "onesided": 1}
    np.testing.assert_allclose(_run("Rfft", [x], **options), pairs, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(_run("Irfft", [pairs], **options), x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_crop_and_resize(mode: str) -> None:
    boxes = np.asarray([[0.1, 0.2, 0.7, 0.9], [0.9, 0.3, -0.4, 1.2], [0, 0, 1, 1]], "float32")
    images = np.asarray([1, 0, 1], "int32")
    for size in ([3, 4], [1, 1]):
        _check(
            "CropAndResize", [_floats(2, 3, 5, 6), boxes, images, np.asarray(size, "int32")], (3,),
            mode=mode, extrapolation_value=7.0,
        )  # fmt: skip


def test_pad() -> None:
    pads = np.asarray([0, 1, 1, 0], "int64")
    _check("Pad", [_floats(2, 3), pads, np.asarray([0.5], "float32")], (1, 2), mode="constant")
    _check("Pad", [_floats(2, 3), pads], (1,), mode="reflect")


def test_trilu_and_expand_dims() -> None:
    _check("Trilu", [_floats(3, 4), np.asarray(1, "int64")], (1,), upper=0)
    _check("ExpandDims", [_floats(3, 4), np.asarray(-1, "int32")], (1,))


def test_range() -> None:
    start, limit, step = (np.asarray(value, "float32") for value in (1.0, 6.0, 2.0))
    _check("Range", [start, limit, step], (0, 1, 2))
    _check("Range", [start, limit], (0, 1))


def test_conv_transpose_with_dynamic_pads() -> None:
    pads = np.asarray([1, 0, 0, 1], "int64")
    _check(
        "ConvTransposeWithDynamicPads", [_floats(1, 2, 4, 4), _floats(2, 3, 3, 3), pads], (1, 2),
        strides=[2, 2], kernel_shape=[3, 3],
    )  # fmt: skip


def test_nhwc_conv_is_a_convolution_of_transposed_data() -> None:
    x, w = _floats(1, 5, 6, 2), _floats(3, 3, 2, 2)
    got = _run("NhwcConv", [x, w], (1,), kernel_shape=[3, 2], pads=[1, 0, 1, 0])
    padded = np.pad(x, [(0, 0), (1, 1), (0, 0), (0, 0)])
    expected = np.zeros((1, 5, 5, 3), "float32")
    for i in range(5):
        for j in range(5):
            expected[0, i, j] = np.einsum("hwc,ohwc->o", padded[0, i : i + 3, j : j + 2], w)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_complex_product() -> None:
    a, b = _floats(3, 4, 2), _floats(3, 4, 2)
    left, right = a[..., 0] + 1j * a[..., 1], b[..., 0] + 1j * b[..., 1]
    for op, expected in (("ComplexMul", left * right), ("ComplexMulConj", left * right.conj())):
        got = _run(op, [a, b])
        np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_pairwise_distance(metric: str) -> None:
    _check("CDist", [_floats(3, 4), _floats(5, 4)], metric=metric)


@pytest.mark.parametrize("both", [0, 1])
def test_relative_position_bias(both: int) -> None:
    table = _floats(8, 2)
    length = np.asarray(12, "int64")
    got = _run(
        "RelativePositionBias", [table, length, length], (1, 2), is_bidirectional=both,
        max_distance=16,
    )  # fmt: skip
    assert got.shape == (1, 2, 12, 12)
    # Neighbours are told apart, far keys share a bucket.
    np.testing.assert_array_equal(got[0, :, 5, 5], table[0])
    np.testing.assert_array_equal(got[0, :, 5, 4], table[1])
    np.testing.assert_array_equal(got[0, :, 3, 4], table[5] if both else table[0])


def test_grid_sample() -> None:
    grid = RNG.uniform(-1.2, 1.2, (1, 4, 5, 2)).astype("float32")
    _check("GridSample", [_floats(1, 2, 6, 7), grid], mode="bilinear", align_corners=1)


def test_bias_operators() -> None:
    data, added = _floats(2, 3, 4), _floats(1, 3, 4)
    shares = np.exp(data + added)
    expected = shares / shares.sum((1, 2), keepdims=True)
    got = _run("BiasSoftmax", [data, added], axis=1, is_inner_broadcast=0)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    x, bias, skip = _floats(2, 3, 4), _floats(4), _floats(2, 3, 4)
    np.testing.assert_allclose(_run("BiasAdd", [x, bias, skip]), x + bias + skip, rtol=1e-5)
    half = _run("BiasSplitGelu", [_floats(2, 3, 8), _floats(8)])
    assert half.shape == (2, 3, 4)


def test_embed_layer_normalization() -> None:
    ids = np.asarray([[1, 4, 2], [0, 3, 3]], "int32")
    segments = np.asarray([[0, 0, 1], [1, 0, 1]], "int32")
    mask = np.asarray([[1, 1, 0], [1, 1, 1]], "int32")
    model, given = _model(
        "EmbedLayerNormalization",
        [ids, segments, _floats(6, 8), _floats(5, 8), _floats(2, 8), _floats(8), _floats(8), mask],
        ("y", "ends"), (2, 3, 4, 5, 6), epsilon=1e-6,
    )  # fmt: skip
    model.graph.output[1].type.tensor_type.elem_type = TensorProto.INT32
    assert_like_reference(model, given, tolerance=2e-5)


@pytest.mark.parametrize("op", ["MurmurHash3", "BifurcationDetector"])
def test_operators_on_text_are_refused(op: str) -> None:
    ids = np.asarray([1], "int64")
    model, _ = _model(op, [ids, ids, ids][: 1 if op == "MurmurHash3" else 3])
    with pytest.raises(UnsupportedOperator):
        import_onnx(model)
