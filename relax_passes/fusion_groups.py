"""Which calls of a dataflow block become one kernel: groups grown along post-dominators.

The algorithm is that of Relay and DNNFusion: a group grows from a node towards its immediate
post-dominator when the categories allow it (`analysis/fusion_table.py`) and every node on every
path between the two can join; so a group has one result and no cycle can arise.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax import analysis as relax_analysis

from relax_passes.analysis.category import Category, categorize, compute_blocks
from relax_passes.analysis.fusion_table import FUSION_TABLE, When
from relax_passes.analysis.post_dominator import immediate_post_dominators


class Categories:
    """Categories and sizes of a module's PrimFuncs, each computed once."""

    def __init__(self, mod: tvm.IRModule) -> None:
        self._mod = mod
        self._known: dict[str, tuple[Category, int]] = {}

    def of(self, callee: tvm.ir.GlobalVar | None) -> tuple[Category, int]:
        """Return the category of a callee and how many compute blocks it has."""
        if callee is None:
            return Category.OPAQUE, 1
        name = callee.name_hint
        if name not in self._known:
            func = self._mod[callee]
            self._known[name] = (
                (categorize(func).category, len(compute_blocks(func)))
                if isinstance(func, tirx.PrimFunc)
                else (Category.OPAQUE, 1)
            )
        return self._known[name]


@dataclass
class Group:
    """Nodes that become one kernel; `anchor` is its reduction or complex node, if it has one."""

    nodes: list[int]
    category: Category
    blocks: int
    anchor: int | None = None


class Grouping:
    """Groups of one dataflow block, grown along post-dominators."""

    def __init__(
        self,
        bindings: list[relax.Binding],
        categories: Categories,
        max_blocks: int,
        max_tensors: int | None = None,
    ) -> None:
        self.bindings, self._max_blocks, self._max_tensors = bindings, max_blocks, max_tensors
        index = {binding.var: i for i, binding in enumerate(bindings)}
        self.readers: list[list[int]] = [[] for _ in bindings]
        escapes = [not isinstance(binding.var, relax.DataflowVar) for binding in bindings]
        self._group: list[Group] = []
        for i, binding in enumerate(bindings):
            for used in relax_analysis.free_vars(binding.value):
                if used in index:
                    self.readers[index[used]].append(i)
            category, size = categories.of(callee_of(binding))
            anchored = Category.REDUCTION <= category < Category.OPAQUE
            self._group.append(Group([i], category, size, i if anchored else None))
        self.post_dominator = immediate_post_dominators(self.readers, escapes)

    def grow(self) -> None:
        """Anchors first (they gain most from an epilogue), then chains, then reductions.

        Each node takes one step, in order; the step's end takes the next when its turn comes. So
        side inputs of a chain join before it grows on and spends the budget. What joined may let
        its producer join: the steps are taken again until none is left.
        """
        joined = True
        while joined:
            joined = False
            for first in (Category.COMPLEX_OUT_FUSABLE, None, Category.REDUCTION):
                for node in range(len(self.bindings)):
                    category = self._group[node].category
                    wanted = category <= Category.INJECTIVE if first is None else category == first
                    if wanted and self._join_post_dominator(node):
                        joined = True

    def groups(self) -> list[Group]:
        """Return each group once, its nodes in order; the last node is the group's result."""
        unique = {id(group): group for group in self._group}
        for group in unique.values():
            group.nodes.sort()
        return list(unique.values())

    def group_of(self, node: int) -> Group:
        """Return the group that a node is in."""
        return self._group[node]

    def _join_post_dominator(self, node: int) -> bool:
        """Merge the group that ends in `node` with its post-dominator's if the table allows."""
        target = self.post_dominator[node]
        producer = self._group[node]
        if target is None or max(producer.nodes) != node:
            return False
        consumer = self._group[target]
        if not self._may_fuse(producer, node, consumer, target):
            return False
        between = self._nodes_between(node, target)
        joined = {id(g): g for g in [producer, consumer, *(self._group[b] for b in between)]}
        anchored = [g for g in joined.values() if g.anchor is not None]
        for inner in between:
            group = self._group[inner]
            if group is producer or group is consumer:
                continue
            if group.category > Category.BROADCAST and producer.category > Category.INJECTIVE:
                return False
            if group.category > Category.INJECTIVE or max(group.nodes) > target:
                return False
            if producer.anchor is not None and not self._same_shape(node, inner):
                return False
        if len(anchored) > 1 or sum(g.blocks for g in joined.values()) > self._max_blocks:
            return False
        nodes = {n for g in joined.values() for n in g.nodes}
        if self._max_tensors is not None and self._tensors(nodes) > self._max_tensors:
            return False
        union = Group(
            [n for g in joined.values() for n in g.nodes],
            max(g.category for g in joined.values()),
            sum(g.blocks for g in joined.values()),
            anchored[0].anchor if anchored else None,
        )
        for n in union.nodes:
            self._group[n] = union
        return True

    def _may_fuse(self, producer: Group, node: int, consumer: Group, target: int) -> bool:
        entry = FUSION_TABLE.get((producer.category, consumer.category))
        if entry is None or (producer.anchor is not None and consumer.anchor is not None):
            return False
        if entry.when is When.SAME_SHAPE:
            # Every node the consumer group brings along must run at the producer's tile.
            return all(self._same_shape(node, n) for n in [target, *consumer.nodes])
        if entry.when is When.EPILOGUE_OPERAND:
            return target != consumer.anchor and self._same_shape(node, target)
        return True

    def _tensors(self, nodes: set[int]) -> int:
        """Return how many tensors one kernel of some nodes is given, its result among them."""
        made = {self.bindings[node].var for node in nodes}
        given = {arg for node in nodes for arg in _arguments(self.bindings[node])}
        return len(given - made) + 1

    def _same_shape(self, a: int, b: int) -> bool:
        left, right = self.bindings[a].var.ty, self.bindings[b].var.ty
        if not isinstance(left, relax.TensorType) or not isinstance(right, relax.TensorType):
            return False
        return (
            left.shape is not None
            and right.shape is not None
            and bool(tvm_ffi.structural_equal(left.shape, right.shape))
        )

    def _nodes_between(self, node: int, target: int) -> list[int]:
        """Return the nodes on the paths from `node` to its post-dominator, both excluded."""
        seen: set[int] = set()
        stack = list(self.readers[node])
        while stack:
            current = stack.pop()
            if current != target and current not in seen:
                seen.add(current)
                stack.extend(self.readers[current])
        return sorted(seen)


def _arguments(binding: relax.Binding) -> list[relax.Expr]:
    """Return the tensors that a binding's kernel is given, none for what is no kernel."""
    return [] if callee_of(binding) is None else list(binding.value.args[1].fields)


def callee_of(binding: relax.Binding) -> tvm.ir.GlobalVar | None:
    """Return the PrimFunc a binding calls by call_tir, None if it does something else."""
    value = getattr(binding, "value", None)
    if isinstance(value, relax.Call) and value.op == tvm.ir.Op.get("relax.call_tir"):
        return value.args[0]
    return None


def count_kernels(mod: tvm.IRModule) -> int:
    """Return how many kernels the functions of a lowered module call."""
    return sum(
        1
        for func in mod.functions.values()
        if isinstance(func, relax.Function)
        for block in func.body.blocks
        for binding in block.bindings
        if callee_of(binding) is not None
    )
