"""The measure of accuracy itself."""

from __future__ import annotations

import numpy as np
import pytest

from frontends.imported_model import TensorSpec
from relaxc.check import compare_outputs, relative_error
from relaxc.errors import InvalidInput
from relaxc.random_inputs import random_inputs

ONE = np.array([1.0, -2.0, 0.0], "float32")


def test_error_is_relative_to_the_largest_reference_value() -> None:
    assert relative_error(ONE + np.float32(0.5), ONE).relative == pytest.approx(0.25)
    assert relative_error(ONE, ONE).relative == 0
    assert relative_error(ONE * 0, ONE * 0).relative == 0
    assert relative_error(ONE[:0], ONE[:0]).relative == 0


def test_integers_must_be_equal() -> None:
    assert relative_error(np.array([1, 2]), np.array([1, 2])).within(0)
    assert not relative_error(np.array([1, 3]), np.array([1, 2])).within(1e9)


@pytest.mark.parametrize(
    "actual",
    [
        ONE[:2],
        ONE.astype("float64"),
        np.array([1, np.nan, 0], "float32"),
        np.array([1, np.inf, 0], "float32"),
    ],
)
def test_no_tolerance_admits_other_shapes_types_or_nans(actual: np.ndarray) -> None:
    assert not relative_error(actual, ONE).within(1e9)


def test_nan_and_infinity_must_be_in_the_same_places() -> None:
    odd = np.array([np.nan, np.inf, 1.0], "float32")
    assert relative_error(odd, odd).within(0)
    assert not relative_error(np.array([np.nan, -np.inf, 1.0], "float32"), odd).within(1e9)
    assert not relative_error(np.array([0, np.inf, 1.0], "float32"), odd).within(1e9)


def test_output_counts_must_agree() -> None:
    with pytest.raises(InvalidInput, match="2 outputs"):
        compare_outputs([ONE, ONE], [ONE], ["y"])


def test_random_inputs_repeat_and_share_symbolic_sizes() -> None:
    specs = [
        TensorSpec("ids", ("batch", "length"), "int64"),
        TensorSpec("mask", ("batch", "length"), "bool"),
        TensorSpec("x", ("length", 3), "float32"),
    ]
    first, again = (random_inputs(specs, seed=5, dims={"length": 6}) for _ in range(2))
    other = random_inputs(specs, seed=6, dims={"length": 6})
    assert [value.shape for value in first.values()] == [(1, 6), (1, 6), (6, 3)]
    assert set(np.unique(first["ids"])) <= {0, 1} and first["ids"].dtype == np.int64
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["x"], other["x"])


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e8m0fnu", "int4"])
def test_types_that_numpy_lacks_have_random_values(dtype: str) -> None:
    (value,) = random_inputs([TensorSpec("x", (50,), dtype)]).values()
    assert str(value.dtype) == dtype
    assert len(np.unique(value.astype("float32"))) > 1
    assert relative_error(value, value).relative == 0


def test_close_values_of_bfloat16_are_close() -> None:
    (value,) = random_inputs([TensorSpec("x", (50,), "bfloat16")]).values()
    error = relative_error((value * 1.01).astype(value.dtype), value).relative
    assert 0 < error < 0.02


def test_types_without_random_values() -> None:
    with pytest.raises(InvalidInput, match="complex64"):
        random_inputs([TensorSpec("x", (2,), "complex64")])
