"""Merge convolutions of one tensor into one with the channels of all.

    f(conv(x, A) + a),  f(conv(x, B) + b)   ->   y = f(conv(x, [A B]) + [a b]),  slices of y

such as the 1x1 convolutions in front of the branches of an Inception block (Szegedy et al.: Going
Deeper with Convolutions, 2015). The tensor is read once and one kernel runs instead of several. A
convolution reads a slice of whole channel blocks in place, and so does a concatenation of several
images; one of a single image is rather written part by part (`elide_copies`), so that a slice is
copied into it. A concatenation of all slices in order is y itself. A smaller window is enlarged by
zeros where the work that adds costs less than what is saved: SqueezeNet's 1x1 next to a 3x3, where
the image is tiny.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from relax_passes.analysis.definitions import operator_name
from relax_passes.analysis.parallel_convolutions import Branch, Readers, branches
from relax_passes.analysis.readers import readers_of
from relax_passes.constant_values import constant_from
from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.emit_as import emit_as
from relax_passes.lowering.rule import static_shape
from relax_passes.merge_plan import MergePlan
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.pass_options import option
from relax_passes.rewrite_functions import rewrite_functions

NAME = "merge_parallel_convolutions"


@dataclass(frozen=True)
class MergeOptions:
    """What a merge is worth, in memory traffic."""

    launch_kib: int = option(64, "memory traffic that one kernel less is worth, in KiB", at_least=0)
    flops_per_byte: int = option(
        8, "floating-point operations that take as long as moving a byte", at_least=1
    )


@graph_pass(name=NAME, phase="rewrite", options=MergeOptions)
def merge_parallel_convolutions(
    mod: tvm.IRModule, ctx: PassContext, options: MergeOptions
) -> tuple[tvm.IRModule, bool]:
    """Merge convolutions of one tensor into one, enlarging small windows where that pays."""
    plan: MergePlan[Branch] = MergePlan()
    rewriter = _Merge(mod, plan)

    def choose(func: relax.Function) -> None:
        for block in func.body.blocks:
            readers = readers_of(block)
            for found in branches(block, readers):
                group, reason = _choose(found, readers, ctx.machine.lanes(), options)
                if reason:
                    ctx.log.decline(NAME, found[0].conv.name, reason)
                else:
                    plan.take(group)

    rewrite_functions(rewriter, mod, choose)
    if not plan.groups:
        return mod, False
    ctx.log.fire(NAME, f"merged {len(plan.parts)} convolutions into {plan.groups}")
    return remove_dead_bindings(rewriter.builder_.get()), True


def _choose(
    found: list[Branch], readers: Readers, lanes: int, options: MergeOptions
) -> tuple[list[Branch], str]:
    """Return the branches to merge: all, with windows enlarged, or those of the first window.

    A branch that would be written into a concatenation stays by itself, if two others are left.
    """
    apart = [branch for branch in found if not _is_part(branch, readers)]
    if 1 < len(apart) < len(found) and not _concatenated(found, readers):
        found = apart
    window = max(found, key=lambda branch: math.prod(branch.kernel))
    same = [b for b in found if (b.kernel, b.padding) == (window.kernel, window.padding)]
    reason = _why_not(found, window, readers, lanes, options)
    if reason and 1 < len(same) < len(found):
        found, reason = same, _why_not(same, window, readers, lanes, options)
    return found, reason


def _why_not(
    group: list[Branch], window: Branch, readers: Readers, lanes: int, options: MergeOptions
) -> str:
    if any(b.enlarged(window.kernel, window.padding) is None for b in group):
        return "their windows cover different pixels"
    names = {operator_name(b.activation) for b in group}
    if len(names) > 1:
        return "different activations follow them"
    x, y = (static_shape(v) for v in (group[0].call.args[0], window.call))
    if x is None or y is None:
        return "their sizes are symbolic"
    pixels = y[0] * y[2] * y[3]
    moved = offset = 0
    joined = _concatenated(group, readers)
    for branch in group:
        if not joined and not _in_place(branch, offset, readers, lanes):
            moved += 8 * branch.width * pixels
        if not joined and _is_part(branch, readers):
            moved += options.launch_kib * 1024
        offset += branch.width
    added = sum(
        2 * pixels * branch.width * x[1] * (math.prod(window.kernel) - math.prod(branch.kernel))
        for branch in group
    )
    saved = (len(group) - 1) * (options.launch_kib * 1024 + 4 * math.prod(x))
    saved += 8 * pixels * offset if joined else 0
    cost = moved + added // options.flops_per_byte
    if cost <= saved:
        return ""
    return (
        f"slices move {moved // 1024} KiB and larger windows add {added // 1000} kFLOP, "
        f"more than the {saved // 1024} KiB saved"
    )


def _concatenated(group: list[Branch], readers: Readers) -> bool:
    """Return whether all results are read by one concatenation, next to each other, in order."""
    first = readers.get(group[0].result, [])
    if len(first) != 1 or operator_name(first[0].value) != "concat":
        return False
    if int(first[0].value.attrs.axis or 0) % 4 != 1:
        return False
    fields = list(first[0].value.args[0].fields)
    places = [[i for i, f in enumerate(fields) if f.same_as(b.result)] for b in group]
    if any(len(place) != 1 for place in places) or any(len(readers[b.result]) != 1 for b in group):
        return False
    start = places[0][0]
    return [place[0] for place in places] == list(range(start, start + len(group)))


def _in_place(branch: Branch, offset: int, readers: Readers, lanes: int) -> bool:
    """Return whether all readers of a branch can read it as a slice of whole channel blocks."""
    after = readers.get(branch.result, [])
    if not after or offset % lanes or branch.width % lanes or _is_part(branch, readers):
        return False
    return all(operator_name(b.value) in ("nn.conv2d", "concat") for b in after)


def _is_part(branch: Branch, readers: Readers) -> bool:
    """Return whether a branch of one image is read by a concatenation of channels."""
    return (static_shape(branch.call) or (0,))[0] == 1 and any(
        operator_name(b.value) == "concat" and int(b.value.attrs.axis or 0) % 4 == 1
        for b in readers.get(branch.result, [])
    )


@mutator
class _Merge(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, plan: MergePlan[Branch]) -> None:
        super().__init__(mod)
        self.plan = plan
        self.merged: dict[relax.Var, relax.Var] = {}
        self.slices: dict[relax.Expr, tuple[relax.Var, int, int]] = {}  # by new variable

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        var = binding.var
        part = self.plan.parts.get(var)
        if part is not None:
            whole = self._whole(part.group)
            made = emit_as(self.builder_, var, part.cut_from(whole, 1), var.name)
            self.slices[made] = (whole, part.begin, part.end)
            self.set_var_remap(var, made)
        elif var not in self.plan.absorbed:
            super().visit_var_binding_(binding)

    def visit_call_(self, call: tvm.ir.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if operator_name(call) != "concat" or not isinstance(call.args[0], relax.Tuple):
            return call
        fields = list(call.args[0].fields)
        joined = self._joined(fields)
        if len(joined) == len(fields):
            return call
        return joined[0] if len(joined) == 1 else relax.op.concat(joined, call.attrs.axis)

    def _joined(self, fields: list[relax.Expr]) -> list[relax.Expr]:
        """Return the fields of a concatenation, all slices of one tensor in order as that."""
        result: list[relax.Expr] = []
        place = 0
        while place < len(fields):
            held = self.slices.get(fields[place])
            count, end = 0, 0
            while held is not None and place + count < len(fields):
                following = self.slices.get(fields[place + count])
                if following is None or following[0] is not held[0] or following[1] != end:
                    break
                count, end = count + 1, following[2]
            if held is not None and end == int(held[0].ty.shape.values[1]):
                result.append(held[0])
                place += count
            else:
                result.append(fields[place])
                place += 1
        return result

    def _whole(self, group: list[Branch]) -> relax.Var:
        """Return the merged convolution with bias and activation, emitted at its first result."""
        first = group[0]
        if first.conv not in self.merged:
            window = max(group, key=lambda branch: math.prod(branch.kernel))
            weights = [b.enlarged(window.kernel, window.padding) for b in group]
            weight = constant_from(np.concatenate([w for w in weights if w is not None]))
            x = self.visit_expr(first.call.args[0])
            name = "_".join(branch.conv.name for branch in group)[:60]
            call = tvm.ir.Call(first.call.op, [x, weight], window.call.attrs)
            whole = self.builder_.emit(call, name)
            if any(branch.bias is not None for branch in group):
                biases = [np.zeros(b.width) if b.bias is None else b.bias for b in group]
                bias = np.concatenate(biases).astype("float32").reshape(1, -1, 1, 1)
                whole = self.builder_.emit(relax.op.add(whole, constant_from(bias)))
            if first.activation is not None:
                activation = first.activation
                whole = self.builder_.emit(tvm.ir.Call(activation.op, [whole], activation.attrs))
            self.merged[first.conv] = whole
        return self.merged[first.conv]
