"""Sizes computed in floats keep their symbols, and the integers are those of float arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
import tvm_ffi
from onnx import TensorProto, helper
from tvm import tirx

import relaxc
from frontends.dims import DimArithmetic, dim_name
from frontends.onnx import import_onnx
from frontends.onnx.ratio import NotARatio, Ratio, RatioArithmetic
from tests.frontends.onnx.run_model import assert_like_reference, make_model, run_reference

FLOAT, DOUBLE, INT64 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64
NUMPY = {"floor": np.floor, "ceil": np.ceil, "round": np.round, "truncate": np.trunc}
Step = tuple[str, Any]  # an operator and its constant operand, None if it takes one operand


def size_in_floats(steps: Sequence[Step], kind: int = FLOAT) -> onnx.ModelProto:
    """Return a model that fills a tensor of int(steps(float(n))) elements, n the width of x."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "one"], ["n"], axis=0),
        helper.make_node("Cast", ["n"], ["f0"], to=kind),
    ]
    known = {"one": np.asarray([1])}
    for place, (op, number) in enumerate(steps):
        inputs = [f"f{place}"]
        if number is not None:
            known[f"c{place}"] = np.asarray(number, dtype)
            inputs.append(f"c{place}")
        nodes.append(helper.make_node(op, inputs, [f"f{place + 1}"]))
    nodes.append(helper.make_node("Cast", [f"f{len(steps)}"], ["size"], to=INT64))
    nodes.append(helper.make_node("ConstantOfShape", ["size"], ["y"]))
    return make_model(nodes, {"x": ("float32", [2, "n"])}, ["y"], known)


@pytest.mark.parametrize(
    ("steps", "shape"),
    [
        ([("Mul", 0.5)], "n // 2"),
        ([("Mul", 0.5), ("Floor", None)], "n // 2"),
        ([("Div", 3.0), ("Ceil", None)], "(n + 2) // 3"),
        ([("Mul", 0.75), ("Round", None)], None),
        ([("Add", 1.0), ("Div", 4.0), ("Mul", 4.0), ("Sub", 0.5), ("Ceil", None)], None),
        ([("Mul", 2.0)], "n * 2"),
        ([("Mul", 0.1), ("Floor", None)], "n // 10"),
        ([("Mul", 1 / 3), ("Ceil", None)], "(n + 2) // 3"),
        ([("Mul", 1.2), ("Floor", None)], "n * 6 // 5"),
        ([("Max", 4.0), ("Mul", 1.5)], None),
        ([("Div", 8.0), ("Ceil", None), ("Mul", 8.0)], "(n + 7) // 8 * 8"),
    ],
)
@pytest.mark.parametrize("kind", [FLOAT, DOUBLE])
def test_a_size_through_floats_stays_symbolic(
    steps: Sequence[Step], shape: str | None, kind: int
) -> None:
    """One import, run at sizes where rounding differs between the operators."""
    model = size_in_floats(steps, kind)
    imported = import_onnx(model)
    (found,) = imported.outputs[0].shape
    assert "n" in str(found)  # the input's symbol, not one read at run time
    assert shape is None or found == shape
    text = imported.module.script()
    assert "tensor_to_shape" not in text
    compiled = relaxc.compile(model, threads=1, progress=False)
    for size in (1, 2, 3, 5, 6, 7, 10, 11, 16, 29, 30):
        x = np.zeros((2, size), "float32")
        assert np.asarray(compiled(x)).shape == run_reference(model, {"x": x})[0].shape, size


@pytest.mark.parametrize(
    "steps",
    [
        [("Mul", 1.3), ("Floor", None)],  # 90 times 1.3 in float32 is below 117
        [("Mul", 1.2), ("Ceil", None)],  # and 25 times 1.2 above 30
        [("Mul", 0.7123), ("Floor", None)],
        [("Div", 3.0), ("Mul", 3.0), ("Floor", None)],  # rounded twice
        [("Mul", 0.1), ("Add", 0.5)],
        [("Mul", float("inf")), ("Min", 4.0)],
    ],
)
def test_other_floats_are_computed_when_the_model_runs(steps: Sequence[Step]) -> None:
    model = size_in_floats(steps)
    assert "tensor_to_shape" in import_onnx(model).module.script()
    compiled = relaxc.compile(model, threads=1, progress=False)
    for size in (1, 7, 10, 20, 41):
        x = np.zeros((2, size), "float32")
        assert np.asarray(compiled(x)).shape == run_reference(model, {"x": x})[0].shape, size


def evaluated(dim: Any, sizes: np.ndarray) -> np.ndarray:
    """Return a size expression of n for all sizes: its text is one of NumPy too."""
    return np.asarray(eval(str(dim_name(dim)), {"n": sizes}))  # noqa: S307


# Where the float is further from the fraction: what it rounds to on the other side.
ONE_SIDED = {
    **dict.fromkeys([0.3, 1.2, 0.15], {"floor", "truncate"}),
    **dict.fromkeys([1.3, 1 / 41], {"ceil"}),
}
FACTORS = [0.5, 1.5, 0.1, 0.2, 0.7, 0.9, 1 / 3, 2 / 3, 1.1, *ONE_SIDED]


