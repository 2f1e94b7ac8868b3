"""Polynomial elementary functions: error over wide ranges, special values, vector code."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx
from tvm.script import relax as R
from tvm.tirx import Expr, PrimFunc

from tests.tir_schedules.llvm.scheduled_kernel import assembly, libm_calls, machine, run
from tir_schedules.llvm.elementwise import RULE
from tir_schedules.llvm.kernel_pipeline import KERNEL_PIPELINE
from tir_schedules.llvm.lower_math import lower_math
from tir_schedules.llvm.vector_math import exp2_of_negative

POINTS = 1 << 18
Unary = Callable[[Expr], Expr]


def _map(op: Unary, size: int = POINTS) -> PrimFunc:
    x = te.placeholder((size,), name="x")
    return te.create_prim_func([x, te.compute((size,), lambda i: op(x(i)), name="y")])


def _values(op: Unary, x: np.ndarray) -> np.ndarray:
    (y,) = run(_map(op, x.size), RULE, [x], [x])
    return y


def _erf(x: np.ndarray) -> np.ndarray:
    return np.array([math.erf(float(v)) for v in x])


# operator, reference, range, greatest error in units of the last place
ULP = {
    "exp": (tirx.exp, np.exp, (-87.3, 88.7), 1.5),
    "exp2": (tirx.exp2, np.exp2, (-125.9, 127.9), 1.5),
    "exp2_of_negative": (exp2_of_negative, np.exp2, (-125.9, 0.0), 1.5),
    "tanh": (tirx.tanh, np.tanh, (-12.0, 12.0), 2.0),
    "sinh": (tirx.sinh, np.sinh, (-89.0, 89.0), 4.0),
    "small sinh": (tirx.sinh, np.sinh, (-1.1, 1.1), 2.0),
    "cosh": (tirx.cosh, np.cosh, (-89.0, 89.0), 4.0),
    "sigmoid": (tirx.sigmoid, lambda v: 1 / (1 + np.exp(-v)), (-80.0, 30.0), 3.0),
    "erf": (tirx.erf, _erf, (-5.0, 5.0), 6.0),
    "log": (tirx.log, np.log, (1e-3, 1e3), 2.0),
    "log2": (tirx.log2, np.log2, (2.0, 1e6), 2.5),
    "log1p": (tirx.log1p, np.log1p, (-0.9, 100.0), 3.0),
    "rsqrt": (tirx.rsqrt, lambda v: 1 / np.sqrt(v), (1e-3, 1e3), 2.0),
    "cube": (lambda v: tirx.power(v, tirx.const(3.0, "float32")), lambda v: v**3, (-5, 5), 2.0),
}


@pytest.mark.parametrize("name", ULP)
def test_error_in_ulp(name: str) -> None:
    op, reference, (low, high), limit = ULP[name]
    x = np.linspace(low, high, POINTS).astype("float32")
    exact = reference(x.astype("float64"))
    error = np.abs(_values(op, x) - exact) / np.spacing(np.abs(exact).astype("float32"))
    assert error.max() <= limit


def test_logarithm_over_the_whole_range() -> None:
    x = np.exp(np.linspace(-103.0, 88.0, POINTS)).astype("float32")
    exact = np.log(x.astype("float64"))
    assert np.abs((_values(tirx.log, x) - exact) / np.maximum(np.abs(exact), 1)).max() < 3e-7


@pytest.mark.parametrize("name", ["tanh", "erf", "sigmoid"])
def test_bounded_functions_absolute_error(name: str) -> None:
    op, reference, _, _ = ULP[name]
    x = np.random.default_rng(0).standard_normal(POINTS // 4).astype("float32") * 3
    assert np.abs(_values(op, x) - reference(x.astype("float64"))).max() < 4e-7


SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 89.5, -200.0, -1.0, 1.0] + [0.0] * 5,
    "float32",
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("exp", np.exp),
        ("exp2", np.exp2),
        ("tanh", np.tanh),
        ("sinh", np.sinh),
        ("cosh", np.cosh),
        ("sigmoid", lambda v: 1 / (1 + np.exp(-v))),
        ("erf", _erf),
        ("log", np.log),
        ("log1p", np.log1p),
    ],
)
def test_special_values(name: str, expected: Callable[[np.ndarray], np.ndarray]) -> None:
    with np.errstate(all="ignore"):
        want = expected(SPECIAL.astype("float64")).astype("float32")
    np.testing.assert_allclose(_values(ULP[name][0], SPECIAL), want, rtol=1e-6, atol=1e-37)


def test_exponential_underflows_through_denormals() -> None:
    x = np.linspace(-103.0, -88.0, 1024).astype("float32")
    exact = np.exp(x.astype("float64"))
    assert np.abs(_values(tirx.exp, x) - exact).max() <= 2.0**-149


def test_sigmoid_ends_in_zero() -> None:
    """Where the exponential overflows on purpose, between the clamp and the last normal number."""
    x = np.linspace(-92.0, -86.0, 1024).astype("float32")
    exact = 1 / (1 + np.exp(-x.astype("float64")))
    got = _values(tirx.sigmoid, x)
    assert np.abs(got - exact).max() <= 2.0**-126
    assert not got[x < -88.5].any()


def test_exponential_of_negative_numbers_ends_in_zero() -> None:
    x = np.array([0.0, -0.5, -126.0, -127.0, -1e30, -np.inf, np.nan], "float32")
    want = np.array([1.0, 0.5**0.5, 2.0**-126, 0.0, 0.0, 0.0, np.nan], "float32")
    np.testing.assert_allclose(_values(exp2_of_negative, x), want, rtol=1e-7, atol=0)


def test_a_power_bounded_by_zero_takes_the_shorter_form() -> None:
    def bounded(v: Expr) -> Expr:
        return tirx.exp2(tirx.min(v, tirx.const(0.0, "float32")))

    x = np.array([0.0, -0.5, -126.0, -np.inf, np.nan] + [-1.0] * 11, "float32")
    want = np.exp2(x.astype("float64")).astype("float32")
    np.testing.assert_allclose(_values(bounded, x), want, rtol=1e-7, atol=0)
    lines = {name: len(assembly(_map(op, 1024), RULE).splitlines()) for name, op in
             {"bounded": bounded, "any": tirx.exp2}.items()}  # fmt: skip
    assert lines["bounded"] < lines["any"]


@pytest.mark.parametrize("name", ULP)
def test_vector_code_without_libm(name: str) -> None:
    asm = assembly(_map(ULP[name][0], 1024), RULE)
    assert "ymm" in asm
    assert not libm_calls(asm)


def test_rounding_to_even_is_vector_code() -> None:
    """TVM's vectorizer takes no lanes together of a call that it does not know."""
    x = np.array([0.5, 1.5, -2.5, 2.4999998, 1e30, np.inf, np.nan, -0.0], "float32")
    np.testing.assert_array_equal(_values(tirx.nearbyint, x), np.rint(x))
    assert "vroundps" in assembly(_map(tirx.nearbyint, 1024), RULE)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_is_told_by_vectors(dtype: str) -> None:
    """TVM tests one lane after the other: a max pool that keeps NaN took 6 times as long."""
    values = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, np.finfo(dtype).max, 1e-40, -1.0]
    x = np.array([*values, *[0.5] * 55], dtype)
    source = te.placeholder(x.shape, dtype, name="x")
    y = te.compute(x.shape, lambda i: tirx.Select(tirx.isnan(source[i]), 1, 0), name="y")
    func = te.create_prim_func([source, y])
    want = np.isnan(x).astype("int32")
    (got,) = run(func, RULE, [x], [want])
    np.testing.assert_array_equal(got, want)
    assert not re.search(r"\sv?(ucomis|cmpunords)[sd]\s", assembly(func, RULE))


