"""Modules with several Relax functions: each is fused and planned, results stay apart."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import relaxc


@I.ir_module
class Module:
    """`twice` returns what it was given beside a tensor of its own; `main` returns both."""

    @R.function(private=True)
    def twice(
        x: R.Tensor((4, 8), "float32"),
    ) -> R.Tuple(R.Tensor((4, 8), "float32"), R.Tensor((4, 8), "float32")):
        with R.dataflow():
            a = R.add(x, x)
            b = R.exp(a)
            gv = R.multiply(b, x)
            R.output(gv)
        return (x, gv)

    @R.function
    def main(x: R.Tensor((4, 8), "float32"), flag: R.Tensor((), "bool")) -> R.Tuple(
        R.Tensor((4, 8), "float32"), R.Tensor((4, 8), "float32")
    ):
        cls = Module
        with R.dataflow():
            y = R.nn.relu(x)
            R.output(y)
        if flag:
            r = cls.twice(y)
        else:
            r = cls.twice(x)
        with R.dataflow():
            first = r[0]
            second = r[1]
            changed = R.add(first, y)
            R.output(first, second, changed)
        return (first, R.add(changed, second))


def test_results_of_functions_are_kept_alive_and_copied() -> None:
    mod: tvm.IRModule = Module
    compiled = relaxc.compile(mod, threads=1, progress=False)
    x = np.random.default_rng(0).standard_normal((4, 8)).astype("float32")
    y = np.maximum(x, 0)
    for flag in (True, False):
        given = y if flag else x
        before = x.copy()
        first, total = compiled(x, np.array(flag))
        np.testing.assert_array_equal(first, given)
        np.testing.assert_allclose(
            total, given + y + np.exp(given + given) * given, rtol=1e-5, atol=1e-6
        )
        first[:] = 7  # a result is the caller's own: the input does not change
        np.testing.assert_array_equal(x, before)


@I.ir_module
class Twins:
    """Two equal private functions of a symbolic size, each with a symbol of its own."""

    @R.function(private=True)
    def first(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        with R.dataflow():
            a = R.exp(R.permute_dims(x))
            gv = R.add(R.permute_dims(a), x)
            R.output(gv)
        return gv

    @R.function(private=True)
    def second(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        with R.dataflow():
            a = R.exp(R.permute_dims(x))
            gv = R.add(R.permute_dims(a), x)
            R.output(gv)
        return gv

    @R.function
    def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        cls = Twins
        y = cls.first(x)
        z = cls.second(y)
        return z


def test_equal_functions_are_both_planned() -> None:
    """The builder keeps one of two equal functions: the second plan is not under its own name.

    The functions that come out share no symbol, which TVM refuses.
    """
    compiled = relaxc.compile(Twins, threads=1, progress=False)
    x = np.random.default_rng(0).random((4, 8)).astype("float32")
    y = np.exp(x) + x
    np.testing.assert_allclose(compiled(x), np.exp(y) + y, rtol=1e-5)


@I.ir_module
class OneOfTwo:
    """`pick` returns its second argument, which has more bytes than the first."""

    @R.function(private=True)
    def pick(a: R.Tensor((1,), "float32"), b: R.Tensor((8,), "float32")) -> R.Tensor(
        (8,), "float32"
    ):
        return b

    @R.function
    def main(x: R.Tensor((8,), "float32"), y: R.Tensor((8,), "float32")) -> R.Tensor(
        (6,), "float32"
    ):
        cls = OneOfTwo
        with R.dataflow():
            ends = R.split(x, indices_or_sections=[1, 7], axis=0)
            first = ends[0]
            picked = cls.pick(first, y)
            parts = R.split(picked, indices_or_sections=[1, 7], axis=0)
            inner = parts[1]
            gv = R.tanh(inner)
            R.output(gv)
        return gv


def test_a_part_of_what_a_function_returns_is_no_part_of_a_smaller_argument() -> None:
    compiled = relaxc.compile(OneOfTwo, threads=1, progress=False)
    x, y = np.random.default_rng(0).standard_normal((2, 8)).astype("float32")
    np.testing.assert_allclose(compiled(x, y), np.tanh(y[1:7]), rtol=1e-5, atol=1e-6)


@I.ir_module
class Nested:
    """`main` returns tuples within a tuple: an input, what a function gave, a tensor of its own."""

    @R.function(private=True)
    def both(x: R.Tensor((4, 8), "float32")) -> R.Tuple(
        R.Tensor((4, 8), "float32"), R.Tuple(R.Tensor((4, 8), "float32"))
    ):
        y = R.exp(x)
        return (x, (y,))

    @R.function
    def main(x: R.Tensor((4, 8), "float32")) -> R.Tuple(
        R.Tensor((4, 8), "float32"),
        R.Tuple(
            R.Tensor((4, 8), "float32"),
            R.Tuple(R.Tensor((4, 8), "float32"), R.Tuple(R.Tensor((4, 8), "float32"))),
        ),
    ):
        cls = Nested
        y = R.add(x, x)
        pair = cls.both(y)
        return (x, (y, pair))


def test_tuples_within_a_tuple_are_outputs_side_by_side() -> None:
    compiled = relaxc.compile(Nested, threads=1, progress=False)
    assert [spec.name for spec in compiled.outputs] == [f"output_{k}" for k in range(4)]
    x = np.random.default_rng(0).standard_normal((4, 8)).astype("float32")
    results = compiled(x)
    for got, want in zip(results, (x, x + x, x + x, np.exp(x + x)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    results[1][:] = 7
    np.testing.assert_allclose(results[2], x + x)


def test_an_input_that_is_a_tuple_is_refused() -> None:
    pair = relax.Var("pair", relax.TupleType([relax.TensorType((4,), "float32")]))
    func = relax.Function([pair], relax.SeqExpr([], pair), pair.ty)
    with pytest.raises(relaxc.InvalidModel, match="an input is a tuple.*'pair'"):
        relaxc.compile(tvm.IRModule({"main": func}), progress=False)
