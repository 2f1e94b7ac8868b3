"""Which kernels of a dataflow block become one with several results.

Two kernels join if they run over the same rows and bytes are saved: both read a tensor, or one
reads what the other makes. A group runs where everything it reads is there and nothing has read its
results yet, so that no cycle can arise; the kernels of a block are moved no further than that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tvm import relax

from relax_passes.analysis.tensor_bytes import bytes_of
from relax_passes.fused_kernel import needed_sizes
from relax_passes.sibling_kernels import SiblingKernels
from relax_passes.sibling_obstacles import Limits, SiblingGroup, SiblingObstacles, equal_sizes
from tir_schedules.machine import Machine

# Groups of the readers of one tensor that a further reader is tried with.
_TRIED = 4


class SiblingGroups:
    """Groups of one dataflow block; `declined` tells who nearly joined whom, and why not."""

    def __init__(self, kernels: SiblingKernels, machine: Machine, limits: Limits) -> None:
        self.kernels, self._limits = kernels, limits
        self._obstacles = SiblingObstacles(kernels, machine, limits)
        self._group = {
            node: SiblingGroup([node], float(node), kernels.space(node).rows, blocks)
            for node, blocks in kernels.blocks.items()
        }
        self.declined: dict[str, str] = {}

    def grow(self) -> None:
        """Join until no pair is left; each sweep looks at the kernels of every tensor once."""
        tensors = dict.fromkeys(var for node in self._group for var in self.kernels.touched(node))
        joined = True
        while joined:
            joined = False
            for tensor in tensors:
                made = [self.kernels.index[tensor]] if tensor in self.kernels.index else []
                open_groups: list[SiblingGroup] = []
                for node in [*made, *self.kernels.readers.get(tensor, ())]:
                    group = self._group.get(node)
                    if group is None or any(group is other for other in open_groups):
                        continue
                    if any(self._join(other, group) for other in open_groups[-_TRIED:]):
                        joined = True
                    else:
                        open_groups.append(group)

    def groups(self) -> list[SiblingGroup]:
        """Return the groups of more than one kernel."""
        unique = {id(group): group for group in self._group.values()}
        return [group for group in unique.values() if len(group.nodes) > 1]

    def in_order(self) -> Iterator[relax.Binding | SiblingGroup]:
        """Yield bindings and groups in the order they run."""
        groups = self.groups()
        grouped = {node for group in groups for node in group.nodes}
        singles = [(float(n), b) for n, b in enumerate(self.kernels.bindings) if n not in grouped]
        placed = [*singles, *((group.place, group) for group in groups)]
        for _, item in sorted(placed, key=lambda pair: pair[0]):
            yield item

    def _join(self, a: SiblingGroup, b: SiblingGroup) -> bool:
        """Merge `b` into `a` if that saves bytes and nothing is against it."""
        rows = self._shared_rows(a, b)
        saved = self._saved(a, b, rows)
        if saved < self._limits.least_bytes:
            return False
        nodes = [*a.nodes, *b.nodes]
        place = self._place(a, b)
        reason = self._obstacles.against(a, b, rows)
        if not reason and place is None:
            reason = "what runs between them needs the one and makes an operand of the other"
        if reason or place is None:
            self.declined[self.kernels.bindings[max(nodes)].var.name] = reason
            return False
        for node in nodes:
            self.declined.pop(self.kernels.bindings[node].var.name, None)
        a.nodes, a.place, a.rows = sorted(nodes), place, rows
        a.blocks, a.saved = a.blocks + b.blocks, a.saved + b.saved + saved
        for node in b.nodes:
            self._group[node] = a
        return True

    def _shared_rows(self, a: SiblingGroup, b: SiblingGroup) -> int:
        """Return how many leading axes both run over: a sum that keeps its axis has it as 1."""
        first, second = (list(self.kernels.bindings[g.nodes[0]].var.ty.shape) for g in (a, b))
        rows = min(a.rows, b.rows)
        while rows and not equal_sizes(first[:rows], second[:rows]):
            rows -= 1
        return rows

    def _saved(self, a: SiblingGroup, b: SiblingGroup, rows: int) -> int:
        """Return the bytes that one kernel moves less than two; 0 for a mere chain.

        A result that only the other kernel reads is for `fuse_operators` to join.
        """
        saved, joins = 0, False
        read_by_b = {
            var: how for node in b.nodes for var, how in self.kernels.operands(node).items()
        }
        read_by_a = {
            var: how for node in a.nodes for var, how in self.kernels.operands(node).items()
        }
        for var, how in read_by_a.items():
            other = read_by_b.get(var)
            if other is not None and how.whole and other.whole:
                if len(how.places) >= rows and how.places[:rows] == other.places[:rows]:
                    saved, joins = saved + bytes_of(var), True
        both = {*a.nodes, *b.nodes}
        for group, reads in ((a, read_by_b), (b, read_by_a)):
            for node in group.nodes:
                var = self.kernels.bindings[node].var
                if var in reads:
                    stays = self.kernels.escapes(var) or bool(self.kernels.outside(var, both))
                    saved += bytes_of(var) * (1 if stays else 2)
                    chain = not stays and len({*self.kernels.readers[var]}) == 1
                    joins = joins or not chain
        return saved if joins else 0

    def _place(self, a: SiblingGroup, b: SiblingGroup) -> float | None:
        """Return where both can run at once: as late as one of them does now, if that is free."""
        nodes = {*a.nodes, *b.nodes}
        after = [
            self._place_of(self.kernels.index[var])
            for node in nodes
            for var in self.kernels.touched(node)
            if var in self.kernels.index and self.kernels.index[var] not in nodes
        ]
        for node in nodes if self.kernels.defines else ():
            sizes = [*needed_sizes(self.kernels.bindings[node]), *self.kernels.arguments(node)]
            after += [
                self._place_of(self.kernels.defines[s]) for s in sizes if s in self.kernels.defines
            ]
        before = [
            self._place_of(reader)
            for node in nodes
            for reader in self.kernels.outside(self.kernels.bindings[node].var, nodes)
        ]
        low, high = max(after, default=-1.0), min(before, default=math.inf)
        middle = (low + high) / 2 if high < math.inf else low + 0.5
        for place in (max(a.place, b.place), min(a.place, b.place), middle):
            if low < place < high:
                return place
        return None

    def _place_of(self, node: int) -> float:
        group = self._group.get(node)
        return float(node) if group is None else group.place
