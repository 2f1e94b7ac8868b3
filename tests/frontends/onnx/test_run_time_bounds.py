"""Range, Slice and reductions by bounds and axes read at run time, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import relaxc
from tests.frontends.onnx.run_model import make_model, run_reference

node = helper.make_node


def check(model: onnx.ModelProto, *feeds: dict[str, np.ndarray]) -> None:
    """Compile once, run on each of the feeds, compare."""
    compiled = relaxc.compile(model, threads=1, progress=False)
    for feed in feeds:
        (want,) = run_reference(model, feed)
        got = compiled(**feed)
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int64", "int32", "float32"])
def test_range(dtype: str) -> None:
    names = ["start", "limit", "step"]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs: dict[str, Any] = {name: (dtype, []) for name in names}
    model = make_model([node("Range", names, ["o"])], inputs, ["o"], output_types={"o": kind})
    bounds = [(0, 7, 2), (7, -1, -3), (3, 3, 1), (5, 1, 1), (-2, 2, 1)]
    check(
        model,
        *({k: np.array(v, dtype) for k, v in zip(names, b, strict=True)} for b in bounds),
    )


def slice_model(given: str, rank_of_axes: int) -> onnx.ModelProto:
    """Return a Slice whose optional inputs are those named in `given`."""
    names = ["x", "starts", "ends", *(n if n in given else "" for n in ("axes", "steps"))]
    inputs: dict[str, Any] = {"x": ("float32", ["n", 5, 6])}
    inputs.update({name: ("int64", [rank_of_axes]) for name in names[1:] if name})
    while not names[-1]:
        names.pop()
    return make_model([node("Slice", names, ["o"])], inputs, ["o"])


X = np.random.default_rng(0).standard_normal((4, 5, 6)).astype("float32")
FAR = np.iinfo("int64")


@pytest.mark.parametrize(
    ("given", "bounds"),
    [
        ("", [([1, 0], [3, 9]), ([-2, -3], [FAR.max, -1]), ([3, 0], [1, 5])]),
        ("axes", [([1], [3], [2]), ([-4], [-1], [-1]), ([0], [2], [0])]),
        (
            "axes steps",
            [
                ([0, 4], [5, 0], [2, 1], [2, -2]),
                ([-1, 0], [FAR.min, 100], [0, -1], [-1, 3]),
                ([20, -9], [-20, 9], [1, 2], [-3, 4]),
            ],
        ),
    ],
)
def test_slice(given: str, bounds: list[tuple[list[int], ...]]) -> None:
    names = ["starts", "ends", *given.split()]
    feeds = [
        {"x": X, **{k: np.array(v, "int64") for k, v in zip(names, b, strict=True)}} for b in bounds
    ]
    check(slice_model(given, len(bounds[0][0])), *feeds)


def test_shape_operands_read_at_run_time() -> None:
    nodes = [
        node("ConstantOfShape", ["sizes"], ["zeros"]),
        node("Expand", ["x", "sizes"], ["wide"]),
        node("Add", ["zeros", "wide"], ["sum"]),
        node("Tile", ["sum", "counts"], ["tiled"]),
        node("Reshape", ["tiled", "shape"], ["o"]),
    ]
    inputs: dict[str, Any] = {
        "x": ("float32", [1, 3]),
        **{name: ("int64", [2]) for name in ("sizes", "counts", "shape")},
    }
    feeds = [
        {
            "x": X[0, :1, :3].copy(),
            "sizes": np.array([rows, 3]),
            "counts": np.array([2, columns]),
            "shape": np.array([-1, 2]),
        }
        for rows, columns in ((2, 1), (5, 4))
    ]
    check(make_model(nodes, inputs, ["o"]), *feeds)


@pytest.mark.parametrize("keep", [0, 1])
def test_reduction_over_axes_known_at_run_time(keep: int) -> None:
    model = make_model(
        [node("ReduceSum", ["x", "axes"], ["o"], keepdims=keep)],
        {"x": ("float32", ["n", 5, 6]), "axes": ("int64", [2])},
        ["o"],
        output_types={"o": TensorProto.FLOAT},
    )
    compiled = relaxc.compile(model, threads=1, progress=False)
    for axes in ([0, 1], [-1, 0]):
        got = compiled(x=X, axes=np.array(axes))
        want = X.sum(tuple(axes), keepdims=bool(keep))
        np.testing.assert_allclose(got, want, rtol=1e-5)
