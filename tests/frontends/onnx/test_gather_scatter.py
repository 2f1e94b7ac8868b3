"""Reading and writing at computed places: negative indices, duplicates, symbolic sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm

import relaxc
from frontends.onnx import import_onnx
from tests.frontends.onnx.compiled import check_node, node_model, run_compiled

RNG = np.random.default_rng(11)


def _floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def _ints(low: int, high: int, *shape: int) -> np.ndarray:
    return RNG.integers(low, high, shape).astype("int64")


@pytest.mark.parametrize("constants", [(), (1,)])
@pytest.mark.parametrize("axis", [0, -1])
def test_gather(axis: int, constants: tuple[int, ...]) -> None:
    indices = np.asarray([[0, -1], [2, -3]], "int32")
    check_node("Gather", _floats(4, 5), indices, axis=axis, constants=constants)
    check_node("Gather", _floats(4, 3), indices, axis=axis, symbolic={0: ["n", "m"], 1: ["k", 2]})


@pytest.mark.parametrize(
    ("indices", "operator"),
    [([0, 1, 2, 3], None), ([1, -1], "relax.strided_slice"), ([2, 1], "relax.call_tir")],
)
def test_constant_indices_in_equal_steps_are_a_slice(
    indices: list[int], operator: str | None
) -> None:
    where = np.asarray(indices, "int64")
    check_node("Gather", _floats(4, 3), where, constants=(1,))
    imported = import_onnx(node_model("Gather", [_floats(4, 3), where], 1, constants=(1,)))
    bindings = [b for block in imported.module["main"].body.blocks for b in block.bindings]
    called = [b.value.op.name for b in bindings if isinstance(b.value, tvm.ir.Call)]
    assert called == ([] if operator is None else [operator])


def test_an_index_outside_reads_no_foreign_memory() -> None:
    x = _floats(4, 3)
    model = node_model("Gather", [x, _ints(0, 1, 2)], 1)
    with pytest.raises(relaxc.RunError, match="out of range"):
        run_compiled(model, [x, np.asarray([10**12, -(10**12)], "int64")])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_elements(axis: int) -> None:
    check_node("GatherElements", _floats(3, 3, 3), _ints(-3, 3, 2, 3, 3), axis=axis, by="ort")


@pytest.mark.parametrize("batch", [0, 1])
def test_gather_nd(batch: int) -> None:
    indices = _ints(-2, 2, 2, 3, 2)
    check_node(
        "GatherND", _floats(2, 2, 4) if not batch else _floats(2, 3, 4), indices, by="ort",
        batch_dims=batch, symbolic={0: ["n", "m", 4]},
    )  # fmt: skip


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("axis", [0, -1])
def test_scatter_elements_with_duplicates(reduction: str, axis: int) -> None:
    x, indices, updates = _floats(4, 5), _ints(-3, 3, 3, 4), _floats(3, 4)
    options: dict[str, Any] = {"axis": axis, "reduction": reduction}
    check_node("ScatterElements", x, indices, updates, by="ort", **options)


def test_scatter_with_symbolic_sizes() -> None:
    x, indices, updates = _floats(4, 5), _ints(-4, 4, 2, 5), _floats(2, 5)
    shapes = {0: ["n", "m"], 1: ["k", "m"], 2: ["k", "m"]}
    check_node("ScatterElements", x, indices, updates, axis=0, symbolic=shapes, by="ort")
    places = np.asarray([[1], [-1], [1]], "int64")
    rows = _floats(3, 5)
    shapes = {0: ["n", "m"], 1: ["k", 1], 2: ["k", "m"]}
    check_node("ScatterND", x, places, rows, symbolic=shapes, by="ort")


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("width", [1, 2])
def test_scatter_nd_with_duplicates(reduction: str, width: int) -> None:
    x, indices = _floats(3, 4, 2), _ints(-3, 3, 5, width)
    check_node("ScatterND", x, indices, _floats(5, *x.shape[width:]), by="ort", reduction=reduction)


def test_scatter_maximum_propagates_nan() -> None:
    x = np.asarray([1, np.nan, 3], "float32")
    inputs = [x, np.asarray([0, 1, 1], "int64"), np.asarray([np.nan, 7, 8], "float32")]
    (got,) = run_compiled(node_model("ScatterElements", inputs, 1, reduction="max"), inputs)
    np.testing.assert_array_equal(got, [np.nan, np.nan, 3])


def test_a_scattered_index_outside_writes_nothing() -> None:
    x = _floats(4)
    inputs = [x, np.asarray([[9], [-9], [2]], "int64"), np.asarray([1, 2, 3], "float32")]
    with pytest.raises(relaxc.RunError, match="out of range"):
        run_compiled(node_model("ScatterND", inputs, 1), inputs)


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_tensor_scatter(mode: str) -> None:
    cache, update = _floats(2, 2, 5, 3), _floats(2, 2, 2, 3)
    starts = np.asarray([3, 4 if mode == "circular" else 0], "int64")
    check_node("TensorScatter", cache, update, starts, opset=24, mode=mode)


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("constants", [(), (1,)])
def test_one_hot_of_indices_outside(axis: int, constants: tuple[int, ...]) -> None:
    indices = np.asarray([[0, 4, 5], [-1, -5, -6]], "int64")
    depth, values = np.asarray([5], "int64"), np.asarray([2, 7], "float32")
    check_node(
        "OneHot", indices, depth, values, axis=axis, by="ort", constants=constants,
        symbolic={0: ["n", 3]},
    )  # fmt: skip


@pytest.mark.parametrize("depth", [np.asarray(3.0, "float32"), np.asarray(3, "int32")])
def test_one_hot_takes_any_number_as_depth(depth: np.ndarray) -> None:
    indices, values = np.asarray([2, 0], "int64"), np.asarray([0, 1], "int32")
    for constants in ((), (1,)):
        inputs = [indices, depth, values]
        (got,) = run_compiled(node_model("OneHot", inputs, 1, constants), inputs)
        np.testing.assert_array_equal(got, np.eye(3, dtype="int32")[[2, 0]])


@pytest.mark.parametrize("op", ["CumSum", "CumProd"])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_cumulate(op: str, exclusive: int, reverse: int) -> None:
    x = _floats(3, 4, 2)
    step = np.cumsum if op == "CumSum" else np.cumprod
    model = node_model(
        op, [x, np.asarray(0, "int64")], 1, opset=26, exclusive=exclusive, reverse=reverse,
        symbolic={0: ["n", "m", 2]},
    )  # fmt: skip
    compiled = relaxc.compile(model, threads=1, progress=False)
    for axis in (0, 1, -1):
        got = compiled(x, np.asarray(axis, "int64"))
        lined = np.flip(x, axis) if reverse else x
        whole = step(lined, axis=axis)
        if exclusive:
            first = np.full_like(np.take(whole, [0], axis), op == "CumProd")
            whole = np.concatenate([first, np.delete(whole, -1, axis)], axis)
        expected = np.flip(whole, axis) if reverse else whole
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["int32", "float64", "float16"])
def test_cumulative_sum_along_a_constant_axis(dtype: str) -> None:
    x = RNG.integers(-3, 3, (4, 5)).astype(dtype)
    check_node("CumSum", x, np.asarray(1, "int64"), constants=[1])


@pytest.mark.parametrize("time", [0, 1])
def test_reverse_sequence(time: int) -> None:
    lengths = np.asarray([1, 4, 2, 0], "int64")
    check_node(
        "ReverseSequence", _floats(4, 4, 2), lengths, by="ort", time_axis=time, batch_axis=1 - time
    )


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("constants", [(), (1,)])
def test_triangle(upper: int, constants: tuple[int, ...]) -> None:
    for k in (-2, 0, 9):
        inputs = (_floats(2, 4, 3), np.asarray(k, "int64"))
        check_node("Trilu", *inputs, upper=upper, constants=constants, symbolic={0: [2, "n", "m"]})


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("ij,jk", [(3, 4), (4, 5)]),
        ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
        ("ii->i", [(4, 4)]),
        ("ii", [(4, 4)]),
        ("iij,jk->ki", [(3, 3, 4), (4, 2)]),
        ("i,j->ij", [(3,), (4,)]),
        ("ij,ij->", [(3, 4), (3, 4)]),
        ("ij->ji", [(3, 4)]),
        ("ijk,l->il", [(2, 3, 4), (5,)]),
        ("ij,jk,kl->li", [(2, 3), (3, 4), (4, 5)]),
        ("b...,b->...b", [(3, 2, 4), (3,)]),
    ],
)
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    inputs = [_floats(*shape) for shape in shapes]
    (got,) = run_compiled(node_model("Einsum", inputs, 1, equation=equation), inputs)
    np.testing.assert_allclose(got, np.einsum(equation, *inputs), rtol=1e-4, atol=1e-5)


def test_einsum_with_symbolic_sizes() -> None:
    check_node(
        "Einsum", _floats(2, 3, 4), _floats(2, 4, 5), equation="bij,bjk->kbi",
        symbolic={0: ["b", "n", 4], 1: ["b", 4, "m"]},
    )  # fmt: skip


def test_determinant_needs_pivots() -> None:
    x = _floats(3, 4, 4)
    x[0, 0, 0] = 0
    x[1, 1] = x[1, 2]
    check_node("Det", x, tolerance=1e-4)
    check_node("Det", x[0], tolerance=1e-4)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shift_past_the_width(direction: str, dtype: str) -> None:
    bits = np.dtype(dtype).itemsize * 8
    x = np.asarray([5, 5, 1, 100, 100], dtype)
    places = np.asarray([0, 1, bits - 1, bits, min(bits + 1, np.iinfo(dtype).max)], dtype)
    # Signed integers came with version 28.
    opset = 11 if dtype.startswith("u") else 28
    model = node_model("BitShift", [x, places], 1, opset=opset, direction=direction)
    (got,) = run_compiled(model, [x, places])
    sign = -1 if direction == "RIGHT" else 1
    wide = [
        int(a) << int(b) if sign > 0 else int(a) >> int(b) for a, b in zip(x, places, strict=True)
    ]
    expected = np.asarray([value & (2**bits - 1) for value in wide], f"uint{bits}").view(dtype)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize("dtype", ["int32", "float32", "float16"])
def test_remainder(fmod: int, dtype: str) -> None:
    if dtype != "int32" and not fmod:
        pytest.skip("the reference demands fmod for floats")
    left = np.asarray([[7, -7, 5, -5, 6, 0]], dtype)
    right = np.asarray([[3], [-3]], dtype)
    check_node("Mod", left, right, fmod=fmod, symbolic={0: [1, "n"]})


def test_integer_remainder_by_zero_does_not_kill_the_process() -> None:
    inputs = [np.asarray([7, -7], "int64"), np.asarray([0, 2], "int64")]
    (got,) = run_compiled(node_model("Mod", inputs, 1), inputs)
    assert list(got) == [0, 1]
