"""Cast to and from every element type, bit for bit, on every interesting value."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.numpy_helper import saturate_cast
from onnx.reference import ReferenceEvaluator

import relaxc
from frontends.errors import UnsupportedOperator
from frontends.onnx import import_onnx
from tests.frontends.onnx.quantized_models import run_compiled, single_node
from tests.frontends.onnx.run_model import make_model

RNG = np.random.default_rng(23)
NARROW = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn"]


def numpy_type(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def kind_of(name: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(numpy_type(name)))


def cast(x: np.ndarray, to: str, **options: Any) -> np.ndarray:
    model, feeds = single_node("Cast", [x], [kind_of(to)], version=25, to=kind_of(to), **options)
    (result,) = run_compiled(model, feeds)
    assert (result.dtype, result.shape) == (numpy_type(to), x.shape)
    return result


def assert_same_bits(got: np.ndarray, expected: np.ndarray, x: np.ndarray) -> None:
    nan = np.isnan(expected.astype("float32"))
    np.testing.assert_array_equal(np.isnan(got.astype("float32")), nan)
    wrong = (got.view("uint8") != expected.view("uint8")) & ~nan
    assert not wrong.any(), (x[wrong][:5], got[wrong][:5], expected[wrong][:5])


@pytest.mark.parametrize("target", NARROW)
@pytest.mark.parametrize("saturate", [0, 1])
def test_every_half_precision_number(target: str, saturate: int) -> None:
    """All 65,536 float16 bit patterns: ties, denormals, both zeros, infinities, overflow."""
    x = np.arange(65536, dtype="uint16").view("float16")
    with np.errstate(all="ignore"):
        wide = x.astype("float32")
        saturates = saturate and target.startswith("float8")
        expected = saturate_cast(wide, numpy_type(target)) if saturates else wide.astype(
            numpy_type(target)
        )  # fmt: skip
    assert_same_bits(cast(x, target, saturate=saturate), expected, x)


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("target", NARROW)
def test_wider_numbers_round_once(source: str, target: str) -> None:
    """Next to each tie are numbers that a first rounding to fewer bits would move onto it."""
    kind = numpy_type(target)
    values = np.arange(2 ** ml_dtypes.finfo(kind).bits, dtype="uint8").view(kind).astype("float64")
    values = np.unique(values[np.isfinite(values)])
    low, high = values[:-1], values[1:]
    ties = ((low + high) / 2).astype(source)
    even = ties.astype("float32").astype(kind).astype("float64")
    x = np.concatenate([values, ties, np.nextafter(ties, np.inf), np.nextafter(ties, -np.inf)])
    expected = np.concatenate([values, even, high, low])
    result = cast(x.astype(source), target, saturate=0).astype("float64")
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("source", [*NARROW, "float8_e8m0fnu", "int4", "uint4", "int2", "uint2"])
@pytest.mark.parametrize("target", ["float32", "float16", "bfloat16"])
def test_every_narrow_number_widens(source: str, target: str) -> None:
    kind = numpy_type(source)
    bits = (ml_dtypes.finfo if source.startswith("float") else ml_dtypes.iinfo)(kind).bits
    codes = np.arange(2**bits, dtype="uint8")
    x = codes.view(kind) if source.startswith("float") else codes.astype("int8").astype(kind)
    with np.errstate(all="ignore"):
        expected = x.astype(numpy_type(target))
    np.testing.assert_array_equal(cast(x, target).astype("float64"), expected.astype("float64"))


@pytest.mark.parametrize("source", ["int8", "uint8", "int64", "bool", "float32", "bfloat16"])
@pytest.mark.parametrize("target", ["int4", "uint4", "int2", "uint2"])
def test_higher_bits_are_dropped(source: str, target: str) -> None:
    x = np.arange(-128, 128)
    x = x.astype("float32").astype(numpy_type(source)) if "float" in source else x.astype(source)
    expected = x.astype("float32").astype("int64").astype(numpy_type(target))
    np.testing.assert_array_equal(cast(x, target).astype("int8"), expected.astype("int8"))


@pytest.mark.parametrize("target", ["int4", "uint4"])
def test_fractions_are_cut_off(target: str) -> None:
    """As in the casts to wider integers, and in onnx's reference; ONNX Runtime rounds these."""
    x = np.array([0.4, 0.5, 1.5, 2.5, 2.7, -0.6, -1.5, -2.7, 6.9, 7.5, -7.6, 15.6, 17.3], "float32")
    model, feeds = single_node("Cast", [x], [kind_of(target)], version=21, to=kind_of(target))
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_array_equal(cast(x, target).astype("int8"), expected.astype("int8"))


