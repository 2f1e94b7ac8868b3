"""E5: reuse that adds no dependency between branches that may run together."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import tvm
from tvm import relax

from relax_passes.memory.in_place import choose_in_place
from relax_passes.memory.live_ranges import analyze_live_ranges
from relax_passes.memory.parallel_safe import analyze_data_flow, may_overwrite
from relax_passes.memory.plan_memory import plan_memory
from relax_passes.schedule_kernels import schedule_kernels
from tests.relax_passes.lowered_modules import (
    call,
    llvm_context,
    lowered,
    random_inputs,
    reference,
)

op = relax.op


def branches(e, x):
    """Three branches of four kernels each, which meet at the end; none runs in place."""
    ends = []
    for _ in range(3):
        y = x
        for _ in range(4):
            y = e(op.permute_dims(y))
        ends.append(y)
    return e(op.permute_dims(e(op.concat(ends, 0))))


def residual(e, x):
    """An operand that dies in one branch while another branch reads it too."""
    a = e(op.exp(x))
    left = e(op.permute_dims(a))
    right = e(op.tanh(a))  # the last reader in program order, though not by data flow
    return e(op.permute_dims(e(op.add(left, right))))


def chain_of_views(e, x):
    """No branches, but a view between any two kernels."""
    for _ in range(6):
        x = e(op.reshape(e(op.permute_dims(x)), (16, 16)))
    return e(op.permute_dims(x))


def planned(build, **options):
    ctx = llvm_context()
    with ctx.target:
        mod, _ = schedule_kernels(lowered(build, (16, 16)), ctx)
        after, _ = plan_memory.with_options(**options)(mod, ctx)
    return mod, after, ctx


def sharing_without_order(mod: tvm.IRModule, buffers: list[dict]) -> int:
    """Count pairs of buffers that share bytes although data flow does not order them."""
    flat = relax.transform.ToNonDataflow()(mod)["main"]
    bindings = [b for block in flat.body.blocks for b in block.bindings]
    live = analyze_live_ranges(bindings, flat.body.body)
    untouched = analyze_data_flow(bindings, live)
    choose_in_place(mod, bindings, live, may_overwrite(live, untouched))
    flow = analyze_data_flow(bindings, live)
    index = {live.storages[i].lower: i for i in flow.touched}
    return sum(
        flow.conflict(index[a["lower"]], index[b["lower"]])
        for a, b in combinations(buffers, 2)
        if a["offset"] < b["offset"] + b["size"] and b["offset"] < a["offset"] + a["size"]
    )


def test_branches_share_no_bytes():
    mod, _, ctx = planned(branches, parallel_safe=True)
    assert sharing_without_order(mod, ctx.log.metrics["memory_plan"]) == 0
    # Two buffers a branch and the one they meet in; in sequence two branches lend theirs.
    assert ctx.log.metrics["arena_bytes"] > ctx.log.metrics["lower_bound_bytes"]


def test_the_plan_for_sequential_runs_does_share_them():
    mod, _, ctx = planned(branches)
    assert sharing_without_order(mod, ctx.log.metrics["memory_plan"]) > 0


def test_a_chain_costs_nothing():
    _, _, ctx = planned(chain_of_views, parallel_safe=True)
    assert ctx.log.metrics["arena_bytes"] == ctx.log.metrics["lower_bound_bytes"] == 2 * 1024
    assert ctx.log.metrics["parallel_safe_cost_bytes"] == 0


def test_the_cost_is_reported():
    _, _, safe = planned(branches, parallel_safe=True)
    _, _, tight = planned(branches)
    cost = safe.log.metrics["arena_bytes"] - tight.log.metrics["arena_bytes"]
    assert safe.log.metrics["parallel_safe_cost_bytes"] == cost > 0
    assert any(f"cost of {cost} bytes" in what for _, what in safe.log.fired)


def test_no_result_overwrites_what_another_branch_reads():
    _, _, tight = planned(residual)
    _, _, safe = planned(residual, parallel_safe=True)
    in_place = [next(w for _, w in c.log.fired if "in place" in w) for c in (tight, safe)]
    counts = [int(text.split(", ")[-1].split()[0]) for text in in_place]
    assert counts[1] < counts[0]


@pytest.mark.parametrize("build", [branches, residual])
def test_numbers_stay_equal(build):
    from relax_passes.build import build_executable

    mod, after, ctx = planned(build, parallel_safe=True)
    (x,) = random_inputs((16, 16))
    (got,) = call(build_executable(after, ctx), x)
    (want,) = reference(lowered(build, (16, 16)), x)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
