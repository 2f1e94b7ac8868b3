"""Tensors without elements, through the whole pipeline (O11)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import relaxc
from frontends.errors import InvalidModel
from frontends.onnx import import_onnx
from tests.frontends.onnx.compiled import check_node, node_model, run_compiled
from tests.frontends.onnx.run_model import make_model


def _empty(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.zeros(shape, dtype)


@pytest.mark.parametrize("symbolic", [None, {0: ["n", "k"], 1: ["k", "m"]}])
def test_a_product_over_nothing_is_zero(symbolic: dict[int, list[str]] | None) -> None:
    check_node("MatMul", _empty(4, 0), _empty(0, 4), symbolic=symbolic)
    check_node("MatMul", _empty(0, 3), _empty(3, 4), symbolic=symbolic)


def test_a_product_with_a_constant_over_nothing_is_zero() -> None:
    check_node("MatMul", _empty(4, 0), _empty(0, 4), constants=[1])
    check_node("MatMul", _empty(2, 4, 0), _empty(2, 0, 4))
    check_node("Gemm", _empty(4, 0), _empty(0, 3), np.ones(3, "float32"))


_IDENTITIES = {
    "ReduceSum": 0.0, "ReduceProd": 1.0, "ReduceMax": -np.inf, "ReduceMin": np.inf,
    "ReduceL1": 0.0, "ReduceL2": 0.0, "ReduceSumSquare": 0.0, "ReduceLogSum": -np.inf,
    "ReduceLogSumExp": -np.inf, "ReduceMean": np.nan,
}  # fmt: skip


@pytest.mark.parametrize("axes", ["constant", "run-time"])
@pytest.mark.parametrize("op", sorted(_IDENTITIES))
def test_a_reduction_over_nothing_is_its_identity(op: str, axes: str) -> None:
    inputs = [_empty(2, 0, 3), np.asarray([1], "int64")]
    constants = [1] if axes == "constant" else []
    for symbolic in (None, {0: [2, "n", 3]}):
        model = node_model(op, inputs, 1, constants, symbolic=symbolic)
        (got,) = run_compiled(model, inputs)
        np.testing.assert_array_equal(got, np.full((2, 1, 3), _IDENTITIES[op], "float32"))


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8"])
def test_the_extremum_of_no_integers_is_the_types_bound(dtype: str) -> None:
    inputs = [_empty(2, 0, dtype=dtype), np.asarray([1], "int64")]
    for op, bound in (("ReduceMax", np.iinfo(dtype).min), ("ReduceMin", np.iinfo(dtype).max)):
        (got,) = run_compiled(node_model(op, inputs, 1, [1]), inputs)
        np.testing.assert_array_equal(got, np.full((2, 1), bound, dtype))


def test_concatenation_with_nothing() -> None:
    x = np.ones((2, 3), "float32")
    check_node("Concat", x, _empty(2, 0), x * 2, axis=1)
    check_node("Concat", _empty(0, 3), _empty(0, 3), axis=0)
    check_node("Concat", _empty(1, 0), _empty(2, 0), axis=0)
    check_node("Concat", x, _empty(2, 0), axis=1, symbolic={0: [2, "a"], 1: [2, "b"]})


_CASES: dict[str, tuple[str, list[np.ndarray], dict[str, Any]]] = {
    "gather nothing": ("Gather", [np.ones((3, 4), "float32"), _empty(0, dtype="int64")], {}),
    "gather elements": ("GatherElements", [np.ones((3, 4), "float32"), _empty(0, 4, dtype="int64")],
                        {}),
    "gather tuples": ("GatherND", [np.ones((3, 4), "float32"), _empty(0, 2, dtype="int64")], {}),
    "scatter nothing": ("ScatterElements", [np.ones((3, 4), "float32"), _empty(0, 4, dtype="int64"),
                                            _empty(0, 4)], {}),
    "scatter no slices": ("ScatterND", [np.ones((3, 4), "float32"), _empty(0, 1, dtype="int64"),
                                        _empty(0, 4)], {}),
    "relu": ("Relu", [_empty(0, 3)], {}),
    "add": ("Add", [_empty(0, 3), np.ones((1, 3), "float32")], {}),
    "transpose": ("Transpose", [_empty(2, 0, 3)], {"perm": [2, 1, 0]}),
    "softmax": ("Softmax", [_empty(0, 3)], {"axis": 1}),
    "cast": ("Cast", [_empty(2, 0)], {"to": 6}),
    "one hot": ("OneHot", [_empty(0, dtype="int64"), np.asarray(3), np.ones(2, "float32")], {}),
    "sum along": ("CumSum", [_empty(0, 3), np.asarray(0, "int64")], {}),
    "shape": ("Shape", [_empty(2, 0)], {}),
    "where": ("Where", [_empty(0, 3, dtype="bool"), _empty(0, 3), _empty(0, 3)], {}),
    "triangle": ("Trilu", [_empty(0, 3)], {}),
    "reverse": ("ReverseSequence", [_empty(0, 2), np.asarray([0, 0])], {}),
    "gather no slices": ("Gather", [np.ones((2, 2, 3), "float32"), _empty(0, dtype="int64")], {}),
    "convolve no images": ("Conv", [_empty(0, 3, 5, 5), np.ones((4, 3, 3, 3), "float32")], {}),
    "flatten": ("Flatten", [_empty(2, 0, 3)], {}),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(_CASES))
def test_operators_on_nothing(name: str) -> None:
    op, inputs, attributes = _CASES[name]
    inputs = [x if x.dtype != np.dtype("int32") else x.astype("int64") for x in inputs]
    check_node(op, *inputs, **attributes)


def test_nothing_passes_through_a_graph() -> None:
    """Selected rows, none of them, go through a product, a norm and a reduction."""
    nodes = [
        helper.make_node("Compress", ["x", "c"], ["rows"], axis=0),
        helper.make_node("MatMul", ["rows", "w"], ["product"]),
        helper.make_node("Relu", ["product"], ["relu"]),
        helper.make_node("ReduceSum", ["relu", "axes"], ["total"], keepdims=0),
        helper.make_node("Concat", ["relu", "product"], ["both"], axis=0),
    ]
    x = np.ones((3, 4), "float32")
    model = make_model(
        nodes,
        {"x": ("float32", (3, 4)), "c": ("bool", (3,))},
        ["total", "both"],
        {"w": np.ones((4, 5), "float32"), "axes": np.asarray([0], "int64")},
    )
    import relaxc

    compiled = relaxc.compile(model, threads=1, progress=False)
    for condition in ([False] * 3, [True, False, True]):
        total, both = compiled(x=x, c=np.asarray(condition))
        np.testing.assert_array_equal(total, np.full(5, 4.0 * sum(condition)))
        assert both.shape == (2 * sum(condition), 5)


@pytest.mark.parametrize("symbolic", [None, {0: ["a", 2, "b"]}])
def test_selecting_nothing(symbolic: dict[int, list[int | str]] | None) -> None:
    """Relax reads 0 in a new shape as "as before"; a converter that writes it means 0."""
    x = np.ones((2, 2, 3), "float32")
    inputs = [x, np.asarray([0], "int64")]
    found = run_compiled(node_model("TopK", inputs, 2, [1], axis=2, symbolic=symbolic), inputs)
    assert [(part.shape, part.dtype) for part in found] == [
        ((2, 2, 0), np.dtype("float32")),
        ((2, 2, 0), np.dtype("int64")),
    ]


def test_nothing_has_no_distinct_elements() -> None:
    inputs = [_empty(0, 3)]
    found = run_compiled(node_model("Unique", inputs, 4), inputs)
    assert [part.shape for part in found] == [(0,)] * 4


def test_kernels_over_nothing() -> None:
    """Kernels that count elements through all axes divide by none of the sizes that are 0."""
    ints = {"columns": (1, 0), "places": (0, 3), "tuples": (0, 2)}
    feeds = {
        "x": _empty(0, 3),
        "full": np.ones((3, 3), "float32"),
        **{name: _empty(*shape, dtype="int64") for name, shape in ints.items()},
        "repeats": np.asarray([2, 2], "int64"),
    }
    nodes = [
        helper.make_node("Gather", ["full", "columns"], ["a"], axis=1),
        helper.make_node("GatherElements", ["x", "places"], ["b"], axis=1),
        helper.make_node("GatherND", ["full", "tuples"], ["c"]),
        helper.make_node("ScatterElements", ["x", "places", "x"], ["d"], axis=1),
        helper.make_node("NonZero", ["x"], ["e"]),
        helper.make_node("Unique", ["x"], ["f"], axis=0),
        helper.make_node("Tile", ["x", "repeats"], ["g"]),
        helper.make_node("TopK", ["x", "two"], ["h", "i"]),
        helper.make_node("CumSum", ["x", "one"], ["j"]),
    ]
    shapes = [(3, 1, 0), (0, 3), (0,), (0, 3), (2, 0), (0, 3), (0, 6), (0, 2), (0, 2), (0, 3)]
    model = make_model(
        nodes,
        {name: (array.dtype, array.shape) for name, array in feeds.items()},
        list("abcdefghij"),
        {"two": np.asarray([2]), "one": np.asarray(1)},
        output_types={"e": TensorProto.INT64, "i": TensorProto.INT64},
    )
    results = relaxc.compile(model, threads=1, progress=False)(**feeds)
    assert [result.shape for result in results] == shapes


def test_a_recurrent_layer_over_an_empty_batch() -> None:
    weights = {"w": np.ones((1, 9, 2), "float32"), "r": np.ones((1, 9, 3), "float32")}
    node = helper.make_node("GRU", ["x", "w", "r"], ["y", "h"], hidden_size=3)
    model = make_model([node], {"x": ("float32", (1, 0, 2))}, ["y", "h"], weights)
    assert [spec.shape for spec in import_onnx(model).outputs] == [(1, 1, 0, 3), (1, 0, 3)]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_an_image_without_elements_stays_so(axis: int, policy: str) -> None:
    """Resize by sizes that are known, read at run time, and of an image of unknown size."""
    shape, sizes = [2, 3], np.asarray([4, 6])
    shape[axis] = sizes[axis] = 0
    inputs = [_empty(*shape), None, None, sizes]
    options: dict[str, Any] = {"keep_aspect_ratio_policy": policy, "mode": "linear", "opset": 19}
    for constants, symbolic in (([3], None), ([], None), ([3], {0: ["h", "w"]})):
        model = node_model("Resize", inputs, 1, constants, symbolic=symbolic, **options)
        (got,) = run_compiled(model, inputs)
        assert got.shape == tuple(sizes)


@pytest.mark.parametrize("symbolic", [None, {0: [2, "w"]}])
@pytest.mark.parametrize("constants", [[3], []])
def test_nothing_is_not_resized_to_elements(
    constants: list[int], symbolic: dict[int, list[str | int]] | None
) -> None:
    inputs = [_empty(2, 0), None, None, np.asarray([4, 6])]
    model = node_model("Resize", inputs, 1, constants, symbolic=symbolic, mode="linear", opset=19)
    if constants and symbolic is None:
        with pytest.raises(InvalidModel, match="axis 1 has no element to make 6 of"):
            import_onnx(model)
        return
    with pytest.raises(relaxc.RunError, match="axis_1_has_an_element"):
        run_compiled(model, inputs)