@pytest.mark.parametrize("divide", [False, True])
@pytest.mark.parametrize("factor", FACTORS)
def test_every_size_rounds_as_in_float32(factor: float, divide: bool) -> None:
    """All sizes whose numerators are below the bound, against NumPy's float32."""
    dims = DimArithmetic()
    n = tirx.Var("n", "int64")
    dims.declare(n)
    arithmetic = RatioArithmetic(dims, "float32")
    number = np.float32(round(1 / factor) if divide else factor)
    compute = arithmetic.divide if divide else arithmetic.multiply
    ratio = Ratio.of_float(float(number))
    result = compute(Ratio(n), ratio)
    bound = (1 << 22) // int(evaluated(result.numerator, np.asarray(1)))
    sizes = np.arange(bound)
    floats = sizes.astype("float32")
    floats = floats / number if divide else floats * number
    for name, rounded in NUMPY.items():
        if not divide and name not in ONE_SIDED.get(factor, NUMPY):
            with pytest.raises(NotARatio):
                getattr(arithmetic, name)(result)
            continue
        got = evaluated(getattr(arithmetic, name)(result), sizes)
        np.testing.assert_array_equal(got, rounded(floats).astype("int64"), err_msg=name)


@pytest.mark.parametrize("name", NUMPY)
def test_negative_numbers_round_as_in_float32(name: str) -> None:
    dims = DimArithmetic()
    n = tirx.Var("n", "int64")
    dims.declare(n)
    arithmetic = RatioArithmetic(dims, "float32")
    half = Ratio.of_float(0.5)
    ratio = arithmetic.multiply(arithmetic.subtract(Ratio(n), Ratio(10)), half)
    rounded = getattr(arithmetic, name)(ratio)
    for size in range(20):
        at = tvm_ffi.structural_map(rounded, (tirx.Var, {n: tirx.IntImm("int64", size)}.get))
        expected = int(NUMPY[name](np.float32(size - 10) * np.float32(0.5)))
        assert dims.simplify(at) == expected, size


def test_a_ratio_that_is_read_as_float_is_computed_as_the_model_does() -> None:
    """Exact, divided, and multiplied ratios in one tensor, which is an output."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Cast", ["s"], ["f"], to=FLOAT),
        helper.make_node("Mul", ["f", "tenth"], ["a"]),
        helper.make_node("Div", ["f", "three"], ["b"]),
        helper.make_node("Concat", ["one", "a", "b", "f"], ["y"], axis=0),
    ]
    known = {
        "tenth": np.asarray(0.1, "float32"), "three": np.asarray(3, "float32"),
        "one": np.asarray([1.25], "float32"),
    }  # fmt: skip
    model = make_model(nodes, {"x": ("float32", ["m", "n"])}, ["y"], known)
    for shape in ((3, 7), (10, 29)):
        assert_like_reference(model, {"x": np.zeros(shape, "float32")}, tolerance=0)


def test_resize_by_half_as_pytorch_exports_it() -> None:
    """Interpolation with recomputed scales: the result's sizes stay the input's symbols."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Slice", ["s", "two", "four", "axis"], ["plane"]),
        helper.make_node("Cast", ["plane"], ["f"], to=FLOAT),
        helper.make_node("Mul", ["f", "scales"], ["scaled"]),
        helper.make_node("Floor", ["scaled"], ["whole"]),
        helper.make_node("Cast", ["whole"], ["to"], to=INT64),
        helper.make_node("Slice", ["s", "axis", "two", "axis"], ["front"]),
        helper.make_node("Concat", ["front", "to"], ["sizes"], axis=0),
        helper.make_node(
            "Resize", ["x", "", "", "sizes"], ["y"],
            mode="linear", coordinate_transformation_mode="pytorch_half_pixel",
        ),
    ]  # fmt: skip
    known = {
        "two": np.asarray([2]), "four": np.asarray([4]), "axis": np.asarray([0]),
        "scales": np.asarray([0.5, 1.5], "float32"),
    }  # fmt: skip
    model = make_model(nodes, {"x": ("float32", [1, 2, "h", "w"])}, ["y"], known)
    imported = import_onnx(model)
    assert imported.outputs[0].shape == (1, 2, "h // 2", "w * 3 // 2")
    compiled = relaxc.compile(model, threads=1, progress=False)
    for height, width in ((6, 8), (7, 5), (12, 9)):
        x = np.random.default_rng(0).standard_normal((1, 2, height, width)).astype("float32")
        (expected,) = run_reference(model, {"x": x})
        np.testing.assert_allclose(np.asarray(compiled(x)), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("factor", [0.5, 0.3])
def test_a_range_to_a_float_limit(factor: float) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Squeeze", ["s"], ["n"]),
        helper.make_node("Cast", ["n"], ["f"], to=FLOAT),
        helper.make_node("Mul", ["f", "factor"], ["limit"]),
        helper.make_node("Range", ["zero", "limit", "step"], ["y"]),
    ]
    known = {
        "zero": np.asarray(0, "float32"), "step": np.asarray(0.75, "float32"),
        "factor": np.asarray(factor, "float32"),
    }  # fmt: skip
    model = make_model(nodes, {"x": ("float32", ["n"])}, ["y"], known)
    assert ("n" in str(import_onnx(model).outputs[0].shape[0])) == (factor == 0.5)
    for size in (0, 1, 3, 10):
        assert_like_reference(model, {"x": np.zeros(size, "float32")})
