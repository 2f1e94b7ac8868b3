"""Reductions over any axes: numbers, and vector accumulators in the code."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tvm import te, topi
from tvm.relax import op

from tests.tir_schedules.llvm.scheduled_kernel import (
    AVX2,
    assembly,
    assert_runs,
    hot_loop,
    legalized,
    machine,
)
from tir_schedules.llvm.lane_reduction import accumulator_width
from tir_schedules.llvm.reduction import RULE
from tir_schedules.rule import Decline

RNG = np.random.default_rng(0)
SHAPES = [(2, 12, 64), (3, 37, 101), (5, 4, 1), (1, 1, 1)]
AXES = [[-1], [0], [1], [0, 1], [1, 2], [0, 2], None]


def _rand(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("shape", SHAPES)
def test_sum_and_max(shape: tuple[int, ...], axes: list[int] | None) -> None:
    x = _rand(*shape)
    axis = None if axes is None else tuple(axes)
    total = np.asarray(x.sum(axis, dtype="float64"), "float32")
    func = legalized(lambda v: op.sum(v, axis=axes), shape)
    assert_runs(func, RULE, [x], [total], 1e-4)
    peak = np.asarray(x.max(axis))
    assert_runs(legalized(lambda v: op.max(v, axis=axes), shape), RULE, [x], [peak], 0.0)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_argmax(axis: int) -> None:
    x = _rand(3, 18, 11)
    func = legalized(lambda v: op.argmax(v, axis=axis), x.shape)
    assert_runs(func, RULE, [x], [x.argmax(axis)], 0.0)


def test_softmax_over_a_middle_axis() -> None:
    x = _rand(2, 5, 9)
    e = np.exp(x)
    func = legalized(lambda v: op.nn.softmax(v, axis=1), x.shape)
    assert_runs(func, RULE, [x], [e / e.sum(1, keepdims=True)])


def test_integers_are_summed_exactly() -> None:
    x = te.placeholder((7, 64), "int64", name="x")
    func = te.create_prim_func([x, topi.sum(x, axis=1)])
    value = RNG.integers(-(1 << 40), 1 << 40, (7, 64))
    assert_runs(func, RULE, [value], [value.sum(1)], 0.0)


@pytest.mark.parametrize("length", [1, 8, 33])
def test_symbolic_axes(length: int) -> None:
    n = te.var("n", "int64")
    x = te.placeholder((3, n), name="x")
    value = _rand(3, length)
    assert_runs(te.create_prim_func([x, topi.sum(x, axis=1)]), RULE, [value], [value.sum(1)])
    assert_runs(te.create_prim_func([x, topi.sum(x, axis=0)]), RULE, [value], [value.sum(0)])


def test_empty_axis_gives_the_identity() -> None:
    x = te.placeholder((4, 0), name="x")
    k = te.reduce_axis((0, 0), name="k")
    total = te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="total")
    func = te.create_prim_func([x, total])
    assert_runs(func, RULE, [np.zeros((4, 0), "float32")], [np.zeros(4, "float32")])


@pytest.mark.parametrize(
    ("length", "width"), [(768, 32), (197, 32), (49, 16), (64, 32), (24, 8), (7, None), (1, None)]
)
def test_accumulator_width(length: int, width: int | None) -> None:
    assert accumulator_width(length, 8, exact=False) == width


def test_rows_are_summed_in_vector_registers() -> None:
    asm = assembly(legalized(lambda v: op.sum(v, axis=-1), (64, 768)), RULE, AVX2)
    hot = hot_loop(asm, "vaddps")
    registers = {m for line in hot for m in re.findall(r"vaddps.*%(ymm\d+)$", line)}
    assert len(registers) >= 4


def test_declines_maps() -> None:
    with pytest.raises(Decline, match="no reduction"):
        RULE.apply(legalized(op.nn.relu, (3, 4)), machine())
