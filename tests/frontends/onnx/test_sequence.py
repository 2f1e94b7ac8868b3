"""Sequences and optionals, which are gone after the import, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import relaxc
from frontends.errors import InvalidModel, UnsupportedOperator
from tests.frontends.onnx.run_model import make_model, run_reference

node = helper.make_node
X = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")
INPUTS: dict[str, Any] = {"x": ("float32", [3, 4])}


def check(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> None:
    results = relaxc.compile(model, threads=1, progress=False)(**feed)
    results = results if isinstance(results, tuple) else (results,)
    for got, want in zip(results, run_reference(model, feed), strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_insert_erase_and_read() -> None:
    nodes = [
        node("Neg", ["x"], ["y"]),
        node("SequenceEmpty", [], ["s0"]),
        node("SequenceInsert", ["s0", "x"], ["s1"]),
        node("SequenceInsert", ["s1", "y", "first"], ["s2"]),
        node("SequenceInsert", ["s2", "x"], ["s3"]),
        node("SequenceErase", ["s3", "last"], ["s4"]),
        node("Identity", ["s4"], ["s5"]),
        node("SequenceAt", ["s5", "first"], ["a"]),
        node("SequenceLength", ["s5"], ["n"]),
        node("ConcatFromSequence", ["s5"], ["b"], axis=1, new_axis=1),
    ]
    constants = {"first": np.array(0), "last": np.array(-1)}
    types = {"n": TensorProto.INT64}
    check(make_model(nodes, INPUTS, ["a", "n", "b"], constants, output_types=types), {"x": X})


@pytest.mark.parametrize("place", [0, 1, -1])
def test_position_known_at_run_time(place: int) -> None:
    nodes = [
        node("Neg", ["x"], ["y"]),
        node("SequenceConstruct", ["x", "y"], ["s"]),
        node("SequenceAt", ["s", "place"], ["o"]),
    ]
    model = make_model(nodes, {**INPUTS, "place": ("int64", [])}, ["o"])
    check(model, {"x": X, "place": np.array(place)})


@pytest.mark.parametrize(
    ("split", "keep"),
    [(None, 0), (None, 1), (np.array(3), 1), (np.array([1, 3]), 1)],
)
def test_split(split: np.ndarray | None, keep: int) -> None:
    names = ["x"] if split is None else ["x", "split"]
    nodes = [
        node("SplitToSequence", names, ["s"], axis=1, keepdims=keep),
        node("SequenceAt", ["s", "last"], ["o"]),
    ]
    constants = {"last": np.array(-1), **({} if split is None else {"split": split})}
    check(make_model(nodes, INPUTS, ["o"], constants), {"x": X})


def test_optional_is_decided_while_importing() -> None:
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [3, 4])
    nodes = [
        node("Optional", ["x"], ["some"]),
        node("Optional", [], ["none"], type=kind),
        node("OptionalHasElement", ["some"], ["yes"]),
        node("OptionalHasElement", ["none"], ["no"]),
        node("OptionalGetElement", ["some"], ["y"]),
    ]
    types = {"yes": TensorProto.BOOL, "no": TensorProto.BOOL}
    check(make_model(nodes, INPUTS, ["yes", "no", "y"], output_types=types, opset=18), {"x": X})


def sequence_model() -> onnx.ModelProto:
    """Return a model that takes a sequence and returns it with a tensor appended, and its sum."""
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    nodes = [
        node("SequenceInsert", ["s", "x"], ["o"]),
        node("ConcatFromSequence", ["o"], ["joined"], axis=0),
        node("ReduceSum", ["joined"], ["total"], keepdims=0),
    ]
    model = make_model(nodes, INPUTS, ["total"])
    sequence = helper.make_sequence_type_proto(kind)
    model.graph.input.append(helper.make_value_info("s", sequence))
    model.graph.output.append(helper.make_value_info("o", sequence))
    return model


def test_elements_of_a_sequence_are_inputs_and_outputs() -> None:
    shapes = {"s[0]": ["n", 4], "s[1]": [2, 4]}
    compiled = relaxc.compile(sequence_model(), dynamic_shapes=shapes, threads=1, progress=False)
    assert [spec.name for spec in compiled.inputs] == ["x", "s[0]", "s[1]"]
    assert [spec.name for spec in compiled.outputs] == ["total", "o[0]", "o[1]", "o[2]"]
    first, second = np.ones((5, 4), "float32"), np.ones((2, 4), "float32")
    total, *items = compiled(X, first, second)
    np.testing.assert_allclose(total, X.sum() + 28, rtol=1e-5)
    for got, want in zip(items, (first, second, X), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_sequence_without_elements_may_be_stated() -> None:
    compiled = relaxc.compile(sequence_model(), dynamic_shapes={"s": []}, threads=1, progress=False)
    np.testing.assert_array_equal(compiled(X)[1], X)


def test_a_sequence_of_unstated_length_is_refused() -> None:
    with pytest.raises(UnsupportedOperator, match="length must be stated"):
        relaxc.compile(sequence_model(), threads=1, progress=False)


def test_a_position_outside_is_refused() -> None:
    nodes = [node("SequenceConstruct", ["x"], ["s"]), node("SequenceAt", ["s", "place"], ["o"])]
    with pytest.raises(InvalidModel, match="outside a sequence of 1"):
        relaxc.compile(make_model(nodes, INPUTS, ["o"], {"place": np.array(1)}), progress=False)


def test_a_loop_that_carries_a_sequence_is_unrolled() -> None:
    float_, bool_, int_ = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(float_, None))
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            node("Cast", ["i"], ["fi"], to=float_),
            node("Add", ["x", "fi"], ["y"]),
            node("SequenceInsert", ["s", "y"], ["so"]),
            node("Identity", ["on"], ["go"]),
        ],
        "body",
        [info("i", int_, []), info("on", bool_, []), helper.make_value_info("s", kind)],
        [info("go", bool_, []), helper.make_value_info("so", kind)],
    )
    nodes = [
        node("SequenceEmpty", [], ["empty"]),
        node("Loop", ["m", "", "empty"], ["made"], body=body),
        node("ConcatFromSequence", ["made"], ["o"], axis=0),
    ]
    check(make_model(nodes, INPUTS, ["o"], {"m": np.array(3)}), {"x": X})


def loop_over_a_pair(grows: bool = False) -> onnx.ModelProto:
    """Return a model whose loop carries (a, b) -> (b, a + b) as a sequence, m times."""
    float_, bool_, int_ = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(float_, None))
    info = helper.make_tensor_value_info
    kept = ["b", "sum", "b"] if grows else ["b", "sum"]
    body = helper.make_graph(
        [
            node("SequenceAt", ["s", "zero"], ["a"]),
            node("SequenceAt", ["s", "one"], ["b"]),
            node("Add", ["a", "b"], ["sum"]),
            node("SequenceConstruct", kept, ["so"]),
            node("Identity", ["on"], ["go"]),
        ],
        "body",
        [info("i", int_, []), info("on", bool_, []), helper.make_value_info("s", kind)],
        [info("go", bool_, []), helper.make_value_info("so", kind), info("sum", float_, None)],
    )
    nodes = [
        node("Neg", ["x"], ["y"]),
        node("SequenceConstruct", ["x", "y"], ["start"]),
        node("Loop", ["m", "", "start"], ["pair", "sums"], body=body),
        node("SequenceAt", ["pair", "zero"], ["first"]),
        node("ConcatFromSequence", ["pair"], ["both"], axis=0),
    ]
    constants = {"zero": np.array(0), "one": np.array(1)}
    inputs = {**INPUTS, "m": ("int64", [])}
    return make_model(nodes, inputs, ["first", "both", "sums"], constants)


def test_a_loop_that_carries_a_sequence_of_one_length_runs() -> None:
    """The number of steps is known at run time only; the elements are states of their own."""
    model = loop_over_a_pair()
    compiled = relaxc.compile(model, threads=1, progress=False)
    for count in (1, 2, 9):
        feed = {"x": X, "m": np.array(count)}
        for got, want in zip(compiled(**feed), run_reference(model, feed), strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_loop_whose_sequence_grows_at_run_time_is_refused() -> None:
    with pytest.raises(UnsupportedOperator, match="change the length of a sequence"):
        relaxc.compile(loop_over_a_pair(grows=True), threads=1, progress=False)
