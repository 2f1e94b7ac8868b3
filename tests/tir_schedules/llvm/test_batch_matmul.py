"""The product of two run-time tensors: attention shapes, broadcasting, transposes, symbols."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, topi
from tvm.tirx import PrimFunc

from tests.tir_schedules.llvm.scheduled_kernel import (
    assembly,
    assert_runs,
    hot_loop,
    machine,
    run,
)
from tir_schedules.llvm.batch_matmul import RULE, batch_matmul
from tir_schedules.rule import Decline

RNG = np.random.default_rng(0)


def _rand(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def _function(a: tuple, b: tuple, transpose_a: bool, transpose_b: bool) -> PrimFunc:
    left, right = te.placeholder(a, name="a"), te.placeholder(b, name="b")
    product = batch_matmul(left, right, transpose_a, transpose_b)
    scaled = te.compute(product.shape, lambda *i: product(*i) * 0.125, name="scaled")
    return te.create_prim_func([left, right, scaled])


@pytest.mark.parametrize(
    ("a", "b", "transpose_a", "transpose_b"),
    [
        ((12, 128, 64), (12, 128, 64), False, True),
        ((1, 2, 37, 37), (1, 2, 37, 64), False, False),
        ((2, 197, 64), (2, 197, 64), False, True),
        ((3, 1, 7, 5), (2, 5, 9), False, False),
        ((5, 4), (3, 5, 6), True, False),
        ((5, 4), (3, 6, 5), True, True),
        ((1, 1, 64), (4, 50, 64), False, True),
        ((1, 1), (1, 1), False, False),
    ],
)
def test_shapes(a: tuple, b: tuple, transpose_a: bool, transpose_b: bool) -> None:
    left, right = _rand(*a), _rand(*b)
    x = left.swapaxes(-1, -2) if transpose_a else left
    y = right.swapaxes(-1, -2) if transpose_b else right
    expected = np.matmul(x, y) * np.float32(0.125)
    assert_runs(_function(a, b, transpose_a, transpose_b), RULE, [left, right], [expected])


@pytest.mark.parametrize("length", [1, 6, 13, 64])
def test_symbolic_length(length: int) -> None:
    m = te.var("m", "int64")
    query, key = _rand(2, length, 16), _rand(2, length, 16)
    func = _function((2, m, 16), (2, m, 16), False, True)
    expected = np.matmul(query, key.swapaxes(-1, -2)) * np.float32(0.125)
    assert_runs(func, RULE, [query, key], [expected])


def test_heads_are_joined_in_the_epilogue() -> None:
    a, b = te.placeholder((1, 4, 13, 13), name="a"), te.placeholder((1, 4, 13, 16), name="b")
    joined = topi.reshape(topi.transpose(batch_matmul(a, b), (0, 2, 1, 3)), (1, 13, 64))
    func = te.create_prim_func([a, b, joined])
    x, y = _rand(1, 4, 13, 13), _rand(1, 4, 13, 16)
    expected = np.matmul(x, y).transpose(0, 2, 1, 3).reshape(1, 13, 64)
    assert_runs(func, RULE, [x, y], [expected])


def test_infinite_columns_do_not_spread() -> None:
    # Columns past the end repeat the last one: its infinities may not reach other results.
    a, b = _rand(4, 3), _rand(3, 5)
    b[:, 4] = np.inf
    func = _function((4, 3), (3, 5), False, False)
    expected = (a @ b[:, :4]) * np.float32(0.125)
    (got,) = run(func, RULE, [a, b], [np.zeros((4, 5), "float32")])
    np.testing.assert_allclose(got[:, :4], expected, rtol=1e-5, atol=1e-6)


def test_machine_code_keeps_the_tile_in_registers() -> None:
    asm = assembly(_function((2, 66, 64), (2, 64, 64), False, True), RULE)
    hot = hot_loop(asm, "vfmadd")
    assert sum("vfmadd" in line and "ymm" in line for line in hot) == 48
    assert not [line for line in hot if "(%rsp)" in line]


def test_declines_other_functions() -> None:
    x = te.placeholder((4, 4), name="x")
    with pytest.raises(Decline, match="0 blocks tagged batch_matmul"):
        RULE.apply(te.create_prim_func([x, topi.nn.relu(x)]), machine())
