"""What a file declares of an output's shape is no fact: what is computed holds, and is reported."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import relaxc
from frontends.onnx import import_onnx
from tests.frontends.onnx.run_model import run_reference


def doubled(declared: Sequence[int | str] | None, rows: int | str = 2) -> onnx.ModelProto:
    """Return y = x + x of shape (rows, 3), y declared otherwise."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        "doubled",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, declared)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("declared", [[2, 4], [3, 3], [2, 3, 1], [6]])
def test_a_shape_that_contradicts_is_noted(declared: list[int]) -> None:
    ((subject, note),) = import_onnx(doubled(declared)).notes
    assert subject == "y"
    assert note == f"declared with shape {declared}, computed with shape [2, 3], which holds"


@pytest.mark.parametrize(
    ("declared", "rows"), [([2, 3], 2), (["n", 3], 2), ([-1, 3], 2), (None, 2), ([5, 3], "n")]
)
def test_a_shape_that_may_be_meant_is_not(
    declared: list[int | str] | None, rows: int | str
) -> None:
    assert import_onnx(doubled(declared, rows)).notes == ()


def test_sizes_that_the_user_changes_contradict_no_file() -> None:
    assert import_onnx(doubled([2, 3]), dynamic_shapes={"x": {0: 7}}).notes == ()


def test_the_report_says_so_and_the_result_is_that_of_onnx_runtime() -> None:
    model, x = doubled([4, 3]), np.ones((2, 3), "float32")
    compiled = relaxc.compile(model, threads=1, progress=False)
    assert compiled.outputs[0].shape == (2, 3)
    assert ("import", "y") in {entry[:2] for entry in compiled.report.declined}
    (expected,) = run_reference(model, {"x": x})
    np.testing.assert_array_equal(compiled(x), expected)
