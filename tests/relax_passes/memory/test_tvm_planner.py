"""TVM's planner as the comparison point for our arena."""

from __future__ import annotations

from tvm import relax

from relax_passes.memory.plan_memory import plan_memory
from relax_passes.memory.tvm_planner import tvm_planner_bytes
from relax_passes.schedule_kernels import schedule_kernels
from tests.relax_passes.lowered_modules import llvm_context, lowered

op = relax.op


def test_chain_of_equal_sizes_takes_two_buffers():
    def build(e, x):
        for _ in range(5):
            x = e(op.permute_dims(x))
        return e(op.exp(x))

    mod, _ = schedule_kernels(lowered(build, (16, 16)), llvm_context())
    assert tvm_planner_bytes(mod) == 2 * 1024


def test_our_arena_is_smaller_where_sizes_differ():
    """Two small tensors fit where one large tensor was: whole-buffer reuse cannot do that."""

    def build(e, x):
        big = e(op.permute_dims(e(op.concat([x, x, x, x], 0))))
        small = e(op.permute_dims(e(op.strided_slice(big, [1], [0], [16]))))
        other = e(op.permute_dims(e(op.strided_slice(big, [1], [16], [32]))))
        pair = e(op.concat([small, other], 0))
        return e(op.permute_dims(e(op.permute_dims(pair))))

    ctx = llvm_context()
    mod, _ = schedule_kernels(lowered(build, (16, 16)), ctx)
    theirs = tvm_planner_bytes(mod)
    plan_memory(mod, ctx)
    assert 0 < ctx.log.metrics["arena_bytes"] < theirs
    assert ctx.log.metrics["arena_bytes"] == ctx.log.metrics["lower_bound_bytes"]
