"""Integer products and QLinear operators against ONNX Runtime (O14)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from tests.frontends.onnx.quantized_models import check, run_compiled, single_node
from tests.frontends.onnx.run_model import run_reference

RNG = np.random.default_rng(3)
MICROSOFT = "com.microsoft"
KINDS = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8}
FLOAT = TensorProto.FLOAT


def codes(dtype: str, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def weights(dtype: str, *shape: int) -> np.ndarray:
    """Return codes of 7 bits: ONNX Runtime's AVX2 kernels saturate pairs of longer products."""
    return RNG.integers(-64, 64, shape).astype(dtype) if dtype == "int8" else codes(dtype, *shape)


def scales(*shape: int, size: float = 0.05) -> np.ndarray:
    return np.asarray((RNG.random(shape) + 0.5) * size, "float32")


def scale(value: float) -> np.ndarray:
    return np.array(value, "float32")


def zero(dtype: str, value: int) -> np.ndarray:
    return np.array(value, dtype)


@pytest.mark.parametrize(
    ("left", "right"), [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")]
)
@pytest.mark.parametrize("constant", [(), (1, 3)])
def test_matmul_integer(left: str, right: str, constant: tuple[int, ...]) -> None:
    """Zero points are one number or one a column."""
    inputs = [codes(left, 5, 300), weights(right, 300, 7), zero(left, 11), weights(right, 7)]
    check("MatMulInteger", inputs, [TensorProto.INT32], constant=constant, version=10)


def test_matmul_integer_without_zero_points_and_batched() -> None:
    inputs: list[Any] = [codes("uint8", 2, 3, 4, 9), weights("int8", 3, 9, 6)]
    check("MatMulInteger", inputs, [TensorProto.INT32], version=10)


def test_sums_of_the_greatest_products_are_exact() -> None:
    """No intermediate saturates at 16 bits, whatever the signs of the operands."""
    a, b = np.full((2, 4000), 255, "uint8"), np.full((4000, 3), -128, "int8")
    model, feeds = single_node("MatMulInteger", [a, b], [TensorProto.INT32], version=10)
    (result,) = run_compiled(model, feeds)
    np.testing.assert_array_equal(result, a.astype("int32") @ b.astype("int32"))


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("per_column", [False, True])
def test_qlinear_matmul(kind: str, per_column: bool) -> None:
    shape = (6,) if per_column else ()
    inputs = [
        codes(kind, 2, 5, 40), scale(0.03), zero(kind, 3),
        weights(kind, 40, 6), scales(*shape, size=0.02), weights(kind, *shape),
        scale(0.11), zero(kind, 7),
    ]  # fmt: skip
    places = (3, 4, 5) if per_column else ()
    check("QLinearMatMul", inputs, [KINDS[kind]], constant=places, off_by_one=0.02)


CONVOLUTIONS = [
    ((1, 6, 9, 8), (4, 6, 3, 3), {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
    ((2, 8, 7, 7), (8, 1, 3, 3), {"group": 8, "pads": [1, 1, 1, 1]}),
    ((1, 4, 10, 9), (6, 2, 3, 2), {"group": 2, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((1, 3, 12), (5, 3, 4), {"dilations": [2], "auto_pad": "VALID"}),
]


@pytest.mark.parametrize(("data", "weight", "options"), CONVOLUTIONS)
def test_qlinear_conv(data: tuple[int, ...], weight: tuple[int, ...], options: Any) -> None:
    """Padding is the zero point; scales and the bias are by output channel."""
    channels = weight[0]
    inputs = [
        codes("uint8", *data), scale(0.03), zero("uint8", 120),
        weights("int8", *weight), scales(channels, size=0.01), np.zeros(channels, "int8"),
        scale(0.21), zero("uint8", 100), RNG.integers(-3000, 3000, channels).astype("int32"),
    ]  # fmt: skip
    check(
        "QLinearConv", inputs, [TensorProto.UINT8], constant=(3, 4, 5, 8), off_by_one=0.02,
        version=17, **options,
    )  # fmt: skip


def test_qlinear_conv_with_every_input_at_run_time() -> None:
    inputs = [
        codes("int8", 1, 3, 6, 6), scale(0.03), zero("int8", -5),
        codes("int8", 4, 3, 3, 3), scale(0.02), zero("int8", 9), scale(0.4), zero("int8", -17),
    ]  # fmt: skip
    check("QLinearConv", inputs, [TensorProto.INT8], off_by_one=0.02, version=17)


@pytest.mark.parametrize(("data", "weight", "options"), CONVOLUTIONS[:3])
def test_conv_integer(data: tuple[int, ...], weight: tuple[int, ...], options: Any) -> None:
    inputs = [codes("uint8", *data), codes("uint8", *weight), zero("uint8", 7), zero("uint8", 200)]
    check("ConvInteger", inputs, [TensorProto.INT32], version=10, **options)


def test_automatic_padding_of_symbolic_sizes() -> None:
    inputs = [codes("uint8", 1, 3, 7, 6), codes("uint8", 4, 3, 3, 3), zero("uint8", 7)]
    model, feeds = single_node(
        "ConvInteger", inputs, [TensorProto.INT32], version=10, constant=(1, 2),
        auto_pad="SAME_UPPER", strides=[2, 2],
    )  # fmt: skip
    for axis, name in ((2, "h"), (3, "w")):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    for got, want in zip(run_compiled(model, feeds), run_reference(model, feeds), strict=True):
        np.testing.assert_array_equal(got, want)


def test_conv_channels_last() -> None:
    inputs = [
        codes("uint8", 1, 7, 6, 3), scale(0.03), zero("uint8", 12),
        codes("uint8", 4, 3, 3, 3), scale(0.02), zero("uint8", 131), scale(0.3), zero("uint8", 128),
    ]  # fmt: skip
    check(
        "QLinearConv", inputs, [TensorProto.UINT8], domain=MICROSOFT, off_by_one=0.02,
        channels_last=1, pads=[1, 1, 1, 1], constant=(3, 4, 5),
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_binary(op: str, kind: str) -> None:
    inputs = [
        codes(kind, 4, 1, 33), scale(0.04), zero(kind, 5), codes(kind, 6, 33), scale(0.07),
        zero(kind, 90), scale(0.11 if op == "QLinearAdd" else 0.6), zero(kind, 64),
    ]  # fmt: skip
    check(op, inputs, [KINDS[kind]], domain=MICROSOFT, off_by_one=0.02)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("op", "y_scale", "shape", "options"),
    [
        ("QLinearSigmoid", 1 / 256, (5, 61), {}),
        ("QLinearLeakyRelu", 0.05, (5, 61), {"alpha": 0.2}),
        ("QLinearSoftmax", 1 / 256, (3, 5, 20), {"axis": 1, "opset": 13}),
        ("QLinearSoftmax", 1 / 256, (3, 5, 20), {"axis": 1, "opset": 12}),
        ("QLinearGlobalAveragePool", 0.02, (2, 3, 5, 7), {"channels_last": 0}),
        ("QLinearGlobalAveragePool", 0.02, (2, 5, 7, 3), {"channels_last": 1}),
        (
            "QLinearAveragePool", 0.03, (1, 3, 9, 8),
            {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 0},
        ),
        (
            "QLinearAveragePool", 0.03, (1, 9, 8, 3),
            {"kernel_shape": [2, 2], "channels_last": 1, "count_include_pad": 1,
             "pads": [1, 0, 0, 1]},
        ),
    ],
)  # fmt: skip
def test_unary(op: str, y_scale: float, shape: tuple[int, ...], options: Any, kind: str) -> None:
    inputs = [codes(kind, *shape), scale(0.05), zero(kind, 9), scale(y_scale), zero(kind, 2)]
    check(
        op, inputs, [KINDS[kind]], domain=MICROSOFT, off_by_one=0.02, constant=(1, 2, 3, 4),
        **options,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_average_pool_rounds_ties_as_onnx_runtime_does(kind: str) -> None:
    """The mean of four codes is a tie in one case of four; zero points of either parity."""
    inputs = [codes(kind, 1, 8, 33, 33), scale(0.05), zero(kind, 9), scale(0.05), zero(kind, 3)]
    options: dict[str, Any] = {"kernel_shape": [2, 2], "constant": (1, 2, 3, 4), "off_by_one": 0}
    check("QLinearAveragePool", inputs, [KINDS[kind]], domain=MICROSOFT, **options)


def test_concat_where_and_reduce_mean() -> None:
    parts = [
        scale(0.05), zero("uint8", 4), codes("uint8", 2, 3), scale(0.03), zero("uint8", 1),
        codes("uint8", 2, 5), scale(0.08), zero("uint8", 99),
    ]  # fmt: skip
    check("QLinearConcat", parts, [TensorProto.UINT8], domain=MICROSOFT, axis=-1, off_by_one=0.05)
    choice = [
        RNG.random((4, 1)) > 0.5, codes("int8", 4, 6), scale(0.05), zero("int8", 4),
        codes("int8", 6), scale(0.03), zero("int8", -9), scale(0.04), zero("int8", 2),
    ]  # fmt: skip
    constant = (2, 3, 5, 6, 7, 8)
    check(
        "QLinearWhere", choice, [TensorProto.INT8], domain=MICROSOFT, off_by_one=0.05,
        constant=constant,
    )  # fmt: skip


def test_max_pool_channels_last() -> None:
    check(
        "NhwcMaxPool", [codes("int8", 1, 7, 8, 5)], [TensorProto.INT8], domain=MICROSOFT,
        kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1],
    )  # fmt: skip


@pytest.mark.parametrize("bias", [False, True])
def test_products_that_become_floats(bias: bool) -> None:
    weight, b_scale, b_zero = weights("int8", 24, 6), scales(6), np.zeros(6, "int8")
    addend = RNG.standard_normal(6).astype("float32") if bias else None
    inputs = [
        codes("uint8", 3, 24), weight, scale(0.02), b_scale, zero("uint8", 9), b_zero, addend,
    ]  # fmt: skip
    check("MatMulIntegerToFloat", inputs, [FLOAT], domain=MICROSOFT, constant=(1, 3, 5))
    floats = RNG.standard_normal((2, 3, 24)).astype("float32")
    check(
        "DynamicQuantizeMatMul", [floats, weight, b_scale, b_zero, addend], [FLOAT],
        domain=MICROSOFT, constant=(1, 2, 3), tolerance=2e-2,
    )  # fmt: skip


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("transposed", [0, 1])
def test_qgemm(quantized: bool, transposed: int) -> None:
    a, b = codes("uint8", 5, 30), weights("int8", 30, 4)
    inputs = [
        a.T.copy() if transposed else a, scale(0.03), zero("uint8", 100),
        b.T.copy() if transposed else b, scales(4), np.zeros(4, "int8"),
        RNG.integers(-900, 900, 4).astype("int32"),
        *([scale(0.5), zero("uint8", 128)] if quantized else []),
    ]  # fmt: skip
    kind = TensorProto.UINT8 if quantized else FLOAT
    check(
        "QGemm", inputs, [kind], domain=MICROSOFT, transA=transposed, transB=transposed, alpha=0.7,
        off_by_one=0.05, constant=(3, 4, 5, 6), tolerance=1e-4,
    )  # fmt: skip
