"""The kernels of a dataflow block that may share loops: what each reads, row by row."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import tvm
from tvm import relax
from tvm.relax import analysis as relax_analysis

from relax_passes.analysis.category import Category, compute_blocks
from relax_passes.fusion_groups import Categories, callee_of
from tir_schedules.blocks import RECOMPUTE, inline_spatial, new_schedule
from tir_schedules.row_space import Operand, RowSpace, row_space


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


class SiblingKernels:
    """The bindings of one dataflow block by number, and which of them may become one kernel.

    Attributes:
        bindings: All bindings, in order; a *node* is a place in it.
        index: The node that makes a variable.
        readers: The nodes that read a variable.
        defines: The node that introduces a size: a `match_cast`.
        blocks: How many compute blocks each node that may join others has.
    """

    def __init__(
        self,
        bindings: Sequence[relax.Binding],
        categories: Categories,
        spaces: RowSpaces,
        banned: Collection[relax.Var] = (),
    ) -> None:
        self.bindings = list(bindings)
        self._categories, self._spaces = categories, spaces
        self.index = {binding.var: node for node, binding in enumerate(bindings)}
        self.readers: dict[relax.Var, list[int]] = {}
        self.defines: dict[object, int] = {}
        for node, binding in enumerate(bindings):
            for var in relax_analysis.free_vars(binding.value):
                self.readers.setdefault(var, []).append(node)
            if isinstance(binding, relax.MatchCast):
                for size in relax_analysis.definable_tir_vars_in_type(binding.ty):
                    self.defines.setdefault(size, node)
        suited = {n for n in self.index.values() if self._is_suited(n, banned)}
        self.blocks: dict[int, int] = {}
        for node in sorted(self._beside_others(suited)):
            callee = callee_of(self.bindings[node])
            space = self._spaces.of(callee)
            if space is not None and len(space.results) == 1:
                self.blocks[node] = self._categories.of(callee)[1]

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
        for tensor in dict.fromkeys(var for node in suited for var in self.touched(node)):
            readers = self.readers.get(tensor, [])
            beside = {*readers, self.index.get(tensor, -1)} & suited
            made = self.index.get(tensor) in beside
            if len(beside) > 1 and not (made and len(readers) == 1 and not self.escapes(tensor)):
                found |= beside
        return found

    def results(self, nodes: Collection[int]) -> list[relax.Var]:
        """Return what a kernel of these nodes has to store."""
        made = [self.bindings[node].var for node in sorted(nodes)]
        return [var for var in made if self.escapes(var) or self.outside(var, nodes)] or made[-1:]

    def touched(self, node: int) -> list[relax.Var]:
        """Return the tensors a kernel reads and makes."""
        binding = self.bindings[node]
        return [*(a for a in self.arguments(node) if isinstance(a, relax.Var)), binding.var]

    def arguments(self, node: int) -> list[relax.Expr]:
        """Return the arguments of a kernel's call."""
        return list(self.bindings[node].value.args[1].fields)

    def operands(self, node: int) -> dict[relax.Expr, Operand]:
        """Return how a kernel reads its operands; one passed twice counts as read apart."""
        space = self.space(node)
        arguments = self.arguments(node)
        return {
            arguments[number]: operand
            for number, operand in space.operands.items()
            if number < len(arguments) and arguments.count(arguments[number]) == 1
        }

    def space(self, node: int) -> RowSpace:
        """Return the row space of a kernel that may join others."""
        space = self._spaces.of(callee_of(self.bindings[node]))
        assert space is not None
        return space

    def escapes(self, var: relax.Var) -> bool:
        """Tell whether a variable is a result of the block."""
        return not isinstance(var, relax.DataflowVar)

    def outside(self, var: relax.Var, nodes: Collection[int]) -> list[int]:
        """Return the readers of a variable that are not among `nodes`."""
        return [node for node in self.readers.get(var, ()) if node not in nodes]
