"""Compute a cheap tensor anew in each kernel that reads it, where storing it moves more bytes.

Let k kernels read a result of R bytes that is computed from I bytes. Stored, it moves I + R + k R
bytes; computed in each reader, k I. The copies pay where the difference is worth the operations
that the other k - 1 copies (or readers that are larger than the result) repeat. So the mask of a
broadcast comparison is made where it is used, and a tensor with 50 readers is copied only as far as
its operations are few.

Whether a reader can take its copy is for fusion to say: the block is grouped again with the copies,
and a copy that would remain a kernel of its own is taken back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax

from relax_passes.analysis.category import Category, compute_blocks
from relax_passes.analysis.tensor_bytes import bytes_of, points_of
from relax_passes.fusion_groups import Categories, Group, Grouping, callee_of
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.pass_options import option
from tir_schedules.blocks import work_per_point

NAME = "duplicate_cheap_producers"


@dataclass(frozen=True)
class DuplicateOptions:
    """When computing again beats storing."""

    operations_per_byte: float = option(
        1.0,
        "scalar operations that saving one byte of traffic is worth; 0 copies nothing",
        at_least=0,
    )
    max_blocks: int = option(
        48, "most compute blocks in one kernel, as in fuse_operators", at_least=1
    )


@graph_pass(name=NAME, phase="fuse", options=DuplicateOptions, aliases=("rematerialize",))
def duplicate_cheap_producers(
    mod: tvm.IRModule, ctx: PassContext, options: DuplicateOptions
) -> tuple[tvm.IRModule, bool]:
    """Copy maps that several kernels read into each of them, where that moves fewer bytes."""
    builder = relax.BlockBuilder(mod)
    duplicator = _Duplicator(mod, builder, ctx, options)
    for var, func in mod.functions.items():
        if not isinstance(func, relax.Function):
            continue
        blocks = [
            duplicator.rewrite(block) if isinstance(block, relax.DataflowBlock) else block
            for block in func.body.blocks
        ]
        if any(new is not old for new, old in zip(blocks, func.body.blocks, strict=True)):
            body = relax.SeqExpr(blocks, func.body.body)
            changed = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
            builder.update_func(var, builder.normalize(changed))
    if not duplicator.copies:
        return mod, False
    ctx.log.fire(
        NAME, f"made {duplicator.copies} copies, which saves {duplicator.saved} bytes of traffic"
    )
    return builder.finalize(), True


@dataclass(frozen=True)
class _Candidate:
    """A group of maps worth copying; `readers` are the nodes that read it, kernel by kernel."""

    nodes: tuple[int, ...]
    readers: tuple[tuple[int, ...], ...]


class _Duplicator:
    """Rewrites dataflow blocks; `copies` and `saved` are what it did in all of them."""

    def __init__(
        self,
        mod: tvm.IRModule,
        builder: relax.BlockBuilder,
        ctx: PassContext,
        options: DuplicateOptions,
    ) -> None:
        self._mod, self._builder, self._ctx, self._options = mod, builder, ctx, options
        self._categories = Categories(mod)
        self._declined: dict[relax.Var, str] = {}  # in the block at hand, with the reasons
        self.copies = 0
        self.saved = 0

    def rewrite(self, block: relax.DataflowBlock) -> relax.DataflowBlock:
        """Return the block with copies; itself if none pays.

        A copy may make its reader a candidate, so rounds follow each other until none is left;
        one that was refused beside others may pay after them, so all are looked at once more.
        Each round moves fewer bytes than the one before.
        """
        while True:
            changed = self._sweep(block)
            if changed is block:
                break
            block = changed
            self._declined.clear()
        for var, reason in self._declined.items():
            self._ctx.log.decline(NAME, var.name, reason)
        self._declined.clear()
        return block

    def _sweep(self, block: relax.DataflowBlock) -> relax.DataflowBlock:
        grouping = self._group(block.bindings)
        found = self._candidates(grouping)
        while found:
            tried, results = self._apply(grouping.bindings, found)
            regrouped = self._group(tried)
            alone = _alone(regrouped)
            refused = [c for c, own in zip(found, results, strict=True) if alone & own]
            for candidate in refused:
                self._decline(
                    grouping, candidate.nodes[-1], "a reader cannot take it into its kernel"
                )
            if not refused:
                saved = bytes_moved(grouping) - bytes_moved(regrouped)
                if saved > 0:
                    self.saved += saved
                    self.copies += sum(len(c.readers) - 1 for c in found)
                    grouping = regrouped
                    block = relax.DataflowBlock(tried)
                else:
                    for candidate in found:
                        self._decline(
                            grouping, candidate.nodes[-1], "with copies, fusion moves more bytes"
                        )
            found = self._candidates(grouping)
        return block

    def _group(self, bindings: Iterable[relax.Binding]) -> Grouping:
        grouping = Grouping(list(bindings), self._categories, self._options.max_blocks)
        grouping.grow()
        return grouping

    def _decline(self, grouping: Grouping, node: int, reason: str) -> None:
        self._declined[grouping.bindings[node].var] = reason

    def _candidates(self, grouping: Grouping) -> list[_Candidate]:
        """Return what is worth copying, readers before what they read.

        A candidate whose reader is copied in the same round waits for the next one.
        """
        found: list[_Candidate] = []
        chosen: set[int] = set()
        for group in sorted(grouping.groups(), key=lambda g: g.nodes[-1], reverse=True):
            result = group.nodes[-1]
            var = grouping.bindings[result].var
            if group.category > Category.BROADCAST or not isinstance(var, relax.DataflowVar):
                continue
            readers: dict[int, list[int]] = {}
            for reader in grouping.readers[result]:
                readers.setdefault(id(grouping.group_of(reader)), []).append(reader)
            if len(readers) < 2 or var in self._declined or chosen & readers.keys():
                continue
            candidate = _Candidate(tuple(group.nodes), tuple(map(tuple, readers.values())))
            reason = self._reason_against(grouping, candidate)
            if reason:
                self._decline(grouping, result, reason)
            else:
                chosen.add(id(group))
                found.append(candidate)
        return found

    def _reason_against(self, grouping: Grouping, candidate: _Candidate) -> str:
        """Return why storing the result is better, "" if copies are."""
        bindings = grouping.bindings
        reading = [bindings[r] for readers in candidate.readers for r in readers]
        if any(callee_of(b) is None or isinstance(b.var.ty, relax.TupleType) for b in reading):
            return "what reads it is no kernel of one result"
        kernels = len(candidate.readers)
        result = bindings[candidate.nodes[-1]].var
        saved = (kernels + 1) * bytes_of(result) - (kernels - 1) * sum(
            map(bytes_of, _operands(bindings, candidate.nodes))
        )
        if saved <= 0:
            return f"{kernels} kernels would read its operands, which are larger than it is"
        points = [
            max(points_of(result), *(points_of(bindings[r].var) for r in readers))
            for readers in candidate.readers
        ]
        per_point = sum(self._operations(bindings[node]) for node in candidate.nodes)
        repeated = per_point * (sum(points) - points_of(result))
        if repeated > saved * self._options.operations_per_byte:
            return f"{repeated} operations more for {saved} bytes less"
        return ""

    def _operations(self, binding: relax.Binding) -> int:
        """Return about how many scalar operations one element of the result takes."""
        blocks = compute_blocks(self._mod[callee_of(binding)])
        return sum(work_per_point(block.body) for block in blocks)

    def _apply(
        self, bindings: Sequence[relax.Binding], candidates: Sequence[_Candidate]
    ) -> tuple[list[relax.Binding], list[set[relax.Var]]]:
        """Return the bindings with a copy of each candidate before the readers of each kernel.

        The first kernel keeps the original. With them comes for each candidate what now computes
        its result: the original and the copies.
        """
        results: list[set[relax.Var]] = []
        before: dict[int, list[relax.Binding]] = {}
        renamed: dict[int, dict[relax.Var, relax.Var]] = {}
        for candidate in candidates:
            last = bindings[candidate.nodes[-1]].var
            results.append({last})
            for readers in candidate.readers[1:]:
                new: dict[relax.Var, relax.Var] = {}
                for node in candidate.nodes:
                    var = bindings[node].var
                    copy = self._renamed(bindings[node], new)
                    new[var] = relax.DataflowVar(f"{var.name}_again", var.ty)
                    before.setdefault(min(readers), []).append(relax.VarBinding(new[var], copy))
                results[-1].add(new[last])
                for reader in readers:
                    renamed.setdefault(reader, {}).update(new)
        block: list[relax.Binding] = []
        for index, binding in enumerate(bindings):
            block += before.get(index, [])
            if index in renamed:
                binding = relax.VarBinding(binding.var, self._renamed(binding, renamed[index]))
            block.append(binding)
        return block, results

    def _renamed(self, binding: relax.Binding, new: dict[relax.Var, relax.Var]) -> relax.Expr:
        """Return the call_tir of a binding with other operands."""
        call = binding.value
        callee, args, *sizes = call.args
        operands = relax.Tuple([new.get(arg, arg) for arg in args.fields])
        value = relax.Call(call.op, [callee, operands, *sizes], call.attrs, call.ty_args, call.span)
        return self._builder.normalize(value)


def _alone(grouping: Grouping) -> set[relax.Var]:
    """Return the results that their kernels store."""
    return {grouping.bindings[group.nodes[-1]].var for group in grouping.groups()}


def bytes_moved(grouping: Grouping) -> int:
    """Return the bytes that the kernels of a block read and write; a symbolic size counts as 1."""
    return sum(_traffic(grouping.bindings, group) for group in grouping.groups())


def _traffic(bindings: Sequence[relax.Binding], group: Group) -> int:
    if callee_of(bindings[group.nodes[0]]) is None:
        return 0
    return sum(map(bytes_of, [bindings[group.nodes[-1]].var, *_operands(bindings, group.nodes)]))


def _operands(bindings: Sequence[relax.Binding], nodes: Sequence[int]) -> list[relax.Expr]:
    """Return the tensors that the nodes read and do not make, each once."""
    made = {bindings[node].var for node in nodes}
    read = dict.fromkeys(arg for n in nodes for arg in bindings[n].value.args[1].fields)
    return [arg for arg in read if arg not in made and isinstance(arg.ty, relax.TensorType)]
