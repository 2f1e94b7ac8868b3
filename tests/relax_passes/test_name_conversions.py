"""Sizes that are converted from floats get names: read off an operand, or handed over."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx

from relax_passes.name_conversions import name_conversions
from relax_passes.name_sizes import name_sizes
from tests.relax_passes.lowered_modules import llvm_context, reference

H = tirx.Var("h", "int64")


def _scaled(size: tirx.Expr, factor: float) -> tirx.Expr:
    return tirx.floor(size.astype("float32") * tirx.const(factor, "float32")).astype("int64")


LARGE = _scaled(H, 1.3)
PLACES = tirx.floordiv(LARGE - 3, 2) + 1


def _function(rows: tirx.Expr, compute: Callable[[te.Tensor], te.Tensor]) -> tirx.PrimFunc:
    """Return the kernel that computes `compute(x)` from x of (rows, 4) and the size h."""
    x = te.placeholder((rows, 4), name="x")
    return te.create_prim_func([x, H, compute(x)], index_dtype_override="int64")


def _add_one(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda i, j: x[i, j] + 1.0, name="y")


def _sizes(func: tirx.PrimFunc) -> list[str]:
    return [param.name for param in func.params if not hasattr(param, "shape")]


def test_a_whole_dimension_is_read_off_its_tensor() -> None:
    named = name_conversions(_function(LARGE, _add_one), 2)
    first, last = named.func.params[0].shape[0], named.func.params[-1].shape[0]
    assert isinstance(first, tirx.Var) and first.same_as(last)
    assert "T.floor" not in named.func.script() and not named.added


def test_a_part_of_a_dimension_is_handed_over() -> None:
    named = name_conversions(_function(PLACES, _add_one), 2)
    x, _, size, y = named.func.params
    for dim in (x.shape[0], y.shape[0]):
        tvm.ir.assert_structural_equal(dim, tirx.floordiv(size - 3, 2) + 1)
    assert "T.floor" not in named.func.script()
    (added,) = named.added
    tvm.ir.assert_structural_equal(added, LARGE)


def test_of_one_conversion_within_another_only_what_is_used_is_handed_over() -> None:
    larger = _scaled(PLACES, 1.7)
    named = name_conversions(_function(larger * 2, _add_one), 2)
    assert _sizes(named.func) == ["h", "size"]
    (added,) = named.added
    tvm.ir.assert_structural_equal(added, larger)


def test_what_is_converted_from_an_element_stays() -> None:
    def rounded(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda i, j: tirx.floor(x[i, j]).astype("int64"), name="y")

    func = _function(tirx.floordiv(H, 2), rounded)
    assert name_conversions(func, 2).func is func


def test_what_is_converted_from_constants_stays() -> None:
    """The depth of a sorting network on a GPU is ceil(log2(64)): nothing for a caller."""
    depth = tirx.Cast("int64", tirx.ceil(tirx.log2(tirx.const(64, "float64"))))

    def deepened(x: te.Tensor) -> te.Tensor:
        return te.compute((4,), lambda i: x[i, 0] + depth, name="y")

    func = _function(tirx.IntImm("int64", 4), deepened)
    assert name_conversions(func, 2).func is func


def _module(*computations: Callable[[te.Tensor], te.Tensor]) -> tvm.IRModule:
    """Return the module whose `main` enlarges (h, 4) by 1.3, then applies computations."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((H, 4), "float32"))

    def enlarge(x: te.Tensor) -> te.Tensor:
        last = x.shape[0] - 1
        return te.compute(
            (_scaled(x.shape[0], 1.3), 4), lambda i, j: x[te.min(i, last), j], name="enlarge"
        )

    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit_te(enlarge, x)
            for compute in computations:
                value = builder.emit_te(compute, value)
            out = builder.emit_output(value)
        builder.emit_func_output(out)
    return builder.get()


def _windows(x: te.Tensor) -> te.Tensor:
    """Add the rows of each window of 3 by steps of 2."""
    places = tirx.floordiv(x.shape[0] - 3, 2) + 1
    return te.compute(
        (places, 4), lambda i, j: x[2 * i, j] + x[2 * i + 1, j] + x[2 * i + 2, j], name="windows"
    )


def _flattened(x: te.Tensor) -> te.Tensor:
    """Put rows beside each other: no dimension tells the number of rows but by a product."""
    rows, columns = x.shape
    return te.compute((rows * columns,), lambda i: x[i // columns, i % columns], name="flat")


@pytest.mark.parametrize("computations", [(_windows,), (_windows, _windows, _flattened)])
def test_kernels_compute_the_same(computations: tuple[Callable[..., te.Tensor], ...]) -> None:
    mod, ctx = _module(*computations), llvm_context()
    named, modified = name_sizes(mod, ctx)
    assert modified
    relax.analysis.well_formed(named)
    kernels = [func for func in named.functions.values() if isinstance(func, tirx.PrimFunc)]
    assert not any("T.floor(" in func.script() for func in kernels)
    again, _ = name_sizes(named, ctx)
    tvm.ir.assert_structural_equal(again, named)
    for rows in (6, 7, 12, 23):
        x = np.random.default_rng(rows).random((rows, 4)).astype("float32")
        np.testing.assert_array_equal(reference(named, x)[0], reference(mod, x)[0])


def test_a_size_that_no_tensor_tells_is_computed_by_the_caller() -> None:
    """The number of elements of the last kernel's tensors is a product of two unknown sizes."""

    def squares(x: te.Tensor) -> te.Tensor:
        rows = tirx.floordiv(_scaled(H, 1.3) - 3, 2) + 1
        return te.compute((rows * rows,), lambda i: x[i // rows, i % 4], name="squares")

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((H, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(builder.emit_te(squares, x))
        builder.emit_func_output(out)
    mod = builder.get()
    named, _ = name_sizes(mod, llvm_context())
    relax.analysis.well_formed(named)
    (kernel,) = [func for func in named.functions.values() if isinstance(func, tirx.PrimFunc)]
    assert _sizes(kernel) == ["size"]
    values = np.random.default_rng(0).random((8, 4)).astype("float32")
    np.testing.assert_array_equal(reference(named, values)[0], reference(mod, values)[0])
