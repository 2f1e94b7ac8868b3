"""With precision "strict", sums of floats and products with zero are what IEEE 754 says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, tirx

import relaxc
from relax_passes.guard_float_sums import guard_float_sums
from relax_passes.lower_operators import lower_operators
from relax_passes.pass_base import PassContext
from relax_passes.pipeline import default_pipeline
from tests.relax_passes.pass_checks import check, context, module, normal

R = relax.op
VALUES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 1.5, 3e38], "float32")


def const(value: float) -> relax.Expr:
    return relax.const(np.float32(value))


def strict() -> PassContext:
    ctx = context()
    ctx.precision = "strict"
    return ctx


def lowered(build: Callable, ctx: PassContext, shape: tuple[object, ...] = (8,)) -> tvm.IRModule:
    return lower_operators(module(shape, build), ctx)[0]


def hidden_sums(mod: tvm.IRModule) -> int:
    found: list[tvm.ir.Call] = []

    def visit(call: tvm.ir.Call) -> None:
        if getattr(call.op, "name", "") == "tirx.reinterpret":
            found.append(call)

    for func in mod.functions.values():
        if isinstance(func, tirx.PrimFunc):
            tvm_ffi.structural_walk(func.body, (tvm.ir.Call, visit))
    assert len(found) % 2 == 0
    return len(found) // 2


CASES: dict[str, tuple[Callable, Callable]] = {
    "(x + x) - x": (lambda bb, x: R.subtract(bb.emit(R.add(x, x)), x), lambda x: (x + x) - x),
    "(x + c) - c": (
        lambda bb, x: R.subtract(bb.emit(R.add(x, const(1e8))), const(1e8)),
        lambda x: (x + np.float32(1e8)) - np.float32(1e8),
    ),
    "(x - c) + c": (
        lambda bb, x: R.add(bb.emit(R.subtract(x, const(1e8))), const(1e8)),
        lambda x: (x - np.float32(1e8)) + np.float32(1e8),
    ),
    "x - x": (lambda bb, x: R.subtract(x, x), lambda x: x - x),
    "x * 0": (lambda bb, x: R.multiply(x, const(0)), lambda x: x * np.float32(0)),
    "x + 0": (lambda bb, x: R.add(x, const(0)), lambda x: x + np.float32(0)),
    "x - -0": (lambda bb, x: R.subtract(x, const(-0.0)), lambda x: x - np.float32(-0.0)),
    "0 / x": (lambda bb, x: R.divide(const(0), x), lambda x: np.float32(0) / x),
}


@pytest.mark.parametrize("case", CASES)
def test_strict_numbers_are_those_of_ieee(case: str) -> None:
    build, reference = CASES[case]
    with np.errstate(all="ignore"):
        wanted = reference(VALUES)
    got = relaxc.compile(module((8,), build), precision="strict", threads=1)(VALUES)
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(
        np.signbit(got)[~np.isnan(wanted)], np.signbit(wanted)[~np.isnan(wanted)]
    )


def test_a_scalar_zero_as_a_divisor() -> None:
    """A variance of one element, with n - 1 as its divisor, is of that kind."""
    mod = module((8,), lambda bb, x: R.divide(x, const(0)))
    with np.errstate(all="ignore"):
        wanted = VALUES / np.float32(0)
    np.testing.assert_array_equal(relaxc.compile(mod, threads=1)(VALUES), wanted)


@pytest.mark.parametrize("exponent", [0.5, -0.5])
def test_strict_powers_of_special_values(exponent: float) -> None:
    x = np.array([-np.inf, -0.0, 0.0, np.nan, -4.0, 4.0, np.inf, 1.0], "float32")
    mod = module((8,), lambda bb, x: R.power(x, const(exponent)))
    with np.errstate(all="ignore"):
        wanted = np.power(x, np.full_like(x, exponent))  # one number 0.5 would be a root
    np.testing.assert_array_equal(relaxc.compile(mod, precision="strict", threads=1)(x), wanted)


def test_without_the_pass_the_simplifier_cancels() -> None:
    """If this fails, TVM has learnt about floats, and the pass can go."""
    mod = module((8,), CASES["(x + x) - x"][0])
    passes = default_pipeline().without("guard_float_sums")
    got = relaxc.compile(mod, precision="strict", passes=passes, threads=1)(VALUES)
    assert np.isposinf(got[1])


def test_each_sum_is_hidden_once_and_the_numbers_stay() -> None:
    mod = lowered(lambda bb, x: R.subtract(bb.emit(R.add(x, x)), bb.emit(R.exp(x))), strict())
    changed = check(guard_float_sums, mod, normal(8), ctx=strict())
    assert hidden_sums(changed) == 2


def test_what_a_loop_adds_up_and_integers_stay() -> None:
    check(guard_float_sums, lowered(lambda bb, x: R.sum(x), strict()), fires=False, ctx=strict())
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8,), "int32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(R.add(x, x)))
    integers, _ = lower_operators(builder.get(), strict())
    check(guard_float_sums, integers, fires=False, ctx=strict())


def test_the_default_precision_hides_nothing() -> None:
    check(guard_float_sums, lowered(lambda bb, x: R.add(x, x), context()), fires=False)
