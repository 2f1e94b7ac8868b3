"""Raise attention written in single operators to R.nn.attention.

    softmax(scale * Q K^T + mask) V  ->  attention(Q, K, V, bias, scale, causal)

R.nn.attention takes (batch, length, heads, size), so that the transposes which exporters write
before and after go away (`simplify_views`). K and V may have fewer heads than Q: head i of Q reads
head i // n of theirs. A row that sees no key gives zeros; written out, it gives NaN unless guarded.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax import op as R
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.tirx import FloatImm, IntImm

from relax_passes.analysis.attention_operands import NotAttentionError, Operand, Sizes
from relax_passes.analysis.attention_pattern import Attention, AttentionPattern
from relax_passes.analysis.definitions import (
    Definitions,
    dimensions,
    equal_shapes,
    equal_sizes,
    operator_name,
)
from relax_passes.attention_bias import bias_and_causality
from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.emit_as import emit_as
from relax_passes.lowering.rule import dtype_of, has_no_elements
from relax_passes.pass_base import PassContext, PassLog, graph_pass
from relax_passes.rewrite_functions import rewrite_functions

NAME = "raise_attention"
_HEADS_INWARD = [0, 2, 1, 3]


@graph_pass(name=NAME, phase="raise")
def raise_attention(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Raise attention, masked, causal or grouped, to R.nn.attention.

    On a CPU it is in float32; a GPU computes it of half-precision operands, too.
    """
    on_gpu = ctx.machine.gpu is not None
    if ctx.machine.kind != "llvm" and not on_gpu:  # no attention kernel to raise to
        return mod, False
    rewriter = _Raise(mod, ctx.log, half=on_gpu)
    rewrite_functions(rewriter, mod, rewriter.read)
    if not rewriter.count:
        return mod, False
    ctx.log.fire(NAME, f"raised {rewriter.count} attentions")
    return remove_dead_bindings(rewriter.builder_.get()), True


@mutator
class _Raise(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, log: PassLog, half: bool) -> None:
        super().__init__(mod)
        self.log = log
        self.half = half
        self.count = 0
        self.pattern: AttentionPattern | None = None

    def read(self, func: relax.Function) -> None:
        """Look at a function whose attentions are to be raised."""
        self.pattern = AttentionPattern(Definitions(func), self.half)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        var, value = binding.var, binding.value
        if operator_name(value) != "matmul":
            super().visit_var_binding_(binding)
            return
        assert self.pattern is not None
        try:
            found = self.pattern.match(value)
            result = None if found is None else self._attention(found, value)
        except NotAttentionError as reason:
            self.log.decline(NAME, var.name, str(reason))
            result = None
        if result is None:
            super().visit_var_binding_(binding)
            return
        self.count += 1
        self.set_var_remap(var, emit_as(self.builder_, var, result, var.name))

    def _attention(self, found: Attention, call: tvm.ir.Call) -> relax.Expr:
        """Return the value of `call`, computed by R.nn.attention."""
        batch, heads, rows, keys = found.sizes
        if any(has_no_elements(x) for x in (call, found.q.value, found.k.value, found.v.value)):
            raise NotAttentionError("it has no elements")
        group = found.k.sizes()[1] if len(found.k.order) == 4 else heads
        shared = len(found.v.order) != 4 or equal_sizes(found.v.sizes()[1], group)
        if not shared or not _divides(group, heads):
            raise NotAttentionError("its heads are no multiple of those of K and V")
        width = found.v.sizes()[-1]
        q_sizes = [batch, heads, rows, found.q.sizes()[-1]]
        k_sizes = [batch, group, keys, found.k.sizes()[-1]]
        v_sizes = [batch, group, keys, width]
        emit = self.builder_.emit
        bias, causal = bias_and_causality(found.masks, found.sizes, emit, self.visit_expr)
        attended = R.nn.attention(
            self._laid_out(found.q, q_sizes),
            self._laid_out(found.k, k_sizes),
            self._laid_out(found.v, v_sizes),
            bias,
            FloatImm("float32", found.scale),
            causal,
        )
        result = R.permute_dims(emit(attended), _HEADS_INWARD)
        if dtype_of(found.q.value) != dtype_of(call):
            result = R.astype(emit(result), dtype_of(call))
        wanted = dimensions(call) or []
        if equal_shapes(wanted, [batch, heads, rows, width]):
            return result
        return R.reshape(emit(result), relax.ShapeExpr(wanted))

    def _laid_out(self, operand: Operand, sizes: Sizes) -> relax.Expr:
        """Return an operand as (batch, length, heads, size), from `sizes` with heads second."""
        value = self.visit_expr(operand.value)
        order, own = list(operand.order), operand.sizes()
        if not equal_shapes(own, sizes):
            if order != sorted(order):
                value = self.builder_.emit(R.permute_dims(value, order))
            value = self.builder_.emit(R.reshape(value, relax.ShapeExpr(sizes)))
            order = list(range(4))
        order = [order[axis] for axis in _HEADS_INWARD]
        return value if order == sorted(order) else self.builder_.emit(R.permute_dims(value, order))


def _divides(part: object, whole: object) -> bool:
    if isinstance(part, IntImm) and isinstance(whole, IntImm):
        return int(part) > 0 and int(whole) % int(part) == 0
    return equal_sizes(part, whole)
