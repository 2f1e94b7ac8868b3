"""Scheduling: every kernel gets a rule, equal kernels become one, unequal constants stay apart."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from relax_passes.build import build_executable
from relax_passes.memory.plan_memory import plan_memory
from relax_passes.pipeline import default_pipeline
from relax_passes.schedule_kernels import (
    is_scheduled,
    merge_equal_kernels,
    schedule_kernels,
)
from relax_passes.verify import verify_phase
from tests.relax_passes.lowered_modules import (
    call,
    llvm_context,
    lowered,
    random_inputs,
    reference,
    structure,
)

op = relax.op


def kernels(mod: tvm.IRModule) -> list[tirx.PrimFunc]:
    return [f for f in mod.functions.values() if isinstance(f, tirx.PrimFunc)]


def test_every_kernel_is_scheduled_and_reported():
    mod = lowered(lambda e, x: e(op.nn.softmax(e(op.tanh(x)))), (16, 32))
    ctx = llvm_context()
    after, modified = schedule_kernels(mod, ctx)
    assert modified
    assert all(is_scheduled(func) for func in kernels(after))
    assert not any(is_scheduled(func) for func in kernels(mod))
    verify_phase("schedule", after, ctx)
    report = ctx.log.metrics["kernels"]
    assert {entry["name"] for entry in report} == set(structure(after))
    for entry in report:
        assert entry["rule"]
        assert entry["flops"] >= 0  # TVM's counter gives an intrinsic call no FLOPs
        assert entry["bytes"] >= 2 * 16 * 32 * 4


def test_scheduling_twice_changes_nothing():
    ctx = llvm_context()
    once, _ = schedule_kernels(lowered(lambda e, x: e(op.tanh(x)), (4, 8)), ctx)
    twice, modified = schedule_kernels(once, ctx)
    assert not modified
    tvm.ir.assert_structural_equal(once, twice)


def test_equal_kernels_become_one():
    def build(e, x):
        for _ in range(3):
            x = e(op.permute_dims(x))
        return x

    mod = lowered(build, (8, 8))
    merged, dropped = merge_equal_kernels(mod)
    assert dropped == len(kernels(mod)) - 1
    assert len(kernels(merged)) == 1
    assert len(set(structure(merged))) == 1
    relax.analysis.well_formed(merged)


def test_kernels_of_unlike_shapes_stay_apart():
    mod = lowered(lambda e, x, y: [e(op.exp(x)), e(op.exp(y))], (4, 8), (8, 4))
    merged, dropped = merge_equal_kernels(mod)
    assert dropped == 0
    assert len(kernels(merged)) == 2


def test_one_kernel_serves_two_convolutions_with_different_weights():
    """P4: equal shapes share code; the weights stay two constants."""
    rng = np.random.default_rng(0)
    w1, w2 = (rng.standard_normal((4, 4, 3, 3)).astype("float32") for _ in range(2))

    def build(e, x):
        a = e(op.nn.conv2d(x, relax.const(w1), padding=1))
        b = e(op.nn.conv2d(x, relax.const(w2), padding=1))
        return e(op.subtract(a, b))

    mod = lowered(build, (1, 4, 6, 6))
    merged, dropped = merge_equal_kernels(mod)
    assert dropped in (0, 1)  # legalization may have shared them already
    (value,) = random_inputs((1, 4, 6, 6))
    (want,) = reference(mod, value)
    (got,) = reference(merged, value)
    assert np.abs(want).max() > 0.1
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (7, 13), (64, 96)])
def test_numbers_are_those_of_the_unscheduled_module(shape: tuple[int, int]):
    def build(e, x):
        y = e(op.nn.softmax(e(op.multiply(x, relax.const(np.float32(3))))))
        return [e(op.sum(e(op.exp(y)), 1)), e(op.permute_dims(e(op.sigmoid(y))))]

    mod, ctx = lowered(build, shape), llvm_context()
    inputs = random_inputs(shape)
    after, _ = schedule_kernels(mod, ctx)
    after, _ = plan_memory(after, ctx)
    got = call(build_executable(after, ctx), *inputs)
    for want, result in zip(reference(mod, *inputs), got, strict=True):
        np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-6)


def test_calls_of_a_shared_kernel_are_counted() -> None:
    """Three equal calls share one kernel, whose entry says three."""

    def build(e, x):
        for _ in range(3):
            x = e(op.permute_dims(x))
        return x

    ctx = llvm_context()
    schedule_kernels(lowered(build, (8, 8)), ctx)
    assert [k["calls"] for k in ctx.log.metrics["kernels"]] == [3]


def test_the_scope_of_a_scatter_has_no_name_that_llvm_would_warn_of() -> None:
    x = relax.Var("x", relax.TensorType((4, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            places, ones = np.zeros((2, 4), "int64"), np.ones((2, 4), "float32")
            call = relax.op.scatter_elements(x, relax.const(places), relax.const(ones))
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    ctx = llvm_context()
    module = default_pipeline().until("fuse").run(builder.get(), ctx)
    assert "pragma_scope" in module.script()
    assert "pragma_scope" not in schedule_kernels(module, ctx)[0].script()
