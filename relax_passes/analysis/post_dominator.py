"""Immediate post-dominators of a dataflow graph, by lowest common ancestors.

Nodes are numbered in topological order. The post-dominator of a node is the lowest common ancestor,
in the post-dominator tree built so far, of its readers; visiting nodes from last to first makes
each reader's place in the tree known in time (Lengauer and Tarjan 1979 treat the general case; a
DAG needs one pass). Ancestors are found by depth, so a chain of n nodes costs O(n).
"""

from __future__ import annotations

from collections.abc import Sequence


def immediate_post_dominators(
    readers: Sequence[Sequence[int]], escapes: Sequence[bool]
) -> list[int | None]:
    """Return for each node the nearest later node that every path from it must pass.

    Args:
        readers: For each node, the nodes that read it; each reader has a greater number.
        escapes: For each node, whether it is also read outside the graph (returned, say).

    Returns:
        The immediate post-dominator of each node, None where there is none.
    """
    count = len(readers)
    parent: list[int | None] = [None] * count
    depth = [0] * count
    for node in range(count - 1, -1, -1):
        common: int | None = None
        if not escapes[node] and readers[node]:
            common = readers[node][0]
            for reader in readers[node][1:]:
                common = _common_ancestor(common, reader, parent, depth)
                if common is None:
                    break
        parent[node] = common
        depth[node] = 0 if common is None else depth[common] + 1
    return parent


def _common_ancestor(
    a: int | None, b: int | None, parent: Sequence[int | None], depth: Sequence[int]
) -> int | None:
    while a != b:
        if a is None or b is None:
            return None
        if depth[a] < depth[b]:
            b = parent[b]
        elif depth[a] > depth[b]:
            a = parent[a]
        else:
            a, b = parent[a], parent[b]
    return a
