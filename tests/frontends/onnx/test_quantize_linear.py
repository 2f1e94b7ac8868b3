"""QuantizeLinear and DequantizeLinear against onnx's reference, for every type and granularity."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import relaxc
from frontends.errors import InvalidModel
from frontends.onnx import import_onnx
from tests.frontends.onnx.quantized_models import run_compiled, single_node
from tests.frontends.onnx.run_model import run_reference

RNG = np.random.default_rng(19)
INTEGERS = {
    "int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "int16": TensorProto.INT16,
    "uint16": TensorProto.UINT16, "int4": TensorProto.INT4, "uint4": TensorProto.UINT4,
    "int2": TensorProto.INT2, "uint2": TensorProto.UINT2,
}  # fmt: skip
FLOATS = {
    "float8_e4m3fn": TensorProto.FLOAT8E4M3FN, "float8_e5m2": TensorProto.FLOAT8E5M2,
    "float8_e4m3fnuz": TensorProto.FLOAT8E4M3FNUZ, "float8_e5m2fnuz": TensorProto.FLOAT8E5M2FNUZ,
    "float4_e2m1fn": TensorProto.FLOAT4E2M1,
}  # fmt: skip
# Shape of scale and zero point over data of [3, 7, 4], and the attributes that say so.
GRANULARITIES: dict[str, tuple[tuple[int, ...], dict[str, int]]] = {
    "tensor": ((), {}),
    "axis": ((7,), {}),
    "last axis": ((4,), {"axis": -1}),
    "block": ((3, 3, 4), {"axis": 1, "block_size": 3}),
}


def numpy_type(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def codes(name: str, shape: tuple[int, ...]) -> np.ndarray:
    info = ml_dtypes.iinfo(numpy_type(name))
    return RNG.integers(int(info.min), int(info.max) + 1, shape).astype(numpy_type(name))


def scales(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    return np.asarray(RNG.random(shape) + 0.25).astype(numpy_type(dtype))


def check(op: str, inputs: list[np.ndarray], kind: int, version: int = 25, **options: Any) -> None:
    """Assert that a node with all inputs at run time gives the reference's elements."""
    model, feeds = single_node(op, inputs, [kind], version=version, **options)
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    (got,) = run_compiled(model, feeds)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(got.astype("float64"), expected.astype("float64"))


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("target", ["uint8", "int8", "int16", "uint4"])
def test_quantize_to_integers(target: str, granularity: str) -> None:
    """Halves round to even before the zero point is added; what is beyond the range saturates."""
    shape, options = GRANULARITIES[granularity]
    reach = float(ml_dtypes.iinfo(numpy_type(target)).max)
    x = np.round(RNG.standard_normal((3, 7, 4)) * reach * 2) / 2
    inputs = [x.astype("float32"), np.asarray(RNG.choice([0.5, 1.0, 2.0], shape), "float32")]
    check("QuantizeLinear", [*inputs, codes(target, shape)], INTEGERS[target], **options)


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("source", ["uint8", "int16", "int4", "uint2"])
def test_dequantize_integers(source: str, granularity: str) -> None:
    shape, options = GRANULARITIES[granularity]
    inputs = [codes(source, (3, 7, 4)), scales(shape), codes(source, shape)]
    check("DequantizeLinear", inputs, TensorProto.FLOAT, **options)


@pytest.mark.parametrize("name", ["uint16", "int2", "uint2", "int4", *FLOATS])
def test_output_type_by_attribute_and_back(name: str) -> None:
    kind = {**INTEGERS, **FLOATS}[name]
    x = (RNG.standard_normal((5, 6)) * 9).astype("float32")
    check("QuantizeLinear", [x, scales(())], kind, output_dtype=kind)
    check("DequantizeLinear", [x.astype(numpy_type(name)), scales((6,))], TensorProto.FLOAT)


