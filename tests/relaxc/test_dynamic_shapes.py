"""Symbolic and data-dependent sizes end to end: one compiled file, many sizes (O7, P5, P7)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper

import relaxc
from tests.frontends.onnx.run_model import make_model, run_reference

RNG = np.random.default_rng(0)
INT64 = TensorProto.INT64


def _ints(*values: int) -> np.ndarray:
    return np.asarray(values, "int64")


def check(
    model: onnx.ModelProto, compiled: relaxc.CompiledModel, feeds: dict[str, np.ndarray]
) -> None:
    expected = run_reference(model, feeds)
    result = compiled(**feeds)
    results = result if isinstance(result, tuple) else (result,)
    for got, want in zip(results, expected, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def _random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def halves() -> onnx.ModelProto:
    """Return Shape, Gather, Div, Cast, then Slice and Reshape by the result (O7)."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "one"], ["n"], axis=0),
        helper.make_node("Div", ["n", "two"], ["h"]),
        helper.make_node("Cast", ["h"], ["h32"], to=TensorProto.INT32),
        helper.make_node("Cast", ["h32"], ["half"], to=INT64),
        helper.make_node("Slice", ["x", "zero", "half", "one"], ["left"]),
        helper.make_node("Concat", ["minus", "half", "pair"], ["form"], axis=0),
        helper.make_node("Reshape", ["left", "form"], ["y"]),
    ]
    constants = {"one": _ints(1), "two": _ints(2), "zero": _ints(0)}
    constants |= {"minus": _ints(-1), "pair": _ints(2)}
    return make_model(nodes, {"x": ("float32", ["batch", "n", 6])}, ["y"], constants)


def test_sizes_are_computed_from_sizes(tmp_path: Path) -> None:
    compiled = relaxc.compile(halves(), threads=1)
    assert compiled.inputs[0].shape == ("batch", "n", 6)
    loaded = relaxc.load(compiled.save(tmp_path / "m.so"))
    for batch, n in ((1, 2), (2, 7), (3, 8), (5, 3)):
        check(halves(), loaded, {"x": _random(batch, n, 6)})


def test_names_fixed_sizes_and_names_again() -> None:
    wanted = {"x": {0: 2, 1: "frames"}}
    compiled = relaxc.compile(halves(), threads=1, dynamic_shapes=wanted)
    assert compiled.inputs[0].shape == (2, "frames", 6)
    check(halves(), compiled, {"x": _random(2, 9, 6)})
    with pytest.raises(relaxc.InvalidInput, match="wrong shape"):
        compiled(_random(3, 9, 6))


def test_a_fully_dynamic_image_network() -> None:
    """Return one file for every image size, strides and pools rounding down included."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["c"], ["d"]),
        helper.make_node("Flatten", ["d"], ["e"]),
        helper.make_node("Softmax", ["e"], ["y"]),
    ]
    shape = ["batch", 3, "height", "width"]
    model = make_model(nodes, {"x": ("float32", shape)}, ["y"], {"w": _random(8, 3, 3, 3)})
    compiled = relaxc.compile(model, threads=1)
    for size in ((1, 3, 16, 16), (2, 3, 17, 33), (1, 3, 40, 5)):
        check(model, compiled, {"x": _random(*size)})


def data_dependent() -> onnx.ModelProto:
    """Return sizes that only the numbers decide: the places of positive elements."""
    nodes = [
        helper.make_node("Greater", ["x", "bound"], ["m"]),
        helper.make_node("NonZero", ["m"], ["i"]),
        helper.make_node("Transpose", ["i"], ["places"], perm=[1, 0]),
        helper.make_node("GatherND", ["x", "places"], ["kept"]),
        helper.make_node("Shape", ["kept"], ["count"]),
        helper.make_node("Mul", ["kept", "two"], ["y"]),
    ]
    constants = {"bound": np.asarray(0, "float32"), "two": np.asarray(2, "float32")}
    return make_model(
        nodes,
        {"x": ("float32", ["n", 4])},
        ["y", "count"],
        constants,
        output_types={"count": INT64},
    )


def test_sizes_that_the_data_decides() -> None:
    compiled = relaxc.compile(data_dependent(), threads=1)
    for n in (1, 3, 10):
        check(data_dependent(), compiled, {"x": _random(n, 4)})
    nothing = -np.ones((2, 4), "float32")
    values, count = compiled(nothing)
    assert values.shape == (0,) and count.tolist() == [0]


def test_a_size_is_read_before_it_is_used() -> None:
    """P5: a later operator uses the symbol that a match_cast defines; the order is kept."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["i"]),
        helper.make_node("Shape", ["i"], ["s"]),
        helper.make_node("Gather", ["s", "one"], ["n"], axis=0),
        helper.make_node("Expand", ["half", "n"], ["many"]),
        helper.make_node("ReduceSum", ["many"], ["y"], keepdims=0),
    ]
    constants = {"one": _ints(1), "half": np.asarray([0.5], "float32")}
    model = make_model(nodes, {"x": ("float32", ["k"])}, ["y"], constants)
    compiled = relaxc.compile(model, threads=1)
    for x in ([1, 0, 2], [0, 0], [3.0]):
        check(model, compiled, {"x": np.asarray(x, "float32")})


def test_sizes_without_an_upper_bound_are_never_planned_as_static(tmp_path: Path) -> None:
    """P7: what has a symbolic size is allocated when the model runs."""
    compiled = relaxc.compile(halves(), threads=1, dump_dir=tmp_path)
    (dump,) = tmp_path.glob("*_memory.py")
    module = tvm.script.from_source(dump.read_text())
    planned = [
        binding.value.args[2].values
        for block in module["main"].body.blocks
        for binding in block.bindings
        if getattr(getattr(binding.value, "op", None), "name", "") == "relax.memory.alloc_tensor"
    ]
    assert all(isinstance(dim, tvm.tirx.IntImm) for shape in planned for dim in shape)
    assert "relax.builtin.alloc_tensor" in str(
        [
            b.value.op
            for block in module["main"].body.blocks
            for b in block.bindings
            if isinstance(b.value, tvm.ir.Call)
        ]
    )
    for n in (2, 64, 4096):
        check(halves(), compiled, {"x": _random(1, n, 6)})


def test_an_image_resized_by_an_odd_scale_feeds_a_convolution() -> None:
    """TVM finds no bounds for a loop up to floor(1.3217 * h), and then schedules nothing."""
    rng = np.random.default_rng(0)
    weights = {
        "s": np.array([1, 1, 1.3217, 0.7713], "float32"),
        "w": rng.standard_normal((8, 3, 3, 3)).astype("float32"),
    }
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Resize", ["x", "", "s"], ["r"], mode="nearest"),
            onnx.helper.make_node("Conv", ["r", "w"], ["y"], pads=[1, 1, 1, 1]),
        ],
        "resized",
        [onnx.helper.make_tensor_value_info("x", 1, [1, 3, "h", "w"])],
        [onnx.helper.make_tensor_value_info("y", 1, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    compiled = relaxc.compile(model, threads=1, progress=False)
    for height, width in ((7, 9), (16, 20)):
        x = rng.standard_normal((1, 3, height, width)).astype("float32")
        (want,) = session.run(None, {"x": x})
        np.testing.assert_allclose(compiled(x), want, atol=1e-5)
