"""Several results a row: one loop over rows, one pass for reductions of operands, right numbers."""

from __future__ import annotations

import numpy as np
import pytest
import tvm_ffi
from tvm import te, tirx
from tvm.tirx import For, ForKind, PrimFunc

from tests.tir_schedules.llvm.scheduled_kernel import assert_runs, machine
from tir_schedules.llvm import elementwise, reduction
from tir_schedules.llvm.row_results import RULE
from tir_schedules.rule import Decline

RNG = np.random.default_rng(0)
SHAPES = [(6, 96), (3, 101), (5, 7), (4, 1), (1, 4000), (64, 768)]


def _const(value: float) -> tirx.Expr:
    return tirx.const(value, "float32")


def statistics(rows: int, length: int) -> PrimFunc:
    """Return mean, variance, maximum and the doubled rows of x (rows, length)."""
    x = te.placeholder((rows, length), name="x")
    k = [te.reduce_axis((0, length), f"k{i}") for i in range(3)]
    total = te.compute((rows,), lambda i: te.sum(x[i, k[0]], k[0]), name="total")
    mean = te.compute((rows,), lambda i: total[i] / _const(length), name="mean")
    off = te.compute((rows, length), lambda i, j: x[i, j] - mean[i], name="off")
    variance = te.compute((rows,), lambda i: te.sum(off[i, k[1]] * off[i, k[1]], k[1]), name="var")
    most = te.compute((rows,), lambda i: te.max(x[i, k[2]], k[2]), name="most")
    twice = te.compute((rows, length), lambda i, j: x[i, j] * _const(2), name="twice")
    return te.create_prim_func([x, mean, variance, most, twice])


def two(rows: int, length: int, axis: int) -> PrimFunc:
    """Return sum and maximum of x (rows, length) along an axis."""
    x = te.placeholder((rows, length), name="x")
    sizes = (rows, length)
    k = [te.reduce_axis((0, sizes[axis]), f"k{i}") for i in range(2)]

    def at(i: tirx.Var, step: tirx.Var) -> tirx.Expr:
        return x[i, step] if axis == 1 else x[step, i]

    kept = (sizes[1 - axis],)
    total = te.compute(kept, lambda i: te.sum(at(i, k[0]), k[0]), name="total")
    most = te.compute(kept, lambda i: te.max(at(i, k[1]), k[1]), name="most")
    return te.create_prim_func([x, total, most])


def loops(func: PrimFunc) -> list[For]:
    found: list[For] = []
    tvm_ffi.structural_walk(func.body, (For, found.append), order="pre")
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_numbers(shape: tuple[int, int]) -> None:
    x = RNG.standard_normal(shape).astype("float32")
    mean = x.mean(1, dtype="float64")
    wanted = [mean, ((x - mean[:, None]) ** 2).sum(1), x.max(1), 2 * x]
    assert_runs(statistics(*shape), RULE, [x], [w.astype("float32") for w in wanted])


def test_one_loop_over_rows_runs_on_all_cores() -> None:
    (row, *_) = nest = loops(RULE.apply(statistics(64, 768), machine()).mod["main"])
    assert int(row.extent) == 64 and row.kind == ForKind.PARALLEL
    assert sum(loop.kind == ForKind.PARALLEL for loop in nest) == 1
    assert sum(int(loop.extent) == 64 for loop in nest if loop.kind != ForKind.VECTORIZED) == 1


@pytest.mark.parametrize("axis", [0, 1])
def test_reductions_share_one_pass(axis: int) -> None:
    """Each step loads one vector and adds it to both results."""
    rule = RULE if axis else reduction.RULE
    func = rule.apply(two(64, 768, axis), machine()).mod["main"]
    step = next(loop for loop in loops(func) if _updates(loop) == 2 and not _inner_serial(loop))
    assert int(step.extent) > 1


def _updates(loop: For) -> int:
    """Count the vectorized loops right below a loop."""
    inner = [f for f in loops_in(loop.body) if f.kind == ForKind.VECTORIZED]
    return len(inner)


def _inner_serial(loop: For) -> bool:
    return any(f.kind != ForKind.VECTORIZED for f in loops_in(loop.body))


def loops_in(stmt: object) -> list[For]:
    found: list[For] = []
    tvm_ffi.structural_walk(stmt, (For, found.append), order="pre")
    return found


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_numbers_of_two_reductions(axis: int, shape: tuple[int, int]) -> None:
    x = RNG.standard_normal(shape).astype("float32")
    rule = RULE if axis else reduction.RULE
    assert_runs(two(*shape, axis), rule, [x], [x.sum(axis), x.max(axis)])


def test_more_reductions_than_registers_take_several_passes() -> None:
    x = te.placeholder((8, 768), name="x")
    k = [te.reduce_axis((0, 768), f"k{i}") for i in range(9)]

    def multiple(n: int) -> te.Tensor:
        return te.compute((8,), lambda i: te.sum(x[i, k[n]] * _const(n + 1), k[n]), name=f"s{n}")

    sums = list(map(multiple, range(9)))
    data = RNG.standard_normal((8, 768)).astype("float32")
    wanted = [data.sum(1) * (n + 1) for n in range(9)]
    assert_runs(te.create_prim_func([x, *sums]), RULE, [data], wanted)


def test_columns_and_single_results_are_declined() -> None:
    with pytest.raises(Decline, match="reduces columns"):
        RULE.apply(two(64, 768, 0), machine())
    x = te.placeholder((8, 8), name="x")
    one = te.compute((8, 8), lambda i, j: x[i, j] * _const(2), name="one")
    with pytest.raises(Decline, match="has one result"):
        RULE.apply(te.create_prim_func([x, one]), machine())


@pytest.mark.parametrize("shape", SHAPES)
def test_maps_share_loops(shape: tuple[int, int]) -> None:
    """The second map reads the first's result; the third needs an intermediate of its own."""
    x = te.placeholder(shape, name="x")
    a = te.compute(shape, lambda i, j: tirx.max(x[i, j], _const(0)), name="a")
    b = te.compute(shape, lambda i, j: a[i, j] * _const(2), name="b")

    def squashed(y: te.Tensor, name: str) -> te.Tensor:
        return te.compute(shape, lambda i, j: tirx.tanh(y[i, j]), name=name)

    c = x
    for name in "cdef":
        c = squashed(c, name)
    func = te.create_prim_func([x, a, b, c])
    data = RNG.standard_normal(shape).astype("float32")
    deep = np.tanh(np.tanh(np.tanh(np.tanh(data))))
    relu = np.maximum(data, 0)
    assert_runs(func, elementwise.RULE, [data], [relu, 2 * relu, deep])
    nest = loops(elementwise.RULE.apply(func, machine()).mod["main"])
    assert len([f for f in nest if f.kind != ForKind.VECTORIZED]) <= 2
