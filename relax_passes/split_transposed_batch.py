"""Transpose without joining the batch axes first.

    reshape(permute(reshape(x, (a*b, m, n)), (0, 2, 1)), (a, b, n, m))
        =  permute(reshape(x, (a, b, m, n)), (0, 1, 3, 2))

PyTorch's exporter writes the transpose of K in attention this way. The view on the right often
changes nothing, and its transpose meets others, which `simplify_views` merges.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from relax_passes.analysis.definitions import axes_of, dimensions, equal_shapes, operator_name
from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.rewrite_functions import CallRewriter, rewrite_functions

NAME = "split_transposed_batch"


@graph_pass(name=NAME, phase="raise")
def split_transposed_batch(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Transpose without joining batch axes before and splitting them after."""
    rewriter = _Split(mod)
    rewrite_functions(rewriter, mod)
    if not rewriter.count:
        return mod, False
    ctx.log.fire(NAME, f"split the batch of {rewriter.count} transposes")
    return remove_dead_bindings(rewriter.builder_.get()), True


@mutator
class _Split(CallRewriter):
    def replacement(self, call: tvm.ir.Call) -> relax.Expr | None:
        if operator_name(call) != "reshape":
            return None
        permute = self.look_up(call.args[0])
        joined = self.look_up(permute.args[0]) if _is(permute, "permute_dims") else None
        if joined is None or not _is(joined, "reshape"):
            return None
        before, wide = dimensions(joined), dimensions(call)
        order = axes_of(permute)
        if before is None or wide is None or order[0] != 0 or len(wide) <= len(before):
            return None
        lead = len(wide) - len(before) + 1
        # The other axes keep their sizes, so the leading ones are the joined axis, split.
        if not equal_shapes(wide[lead:], [before[axis] for axis in order[1:]]):
            return None
        view = self.builder_.emit(
            relax.op.reshape(joined.args[0], relax.ShapeExpr([*wide[:lead], *before[1:]]))
        )
        return relax.op.permute_dims(view, [*range(lead), *(lead - 1 + a for a in order[1:])])


def _is(value: relax.Expr, name: str) -> bool:
    return operator_name(value) == name
