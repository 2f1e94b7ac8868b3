"""Small graphs that led other compilers' passes astray, each compiled as a whole.

P1, P2, P3 and P7 are in `memory/test_plan_memory.py`, P8 is in `test_simplify_views.py`.
"""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from relax_passes.build import build_executable
from relax_passes.pass_base import PassContext
from relax_passes.pipeline import REQUIRED, Pipeline, default_pipeline
from tests.fuzz.graphs.variants import FREE_PHASES, run_twice
from tests.relax_passes.lowered_modules import call
from tests.relax_passes.pass_checks import context, module, normal, weights
from tir_schedules import Machine

op = relax.op


def compiled(mod: tvm.IRModule, pipeline: Pipeline | None = None) -> relax.VMExecutable:
    ctx = context()
    return build_executable((pipeline or default_pipeline()).run(mod, ctx), ctx)


# P4 -----------------------------------------------------------------------------------------------


def test_p4_convolutions_of_one_shape_with_two_weights_stay_two() -> None:
    kernels = [weights(4, 3, 3, 3, seed=seed) for seed in (1, 2)]

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        first, second = (bb.emit(op.nn.conv2d(x, k, padding=1)) for k in kernels)
        return op.subtract(first, second)

    x = normal(1, 3, 6, 6)
    (got,) = call(compiled(module((1, 3, 6, 6), build)), x)
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    difference = kernels[0].value.numpy() - kernels[1].value.numpy()
    wanted = np.einsum("nchwij,ocij->nohw", windows, difference)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    assert np.abs(got).max() > 0.1


# P5 -----------------------------------------------------------------------------------------------


def _late_symbol() -> tvm.IRModule:
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    x = relax.Var("x", relax.TensorType((n, 4), "float32"))
    y = relax.Var("y", relax.TensorType(None, "float32", ndim=2))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            a = builder.emit(op.exp(x))
            stated = builder.match_cast(y, relax.TensorType((m, 4), "float32"))
            b = builder.emit(op.nn.relu(builder.emit(op.broadcast_to(weights(4), (m, 4)))))
            joined = builder.emit(op.concat([a, builder.emit(op.add(b, stated))], 0))
            out = builder.emit_output(op.tanh(joined))
        builder.emit_func_output(out)
    return builder.get()


def test_p5_a_size_is_read_after_the_match_cast_that_defines_it() -> None:
    executable = compiled(_late_symbol())
    for n, m in ((2, 3), (1, 1), (4, 2)):
        x, y = normal(n, 4), normal(m, 4)
        (got,) = call(executable, x, y)
        gamma = np.maximum(weights(4).value.numpy(), 0)
        wanted = np.tanh(np.concatenate([np.exp(x), gamma + y]))
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


# P6 -----------------------------------------------------------------------------------------------


