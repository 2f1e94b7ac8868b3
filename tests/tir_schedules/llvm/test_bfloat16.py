"""bfloat16 arithmetic in float32: conversions inside let bindings, rounding, all expressions."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.tirx import Expr

from tir_schedules.llvm.bfloat16 import compute_bfloat16_in_float32

HALF = np.dtype(ml_dtypes.bfloat16)
ALL = np.arange(65536, dtype="uint16").view(HALF)


def run(compute: Callable[[Expr], Expr], x: np.ndarray, y: np.dtype) -> np.ndarray:
    """Build the elementwise function without bfloat16 arithmetic and run it."""
    data = te.placeholder(x.shape, str(x.dtype), name="x")
    func = te.create_prim_func([data, te.compute(x.shape, lambda i: compute(data(i)), name="y")])
    func = compute_bfloat16_in_float32(func).with_attr("global_symbol", "main")
    library = tvm.compile(tvm.IRModule({"main": func}), target={"kind": "llvm"})
    result = tvm.runtime.empty(x.shape, str(y))
    library["main"](tvm.runtime.tensor(x), result)
    return result.numpy()


def bound(value: Expr, use: Callable[[Expr], Expr]) -> Expr:
    name = tirx.Var("v", str(value.ty))
    return tirx.Let(name, value, use(name))


def test_conversion_inside_a_let_binding() -> None:
    """TVM 0.27 converts the bits as an integer there."""
    result = run(lambda v: bound(v.astype("float32"), lambda n: n + n), ALL, np.dtype("float32"))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(result, ALL.astype("float32") * 2)


def test_every_pattern_survives() -> None:
    result = run(lambda v: v, ALL, HALF)
    np.testing.assert_array_equal(
        np.isnan(result.astype("float32")), np.isnan(ALL.astype("float32"))
    )
    same = result.view("uint16") == ALL.view("uint16")
    assert (same | np.isnan(ALL.astype("float32"))).all()


def test_float32_rounds_to_nearest_even() -> None:
    bits = np.arange(0x3F7F0000, 0x3F830000, 0x800, dtype="uint32")
    special = np.array([np.inf, -np.inf, np.nan, -0.0, 3.4e38, 1e-40], "float32")
    x = np.concatenate([bits.view("float32"), -bits.view("float32"), special])
    result = run(lambda v: v.astype("bfloat16"), x, HALF)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(result.astype("float32"), x.astype(HALF).astype("float32"))


ONE = tirx.const(1.0, "bfloat16")


@pytest.mark.parametrize(
    ("compute", "reference"),
    [
        (lambda v: v * v + ONE, lambda v: v * v + 1),
        (lambda v: tirx.Select(v > ONE, v - ONE, v / (v + ONE)), None),
        (lambda v: bound(v + ONE, lambda n: n * n), lambda v: (v + 1) ** 2),
        (lambda v: tirx.exp(v), np.exp),
        (lambda v: tirx.max(v, ONE), lambda v: np.maximum(v, 1)),
        (lambda v: tirx.if_then_else(v > ONE, ONE, v), lambda v: np.minimum(v, 1)),
    ],
)
def test_arithmetic(
    compute: Callable[[Expr], Expr], reference: Callable[[np.ndarray], np.ndarray] | None
) -> None:
    """Each expression is exact to one rounding at its end."""
    x = np.linspace(0.1, 3.0, 200).astype(HALF)
    wide = x.astype("float32")
    if reference is None:
        expected = np.where(wide > 1, wide - 1, wide / (wide + 1))
    else:
        expected = reference(wide)
    result = run(compute, x, HALF).astype("float32")
    np.testing.assert_allclose(result, expected, rtol=2**-8)


def test_a_buffer_within_the_function() -> None:
    """TVM 0.27 declares it as float32, and leaves loads of the bfloat16 one behind."""
    x = np.linspace(0.1, 3.0, 32).astype(HALF).reshape(4, 8)
    data = te.placeholder(x.shape, "bfloat16", name="x")
    key = te.reduce_axis((0, 8), name="key")
    best = te.compute((4,), lambda i: te.max(data(i, key), axis=key), name="best")
    result = te.compute(
        x.shape, lambda i, j: bound(data(i, j) - best(i), lambda n: n * n).astype("bfloat16")
    )
    schedule = tvm.s_tir.Schedule(te.create_prim_func([data, result]))
    schedule.set_scope(schedule.get_sblock("best"), 0, "local")
    func = compute_bfloat16_in_float32(schedule.mod["main"]).with_attr("global_symbol", "main")
    library = tvm.compile(tvm.IRModule({"main": func}), target={"kind": "llvm"})
    got = tvm.runtime.empty(x.shape, "bfloat16")
    library["main"](tvm.runtime.tensor(x), got)
    wide = x.astype("float32")
    expected = (wide - wide.max(1, keepdims=True)) ** 2
    np.testing.assert_allclose(got.numpy().astype("float32"), expected, rtol=2**-8)


def test_other_functions_are_left_alone() -> None:
    x = te.placeholder((4,), "float16", name="x")
    func = te.create_prim_func([x, te.compute((4,), lambda i: x(i) + x(i), name="y")])
    assert compute_bfloat16_in_float32(func) is func
