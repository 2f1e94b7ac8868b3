"""Bounds of sizes, and of the symbols that name what is computed from them."""

from __future__ import annotations

from onnx import helper

from frontends.onnx import import_onnx
from relax_passes.analysis.size_bounds import SizeBounds
from tests.frontends.onnx.run_model import make_model


def result_bytes(shapes: dict[str, dict[int, str]]) -> int | None:
    """Return the most bytes of a + b, whose sizes are symbols of their own."""
    node = helper.make_node("Add", ["a", "b"], ["y"])
    model = make_model([node], {"a": ("float32", ["n"]), "b": ("float32", ["m"])}, ["y"])
    main = import_onnx(model, dynamic_shapes=shapes).module["main"]
    return SizeBounds(main).bytes_of(main.body.body.ty)


def test_the_size_that_two_sizes_broadcast_to_is_bounded_by_theirs() -> None:
    assert result_bytes({"a": {0: "n<=4"}, "b": {0: "m<=6"}}) == 6 * 4


def test_a_size_computed_from_one_without_bound_has_none() -> None:
    assert result_bytes({"a": {0: "n<=4"}}) is None