@pytest.mark.parametrize("saturate", [0, 1])
def test_float8_beyond_its_range(saturate: int) -> None:
    x = np.array([1e6, -1e6, np.inf, np.nan, 448.0, 470.0, 0.0, -0.0, 1e-9], "float32")
    zero = np.zeros((), ml_dtypes.float8_e4m3fn)
    check(
        "QuantizeLinear", [x, np.float32([1.0]).reshape(()), zero], TensorProto.FLOAT8E4M3FN,
        version=21, saturate=saturate,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_scales(dtype: str) -> None:
    """The scale's type is that of the division and, if nothing else is said, of the result."""
    kind = helper.np_dtype_to_tensor_dtype(numpy_type(dtype))
    x = (RNG.standard_normal((4, 9)) * 40).astype(numpy_type(dtype))
    check("QuantizeLinear", [x, scales((), dtype), codes("int8", ())], TensorProto.INT8)
    check("DequantizeLinear", [codes("uint8", (4, 9)), scales((), dtype), codes("uint8", ())], kind)
    check(
        "DequantizeLinear", [codes("int8", (4, 9)), scales((9,), dtype)], TensorProto.FLOAT,
        output_dtype=TensorProto.FLOAT,
    )  # fmt: skip


def test_precision_of_the_division() -> None:
    x = (RNG.standard_normal(400) * 3).astype("float32")
    step = np.array(0.013, "float16")
    for precision in (TensorProto.FLOAT, TensorProto.FLOAT16):
        check("QuantizeLinear", [x, step], TensorProto.UINT8, precision=precision)


def test_int32_accumulators_and_bias() -> None:
    values = RNG.integers(-(2**30), 2**30, (3, 5)).astype("int32")
    step = scales((5,)) * np.float32(1e-6)
    model, feeds = single_node("DequantizeLinear", [values, step], [TensorProto.FLOAT], version=13)
    expected = values.astype("float32") * step
    np.testing.assert_array_equal(run_compiled(model, feeds)[0], expected)


@pytest.mark.parametrize("version", [10, 13, 19, 21, 23, 24, 25])
def test_every_version(version: int) -> None:
    x = (RNG.standard_normal((3, 4)) * 50).astype("float32")
    check("QuantizeLinear", [x, scales(()), codes("uint8", ())], TensorProto.UINT8, version)
    inputs = [codes("int8", (3, 4)), scales(()), codes("int8", ())]
    model, feeds = single_node("DequantizeLinear", inputs, [TensorProto.FLOAT], version=version)
    expected = (inputs[0].astype("float32") - inputs[2].astype("float32")) * inputs[1]
    np.testing.assert_array_equal(run_compiled(model, feeds)[0], expected)


def test_blocks_along_a_symbolic_axis() -> None:
    node = helper.make_node("DequantizeLinear", ["x", "s"], ["y"], axis=1, block_size=4)
    graph = helper.make_graph(
        [node], "blocks",
        [helper.make_tensor_value_info("x", TensorProto.INT8, [2, "n"]),
         helper.make_tensor_value_info("s", TensorProto.FLOAT, [2, "blocks"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, "n"])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    compiled = relaxc.compile(model, threads=1, progress=False)
    for length in (4, 9):
        x, s = codes("int8", (2, length)), scales((2, -(-length // 4)))
        expected = x.astype("float32") * np.repeat(s, 4, axis=1)[:, :length]
        np.testing.assert_array_equal(compiled(x=x, s=s), expected)
    with pytest.raises(relaxc.RunError, match="size"):
        compiled(x=codes("int8", (2, 9)), s=scales((2, 2)))


@pytest.mark.parametrize(
    ("scale", "options"), [((6,), {}), ((3, 2, 4), {"block_size": 3}), ((3, 7), {"block_size": 2})]
)
def test_a_scale_that_does_not_fit_is_refused(
    scale: tuple[int, ...], options: dict[str, int]
) -> None:
    inputs = [codes("int8", (3, 7, 4)), scales(scale)]
    model, _ = single_node("DequantizeLinear", inputs, [TensorProto.FLOAT], **options)
    with pytest.raises(InvalidModel):
        import_onnx(model)


@pytest.mark.parametrize("x", [[0.5, -1.5, 3.0], [2.0, 5.0], [-4.0, -1.0], [0.0, 0.0]])
def test_dynamic_quantization(x: list[float]) -> None:
    """The range always holds 0; data of zeros has no range, and must not become NaN."""
    kinds = [TensorProto.UINT8, TensorProto.FLOAT, TensorProto.UINT8]
    data = np.array(x, "float32")
    model, feeds = single_node("DynamicQuantizeLinear", [data], kinds, version=11)
    for got, want in zip(run_compiled(model, feeds), run_reference(model, feeds), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_quantized_weight_is_folded_into_the_graph() -> None:
    """An int4 weight given as initializer is known while importing; a MatMul of it has floats."""
    weight = codes("int4", (8, 5))
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=1),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    step = scales((5,))
    graph = helper.make_graph(
        nodes, "weight", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 5])],
        [onnx.numpy_helper.from_array(weight, "w"), onnx.numpy_helper.from_array(step, "s")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = RNG.standard_normal((2, 8)).astype("float32")
    expected = x @ (weight.astype("float32") * step)
    np.testing.assert_allclose(run_compiled(model, {"x": x})[0], expected, rtol=1e-5, atol=1e-5)


def test_a_chain_of_quantizations_compiles_and_keeps_every_bit() -> None:
    """Selects that saturate wrote the value three times a step; NaN is the lowest code."""
    steps = 6
    nodes = [f"q{i} = QuantizeLinear(r{i}, scale, zero)" for i in range(steps)]
    nodes += [f"d{i} = DequantizeLinear(q{i}, scale, zero)" for i in range(steps)]
    nodes += [f"r{i + 1} = Relu(d{i})" for i in range(steps)]
    text = "\n".join(node for i in range(steps) for node in nodes[i::steps])
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 21]>\n'
        "agraph (float[4, 48] r0) => (float[4, 48] r6) {\n"
        "scale = Constant<value = float {0.05}>()\nzero = Constant<value = uint8 {128}>()\n"
        f"{text}\n}}"
    )
    x = (RNG.standard_normal((4, 48)) * 5).astype("float32")
    (expected,) = ReferenceEvaluator(model).run(None, {"r0": x})
    compiled = relaxc.compile(model, threads=1, progress=False)
    assert [kernel["rule"] for kernel in compiled.report.kernels] == ["elementwise"]
    np.testing.assert_array_equal(compiled(x), expected)
    assert np.all(compiled(np.full_like(x, np.nan)) == 0)
