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
from tir_schedules.softmax import log_softmax, softmax

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


OURS = {"softmax": softmax, "log_softmax": log_softmax}


def _function(name: str, shape: tuple[int, ...]) -> PrimFunc:
    emit, _, weights = CASES[name]
    if name in OURS:
        x = te.placeholder(shape, name="x")
        return te.create_prim_func([x, OURS[name](x, len(shape) - 1)])
    return legalized(emit, shape, *[shape[-1:]] * weights)


def _scheduled(name: str, shape: tuple[int, ...]) -> PrimFunc:
    return RULE.apply(_function(name, shape), machine()).mod["main"]


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
    doubled = te.compute((6, 40), lambda i, j: softmax(scores, 1)[i, j] * 2.0, name="doubled")
    func = te.create_prim_func([x, mask, doubled])
    value, bias = _rand(6, 40), _rand(40)
    assert_runs(func, RULE, [value, bias], [_softmax(value * np.float32(0.125) + bias) * 2])


@pytest.mark.parametrize("rows", [1, 3, 17])
def test_symbolic_rows(rows: int) -> None:
    x = te.placeholder((te.var("n", "int64"), 36), name="x")
    func = te.create_prim_func([x, softmax(x, 1)])
    value = _rand(rows, 36)
    assert_runs(func, RULE, [value], [_softmax(value)])


@pytest.mark.parametrize("length", [1, 9, 50])
def test_symbolic_row_length(length: int) -> None:
    x = te.placeholder((4, te.var("n", "int64")), name="x")
    func = te.create_prim_func([x, softmax(x, 1)])
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


def test_softmax_of_masked_rows() -> None:
    """The lowest float masks in many models: where all are masked, all weigh the same."""
    lowest = np.finfo("float32").min
    x = np.full((4, 32), lowest, "float32")
    x[1, 5], x[2], x[3, 7] = 3.0, -np.inf, np.nan
    want = np.stack([np.full(32, 1 / 32), np.eye(32)[5], np.full(32, np.nan), np.full(32, np.nan)])
    assert_runs(_function("softmax", x.shape), RULE, [x], [want.astype("float32")])


@pytest.mark.parametrize(("name", "operands"), [("softmax", 1), ("layer_norm", 1)])
def test_the_next_row_is_fetched_a_line_a_step(name: str, operands: int) -> None:
    """Scales and shifts, which are the same for each row, stay in cache without that."""
    text = _scheduled(name, (256, 768)).script()
    assert text.count("llvm.prefetch") == operands
    assert "prefetch" not in _scheduled(name, (256, 101)).script()  # no step of whole lines


def test_a_row_of_two_operands_is_fetched_from_both() -> None:
    x, y = (te.placeholder((64, 256), name=name) for name in "xy")
    func = te.create_prim_func([x, y, softmax(topi.add(x, y), 1)])
    assert RULE.apply(func, machine()).mod["main"].script().count("llvm.prefetch") == 2


def test_exponentials_wait_in_the_result_and_are_summed_as_they_come() -> None:
    text = _scheduled("softmax", (256, 768)).script()
    assert "softmax_weights_local" not in text
    loops: list[For] = []
    tvm_ffi.structural_walk(_scheduled("softmax", (256, 768)).body, (For, loops.append))
    steps = [loop for loop in loops if int(loop.extent) * 2 * machine().lanes() == 768]
    shared = [loop.script() for loop in steps if "softmax_weights" in loop.script()]
    assert len(shared) == 1
    assert "softmax_total_rf_update" in shared[0]


def test_a_row_is_not_kept_where_a_later_operand_may_be() -> None:
    """The result may overwrite an operand of its shape: it must not be written before that is."""
    x, y = (te.placeholder((8, 64), name=name) for name in "xy")
    shares = softmax(x, 1)
    func = te.create_prim_func(
        [x, y, te.compute((8, 64), lambda i, j: shares[i, j] * y[i, j], name="scaled")]
    )
    assert "softmax_weights" in RULE.apply(func, machine()).mod["main"].script()
    value, factor = _rand(8, 64), _rand(8, 64)
    assert_runs(func, RULE, [value, factor], [_softmax(value) * factor])


def test_declines_when_rows_are_not_leading() -> None:
    x = te.placeholder((2, 5, 7), name="x")
    func = te.create_prim_func([x, softmax(x, 1)])
    with pytest.raises(Decline, match="leading axes"):
        RULE.apply(func, machine())


def test_declines_the_columns_of_a_square() -> None:
    x = te.placeholder((64, 64), name="x")
    with pytest.raises(Decline, match="axes before those"):
        RULE.apply(te.create_prim_func([x, softmax(x, 0)]), machine())
