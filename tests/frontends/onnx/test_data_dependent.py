"""Results whose size is known only after a look at the data."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.onnx.compiled import check_node, node_model, run_compiled

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("dtype", ["bool", "float32", "int64"])
def test_nonzero(dtype: str) -> None:
    x = RNG.integers(0, 2, (3, 4, 2)).astype(dtype)
    check_node("NonZero", x, symbolic={0: ["a", 4, "b"]})
    for empty in (np.zeros((3, 4, 2), dtype), np.zeros((0, 4, 2), dtype)):
        check_node("NonZero", empty, symbolic={0: ["a", 4, "b"]})


def test_nonzero_of_nan_and_negative_zero() -> None:
    check_node("NonZero", np.asarray([0.0, -0.0, np.nan, 1.0], "float32"))


@pytest.mark.parametrize("constants", [(), (1,)])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_compress(axis: int | None, constants: tuple[int, ...]) -> None:
    x = RNG.standard_normal((4, 3)).astype("float32")
    condition = np.asarray([False, True, True])
    options = {} if axis is None else {"axis": axis}
    check_node("Compress", x, condition, constants=constants, **options)
    check_node("Compress", x, condition & False, constants=constants, **options)


def test_compress_with_symbolic_sizes() -> None:
    x, condition = RNG.standard_normal((4, 3)).astype("float32"), np.asarray([True, False, True])
    check_node("Compress", x, condition, axis=0, symbolic={0: ["n", 3], 1: ["m"]})


def _boxes(images: int, number: int) -> np.ndarray:
    corners = RNG.uniform(0, 10, (images, number, 4))
    return corners.astype("float32")


@pytest.mark.parametrize("center", [0, 1])
def test_non_max_suppression(center: int) -> None:
    boxes = np.abs(_boxes(2, 30))
    scores = np.round(RNG.uniform(0, 1, (2, 3, 30)), 1).astype("float32")  # with ties
    limits = [np.asarray([value], dtype) for value, dtype in
              ((4, "int64"), (0.3, "float32"), (0.2, "float32"))]  # fmt: skip
    for constants in ((), (2, 3, 4)):
        check_node(
            "NonMaxSuppression", boxes, scores, *limits, center_point_box=center, by="ort",
            constants=constants,
        )  # fmt: skip


def test_non_max_suppression_without_limits() -> None:
    boxes, scores = _boxes(1, 6), RNG.uniform(-1, 1, (1, 1, 6)).astype("float32")
    most = np.asarray([6], "int64")
    check_node("NonMaxSuppression", boxes, scores, most, by="ort")
    check_node("NonMaxSuppression", boxes, scores, most, np.asarray([0.5], "float32"), by="ort")
    (nothing,) = run_compiled(node_model("NonMaxSuppression", [boxes, scores], 1), [boxes, scores])
    assert nothing.shape == (0, 3) and nothing.dtype == np.int64


def test_non_max_suppression_with_symbolic_sizes() -> None:
    model = node_model(
        "NonMaxSuppression",
        [_boxes(1, 3), np.zeros((1, 1, 3), "float32"), np.asarray([9], "int64")],
        1,
        symbolic={0: ["b", "n", 4], 1: ["b", "c", "n"]},
    )
    for images, classes, number in ((1, 1, 5), (2, 3, 20), (1, 1, 0)):
        boxes = _boxes(images, number)
        scores = RNG.uniform(0, 1, (images, classes, number)).astype("float32")
        (got,) = run_compiled(model, [boxes, scores, np.asarray([9], "int64")])
        expected = _suppressed(boxes, scores)
        np.testing.assert_array_equal(got, expected)


def _suppressed(boxes: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Greedy suppression at threshold 0, at most 9 boxes, in plain Python."""
    rows = []
    for b, c in np.ndindex(*scores.shape[:2]):
        chosen: list[int] = []
        for box in np.argsort(-scores[b, c], kind="stable"):
            y, x = (np.sort(boxes[b, :, k::2], axis=1) for k in range(2))
            overlaps = [
                min(y[box, 1], y[o, 1]) > max(y[box, 0], y[o, 0])
                and min(x[box, 1], x[o, 1]) > max(x[box, 0], x[o, 0])
                for o in chosen
            ]
            if len(chosen) < 9 and not any(overlaps):
                chosen.append(int(box))
        rows += [(b, c, box) for box in chosen]
    return np.asarray(rows, "int64").reshape(-1, 3)


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize(
    "op",
    ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceProd", "ReduceL2", "ReduceLogSumExp"],
)
def test_reduce_over_run_time_axes(op: str, keep: int) -> None:
    x = RNG.standard_normal((3, 4, 2)).astype("float32")
    model = node_model(op, [x, np.asarray([1], "int64")], 1, keepdims=keep)
    for axis in (0, -1):
        (got,) = run_compiled(model, [x, np.asarray([axis], "int64")])
        expected = {
            "ReduceSum": np.sum, "ReduceMean": np.mean, "ReduceMax": np.max,
            "ReduceProd": np.prod,
            "ReduceL2": lambda t, **o: np.sqrt(np.sum(t * t, **o)),
            "ReduceLogSumExp": lambda t, **o: np.log(np.sum(np.exp(t), **o)),
        }[op](x, axis=axis, keepdims=bool(keep))  # fmt: skip
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_a_run_time_size_is_not_read_from_the_arena() -> None:
    """Packed functions ignore offsets: a count planned amid the arena would be read wrong."""
    boxes, scores = _boxes(2, 3), RNG.uniform(0.5, 1, (2, 1, 3)).astype("float32")
    check_node(
        "NonMaxSuppression", boxes, scores, np.asarray([1], "int64"), by="ort", constants=[2]
    )
