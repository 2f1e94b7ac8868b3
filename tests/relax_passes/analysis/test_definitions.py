"""What the reading side of pattern matching knows of sizes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from tvm import tirx

import relaxc
from relax_passes.analysis.definitions import equal_sizes
from tests.frontends.onnx.run_model import make_model

N, M = tirx.Var("n", "int64"), tirx.Var("m", "int64")


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (3, tirx.IntImm("int64", 3), True),
        (3, 4, False),
        (N, N, True),
        (N, M, False),
        (N, 3, False),
        (N * 2, N + N, True),
        (tirx.floordiv(N, 2), tirx.floordiv(M, 2), False),
    ],
)
def test_sizes_are_equal_where_that_is_proved(a: object, b: object, equal: bool) -> None:
    assert equal_sizes(a, b) is equal


def test_a_view_of_two_computed_sizes_compiles() -> None:
    """A view's last size and that of what it reads are different expressions of one symbol."""
    shapes = {"half": np.asarray([0, -1], "int64"), "one": np.asarray([1], "int64")}
    nodes = [
        helper.make_node("Reshape", ["x", "half"], ["pairs"]),
        helper.make_node("Relu", ["pairs"], ["positive"]),
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Slice", ["sizes", "one", "two"], ["width"]),
        helper.make_node("Concat", ["minus", "width"], ["split"], axis=0),
        helper.make_node("Reshape", ["positive", "split"], ["y"]),
    ]
    shapes["two"], shapes["minus"] = np.asarray([2], "int64"), np.asarray([-1], "int64")
    model = make_model(nodes, {"x": ("float32", ["b", "n", 2])}, ["y"], shapes)
    x = np.arange(-12, 12, dtype="float32").reshape(2, 6, 2)
    compiled = relaxc.compile(model, threads=1, progress=False)
    np.testing.assert_array_equal(compiled(x), np.maximum(x, 0).reshape(-1, 6))
