"""Evaluate an ensemble of decision trees as one kernel, parallel over rows.

Nodes are rows of constant tables: a row of the data walks each tree by table look-ups until it
arrives at a leaf, whose weights go to the targets. Nodes that no one compares in the same way, or
missing values that go nowhere in particular, cost nothing: what all nodes share is compiled in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from frontends.computations.kernel import Scalar, index, kernel, parallel, serial, when

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


@dataclass(frozen=True)
class TreeTables:
    """The trees as tables.

    Attributes:
        roots: The root of each tree: a node, or ~leaf for a tree that is one leaf; int64.
        features: For each node the column that is compared, int64.
        thresholds: What it is compared with, float32 or float64.
        modes: How: a place in MODES, uint8.
        missing: Whether a missing value (NaN) goes to the true branch, bool.
        true_next: The node to go on with where the comparison holds, or ~leaf; int64.
        false_next: The same for the other branch.
        members: The values that MEMBER nodes compare with, one node after the other.
        member_ends: For each node the end of its values in `members`; they start where those of
            the node before end; int64.
        leaf_ends: For each leaf the end of its votes; they start at the end of the leaf before.
        targets: For each vote the target it is for, int64.
        weights: For each vote what it counts, the dtype of `thresholds`.
    """

    roots: np.ndarray
    features: np.ndarray
    thresholds: np.ndarray
    modes: np.ndarray
    missing: np.ndarray
    true_next: np.ndarray
    false_next: np.ndarray
    members: np.ndarray
    member_ends: np.ndarray
    leaf_ends: np.ndarray
    targets: np.ndarray
    weights: np.ndarray

    def check(self, columns: int | None, n_targets: int) -> None:
        """Raise ValueError if a reference leads outside, or a path never arrives at a leaf.

        Args:
            columns: Number of columns of the data; None if it is known only at run time.
            n_targets: Number of targets.
        """
        nodes, leaves = len(self.features), len(self.leaf_ends)
        for name, table in (("root", self.roots), ("branch", self.true_next),
                            ("branch", self.false_next)):  # fmt: skip
            if len(table) and (table.max() >= nodes or (~table).max() >= leaves):
                raise ValueError(f"a {name} of the trees leads to a node that does not exist")
        if nodes and (self.features.min() < 0 or self.features.max() >= (columns or np.inf)):
            raise ValueError(f"a node compares a feature outside [0, {columns})")
        if len(self.targets) and not 0 <= self.targets.min() <= self.targets.max() < n_targets:
            raise ValueError(f"a leaf votes for a target outside [0, {n_targets})")
        # Nodes at distance d from a root: more levels than nodes means a cycle.
        level = np.unique(self.roots[self.roots >= 0])
        for _ in range(nodes + 1):
            if not len(level):
                return
            onward = np.concatenate([self.true_next[level], self.false_next[level]])
            level = np.unique(onward[onward >= 0])
        raise ValueError("the trees have a cycle")


TABLES = (
    "roots", "features", "thresholds", "modes", "missing", "true_next", "false_next",
    "members", "member_ends", "leaf_ends", "targets", "weights",
)  # fmt: skip


def evaluate(
    x: te.Tensor,
    tables: dict[str, te.Tensor],
    trees: TreeTables,
    *,
    n_targets: int,
    aggregate: str,
) -> te.Tensor:
    """Return for each row and target the votes of the leaves it arrives at, combined.

    Args:
        x: (rows, columns), any number type; compared in the dtype of the thresholds.
        tables: The tables of `trees` (TABLES) as tensors, none empty.
        trees: The trees, which decide what code is needed.
        n_targets: Number of targets.
        aggregate: One of AGGREGATES. A target without votes gets 0.

    Returns:
        (rows, n_targets) of the weights' dtype.
    """
    dtype = str(trees.weights.dtype)
    rows = x.shape[0]
    modes = sorted({int(mode) for mode in trees.modes})
    missing = bool(trees.missing.any())
    n_trees = len(trees.roots)
    names = list(TABLES)

    def body(ins: list[Any], outs: list[Any]) -> None:
        data, table = ins[0], dict(zip(names, ins[1:], strict=True))
        result, voted = outs

        def goes_true(node: Any, value: Any) -> Any:
            threshold = table["thresholds"][node]
            tests = [
                value <= threshold, value < threshold, value >= threshold,
                value > threshold, value == threshold, value != threshold,
            ]  # fmt: skip
            plain = [mode for mode in modes if MODES[mode] != "MEMBER"]
            chosen: Any = tests[plain[-1]] if plain else tirx.const(False, "bool")
            for mode in plain[:-1]:
                is_mode = table["modes"][node] == tirx.const(mode, "uint8")
                chosen = tirx.Select(is_mode, tests[mode], chosen)
            if missing:
                chosen = tirx.any(chosen, tirx.all(table["missing"][node], tirx.isnan(value)))
            return chosen

        def find_member(node: Any, value: Any, passed: Scalar) -> None:
            is_member = table["modes"][node] == tirx.const(MODES.index("MEMBER"), "uint8")
            with when(is_member):
                start = Scalar(0)
                with when(node > 0):
                    start.set(table["member_ends"][node - 1])
                with serial(table["member_ends"][node] - start()) as m:
                    with when(table["members"][start() + m] == value):
                        passed.set(True)

        with parallel(rows) as row:
            with serial(n_targets) as target:
                result[row, target] = tirx.const(0, dtype)
                voted[row, target] = tirx.const(False, "bool")
            with serial(n_trees) as tree:
                node = Scalar(table["roots"][tree])
                with T.While(node() >= 0):
                    value = data[row, table["features"][node()]].astype(dtype)
                    passed = Scalar(goes_true(node(), value), "bool")
                    if MODES.index("MEMBER") in modes:
                        if len(modes) > 1:
                            # The comparison above means nothing at such a node.
                            is_member = table["modes"][node()] == tirx.const(6, "uint8")
                            nan_goes = (
                                tirx.all(table["missing"][node()], tirx.isnan(value))
                                if missing
                                else tirx.const(False, "bool")
                            )
                            with when(is_member):
                                passed.set(nan_goes)
                        find_member(node(), value, passed)
                    with T.If(passed()):
                        with T.Then():
                            node.set(table["true_next"][node()])
                        with T.Else():
                            node.set(table["false_next"][node()])
                leaf = Scalar(index(-1) - node())
                start = Scalar(0)
                with when(leaf() > 0):
                    start.set(table["leaf_ends"][leaf() - 1])
                with serial(table["leaf_ends"][leaf()] - start()) as vote:
                    place = start() + vote
                    target = table["targets"][place]
                    weight = table["weights"][place]
                    have = result[row, target]
                    if aggregate in ("SUM", "AVERAGE"):
                        result[row, target] = have + weight
                    else:
                        best = tirx.min if aggregate == "MIN" else tirx.max
                        first = tirx.Not(voted[row, target])
                        result[row, target] = tirx.Select(first, weight, best(have, weight))
                        voted[row, target] = tirx.const(True, "bool")
            if aggregate == "AVERAGE":
                with serial(n_targets) as target:
                    result[row, target] = result[row, target] / tirx.const(n_trees, dtype)

    inputs = [x, *(tables[name] for name in TABLES)]
    shape = (rows, n_targets)
    return kernel(inputs, [(shape, dtype), (shape, "bool")], body, "tree_ensemble")[0]
