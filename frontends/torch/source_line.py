"""The user's line of code behind a node of a graph."""

from __future__ import annotations

import torch


def source_line(node: torch.fx.Node) -> str:
    """Return ' (file:line: code)' of the user's line that made `node`, or ''."""
    trace = (node.stack_trace or "").strip().splitlines()
    files = [i for i, line in enumerate(trace) if line.strip().startswith("File ")]
    if not files:
        return ""
    place = trace[files[-1]].strip().split(", ")
    code = trace[files[-1] + 1].strip() if files[-1] + 1 < len(trace) else ""
    file = place[0].removeprefix("File ").strip('"')
    return f" ({file}:{place[1].removeprefix('line ')}: {code})"
