"""Which lowered operators each kernel holds, read from the graphs before and after fusion.

Passes keep the names of tensors: one that is still there after fusion is the result of a kernel,
and one that is gone was computed on the way to those results that it reaches through others that
are gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Group:
    """One call of a kernel: the node after fusion, and the lowered nodes it computes."""

    name: str  # the tensor it gives
    kernel: str  # the function it calls
    type: str
    reads: list[int | str]  # numbers of groups, names of inputs
    members: list[dict[str, Any]] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)  # rule, flops, bytes of the kernel


def fusion_groups(
    lowered: dict[str, Any], kernels: dict[str, Any], facts: list[dict[str, Any]]
) -> list[Group]:
    """Return the groups in order.

    Args:
        lowered: The graph before fusion (`graph_summary.summarize_graph`).
        kernels: The graph after it.
        facts: What the report knows of each kernel, by "name".
    """
    known = {fact["name"]: fact for fact in facts}
    groups = [
        Group(n["name"], n["op"], n["type"], n["reads"], [], known.get(n["op"], {}))
        for n in kernels["nodes"]
    ]
    by_name = {group.name: group for group in groups}
    nodes = lowered["nodes"]
    homes: list[list[Group]] = [[] for _ in nodes]
    for number in range(len(nodes) - 1, -1, -1):
        own = by_name.get(nodes[number]["name"])
        if own is not None:
            homes[number] = [own]
        for home in homes[number]:
            home.members.insert(0, nodes[number])
        for source in nodes[number]["reads"]:
            if isinstance(source, int) and nodes[source]["name"] not in by_name:
                homes[source] += [h for h in homes[number] if h not in homes[source]]
    return groups
