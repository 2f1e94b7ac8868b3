"""Arithmetic of integer elements wraps around, as in NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax, te

import relaxc
from relax_passes.lower_operators import lower_operators
from relax_passes.pipeline import default_pipeline
from relax_passes.wrap_integers import wrap_integers
from tests.relax_passes.pass_checks import check, context

R = relax.op
# Each with its name, in Relax and in NumPy, of x and a function that makes constants.
EXPRESSIONS: dict[str, Callable] = {
    "x + c + c": lambda m, x, c: m.add(m.add(x, c(2**30)), c(2**30)),
    "x < x + 1": lambda m, x, c: m.less(x, m.add(x, c(1))),
    "max(x, 0) + c + c < 0": lambda m, x, c: m.less(
        m.add(m.add(m.maximum(x, c(0)), c(2**30)), c(2**30)), c(0)
    ),
    "|x| < 0": lambda m, x, c: m.less(m.abs(x), c(0)),
    "a * x + c < 0": lambda m, x, c: m.less(m.add(m.multiply(x, c(1664525)), c(2**30)), c(0)),
    "x - x": lambda m, x, c: m.subtract(x, x),
    "x * 0": lambda m, x, c: m.add(m.multiply(x, c(0)), c(0)),
    "x - 1 < x": lambda m, x, c: m.less(m.subtract(x, c(1)), x),
}


def integers(dtype: str, build: Callable, shape: tuple[int, ...] = (8,)) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(build(builder, x)))
        builder.emit_func_output(result)
    return relax.transform.Normalize()(builder.get())


def all_expressions(dtype: str, scale: int) -> tvm.IRModule:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        def const(value: int) -> relax.Expr:
            return relax.const(np.array(value * (scale if value > 1 else 1), dtype), dtype)

        return relax.Tuple([bb.emit(make(R, x, const)) for make in EXPRESSIONS.values()])

    return integers(dtype, build)


@pytest.mark.parametrize(("dtype", "scale"), [("int32", 1), ("int64", 2**32 + 1), ("uint32", 1)])
def test_numbers_are_those_of_numpy(dtype: str, scale: int) -> None:
    limits = np.iinfo(dtype)
    x = np.array([limits.max, limits.min, 7, 0, 1, limits.max - 1, 5, limits.min + 1], dtype)
    got = relaxc.compile(all_expressions(dtype, scale), threads=1)(x)

    def const(value: int) -> np.ndarray:
        return np.array(value * (scale if value > 1 else 1), dtype)

    for (name, make), result in zip(EXPRESSIONS.items(), got, strict=True):
        np.testing.assert_array_equal(result, make(np, x, const), err_msg=name)


def test_without_the_pass_they_are_not() -> None:
    """If this fails, TVM has learnt that integers wrap around, and the pass can go."""
    mod = all_expressions("int32", 1)
    passes = default_pipeline().without("wrap_integers")
    largest = np.full(8, 2**31 - 1, "int32")
    got = relaxc.compile(mod, passes=passes, threads=1)(largest)
    assert not got[list(EXPRESSIONS).index("max(x, 0) + c + c < 0")].any()


def test_it_fires_once() -> None:
    mod = lower_operators(integers("int64", lambda bb, x: R.add(x, x)), context())[0]
    check(wrap_integers, mod, np.arange(8))


@pytest.mark.parametrize(
    ("dtype", "build"),
    [
        ("int8", lambda bb, x: R.add(x, x)),  # neither TVM nor LLVM assumes anything
        ("int32", lambda bb, x: R.sum(x)),
        ("int32", lambda bb, x: R.maximum(x, x)),
        ("int64", lambda bb, x: R.take(x, x, axis=0, mode="wrap")),
        ("float32", lambda bb, x: R.add(x, x)),
    ],
)
def test_what_cannot_go_wrong_stays(dtype: str, build: Callable) -> None:
    mod = lower_operators(integers(dtype, build), context())[0]
    check(wrap_integers, mod, np.arange(8).astype(dtype), fires=False)


def test_widened_products_stay() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return bb.emit_te(
            lambda t: te.compute(
                (8,), lambda i: (t(i).astype("int32") - 120) * t(i).astype("int32") + 7
            ),
            x,
        )

    check(wrap_integers, integers("int8", build), np.arange(8).astype("int8"), fires=False)