@pytest.mark.parametrize("target", ["int32", "uint8", "bool", "float8_e5m2", "int4"])
def test_float8_to_other_kinds(target: str) -> None:
    x = np.array([0.0, 0.5, 1.0, 6.0, 0.25, 7.0], ml_dtypes.float8_e4m3fn)
    expected = x.astype("float32").astype(numpy_type(target))
    np.testing.assert_array_equal(cast(x, target).astype("float32"), expected.astype("float32"))


SCALES = [
    0.0, 2.0**-149, 2.0**-127, 1.5 * 2.0**-127, 1.75 * 2.0**-127, 2.0**-126, 0.124, 0.25, 0.3,
    0.375, 1.0, 1.1, 1.5, 1.9, 3.0, 2.0**127, 1.5 * 2.0**127, np.inf, np.nan,
]  # fmt: skip


@pytest.mark.parametrize("rounding", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_powers_of_two(rounding: str, saturate: int) -> None:
    """float8_e8m0fnu: the exponent alone, rounded as asked for; the table of Cast beyond it."""

    def exponent(value: float) -> int:
        if np.isnan(value):
            return 255
        if value < 2.0**-127 or np.isinf(value):
            return (254 if np.isinf(value) else 0) if saturate else 255
        low = int(np.floor(np.log2(np.float64(value))))
        ratio = value / 2.0**low
        more = {"up": ratio > 1, "down": False, "nearest": ratio >= 1.5}[rounding]
        code = low + 127 + int(more)
        return min(code, 254) if saturate else code

    x = np.array(SCALES, "float32")
    result = cast(x, "float8_e8m0fnu", saturate=saturate, round_mode=rounding)
    assert result.view("uint8").tolist() == [exponent(float(value)) for value in x]


def test_cast_like_takes_the_type_of_a_stored_tensor() -> None:
    x = np.array([0.3, 500.0, -1.0], "float32")
    like = np.zeros(1, ml_dtypes.float8_e4m3fn)
    model, feeds = single_node("CastLike", [x, like], [TensorProto.FLOAT8E4M3FN], version=21)
    (result,) = run_compiled(model, feeds)
    assert_same_bits(result, saturate_cast(x, like.dtype), x)


def test_stored_elements_move_without_a_computation() -> None:
    """Transpose and Reshape work on the container; inputs and outputs keep the type."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("Reshape", ["t", "shape"], ["y"]),
    ]
    for name in ("float8_e5m2", "int4"):
        x = (RNG.standard_normal((2, 3)) * 3).astype("float32").astype(numpy_type(name))
        model = make_model(
            nodes, {"x": (x.dtype, x.shape)}, ["y"], {"shape": np.array([2, -1])}, opset=21,
            output_types={"y": kind_of(name)},
        )  # fmt: skip
        (result,) = run_compiled(model, {"x": x})
        expected = x.T.reshape(2, -1)
        assert result.dtype == x.dtype
        np.testing.assert_array_equal(result.astype("float32"), expected.astype("float32"))


def test_computing_on_stored_elements_is_refused() -> None:
    """An operator without a schema that forbids the type must not compute on its bytes."""
    x = np.zeros((2, 2), ml_dtypes.float8_e4m3fn)
    kind = kind_of("float8_e4m3fn")
    model, _ = single_node("QuickGelu", [x], [kind], domain="com.microsoft")
    with pytest.raises(UnsupportedOperator, match="float8_e4m3fn"):
        import_onnx(model)


@pytest.mark.parametrize("source", ["float16", "float32", "float64"])
def test_only_zero_is_false(source: str) -> None:
    x = np.asarray([np.nan, 0.0, -0.0, 1e-7, -2.0, np.inf, -np.inf], source)
    model = make_model(
        [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.BOOL)],
        {"x": (source, x.shape)},
        ["y"],
        output_types={"y": TensorProto.BOOL},
    )
    compiled = relaxc.compile(model, threads=1, progress=False)
    np.testing.assert_array_equal(compiled(x), x.astype("bool"))
