"""Elementwise chains: one loop, vector code, odd and symbolic shapes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tvm_ffi
from tvm import te, tirx, topi
from tvm.relax import op
from tvm.tirx import For

from tests.tir_schedules.llvm.scheduled_kernel import (
    assembly,
    assert_runs,
    legalized,
    libm_calls,
    machine,
)
from tir_schedules.blocks import expression_nodes, leaf_blocks
from tir_schedules.llvm.elementwise import RULE
from tir_schedules.rule import Decline

RNG = np.random.default_rng(0)
SHAPES = [(2, 128, 768), (3, 37, 101), (100003,), (1, 7), (1,), (4, 1, 5), (0, 4), ()]


def _rand(*shape: int) -> np.ndarray:
    return np.asarray(RNG.standard_normal(shape), "float32")


def _gelu(x: np.ndarray) -> np.ndarray:
    erf = np.vectorize(math.erf, otypes=["float64"])
    return (x * 0.5 * (1 + erf(x / math.sqrt(2.0)))).astype("float32")


@pytest.mark.parametrize("shape", SHAPES)
def test_gelu(shape: tuple[int, ...]) -> None:
    x = _rand(*shape)
    assert_runs(legalized(op.nn.gelu, shape), RULE, [x], [_gelu(x)])


@pytest.mark.parametrize(
    ("left", "right"), [((2, 3, 40), (40,)), ((7, 1, 5), (3, 1)), ((4, 1), (1, 33))]
)
def test_broadcasts(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    x, y = _rand(*left), _rand(*right)
    assert_runs(legalized(op.subtract, left, right), RULE, [x, y], [x - y])


@pytest.mark.parametrize("size", [1, 16, 1000])
def test_symbolic_shape(size: int) -> None:
    x = te.placeholder((te.var("n", "int64"), te.var("m", "int64")), name="x")
    func = te.create_prim_func([x, topi.nn.relu(topi.tanh(x))])
    value = _rand(3, size)
    assert_runs(func, RULE, [value], [np.maximum(np.tanh(value), 0)])


def test_several_results_share_their_inputs() -> None:
    x = te.placeholder((5, 24), name="x")
    y = te.compute((5, 24), lambda i, j: x[i, j] * 2.0, name="y")
    z = te.compute((5, 24), lambda i, j: y[i, j] + x[i, j], name="z")
    value = _rand(5, 24)
    assert_runs(te.create_prim_func([x, y, z]), RULE, [value], [value * 2, value * 3])


def test_chain_becomes_one_loop() -> None:
    scheduled = RULE.apply(legalized(op.nn.gelu, (64, 768)), machine())
    assert len(scheduled.get_child_blocks(scheduled.get_sblock("root"))) == 1
    asm = assembly(legalized(op.nn.gelu, (64, 768)), RULE)
    assert "ymm" in asm
    assert not libm_calls(asm)


def test_repeated_squares_do_not_explode() -> None:
    stage = x = te.placeholder((64,), name="x")
    half = tirx.const(0.5, "float32")
    for _ in range(40):
        stage = topi.multiply(topi.multiply(stage, stage), half)
    value = np.full((64,), 2.0, "float32")
    assert_runs(te.create_prim_func([x, stage]), RULE, [value], [value])


def _choices(func: tirx.PrimFunc) -> tuple[list[int], int]:
    """Return the choices in each block, and how many outermost loops there are."""
    sch = RULE.apply(func, machine())
    kinds = (tirx.Select, tirx.Max, tirx.Min)
    counts = [expression_nodes(sch.get(block).body, kinds) for block in leaf_blocks(sch)]
    return counts, len({str(sch.get(sch.get_loops(b)[0]).loop_var) for b in leaf_blocks(sch)})


def test_a_chain_of_selects_is_cut_into_stages_of_one_nest() -> None:
    """x > h ? x : x - h reads x three times; TVM took minutes to simplify six of them in one."""
    stage = x = te.placeholder((4, 64), name="x")
    half = tirx.const(0.5, "float32")
    for _ in range(8):
        stage = topi.where(topi.greater(stage, half), stage, topi.subtract(stage, half))
    func = te.create_prim_func([x, stage])
    counts, nests = _choices(func)
    assert max(counts) <= 4 and nests == 1
    value = _rand(4, 64)
    expected = value
    for _ in range(8):
        expected = np.where(expected > 0.5, expected, expected - np.float32(0.5))
    assert_runs(func, RULE, [value], [expected])


def test_a_chain_of_limits_is_cut_into_stages() -> None:
    """Each of the limits in another one took TVM's simplifier twice as long."""
    stage = x = te.placeholder((64,), name="x")
    for k in range(16):
        limited = topi.minimum(topi.maximum(stage, -2.0 - k), 2.0 + k)
        stage = topi.multiply(limited, tirx.const(0.9, "float32"))
    counts, _ = _choices(te.create_prim_func([x, stage]))
    assert max(counts) <= 16 and sum(counts) == 32


def test_small_maps_stay_serial_and_large_ones_do_not() -> None:
    def kinds(rows: int) -> list[int]:
        seen: list[int] = []
        body = RULE.apply(legalized(op.nn.relu, (rows, 768)), machine()).mod["main"].body
        tvm_ffi.structural_walk(body, (For, lambda loop: seen.append(int(loop.kind))))
        return seen

    assert 1 not in kinds(4)
    assert 1 in kinds(1024)


def test_declines_reductions() -> None:
    with pytest.raises(Decline, match="reduction"):
        RULE.apply(legalized(lambda x: op.sum(x, axis=0), (3, 4)), machine())


def test_long_chains_are_one_loop() -> None:
    """Written out in the loop, thirty polynomials would take time exponential in their number."""
    x = te.placeholder((64,), name="x")
    stage = x
    for _ in range(30):
        stage = topi.add(topi.tanh(stage), 1.0)
    func = te.create_prim_func([x, stage])
    assert len(leaf_blocks(RULE.apply(func, machine()))) == 1
    value = want = _rand(64)
    for _ in range(30):
        want = np.tanh(want) + 1
    assert_runs(func, RULE, [value], [want])


def _padded_tanh(rows: tirx.Expr | int) -> tirx.PrimFunc:
    """Return max(tanh(p), 0) * p, p being x with a border of one row above and below."""
    x = te.placeholder((rows, 4), name="x")
    padded = topi.nn.pad(x, [1, 0], [1, 0])
    return te.create_prim_func([x, topi.multiply(topi.nn.relu(topi.tanh(padded)), padded)])


def test_a_border_of_a_symbolic_size_before_a_polynomial_is_one_loop() -> None:
    """Were the polynomial in the loop, its condition would be proved for each name: minutes."""
    func = _padded_tanh(te.var("n", "int64"))
    assert len(leaf_blocks(RULE.apply(func, machine()))) == 1
    assert len(leaf_blocks(RULE.apply(_padded_tanh(3), machine()))) == 1
    parts = [te.placeholder((k, te.var("m", "int64")), name=f"part{k}") for k in (1, 2)]
    joined = te.create_prim_func([*parts, topi.tanh(topi.concatenate(parts, 0))])
    assert len(leaf_blocks(RULE.apply(joined, machine()))) == 1
    x = _rand(3, 4)
    padded = np.pad(x, ((1, 1), (0, 0)))
    assert_runs(func, RULE, [x], [np.maximum(np.tanh(padded), 0) * padded])
