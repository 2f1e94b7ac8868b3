"""The rule that takes anything: irregular functions run, and give the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
import tvm_ffi
from tvm import te, topi
from tvm.relax import op
from tvm.script import tirx as T
from tvm.tirx import For

from tests.tir_schedules.llvm.scheduled_kernel import assert_runs, legalized, machine
from tir_schedules.llvm.fallback import RULE

RNG = np.random.default_rng(0)


def _rand(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


@T.prim_func(s_tir=True)
def _running_sum(x: T.Buffer((4, 9), "float32"), y: T.Buffer((4, 9), "float32")):
    for i, j in T.grid(4, 9):
        with T.sblock("scan"):
            vi = T.axis.spatial(4, i)
            vj = T.axis.opaque(9, j)
            if vj == 0:
                y[vi, 0] = x[vi, 0]
            else:
                y[vi, vj] = y[vi, vj - 1] + x[vi, vj]


def test_scan_keeps_its_order() -> None:
    x = _rand(4, 9)
    assert_runs(_running_sum, RULE, [x], [np.cumsum(x, 1, dtype="float32")])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax_over_any_axis(axis: int) -> None:
    x = _rand(3, 10, 7)
    e = np.exp(x)
    func = legalized(lambda v: op.nn.softmax(v, axis=axis), x.shape)
    assert_runs(func, RULE, [x], [e / e.sum(axis, keepdims=True)])


def test_gather_and_concat() -> None:
    table = te.placeholder((11, 6), name="table")
    rows = te.placeholder((5,), "int64", name="rows")
    taken = topi.take(table, rows, axis=0)
    func = te.create_prim_func([table, rows, topi.concatenate([taken, table], axis=0)])
    values, index = _rand(11, 6), np.array([10, 0, 3, 3, 7])
    assert_runs(func, RULE, [values, index], [np.concatenate([values[index], values])])


def test_unscheduled_product_is_parallel_over_its_rows() -> None:
    func = legalized(op.matmul, (64, 48), (48, 40))
    x, y = _rand(64, 48), _rand(48, 40)
    assert_runs(func, RULE, [x, y], [x @ y])
    kinds: list[int] = []
    body = RULE.apply(func, machine()).mod["main"].body
    tvm_ffi.structural_walk(body, (For, lambda loop: kinds.append(int(loop.kind))))
    assert kinds.count(1) == 1
