"""Write operators that differ between training and inference in their inference form.

batch_norm(x, gamma, beta, mean, var)[0] = x * s + (beta - mean * s),  s = gamma / sqrt(var + e)
dropout(x)[0] = x
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from relax_passes.canonicalize_bindings import canonicalize_bindings
from relax_passes.constant_values import constant_from
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.rewrite_functions import CallRewriter, rewrite_functions

_BATCH_NORM = tvm.ir.Op.get("relax.nn.batch_norm")
_DROPOUT = tvm.ir.Op.get("relax.nn.dropout")


@graph_pass(name="decompose_inference", phase="rewrite")
def decompose_inference(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Replace batch normalization by a scale and a shift, dropout by its input."""
    rewriter = _Decompose(mod)
    rewrite_functions(rewriter, mod)
    if not rewriter.count:
        return mod, False
    ctx.log.fire("decompose_inference", f"decomposed {rewriter.count} operators")
    return canonicalize_bindings(rewriter.builder_.get()), True


def scale_and_shift(
    gamma: np.ndarray, beta: np.ndarray, mean: np.ndarray, var: np.ndarray, epsilon: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return what batch normalization at inference multiplies by and adds, in float64."""
    scale = gamma.astype("float64") / np.sqrt(var.astype("float64") + epsilon)
    return scale, beta.astype("float64") - mean.astype("float64") * scale


@mutator
class _Decompose(CallRewriter):
    def replacement(self, call: tvm.ir.Call) -> relax.Expr | None:
        if call.op == _BATCH_NORM and not call.attrs.training:
            return relax.Tuple([self._normalize(call), call.args[3], call.args[4]])
        if call.op == _DROPOUT:
            mask = self.builder_.emit(relax.op.ones_like(call.args[0]))
            return relax.Tuple([call.args[0], mask])
        return None

    def visit_tuple_getitem_(self, item: relax.TupleGetItem) -> relax.Expr:
        item = self.visit_expr_post_order(item)
        if isinstance(item, relax.TupleGetItem):
            source = item.tuple_value
            if isinstance(source, relax.Var):
                source = self.lookup_binding(source)
            if isinstance(source, relax.Tuple):
                return source.fields[item.index]
        return item

    def _normalize(self, call: tvm.ir.Call) -> relax.Expr:
        data, *params = call.args
        attrs = call.attrs
        axis = int(attrs.axis) % data.ty.ndim
        dtype = data.ty.dtype
        along = [1] * data.ty.ndim
        along[axis] = -1
        if all(isinstance(p, tvm.ir.GenericConst) for p in params):
            gamma, beta, mean, var = (p.value.numpy() for p in params)
            gamma = gamma if attrs.scale else np.ones_like(gamma)
            beta = beta if attrs.center else np.zeros_like(beta)
            parts = scale_and_shift(gamma, beta, mean, var, float(attrs.epsilon))
            name = str(getattr(dtype, "dtype", dtype))
            scale, shift = (constant_from(p.reshape(along).astype(name)) for p in parts)
        else:
            scale, shift = self._at_run_time(params, attrs, along)
        scaled = self.builder_.emit(relax.op.multiply(data, scale))
        return self.builder_.emit(relax.op.add(scaled, shift))

    def _at_run_time(
        self, params: list[relax.Expr], attrs: tvm.ir.Attrs, along: list[int]
    ) -> tuple[relax.Expr, relax.Expr]:
        gamma, beta, mean, var = params
        emit, op = self.builder_.emit, relax.op
        dtype = str(getattr(var.ty.dtype, "dtype", var.ty.dtype))
        epsilon = constant_from(np.array(float(attrs.epsilon), dtype))
        scale = emit(op.rsqrt(emit(op.add(var, epsilon))))
        if attrs.scale:
            scale = emit(op.multiply(gamma, scale))
        shift = emit(op.negative(emit(op.multiply(mean, scale))))
        if attrs.center:
            shift = emit(op.add(beta, shift))
        channels = var.ty.shape.values[0]
        shape = relax.ShapeExpr([channels if size == -1 else 1 for size in along])
        return emit(op.reshape(scale, shape)), emit(op.reshape(shift, shape))