def test_p6_nested_tuples_unused_parts_and_inputs_as_outputs() -> None:
    x = relax.Var("x", relax.TensorType((2, 6), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            parts = builder.emit(op.split(x, 3, 1))  # the middle is not used
            first = builder.emit(parts[0])
            pair = builder.emit(relax.Tuple([first, builder.emit(op.exp(parts[2]))]))
            nested = builder.emit(relax.Tuple([pair, x]))
            inner = builder.emit(relax.TupleGetItem(nested, 0))
            total = builder.emit(op.add(first, builder.emit(relax.TupleGetItem(inner, 1))))
            outputs = [builder.emit_output(v) for v in (nested, total, total)]
        builder.emit_func_output(relax.Tuple([*outputs, x]))
    given = normal(2, 6)
    got = call(compiled(builder.get()), given)
    left, right = given[:, :2], np.exp(given[:, 4:])
    wanted = [left, right, given, left + right, left + right, given]
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


# P9 -----------------------------------------------------------------------------------------------


def _mixed() -> tvm.IRModule:
    """Convolution, batch norm, residual, views, a decomposed norm, equal branches, a product."""

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(op.nn.conv2d(x, weights(8, 8, 3, 3), padding=1))
        norm = [weights(8, seed=s) for s in (1, 2, 3)] + [weights(8, seed=4, positive=True)]
        y = bb.emit(op.nn.batch_norm(y, *norm, 1, training=False)[0])
        y = bb.emit(op.nn.relu(bb.emit(op.add(y, x))))
        y = bb.emit(op.permute_dims(bb.emit(op.reshape(y, (1, 8, 25))), [0, 2, 1]))
        centred = bb.emit(op.subtract(y, bb.emit(op.mean(y, [2], True))))
        spread = bb.emit(op.mean(bb.emit(op.multiply(centred, centred)), [2], True))
        root = bb.emit(op.sqrt(bb.emit(op.add(spread, relax.const(np.float32(1e-3))))))
        y = bb.emit(op.divide(centred, root))
        twice = bb.emit(op.add(bb.emit(op.exp(y)), bb.emit(op.exp(y))))
        return op.nn.softmax(bb.emit(op.matmul(twice, weights(8, 4))))

    return module((1, 8, 5, 5), build)


MIXED, GIVEN = _mixed(), normal(1, 8, 5, 5)


@pytest.fixture(scope="module")
def usual() -> np.ndarray:
    return call(compiled(MIXED), GIVEN)[0]


def _same(pipeline: Pipeline, usual: np.ndarray) -> None:
    (got,) = call(compiled(MIXED, pipeline), GIVEN)
    np.testing.assert_allclose(got, usual, rtol=2e-4, atol=1e-6)


def test_p9_any_pass_twice(usual: np.ndarray) -> None:
    """`run_twice` raises where the second run of a pass changes something."""
    phases = default_pipeline().phases
    _same(Pipeline({name: tuple(map(run_twice, ps)) for name, ps in phases.items()}), usual)


def test_p9_no_optional_pass(usual: np.ndarray) -> None:
    """Each alone: `test_pipeline.py::test_any_optional_pass_can_be_off`."""
    optional = {p.name for p in default_pipeline().passes()} - REQUIRED
    _same(default_pipeline().without(*optional), usual)


@pytest.mark.parametrize("seed", range(3))
def test_p9_passes_in_another_order(seed: int, usual: np.ndarray) -> None:
    phases = dict(default_pipeline().phases)
    for phase in FREE_PHASES:
        order = list(phases[phase])
        random.Random(seed).shuffle(order)
        phases[phase] = tuple(order)
    _same(Pipeline(phases), usual)


# P10 ----------------------------------------------------------------------------------------------


def test_p10_two_means_between_activations_build_for_cuda() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(op.sigmoid(bb.emit(op.rsqrt(x))))
        y = bb.emit(op.mean(bb.emit(op.mean(y, [3], True)), [2], True))
        softplus = bb.emit(op.log(bb.emit(op.add(bb.emit(op.exp(y)), relax.const(np.float32(1))))))
        return op.multiply(y, bb.emit(op.tanh(softplus)))  # mish

    target = tvm.target.Target(
        {"kind": "cuda", "arch": "sm_80", "max_shared_memory_per_block": 49152},
        host={"kind": "llvm"},
    )
    ctx = PassContext(target, Machine.from_target(target))
    scheduled = default_pipeline().until("schedule").run(module((2, 3, 16, 16), build), ctx)
    rules = [kernel["rule"] for kernel in ctx.log.metrics["kernels"]]
    assert rules and "" not in rules
    functions = [f for f in scheduled.functions.values() if isinstance(f, tirx.PrimFunc)]
    assert len(functions) == len(rules)
    for func in functions:  # each launches a grid: none is left as host loops
        assert "threadIdx.x" in func.script() or "blockIdx.x" in func.script()


# P11 ----------------------------------------------------------------------------------------------


def _chain(length: int) -> tvm.IRModule:
    steps = (op.tanh, op.abs, op.sigmoid, op.negative)

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        for number in range(length):
            x = bb.emit(steps[number % 4](x))
        return x

    return module((4, 8), build)


def _readers(count: int) -> tvm.IRModule:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        shared = bb.emit(op.exp(x))
        scaled = [bb.emit(op.multiply(shared, relax.const(np.float32(i)))) for i in range(count)]
        return op.concat([bb.emit(op.tanh(s)) for s in scaled], 0)

    return module((4, 8), build)


def _residuals(nodes: int) -> tvm.IRModule:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        for _ in range(nodes // 2):
            x = bb.emit(op.add(bb.emit(op.tanh(x)), x))
        return x

    return module((4, 8), build)


def test_p11_a_chain_of_two_hundred_operators() -> None:
    x = normal(4, 8)
    (got,) = call(compiled(_chain(200)), x)
    wanted = x.astype("float64")
    for number in range(200):
        wanted = (np.tanh, np.abs, lambda v: 1 / (1 + np.exp(-v)), np.negative)[number % 4](wanted)
    np.testing.assert_allclose(got, wanted, rtol=1e-4)


def test_p11_a_tensor_with_fifty_readers() -> None:
    x = normal(4, 8)
    (got,) = call(compiled(_readers(50)), x)
    wanted = np.concatenate([np.tanh(np.exp(x) * i) for i in range(50)])
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_p11_a_residual_chain_of_a_thousand_nodes_takes_linear_time() -> None:
    """Processor time of the passes before the kernels: linear, not quadratic."""
    passes = default_pipeline().until("fuse")

    def seconds(nodes: int) -> float:
        mod = _residuals(nodes)
        start = time.process_time()
        passes.run(mod, context())
        return time.process_time() - start

    seconds(20)
    small, large = (min(seconds(nodes) for _ in range(2)) for nodes in (250, 1000))
    assert large < 9 * small
