"""Shape arithmetic stays symbolic while importing: nothing of it is left to run (O7)."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm import relax, tirx

from frontends.dims import DimArithmetic
from frontends.onnx import import_onnx
from tests.frontends.onnx.run_model import assert_like_reference, make_model


def _constant(name: str, *items: int, scalar: bool = False) -> tuple[str, np.ndarray]:
    return name, np.asarray(items[0] if scalar else items, "int64")


def _operators(model: object) -> set[str]:
    module = import_onnx(model).module
    return {
        binding.value.op.name
        for block in module["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call)
    }


def test_shape_gather_div_cast_reshape() -> None:
    initializers = dict(
        [
            _constant("one", 1, scalar=True), _constant("two", 2, scalar=True),
            _constant("axis0", 0), _constant("head", 0), _constant("minus", -1),
        ]
    )  # fmt: skip
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "one"], ["n"], axis=0),
        helper.make_node("Div", ["n", "two"], ["half"]),
        helper.make_node("Cast", ["half"], ["half32"], to=TensorProto.INT32),
        helper.make_node("Cast", ["half32"], ["half64"], to=TensorProto.INT64),
        helper.make_node("Unsqueeze", ["half64", "axis0"], ["end"]),
        helper.make_node("Slice", ["x", "head", "end", "axis_one"], ["cut"]),
        helper.make_node("Concat", ["minus", "end"], ["shape"], axis=0),
        helper.make_node("Reshape", ["cut", "shape"], ["y"]),
    ]
    initializers["axis_one"] = np.asarray([1], "int64")
    model = make_model(nodes, {"x": ("float32", ["batch", "n"])}, ["y"], initializers)
    imported = import_onnx(model)
    assert imported.outputs[0].shape == ("batch", "n // 2")
    for size in (4, 5, 9):
        x = np.random.default_rng(size).standard_normal((2, size)).astype("float32")
        assert_like_reference(model, {"x": x})


def test_known_dimensions_become_constants() -> None:
    initializers = dict([_constant("index", 1), _constant("minus", -1)])
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "index"], ["c"], axis=0),
        helper.make_node("Concat", ["minus", "c"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    model = make_model(nodes, {"x": ("float32", ["b", 3, 4])}, ["y"], initializers)
    assert import_onnx(model).outputs[0].shape == ("b * 4", 3)
    assert _operators(model) == {"relax.reshape"}


def test_expand_to_a_computed_shape() -> None:
    """The TensorFlow export pattern: Shape, ConstantOfShape, Mul, Equal, Where, Expand."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("ConstantOfShape", ["rank"], ["ones"],
                         value=numpy_helper.from_array(np.asarray([1], "int64"))),
        helper.make_node("Mul", ["ones", "minus"], ["negative"]),
        helper.make_node("Equal", ["s", "negative"], ["unknown"]),
        helper.make_node("Where", ["unknown", "ones", "s"], ["wanted"]),
        helper.make_node("Expand", ["row", "wanted"], ["y"]),
    ]  # fmt: skip
    initializers = {
        "rank": np.asarray([2], "int64"), "minus": np.asarray(-1, "int64"),
        "row": np.arange(3, dtype="float32").reshape(1, 3),
    }  # fmt: skip
    model = make_model(nodes, {"x": ("float32", ["b", 3])}, ["y"], initializers)
    assert import_onnx(model).outputs[0].shape == ("b", 3)
    assert_like_reference(model, {"x": np.zeros((4, 3), "float32")})


def test_shape_as_output_is_materialized() -> None:
    model = make_model(
        [helper.make_node("Shape", ["x"], ["y"])], {"x": ("float32", ["a", 3, "c"])}, ["y"],
        output_types={"y": TensorProto.INT64},
    )  # fmt: skip
    assert_like_reference(model, {"x": np.zeros((2, 3, 5), "float32")})


def test_reshape_to_a_shape_known_only_at_run_time() -> None:
    model = make_model(
        [helper.make_node("Reshape", ["x", "s"], ["y"])],
        {"x": ("float32", [2, 6]), "s": ("int64", [2])},
        ["y"],
    )
    assert_like_reference(
        model, {"x": np.arange(12, dtype="float32").reshape(2, 6), "s": np.asarray([3, 4])}
    )


def test_range_over_a_symbolic_length() -> None:
    initializers = dict([_constant("zero", 0, scalar=True), _constant("one", 1, scalar=True)])
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "one"], ["n"], axis=0),
        helper.make_node("Range", ["zero", "n", "one"], ["y"]),
    ]
    model = make_model(
        nodes, {"x": ("float32", [2, "n"])}, ["y"], initializers,
        output_types={"y": TensorProto.INT64},
    )  # fmt: skip
    assert_like_reference(model, {"x": np.zeros((2, 5), "float32")})


@pytest.mark.parametrize(("left", "right"), [(7, 2), (-7, 2), (7, -2), (-7, -2), (0, 3)])
def test_division_truncates(left: int, right: int) -> None:
    assert DimArithmetic().truncdiv(left, right) == int(np.fix(left / right))


def test_symbolic_division_of_sizes_is_a_floor_division() -> None:
    arithmetic = DimArithmetic()
    n = tirx.Var("n", "int64")
    arithmetic.declare(n)
    assert arithmetic.equal(arithmetic.truncdiv(n * 4, 4), n)
    assert "floordiv" in type(arithmetic.truncdiv(n, 2)).__name__.lower()
    assert not arithmetic.is_nonnegative(n - 1)


@pytest.mark.parametrize("fmod", [0, 1])
def test_remainders_of_negative_sizes(fmod: int) -> None:
    """2 - n is negative: its remainder has the sign of the divisor, with fmod that of 2 - n."""
    initializers = dict([_constant("first", 0), _constant("two", 2), _constant("three", 3)])
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "first"], ["n"], axis=0),
        helper.make_node("Sub", ["two", "n"], ["left"]),
        helper.make_node("Mod", ["left", "three"], ["y"], fmod=fmod),
    ]
    int64 = {"y": TensorProto.INT64}
    model = make_model(nodes, {"x": ("float32", ["n"])}, ["y"], initializers, output_types=int64)
    for size in (1, 2, 3, 4, 6):
        assert_like_reference(model, {"x": np.zeros(size, "float32")})