def test_libm_is_called_when_the_pass_is_off() -> None:
    func = RULE.apply(_map(tirx.exp, 64), machine()).mod["main"]
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    compiled = tvm.compile(module, target=tvm.target.Target({"kind": "llvm", "mcpu": "haswell"}))
    assert libm_calls(compiled.mod.inspect_source("asm")) == {"expf"}


def _lowered(func: PrimFunc) -> str:
    return lower_math(tvm.IRModule({"main": func})).script()


def test_other_types_and_exponents_stay_calls() -> None:
    x = te.placeholder((8,), "float64", name="x")
    func = te.create_prim_func([x, te.compute((8,), lambda i: tirx.exp(x[i]), name="y")])
    assert "T.exp" in _lowered(func)
    odd = _map(lambda v: tirx.power(v, tirx.const(2.5, "float32")), 8)
    assert "T.pow" in _lowered(odd)


def test_a_name_within_a_choice_is_bound_in_a_branch() -> None:
    """TVM's code generation took the names in the names of a padded SiLU for two bindings of one.

    What a branch may skip stays within it: its loads may lie outside the tensor.
    """
    assert "T.Let" not in _lowered(_map(tirx.exp, 8))
    x, x2 = te.placeholder((8,), name="x"), te.placeholder((64,), name="x2")
    many = np.linspace(-9, 9, 64).astype("float32")
    first = te.compute(
        (9,),
        lambda i: tirx.exp(tirx.if_then_else(i > 0, tirx.tanh(x(i - 1)), tirx.const(1.0))),
        name="y",
    )
    lowered = _lowered(te.create_prim_func([x, first]))
    assert "T.Let" not in lowered
    before, inside = lowered.split("if 0 < v_i:")
    assert " = x[" not in before and " = x[" in inside.split("else:")[0]
    values = np.linspace(-3, 3, 8).astype("float32")
    (got,) = run(te.create_prim_func([x, first]), RULE, [values], [np.empty(9, "float32")])
    np.testing.assert_allclose(got, np.exp(np.r_[1.0, np.tanh(values)]), rtol=1e-6)
    border = te.compute(
        (96,),
        lambda i: tirx.if_then_else(
            i >= 32, x2(i - 32) * tirx.sigmoid(x2(i - 32)), tirx.const(0.0)
        ),
        name="y",
    )
    (got,) = run(te.create_prim_func([x2, border]), RULE, [many], [np.empty(96, "float32")])
    np.testing.assert_allclose(got[32:], many / (1 + np.exp(-many)), rtol=1e-5)


