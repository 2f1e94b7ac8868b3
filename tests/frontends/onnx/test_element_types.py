"""Ordinary operators in float16, bfloat16 and float64, against float64 at the type's precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from tests.frontends.onnx.quantized_models import run_compiled, single_node

RNG = np.random.default_rng(29)
PRECISION = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": 2.0**-40}


def numbers(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def positive(*shape: int) -> np.ndarray:
    return np.abs(RNG.standard_normal(shape)) + 0.3


# Inputs, attributes, and the places of the inputs that are initializers.
CASES: dict[str, tuple[list[np.ndarray], dict[str, Any], tuple[int, ...]]] = {
    "Conv": ([numbers(1, 8, 9, 9), numbers(16, 8, 3, 3), numbers(16)], {"pads": [1] * 4}, (1, 2)),
    "MatMul": ([numbers(5, 700), numbers(700, 6)], {}, (1,)),
    "Gemm": ([numbers(5, 33), numbers(20, 33), numbers(20)], {"transB": 1}, (1, 2)),
    "Softmax": ([numbers(5, 50) * 3], {}, ()),
    "LayerNormalization": ([numbers(4, 40), numbers(40), numbers(40)], {}, (1, 2)),
    "BatchNormalization": (
        [numbers(2, 4, 3, 3), numbers(4), numbers(4), numbers(4), positive(4)], {}, (1, 2, 3, 4),
    ),
    "Pow": ([positive(300), numbers(300)], {}, ()),
    "Sinh": ([numbers(300)], {}, ()),
    "Acosh": ([positive(300) + 1], {}, ()),
    "Sign": ([numbers(30)], {}, ()),
    "Relu": ([numbers(30)], {}, ()),
    "Max": ([numbers(30), numbers(30)], {}, ()),
    "Mish": ([numbers(300)], {}, ()),
    "MaxPool": ([numbers(1, 3, 8, 8)], {"kernel_shape": [3, 3], "pads": [1] * 4}, ()),
    "AveragePool": ([numbers(1, 3, 8, 8)], {"kernel_shape": [3, 3]}, ()),
    "ReduceSum": ([numbers(4, 2000)], {}, ()),
    "ReduceLogSumExp": ([numbers(4, 60)], {}, ()),
    "ReduceMax": ([numbers(4, 60)], {}, ()),
}  # fmt: skip


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("op", CASES)
def test_operator(op: str, dtype: str) -> None:
    """Sums of half precision are taken in float32: their error does not grow with their length."""
    inputs, attributes, constant = CASES[op]
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    arrays = [array.astype(kind) for array in inputs]
    element = helper.np_dtype_to_tensor_dtype(kind)
    model, feeds = single_node(op, arrays, [element], constant=constant, version=23, **attributes)
    (got,) = run_compiled(model, feeds)
    wide = [array.astype("float64") for array in arrays]
    exact, fed = single_node(
        op, wide, [helper.np_dtype_to_tensor_dtype(np.dtype("float64"))], constant=constant,
        version=23, **attributes,
    )  # fmt: skip
    (expected,) = ReferenceEvaluator(exact).run(None, fed)
    assert (got.dtype, got.shape) == (kind, expected.shape)
    scale = np.abs(expected) + 0.1 * np.abs(expected).max()
    assert (np.abs(got.astype("float64") - expected) <= 2 * PRECISION[dtype] * scale).all()


def test_group_normalization_in_bfloat16() -> None:
    arrays = [numbers(2, 4, 3, 3), numbers(4), numbers(4)]
    narrow = [array.astype(ml_dtypes.bfloat16) for array in arrays]
    model, feeds = single_node(
        "GroupNormalization", narrow, [TensorProto.BFLOAT16], version=23, num_groups=2
    )
    (got,) = run_compiled(model, feeds)
    x, scale, bias = (array.astype("float64") for array in narrow)
    groups = x.reshape(2, 2, -1)
    mean, deviation = groups.mean(-1, keepdims=True), groups.std(-1, keepdims=True)
    normal = ((groups - mean) / deviation).reshape(x.shape)
    expected = normal * scale[:, None, None] + bias[:, None, None]
    assert got.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(got.astype("float64"), expected, rtol=0.01, atol=0.02)


@pytest.mark.parametrize(
    ("op", "function"),
    [("Erf", math.erf), ("Gelu", lambda v: v / 2 * (1 + math.erf(v / math.sqrt(2))))],
)
def test_erf_has_the_accuracy_of_double_precision(
    op: str, function: Callable[[float], float]
) -> None:
    """onnx's reference computes erf in float32, so the C library is the judge."""
    x = np.linspace(-4, 4, 101)
    model, feeds = single_node(op, [x], [helper.np_dtype_to_tensor_dtype(x.dtype)], version=20)
    expected = [function(float(value)) for value in x]
    np.testing.assert_allclose(run_compiled(model, feeds)[0], expected, rtol=1e-14, atol=1e-15)
