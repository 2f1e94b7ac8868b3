"""Computed sizes get plain names: kernels lose the sizes they came from, and equal ones merge."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx

from relax_passes.name_sizes import name_results, name_size, name_sizes
from relax_passes.schedule_kernels import merge_equal_kernels
from tests.relax_passes.lowered_modules import llvm_context, reference

W = tirx.Var("w", "int64")
HALF = tirx.floordiv(W - 1, 2) + 1
QUARTER = tirx.floordiv(W - 1, 4) + 1


def _square(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *i: x(*i) * x(*i), name="square")


def _pairs(x: te.Tensor) -> te.Tensor:
    """Add each value to the next: its result has (width - 1) // 2 + 1 columns."""
    rows, width = x.shape
    return te.compute(
        (rows, tirx.floordiv(width - 1, 2) + 1),
        lambda i, j: x[i, te.min(2 * j, width - 1)] + x[i, te.min(2 * j + 1, width - 1)],
        name="pairs",
    )


def _module(computations: list[object]) -> tvm.IRModule:
    """Return the module whose `main` applies computations one after the other to (3, w)."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3, W), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value: relax.Expr = x
            for compute in computations:
                value = builder.emit_te(compute, value)
            out = builder.emit_output(value)
        builder.emit_func_output(out)
    return builder.get()


def _kernels(mod: tvm.IRModule) -> list[tirx.PrimFunc]:
    return [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]


def _sizes(func: tirx.PrimFunc) -> list[str]:
    return [param.name for param in func.params if not hasattr(param, "shape")]


def test_kernels_at_two_depths_become_one_and_compute_the_same() -> None:
    mod = _module([_pairs, _square, _pairs, _square])
    assert [_sizes(func) for func in _kernels(mod)].count(["w"]) == 3
    assert merge_equal_kernels(mod)[1] == 0
    ctx = llvm_context()
    named, modified = name_sizes(mod, ctx)
    assert modified
    relax.analysis.well_formed(named)
    assert not any(_sizes(func) for func in _kernels(named))
    assert len(_kernels(merge_equal_kernels(named)[0])) == 2
    assert ctx.log.fired == [("name_sizes", "3 kernels read their sizes off their operands")]
    assert name_sizes(named, ctx) == (named, False)
    for width in (1, 2, 5, 8, 13):
        x = np.random.default_rng(width).random((3, width)).astype("float32")
        np.testing.assert_allclose(reference(named, x)[0], reference(mod, x)[0], rtol=1e-6)


def test_static_sizes_change_nothing() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3, 8), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit_te(_square, x))
    mod = builder.get()
    assert name_sizes(mod, llvm_context()) == (mod, False)


def _function(shape: tuple[object, ...], result: object) -> tirx.PrimFunc:
    """Return the function that computes `result(x)` from x of `shape` and the size w."""
    x = te.placeholder(shape, name="x")
    return te.create_prim_func([x, W, result(x)], index_dtype_override="int64")


def test_a_multiple_of_a_quotient_is_named_as_a_whole() -> None:
    wide = QUARTER * 6
    func = name_size(
        _function((wide,), lambda x: te.compute((wide * 2,), lambda i: x[i // 2], name="twice")), W
    )
    assert isinstance(func, tirx.PrimFunc)
    first, last = func.params[0].shape[0], func.params[-1].shape[0]
    assert isinstance(first, tirx.Var)
    tvm.ir.assert_structural_equal(last, first * 2)


@pytest.mark.parametrize(
    ("shape", "index", "reason"),
    [
        ((HALF,), lambda x, i: x[i] + W.astype("float32"), "it needs more of it"),
        ((W * W,), lambda x, i: x[i], "no dimension is a quotient"),
        (
            (HALF * 6,),
            lambda x, i: x[i] + (HALF * 3).astype("float32"),
            "some size is no multiple of a dimension",
        ),
    ],
)
def test_a_kernel_that_needs_the_size_keeps_it(
    shape: tuple[object, ...], index: object, reason: str
) -> None:
    func = _function(shape, lambda x: te.compute(shape, lambda i: index(x, i), name="y"))
    named = name_size(func, W)
    assert isinstance(named, str) and named.startswith(reason)


PLACES = tirx.floordiv(W - 3, 2) + 1


def test_a_dimension_that_may_be_negative_for_all_that_is_known_is_named() -> None:
    x = te.placeholder((W,), name="x")
    y = te.compute((PLACES,), lambda i: x[2 * i] + x[2 * i + 2], name="y")
    twice = te.compute((PLACES * 2,), lambda i: y[i // 2], name="twice")
    plain = name_results(te.create_prim_func([x, y, twice]))
    width, (places,), (doubled,) = (param.shape for param in plain.params)
    assert width[0].same_as(W) and isinstance(places, tirx.Var)
    tvm.ir.assert_structural_equal(doubled, places * 2)
    assert name_results(plain) is plain


@pytest.mark.parametrize("dim", [HALF, W - 2, tirx.floordiv(W, 2)])
def test_other_dimensions_keep_their_relation_to_a_size(dim: tirx.Expr) -> None:
    x = te.placeholder((W,), name="x")
    func = te.create_prim_func([x, te.compute((dim,), lambda i: x[i], name="y")])
    assert name_results(func) is func
