"""Sparse initializers and constants are dense tensors; malformed ones are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from frontends.errors import InvalidModel, UnsupportedOperator
from frontends.onnx import import_onnx
from tests.frontends.onnx.run_model import make_model, run_imported, run_reference

X = {"x": np.zeros((2, 3), "float32")}
LINEAR, PER_AXIS = [1, 5], [[0, 1], [1, 2]]


def sparse_tensor(
    values: Any, indices: Any, dims: Any, dtype: str = "float32", index_dtype: str = "int64"
) -> onnx.SparseTensorProto:
    """Return a sparse tensor called "w"."""
    return onnx.SparseTensorProto(
        values=numpy_helper.from_array(np.asarray(values, dtype), "w"),
        indices=numpy_helper.from_array(np.asarray(indices, index_dtype), "at"),
        dims=dims,
    )


def sum_model(sparse: onnx.SparseTensorProto, kind: str) -> onnx.ModelProto:
    """Return the model x + w, where w is a constant or an initializer, of the graph or inside."""
    constant = helper.make_node("Constant", [], ["w"], sparse_value=sparse)
    add = helper.make_node("Add", ["x", "w"], ["y"])
    if kind == "constant":
        nodes = [constant, add]
    elif kind == "initializer":
        nodes = [add]
    else:
        total = helper.make_tensor_value_info("total", TensorProto.FLOAT, None)
        node = helper.make_node("Add", ["x", "w"], ["total"])
        body = helper.make_graph([node], "body", [], [total], sparse_initializer=[sparse])
        less = helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0)
        cast = helper.make_node("Cast", ["sum"], ["flag"], to=TensorProto.BOOL)
        one = helper.make_node("If", ["flag"], ["y"], then_branch=body, else_branch=body)
        nodes = [less, cast, one]
    made = make_model(nodes, {"x": ("float32", [2, 3])}, ["y"])
    if kind == "initializer":
        made.graph.sparse_initializer.append(sparse)
    return made


@pytest.mark.parametrize("kind", ["constant", "initializer", "subgraph"])
@pytest.mark.parametrize("indices", [LINEAR, PER_AXIS])
def test_what_is_not_given_is_zero(indices: Any, kind: str) -> None:
    made = sum_model(sparse_tensor([4, 7], indices, [2, 3]), kind)
    (result,) = run_imported(made, X)
    np.testing.assert_array_equal(result, [[0, 4, 0], [0, 0, 7]])
    if kind != "subgraph":  # ONNX Runtime takes none there
        np.testing.assert_array_equal(result, run_reference(made, X)[0])


@pytest.mark.parametrize("indices", [np.zeros(0), np.zeros((0, 2))])
def test_no_values(indices: np.ndarray) -> None:
    (result,) = run_imported(sum_model(sparse_tensor([], indices, [2, 3]), "constant"), X)
    np.testing.assert_array_equal(result, np.zeros((2, 3)))


def test_a_sparse_constant_is_a_known_shape() -> None:
    """The target of Reshape is read while importing; a 0 in it keeps a size."""
    shape = sparse_tensor([3], [1], [2], "int64")
    nodes = [
        helper.make_node("Constant", [], ["shape"], sparse_value=shape),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    made = make_model(nodes, {"x": ("float32", ["n", 3])}, ["y"])
    assert import_onnx(made).outputs[0].shape == ("n", 3)


def test_values_and_indices_in_files_of_their_own(tmp_path: Path) -> None:
    sparse = sparse_tensor([4, 7], LINEAR, [2, 3])
    for place, part in enumerate((sparse.values, sparse.indices)):
        (tmp_path / f"{place}.bin").write_bytes(part.raw_data)
        part.ClearField("raw_data")
        part.data_location = TensorProto.EXTERNAL
        part.external_data.add(key="location", value=f"{place}.bin")
    path = tmp_path / "model.onnx"
    path.write_bytes(sum_model(sparse, "initializer").SerializeToString())
    (result,) = run_imported(path, X)
    np.testing.assert_array_equal(result, [[0, 4, 0], [0, 0, 7]])


MALFORMED = {
    "unsorted": (sparse_tensor([4, 7], [5, 1], [2, 3]), "not in sorted order"),
    "repeated": (sparse_tensor([4, 7], [1, 1], [2, 3]), "not in sorted order"),
    "unsorted pairs": (sparse_tensor([4, 7], PER_AXIS[::-1], [2, 3]), "not in lexicographic"),
    "beyond": (sparse_tensor([4, 7], [1, 6], [2, 3]), "out of range"),
    "beyond an axis": (sparse_tensor([4, 7], [[0, 1], [0, 3]], [2, 3]), "out of range"),
    "negative": (sparse_tensor([4, 7], [-1, 2], [2, 3]), "out of range"),
    "int32": (sparse_tensor([4, 7], LINEAR, [2, 3], index_dtype="int32"), "INT64"),
    "another rank": (sparse_tensor([4, 7], [[0, 0, 1], [0, 1, 2]], [2, 3]), "does not match rank"),
    "too few": (sparse_tensor([4, 7], [1], [2, 3]), "has 1 values"),
    "a scalar": (sparse_tensor(4, [1], [2, 3]), "must have rank 1"),
    "a negative size": (sparse_tensor([4, 7], LINEAR, [-2, -3]), "negative"),
}


@pytest.mark.parametrize("kind", ["constant", "initializer", "subgraph"])
@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_ones_are_refused(name: str, kind: str) -> None:
    sparse, text = MALFORMED[name]
    with pytest.raises(InvalidModel, match=text) as caught:
        import_onnx(sum_model(sparse, kind))
    assert caught.value.tensor == "w" and caught.value.file


@pytest.mark.parametrize("kind", ["constant", "initializer"])
def test_a_terabyte_is_refused(kind: str) -> None:
    with pytest.raises(UnsupportedOperator, match="'w'"):
        import_onnx(sum_model(sparse_tensor([1], [5], [1 << 40, 1 << 40]), kind))
