"""Softmax and norms: numbers on odd rows, one parallel loop, vector code."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm_ffi
from tvm import relax, te, topi
from tvm.relax import op
from tvm.tirx import For, PrimFunc

from tests.tir_schedules.llvm.scheduled_kernel import (
    assembly,
    assert_runs,
    legalized,
    libm_calls,
    machine,
)
from tir_schedules.llvm.row_kernel import RULE
from tir_schedules.rule import Decline

RNG = np.random.default_rng(0)


def _rand(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype("float64") - x.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)).astype("float32")


def _log_softmax(x: np.ndarray) -> np.ndarray:
    y = x.astype("float64") - x.max(-1, keepdims=True)
    return (y - np.log(np.exp(y).sum(-1, keepdims=True))).astype("float32")


def _layer_norm(x: np.ndarray, g: np.ndarray, b: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True, dtype="float64")
    scale = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return (centred / scale * g + b).astype("float32")


def _rms_norm(x: np.ndarray, g: np.ndarray) -> np.ndarray:
    scale = np.sqrt((x.astype("float64") ** 2).mean(-1, keepdims=True) + 1e-5)
    return (x / scale * g).astype("float32")


def _mean(x: np.ndarray) -> np.ndarray:
    return x.mean(-1, keepdims=True, dtype="float64").astype("float32")


CASES: dict[str, tuple[Callable[..., relax.Expr], Callable[..., np.ndarray], int]] = {
    "softmax": (op.nn.softmax, _softmax, 0),
    "log_softmax": (op.nn.log_softmax, _log_softmax, 0),
    "layer_norm": (lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-1]), _layer_norm, 2),
    "rms_norm": (lambda x, g: op.nn.rms_norm(x, g, axes=[-1]), _rms_norm, 1),
    "mean": (lambda x: op.mean(x, axis=-1, keepdims=True), _mean, 0),
}
SHAPES = [(2, 16, 768), (3, 7, 101), (2, 13, 197), (8, 49), (4, 1), (1, 1000)]


def _function(name: str, shape: tuple[int, ...]) -> PrimFunc:
    emit, _, weights = CASES[name]
    return legalized(emit, shape, *[shape[-1:]] * weights)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", CASES)
def test_numbers(name: str, shape: tuple[int, ...]) -> None:
    inputs = [_rand(*shape), *(_rand(shape[-1]) for _ in range(CASES[name][2]))]
    assert_runs(_function(name, shape), RULE, inputs, [CASES[name][1](*inputs)])


def test_one_row() -> None:
    x = _rand(5)
    assert_runs(_function("softmax", (5,)), RULE, [x], [_softmax(x)])


def test_layer_norm_over_two_axes() -> None:
    func = legalized(
        lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-2, -1]), (4, 6, 10), (6, 10), (6, 10)
    )
    x, g, b = _rand(4, 6, 10), _rand(6, 10), _rand(6, 10)
    flat = _layer_norm(x.reshape(4, 60), g.reshape(60), b.reshape(60)).reshape(4, 6, 10)
    assert_runs(func, RULE, [x, g, b], [flat])


def test_prologue_and_epilogue_run_at_the_row() -> None:
    x = te.placeholder((6, 40), name="x")
    mask = te.placeholder((40,), name="mask")
    scores = te.compute((6, 40), lambda i, j: x[i, j] * 0.125 + mask[j], name="scores")
    doubled = te.compute((6, 40), lambda i, j: topi.nn.softmax(scores)[i, j] * 2.0, name="doubled")
    func = te.create_prim_func([x, mask, doubled])
    value, bias = _rand(6, 40), _rand(40)
    assert_runs(func, RULE, [value, bias], [_softmax(value * np.float32(0.125) + bias) * 2])


@pytest.mark.parametrize("rows", [1, 3, 17])
def test_symbolic_rows(rows: int) -> None:
    x = te.placeholder((te.var("n", "int64"), 36), name="x")
    func = te.create_prim_func([x, topi.nn.softmax(x)])
    value = _rand(rows, 36)
    assert_runs(func, RULE, [value], [_softmax(value)])


@pytest.mark.parametrize("length", [1, 9, 50])
def test_symbolic_row_length(length: int) -> None:
    x = te.placeholder((4, te.var("n", "int64")), name="x")
    func = te.create_prim_func([x, topi.nn.softmax(x)])
    value = _rand(4, length)
    assert_runs(func, RULE, [value], [_softmax(value)])


@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_rows_share_one_parallel_loop_and_vector_accumulators(name: str) -> None:
    loops: list[For] = []
    scheduled = RULE.apply(_function(name, (256, 768)), machine()).mod["main"]
    tvm_ffi.structural_walk(scheduled.body, (For, loops.append))
    assert [int(loop.kind) for loop in loops].count(1) == 1
    asm = assembly(_function(name, (256, 768)), RULE)
    assert "ymm" in asm
    assert not libm_calls(asm)


def test_declines_when_rows_are_not_leading() -> None:
    func = legalized(lambda x: op.nn.softmax(x, axis=1), (2, 5, 7))
    with pytest.raises(Decline, match="leading axes"):
        RULE.apply(func, machine())
