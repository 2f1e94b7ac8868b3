"""Run one pass: time it, count what it changed, and in debug mode verify what it returned."""

from __future__ import annotations

import time

import tvm

from relax_passes.pass_base import GraphPass, PassContext
from relax_passes.pass_effect import ModuleCounts, count_module, effect_of
from relax_passes.verify import verify_pass


def run_pass(
    graph_pass: GraphPass, phase: str, mod: tvm.IRModule, before: ModuleCounts, ctx: PassContext
) -> tuple[tvm.IRModule, ModuleCounts]:
    """Run a pass in `phase` on a module with the counts `before`; return the new module and counts.

    The effect is appended to `ctx.log.metrics["passes"]`, the time is added to `["pass_seconds"]`.

    Raises:
        relax_passes.verify.VerificationError: With `ctx.debug`, if the result is ill-formed or
            breaks an invariant of the phases before.
    """
    start = time.perf_counter()
    result, modified = graph_pass(mod, ctx)
    seconds = time.perf_counter() - start
    if ctx.debug:
        verify_pass(graph_pass.name, phase, mod, result, modified, ctx)
    # Counting walks the whole module: where nothing changed the old counts still hold.
    after = count_module(result) if modified else before
    effect = effect_of(graph_pass.name, phase, seconds, modified, before, after)
    ctx.log.metrics.setdefault("passes", []).append(effect.to_dict())
    total = ctx.log.metrics.setdefault("pass_seconds", {})
    total[graph_pass.name] = total.get(graph_pass.name, 0.0) + seconds
    return result, after
