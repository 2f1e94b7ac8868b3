"""The targets of memory planning on real architectures: the bound is met, others are beaten."""

from __future__ import annotations

import pytest

from relax_passes.memory.plan_offsets import STRATEGIES, plan_offsets
from relax_passes.memory.verify_offsets import verify_offsets
from tests.relax_passes.memory.small_zoo import MODELS, plan

pytest.importorskip("transformers")


@pytest.mark.parametrize("name", MODELS)
def test_the_peak_is_the_lower_bound(name: str):
    metrics = plan(name).log.metrics
    assert metrics["arena_bytes"] == metrics["lower_bound_bytes"] > 0
    assert metrics["pass_seconds"]["plan_memory"] < 20  # 2 s on a machine that is not loaded


@pytest.mark.parametrize("name", MODELS)
def test_tvms_planner_never_needs_less(name: str):
    metrics = plan(name).log.metrics
    assert metrics["arena_bytes"] <= metrics["tvm_planner_bytes"]


@pytest.mark.parametrize("name", ["mobilenet_v2", "bert", "bert_base_batch_32"])
def test_a_quarter_of_the_bytes_without_reuse_is_enough(name: str):
    metrics = plan(name).log.metrics
    assert 4 * metrics["arena_bytes"] <= metrics["naive_bytes"]


def test_every_strategy_plans_mobilenet():
    buffers = [(b["lower"], b["upper"], b["size"])
               for b in plan("mobilenet_v2").log.metrics["memory_plan"]]  # fmt: skip
    peaks = {}
    for strategy in STRATEGIES:
        found = plan_offsets(buffers, strategy=strategy)
        verify_offsets(buffers, found.offsets, found.peak)
        peaks[strategy] = found.peak
    assert peaks["search"] == min(peaks.values())
    assert peaks["search"] < peaks["buddy"]