def test_deep_nesting_compiles_in_little_code() -> None:
    """Written out for each reader, twelve levels would be more than the memory holds."""

    def nested(v: Expr) -> Expr:
        for _ in range(12):
            v = tirx.erf(tirx.exp(v) - 1.0)
        return v

    x = np.linspace(-2, 2, 64).astype("float32")
    want = x
    for _ in range(12):
        want = _erf(np.exp(want) - 1)
    np.testing.assert_allclose(_values(nested, x), want, rtol=1e-5, atol=1e-6)


def test_nested_calls_and_a_relax_module() -> None:
    # exp(tanh(x) * exp(x)): arguments that are themselves rewritten.
    func = _map(lambda v: tirx.exp(tirx.tanh(v) * tirx.exp(v)), 64)
    builder = relax.BlockBuilder()
    global_var = builder.add_func(func.with_attr("global_symbol", "nested"), "nested")
    x = relax.Var("x", R.Tensor((64,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(
                relax.call_tir(global_var, [x], out_ty=R.Tensor((64,), "float32"))
            )
        builder.emit_func_output(out)
    vm = relax.VirtualMachine(
        tvm.compile(builder.get(), target="llvm", tir_pipeline=KERNEL_PIPELINE), tvm.cpu()
    )
    value = np.linspace(-2, 2, 64).astype("float32")
    got = vm["main"](tvm.runtime.tensor(value)).numpy()
    wide = value.astype("float64")
    np.testing.assert_allclose(got, np.exp(np.tanh(wide) * np.exp(wide)), rtol=3e-6)
