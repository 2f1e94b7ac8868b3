"""Choose one alternative a node so that the costs of nodes and edges sum to the least: PBQP.

A partitioned boolean quadratic problem gives each node a vector of costs and each edge a matrix.
Nodes of one or two neighbours are folded into these, which keeps the optimum: chains, trees and
graphs built of parallel and serial parts, as residual blocks are, are solved exactly. Where only
nodes of more neighbours are left, one of them takes what is cheapest by its own costs and the least
its edges can cost, and the solution is no longer known to be the best.

Scholz, Eckstein: Register Allocation for Irregular Architectures, LCTES 2002. Anderson, Gregg:
Optimal DNN Primitive Selection with Partitioned Boolean Quadratic Programming, CGO 2018.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np


@dataclass
class ChoiceProblem:
    """Nodes, each with the costs of its alternatives, and edges with those of pairs of them.

    Costs are numbers >= 0; infinity marks what may not be chosen.
    """

    costs: dict[Hashable, np.ndarray] = field(default_factory=dict)
    edges: dict[Hashable, dict[Hashable, np.ndarray]] = field(default_factory=dict)

    def node(self, name: Hashable, costs: list[float]) -> None:
        """Add a node; `costs` has one number per alternative."""
        self.costs[name] = np.array(costs, dtype=float)
        self.edges[name] = {}

    def edge(self, a: Hashable, b: Hashable, costs: np.ndarray) -> None:
        """Add costs of shape (alternatives of a, alternatives of b); edges of one pair add up."""
        if a == b:
            self.costs[a] = self.costs[a] + np.diagonal(costs)
            return
        self.edges[a][b] = self.edges[a].get(b, 0) + costs
        self.edges[b][a] = self.edges[b].get(a, 0) + costs.T


@dataclass(frozen=True)
class Solution:
    """The index of each node's alternative, what they cost, and whether that is the least."""

    chosen: dict[Hashable, int]
    cost: float
    is_optimal: bool


def solve(problem: ChoiceProblem) -> Solution:
    """Solve `problem`, in time linear in its nodes and edges where it is exact.

    Raises:
        ValueError: If every choice costs infinity.
    """
    reduction = _Reduction(problem)
    reduction.run()
    chosen = reduction.chosen()
    cost = _cost(problem, chosen)
    if not np.isfinite(cost):
        raise ValueError("every choice costs infinity")
    return Solution(chosen, cost, reduction.is_optimal)


class _Reduction:
    """Takes nodes out one by one; `order` holds each with the neighbours it then had."""

    def __init__(self, problem: ChoiceProblem) -> None:
        self.costs = dict(problem.costs)
        self.edges = {node: dict(near) for node, near in problem.edges.items()}
        self.order: list[tuple[Hashable, np.ndarray, dict[Hashable, np.ndarray]]] = []
        self.is_optimal = True

    def run(self) -> None:
        simple = [node for node, near in self.edges.items() if len(near) <= 2]
        while self.edges:
            while simple:
                node = simple.pop()
                if node in self.edges and len(self.edges[node]) <= 2:
                    simple += self._fold(node)
            if self.edges:
                simple += self._decide(max(self.edges, key=lambda n: len(self.edges[n])))

    def _take_out(self, node: Hashable) -> dict[Hashable, np.ndarray]:
        near = self.edges.pop(node)
        self.order.append((node, self.costs[node], near))
        for other in near:
            del self.edges[other][node]
        return near

    def _fold(self, node: Hashable) -> list[Hashable]:
        """Add a node's least cost to its neighbours, for each pair of their alternatives."""
        near = self._take_out(node)
        own = self.costs[node]
        if len(near) == 1:
            ((other, matrix),) = near.items()
            self.costs[other] = self.costs[other] + (own[:, None] + matrix).min(axis=0)
        elif len(near) == 2:
            (a, to_a), (b, to_b) = near.items()
            between = (own[:, None, None] + to_a[:, :, None] + to_b[:, None, :]).min(axis=0)
            self.edges[a][b] = self.edges[a].get(b, 0) + between
            self.edges[b][a] = self.edges[b].get(a, 0) + between.T
        return list(near)

    def _decide(self, node: Hashable) -> list[Hashable]:
        """Fix a node of many neighbours by what each alternative costs at least."""
        self.is_optimal = False
        least = self.costs[node].copy()
        for other, matrix in self.edges[node].items():
            least += (matrix + self.costs[other]).min(axis=1)
        best = int(np.argmin(least))
        fixed = np.full_like(self.costs[node], np.inf)
        fixed[best] = self.costs[node][best]
        self.costs[node] = fixed
        near = self._take_out(node)
        for other, matrix in near.items():
            self.costs[other] = self.costs[other] + matrix[best]
        return list(near)

    def chosen(self) -> dict[Hashable, int]:
        """Return each node's alternative, the last ones taken out first."""
        chosen: dict[Hashable, int] = {}
        for node, own, near in reversed(self.order):
            total = own.copy()
            for other, matrix in near.items():
                total = total + matrix[:, chosen[other]]
            chosen[node] = int(np.argmin(total))
        return chosen


def _cost(problem: ChoiceProblem, chosen: dict[Hashable, int]) -> float:
    total = sum(float(costs[chosen[node]]) for node, costs in problem.costs.items())
    for a, near in problem.edges.items():
        for b, matrix in near.items():
            total += float(matrix[chosen[a], chosen[b]]) / 2  # each edge is held at both its ends
    return total
