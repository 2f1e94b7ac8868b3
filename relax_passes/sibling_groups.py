"""Which kernels of a dataflow block become one with several results.

Two kernels join if they run over the same rows and bytes are saved: both read a tensor, or one
reads what the other makes. A group runs where everything it reads is there and nothing has read its
results yet, so that no cycle can arise; the kernels of a block are moved no further than that.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import analysis as relax_analysis

from relax_passes.analysis.category import Category, compute_blocks
from relax_passes.analysis.tensor_bytes import bytes_of, points_of, static_shape
from relax_passes.fused_kernel import needed_sizes
from relax_passes.fusion_groups import Categories, callee_of
from tir_schedules.blocks import RECOMPUTE, inline_spatial, new_schedule
from tir_schedules.machine import Machine
from tir_schedules.row_space import Operand, RowSpace, row_space

# Groups of the readers of one tensor that a further reader is tried with.
_TRIED = 4


class RowSpaces:
    """Row spaces of a module's PrimFuncs, each looked at once; None where a kernel stays alone.

    Maps before a reduction are seen as its schedule will see them: inlined.
    """

    def __init__(self, mod: tvm.IRModule) -> None:
        self._mod = mod
        self._known: dict[str, RowSpace | None] = {}

    def of(self, callee: tvm.ir.GlobalVar) -> RowSpace | None:
        """Return the row space of a callee."""
        name = callee.name_hint
        if name not in self._known:
            func = self._mod[callee]
            space = row_space(func)
            if space is not None and space.reductions and len(compute_blocks(func)) > 1:
                sch = new_schedule(func)
                inline_spatial(sch, recompute_limit=RECOMPUTE)
                space = row_space(sch.mod["main"])
            self._known[name] = space
        return self._known[name]


@dataclass
class SiblingGroup:
    """Nodes that become one kernel, the leading axes they share, and where it runs."""

    nodes: list[int]
    place: float
    rows: int
    blocks: int
    saved: int = 0


@dataclass(frozen=True)
class Limits:
    """How far groups grow; what saves less than `least_bytes`, at least 1, stays apart."""

    max_blocks: int
    max_results: int
    least_bytes: int


class SiblingGroups:
    """Groups of one dataflow block; `declined` tells who nearly joined whom, and why not."""

    def __init__(
        self,
        bindings: Sequence[relax.Binding],
        categories: Categories,
        spaces: RowSpaces,
        machine: Machine,
        limits: Limits,
        banned: Collection[relax.Var] = (),
    ) -> None:
        self.bindings = list(bindings)
        self._categories, self._spaces = categories, spaces
        self._machine, self._limits = machine, limits
        self._index = {binding.var: node for node, binding in enumerate(bindings)}
        self._readers: dict[relax.Var, list[int]] = {}
        self._defines: dict[object, int] = {}  # sizes that a match_cast of the block introduces
        self._group: dict[int, SiblingGroup] = {}
        self.declined: dict[str, str] = {}
        for node, binding in enumerate(bindings):
            for var in relax_analysis.free_vars(binding.value):
                self._readers.setdefault(var, []).append(node)
            if isinstance(binding, relax.MatchCast):
                for size in relax_analysis.definable_tir_vars_in_type(binding.ty):
                    self._defines.setdefault(size, node)
        suited = {n for n in self._index.values() if self._is_suited(n, banned)}
        for node in sorted(self._beside_others(suited)):
            callee = callee_of(self.bindings[node])
            space = self._spaces.of(callee)
            if space is not None and len(space.results) == 1:
                blocks = self._categories.of(callee)[1]
                self._group[node] = SiblingGroup([node], float(node), space.rows, blocks)

    def _is_suited(self, node: int, banned: Collection[relax.Var]) -> bool:
        """Tell whether a binding calls a kernel of one result and a kind that may join others."""
        binding = self.bindings[node]
        callee = callee_of(binding)
        if callee is None or binding.var in banned:
            return False
        if not isinstance(binding.var.ty, relax.TensorType) or binding.var.ty.shape is None:
            return False
        return self._categories.of(callee)[0] <= Category.REDUCTION

    def _beside_others(self, suited: set[int]) -> set[int]:
        """Return those of some kernels that share a tensor with another, but for mere chains."""
        found: set[int] = set()
        for tensor in dict.fromkeys(var for node in suited for var in self._touched(node)):
            readers = self._readers.get(tensor, [])
            beside = {*readers, self._index.get(tensor, -1)} & suited
            made = self._index.get(tensor) in beside
            if len(beside) > 1 and not (made and len(readers) == 1 and not self._escapes(tensor)):
                found |= beside
        return found

    def grow(self) -> None:
        """Join until no pair is left; each sweep looks at the kernels of every tensor once."""
        tensors = dict.fromkeys(var for node in self._group for var in self._touched(node))
        joined = True
        while joined:
            joined = False
            for tensor in tensors:
                made = [self._index[tensor]] if tensor in self._index else []
                open_groups: list[SiblingGroup] = []
                for node in [*made, *self._readers.get(tensor, ())]:
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

    def results(self, nodes: Collection[int]) -> list[relax.Var]:
        """Return what a kernel of these nodes has to store."""
        made = [self.bindings[node].var for node in sorted(nodes)]
        return [var for var in made if self._escapes(var) or self._outside(var, nodes)] or made[-1:]

    def in_order(self) -> Iterator[relax.Binding | SiblingGroup]:
        """Yield bindings and groups in the order they run."""
        groups = self.groups()
        grouped = {node for group in groups for node in group.nodes}
        singles = [(float(n), b) for n, b in enumerate(self.bindings) if n not in grouped]
        placed = [*singles, *((group.place, group) for group in groups)]
        for _, item in sorted(placed, key=lambda pair: pair[0]):
            yield item

    def _touched(self, node: int) -> list[relax.Var]:
        """Return the tensors a kernel reads and makes."""
        binding = self.bindings[node]
        return [*(a for a in self._arguments(node) if isinstance(a, relax.Var)), binding.var]

    def _arguments(self, node: int) -> list[relax.Expr]:
        return list(self.bindings[node].value.args[1].fields)

    def _operands(self, node: int) -> dict[relax.Expr, Operand]:
        """Return how a kernel reads its operands; one passed twice counts as read apart."""
        space = self._space(node)
        arguments = self._arguments(node)
        return {
            arguments[number]: operand
            for number, operand in space.operands.items()
            if number < len(arguments) and arguments.count(arguments[number]) == 1
        }

    def _space(self, node: int) -> RowSpace:
        space = self._spaces.of(callee_of(self.bindings[node]))
        assert space is not None
        return space

    def _escapes(self, var: relax.Var) -> bool:
        return not isinstance(var, relax.DataflowVar)

    def _outside(self, var: relax.Var, nodes: Collection[int]) -> list[int]:
        return [node for node in self._readers.get(var, ()) if node not in nodes]

    def _join(self, a: SiblingGroup, b: SiblingGroup) -> bool:
        """Merge `b` into `a` if that saves bytes and nothing is against it."""
        rows = min(a.rows, b.rows)
        saved = self._saved(a, b, rows)
        if saved < self._limits.least_bytes:
            return False
        nodes = [*a.nodes, *b.nodes]
        place = self._place(a, b)
        reason = self._reason_against(a, b, rows)
        if not reason and place is None:
            reason = "what runs between them needs the one and makes an operand of the other"
        if reason or place is None:
            self.declined[self.bindings[max(nodes)].var.name] = reason
            return False
        for node in nodes:
            self.declined.pop(self.bindings[node].var.name, None)
        a.nodes, a.place, a.rows = sorted(nodes), place, rows
        a.blocks, a.saved = a.blocks + b.blocks, a.saved + b.saved + saved
        for node in b.nodes:
            self._group[node] = a
        return True

    def _saved(self, a: SiblingGroup, b: SiblingGroup, rows: int) -> int:
        """Return the bytes that one kernel moves less than two; 0 for a mere chain.

        A result that only the other kernel reads is for `fuse_operators` to join.
        """
        saved, joins = 0, False
        read_by_b = {var: how for node in b.nodes for var, how in self._operands(node).items()}
        read_by_a = {var: how for node in a.nodes for var, how in self._operands(node).items()}
        for var, how in read_by_a.items():
            other = read_by_b.get(var)
            if other is not None and how.whole and other.whole:
                if len(how.places) >= rows and how.places[:rows] == other.places[:rows]:
                    saved, joins = saved + bytes_of(var), True
        both = {*a.nodes, *b.nodes}
        for group, reads in ((a, read_by_b), (b, read_by_a)):
            for node in group.nodes:
                var = self.bindings[node].var
                if var in reads:
                    stays = self._escapes(var) or bool(self._outside(var, both))
                    saved += bytes_of(var) * (1 if stays else 2)
                    chain = not stays and len({*self._readers[var]}) == 1
                    joins = joins or not chain
        return saved if joins else 0

    def _reason_against(self, a: SiblingGroup, b: SiblingGroup, rows: int) -> str:
        """Return why two groups that share bytes stay apart, "" if they need not."""
        nodes = {*a.nodes, *b.nodes}
        if a.blocks + b.blocks > self._limits.max_blocks:
            return f"one kernel would have more than {self._limits.max_blocks} compute blocks"
        if len(self.results(nodes)) > self._limits.max_results:
            return f"one kernel would have more than {self._limits.max_results} results"
        shapes = {node: list(self.bindings[node].var.ty.shape) for node in nodes}
        first = shapes[a.nodes[0]][:rows]
        if any(not _equal(shape[:rows], first) for shape in shapes.values()):
            return "they run over rows of other sizes"
        for node in nodes:
            for var, how in self._operands(node).items():
                if self._index.get(var) in nodes and how.places[:rows] != tuple(range(rows)):
                    return "one reads other rows of what the other makes"
            arguments = self._arguments(node)
            if any(self._index.get(v) in nodes and arguments.count(v) > 1 for v in arguments):
                return "one reads other rows of what the other makes"
        return self._reason_of_rows(nodes, rows)

    def _reason_of_rows(self, nodes: Collection[int], rows: int) -> str:
        """Return why a schedule over the shared rows would be slower, "" if it would not."""
        spaces = [self._space(node) for node in nodes]
        results = [self.bindings[node].var for node in nodes]
        if not any(space.reductions for space in spaces):
            if any(space.strided for space in spaces):
                return "one reads across its rows, as a transpose does"
            same = all(_equal(list(v.ty.shape), list(results[0].ty.shape)) for v in results)
            return (
                "" if same and rows == len(results[0].ty.shape) else "their results differ in shape"
            )
        if self._machine.kind == "cuda":
            return "no rule of this target reduces rows to several results"
        if any(space.strided for space in spaces):
            return self._reason_of_columns(nodes, rows)
        count = math.prod(static_shape(results[0])[:rows])
        if rows == 0 and any(points_of(var) > 1 for var in results):
            return "their results have no leading axis in common"
        for var, space in zip(results, spaces, strict=True):
            if space.rows > rows and points_of(var) > count and count < 4 * self._machine.cores:
                return "so few rows would not keep the cores busy"
        widest = max(bytes_of(var) for node in nodes for var in self._touched(node))
        once = all(space.reductions == 1 and len(space.operands) == 1 for space in spaces)
        if widest // max(count, 1) > self._machine.l2_bytes // 2 and not once:
            return "a row would leave the cache before it is read again"
        return ""

    def _reason_of_columns(self, nodes: Collection[int], rows: int) -> str:
        """Return why reductions along another axis than the last cannot share their loops."""
        shape = list(self.bindings[min(nodes)].var.ty.shape)
        for node in nodes:
            var, space = self.bindings[node].var, self._space(node)
            inner = any(self._index.get(arg) in nodes for arg in self._arguments(node))
            if not space.strided or space.reductions != 1 or inner:
                return "one reduces rows, the other columns"
            if not _equal(list(var.ty.shape), shape) or rows != len(shape):
                return "their results differ in shape"
        return ""

    def _place(self, a: SiblingGroup, b: SiblingGroup) -> float | None:
        """Return where both can run at once: as late as one of them does now, if that is free."""
        nodes = {*a.nodes, *b.nodes}
        after = [
            self._place_of(self._index[var])
            for node in nodes
            for var in self._touched(node)
            if var in self._index and self._index[var] not in nodes
        ]
        for node in nodes if self._defines else ():
            sizes = [*needed_sizes(self.bindings[node]), *self._arguments(node)]
            after += [self._place_of(self._defines[s]) for s in sizes if s in self._defines]
        before = [
            self._place_of(reader)
            for node in nodes
            for reader in self._outside(self.bindings[node].var, nodes)
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


def _equal(a: Sequence[object], b: Sequence[object]) -> bool:
    return len(a) == len(b) and all(map(tvm_ffi.structural_equal, a, b))
