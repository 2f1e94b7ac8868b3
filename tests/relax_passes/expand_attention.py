"""R.nn.attention in single operators, by its definition, to compare raised modules through."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op as R
from tvm.relax.expr_functor import PyExprMutator, mutator

from relax_passes.pass_base import GraphPass, PassContext
from relax_passes.rewrite_functions import rewrite_functions


def _expand(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    rewriter = _Expand(mod)
    rewrite_functions(rewriter, mod)
    return rewriter.builder_.get(), True


EXPAND = GraphPass("expand_attention", "lower", _expand, "", None, ())


@mutator
class _Expand(PyExprMutator):
    def visit_call_(self, call: tvm.ir.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if getattr(call.op, "name", "") not in ("relax.nn.attention", "relax.nn.attention_bias"):
            return call
        emit = self.builder_.emit
        q, k, v = (emit(R.permute_dims(x, [0, 2, 1, 3])) for x in call.args[:3])
        groups = [int(x.ty.shape.values[1]) for x in (q, k)]
        k, v = (emit(R.repeat(x, groups[0] // groups[1], 1)) for x in (k, v))
        scores = emit(R.matmul(q, emit(R.permute_dims(k, [0, 1, 3, 2]))))
        scale = relax.const(np.float32(float(call.attrs.scale)))
        scores = emit(R.multiply(scores, scale))
        if len(call.args) == 4:
            scores = emit(R.add(scores, call.args[3]))
        if call.attrs.causal_mask is not None:
            rows, keys = (int(d) for d in scores.ty.shape.values[2:])
            offset = keys - rows if call.attrs.causal_mask == "BottomRight" else 0
            hidden = np.where(np.tri(rows, keys, offset, dtype=bool), 0, -np.inf)
            scores = emit(R.add(scores, relax.const(hidden.astype("float32"))))
        best = emit(R.max(scores, [-1], True))
        best = emit(R.maximum(best, relax.const(np.float32(-3e38))))
        shares = emit(R.exp(emit(R.subtract(scores, best))))
        total = emit(R.sum(shares, [-1], True))
        # A row that sees no key has no shares: zeros.
        total = emit(R.maximum(total, relax.const(np.float32(1e-30))))
        weights = emit(R.divide(shares, total))
        return R.permute_dims(emit(R.matmul(weights, v)), [0, 2, 1, 3])
