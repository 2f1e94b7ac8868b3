"""TopK, ArgMax, ArgMin and Unique: order, ties, NaN, run-time k, symbolic sizes."""

from __future__ import annotations

import numpy as np
import pytest

from relaxc.errors import RelaxcError
from tests.frontends.onnx.compiled import check_node, node_model, run_compiled

RNG = np.random.default_rng(3)


def _with_ties(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.integers(0, 9, shape).astype(dtype)


def _k(number: int) -> np.ndarray:
    return np.asarray([number], "int64")


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("k", [1, 5, 40])  # selection, and a full sort
def test_top_k_puts_the_lower_index_first(k: int, largest: int) -> None:
    x = _with_ties(3, 47, 2)
    values, places = run_compiled(
        node_model("TopK", [x, _k(k)], 2, [1], axis=1, largest=largest), [x]
    )
    order = np.argsort(-x if largest else x, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))
    assert places.dtype == np.int64


@pytest.mark.parametrize("k", [3, 33])
def test_top_k_takes_nan_for_the_greatest(k: int) -> None:
    x = RNG.permutation(40).astype("float32")
    x[[7, 3]] = np.nan
    (values, places) = run_compiled(node_model("TopK", [x, _k(k)], 2, [1]), [x])
    assert list(places[:2]) == [3, 7] and values[2] == np.nanmax(x)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint64"])
def test_top_k_of_types(dtype: str) -> None:
    check_node("TopK", _with_ties(2, 9, dtype=dtype), _k(4), outputs=2, constants=[1])


def test_top_k_as_attribute() -> None:
    check_node("TopK", _with_ties(3, 8), outputs=2, opset=9, by="ort", k=3)


def test_top_k_with_run_time_k_and_symbolic_sizes() -> None:
    model = node_model("TopK", [_with_ties(2, 6), _k(3)], 2, symbolic={0: ["n", "m"]})
    for x, k in ((_with_ties(2, 6), 3), (_with_ties(4, 50), 50), (_with_ties(1, 5), 0)):
        values, places = run_compiled(model, [x, _k(k)])
        order = np.argsort(-x, axis=1, kind="stable")[:, :k]
        np.testing.assert_array_equal(places, order)
        np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


def test_top_k_beyond_the_axis_is_refused() -> None:
    x = _with_ties(2, 4)
    with pytest.raises(RelaxcError, match="k is 5"):
        run_compiled(node_model("TopK", [x, _k(5)], 2, [1]), [x])
    model = node_model("TopK", [x, _k(5)], 2, [1], symbolic={0: ["n", "m"]})
    with pytest.raises(Exception, match=r"5|shape"):
        run_compiled(model, [x])


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("keep", [0, 1])
def test_arg_reduce(op: str, last: int, keep: int) -> None:
    x = _with_ties(4, 11, 3)
    check_node(op, x, axis=-2, keepdims=keep, select_last_index=last, symbolic={0: ["a", "b", 3]})


@pytest.mark.parametrize(
    ("op", "worst"), [("ArgMax", -np.inf), ("ArgMin", np.inf)]
)  # equal to the reduction's identity
def test_arg_reduce_of_infinities_and_nan(op: str, worst: float) -> None:
    x = np.asarray([[worst] * 3, [1, np.nan, np.nan], [worst, 2, 2]], "float32")
    (places,) = run_compiled(node_model(op, [x], 1, axis=1, keepdims=0), [x])
    assert list(places) == [0, 1, 1]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "float16"])
def test_arg_max_of_types(dtype: str) -> None:
    least = np.iinfo(dtype).min if "int" in dtype else -np.inf
    x = np.asarray([[least, least], [least, 3]], dtype)
    (places,) = run_compiled(node_model("ArgMax", [x], 1, axis=1, keepdims=0), [x])
    assert list(places) == [0, 1]


@pytest.mark.parametrize("is_sorted", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_unique(is_sorted: int, axis: int | None) -> None:
    x = RNG.integers(0, 2, (5, 3)).astype("float32")
    options = {} if axis is None else {"axis": axis}
    check_node(
        "Unique", x, outputs=4, by="ort", sorted=is_sorted, symbolic={0: ["n", 3]}, **options
    )


def test_unique_takes_nan_for_equal_to_itself() -> None:
    x = np.asarray([np.nan, 1, np.nan, 0], "float32")
    model = node_model("Unique", [x], 4)
    values, first, inverse, counts = run_compiled(model, [x])
    np.testing.assert_array_equal(values, [0, 1, np.nan])
    assert [list(part) for part in (first, inverse, counts)] == [[3, 1, 0], [2, 1, 2, 0], [1, 1, 2]]
