"""Keep for the report what the graph was before and after: imported, lowered, and as kernels."""

from __future__ import annotations

import tvm

from relax_passes.analysis.graph_summary import summarize_graph
from relax_passes.pass_base import PassContext

# Above this many bindings no picture is readable, and its data would outgrow the code.
_MOST_BINDINGS = 3000


def record_graph(phase: str, mod: tvm.IRModule, bindings: int, ctx: PassContext) -> None:
    """Put a summary of the graph into `ctx.log.metrics["graphs"]` after the phases that change it.

    Args:
        phase: "import", or the phase that has just run.
        mod: The module it left.
        bindings: How many bindings that has.
        ctx: Takes the summary.
    """
    if phase not in ("import", "lower", "schedule"):
        return
    if bindings > _MOST_BINDINGS:
        reason = f"{bindings} bindings are more than {_MOST_BINDINGS}, which nobody can read"
        ctx.log.decline("report", f"picture of the graph after {phase}", reason)
        return
    graphs = ctx.log.metrics.setdefault("graphs", {})
    graphs[phase] = summarize_graph(mod, costs=phase == "lower")
