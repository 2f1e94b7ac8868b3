"""Fold scales and shifts per channel into the linear operator before them.

    (conv(x, W) + b) * s + t  =  conv(x, W * s) + (b * s + t)      s, t per output channel

for convolutions of any rank, grouped and depthwise ones, transposed convolutions, and products
with a constant matrix. Batch normalization at inference is such a scale and shift, and so are
multiplications, divisions, additions and subtractions of constants.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from relax_passes.analysis.readers import count_readers
from relax_passes.constant_values import array_of, constant_from
from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.decompose_inference import scale_and_shift
from relax_passes.emit_as import emit_as
from relax_passes.linear_operators import (
    MATMUL,
    has_usual_layout,
    is_linear,
    keeps_every_scale,
    output_channels,
    per_channel,
    scale_outputs,
)
from relax_passes.pass_base import PassContext, PassLog, graph_pass
from relax_passes.rewrite_functions import rewrite_functions

_ARITHMETIC = {"relax.add", "relax.subtract", "relax.multiply", "relax.divide"}
_BATCH_NORM = "relax.nn.batch_norm"


@graph_pass(name="fold_batch_norm", phase="rewrite")
def fold_batch_norm(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Fold batch normalization and scale/shift chains into convolutions and matrix products."""
    if keeps_every_scale(ctx, "fold_batch_norm"):
        return mod, False
    rewriter = _Fold(mod, ctx.log)
    rewrite_functions(rewriter, mod, rewriter.read)
    if not rewriter.count:
        return mod, False
    ctx.log.fire("fold_batch_norm", f"folded {rewriter.count} scales and shifts")
    return remove_dead_bindings(rewriter.builder_.get()), True


@dataclass(frozen=True)
class _Linear:
    """A value `op(x, weight) + shift` in the new graph; `shift` is None or per channel."""

    call: tvm.ir.Call
    channels: int
    axis: int  # the channel axis of the value
    shift: np.ndarray | None


@mutator
class _Fold(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, log: PassLog) -> None:
        super().__init__(mod)
        self.log = log
        self.count = 0
        self.readers: dict[relax.Var, int] = {}
        self.linear: dict[relax.Var, _Linear] = {}  # by the old graph's variables
        self.norm_inputs: dict[relax.Var, relax.Expr] = {}

    def read(self, func: relax.Function) -> None:
        """Look at a function whose scales are to be folded."""
        self.readers = count_readers(func)
        self.linear.clear()

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        var, value = binding.var, binding.value
        if isinstance(value, tvm.ir.Call) and isinstance(value.op, tvm.ir.Op):
            name = value.op.name
            if name in _ARITHMETIC and self._fold_arithmetic(var, value):
                return
            super().visit_var_binding_(binding)
            if is_linear(name):
                self._record(var)
            elif name == _BATCH_NORM:
                self.norm_inputs[var] = value.args[0]
            return
        if isinstance(value, relax.TupleGetItem) and self._fold_batch_norm(var, value):
            return
        super().visit_var_binding_(binding)

    # Linear operators ----------------------------------------------------------------------

    def _record(self, var: relax.Var) -> None:
        call = self.lookup_binding(self.visit_expr(var))
        if not isinstance(call, tvm.ir.Call):
            return
        weight = call.args[1]
        if not isinstance(weight, tvm.ir.GenericConst) or call.ty.ndim < 1:
            self.log.decline("fold_batch_norm", call.op.name, "its weight is not constant")
            return
        shape = tuple(int(d) for d in weight.ty.shape.values)
        if call.op.name == MATMUL:
            if len(shape) == 2:
                self.linear[var] = _Linear(call, shape[1], call.ty.ndim - 1, None)
        elif has_usual_layout(call):
            self.linear[var] = _Linear(call, output_channels(call, shape), 1, None)

    def _scaled(self, linear: _Linear, scale: np.ndarray) -> tvm.ir.Call:
        """Return the operator with each output channel scaled, `scale` of shape (channels,)."""
        call = linear.call
        weight = scale_outputs(call, array_of(call.args[1]), scale)
        return tvm.ir.Call(call.op, [call.args[0], constant_from(weight)], call.attrs)

    # Folding -------------------------------------------------------------------------------

    def _fold_arithmetic(self, var: relax.Var, call: tvm.ir.Call) -> bool:
        """Fold `call` into the linear operator it reads; return whether that was done."""
        name = call.op.name.removeprefix("relax.")
        a, b = call.args
        if isinstance(a, tvm.ir.GenericConst) and name in ("add", "multiply"):
            a, b = b, a
        linear = self.linear.get(a) if isinstance(a, relax.Var) else None
        if linear is None or not isinstance(b, tvm.ir.GenericConst):
            return False
        values = per_channel(array_of(b), linear.channels, linear.axis, a.ty.ndim)
        if values is None:
            return False
        if self.readers[a] > 1:
            if name in ("multiply", "divide"):
                self.log.decline("fold_batch_norm", a.name, "it has another reader")
            return False
        if name in ("add", "subtract"):
            return self._shift(var, call, linear, values if name == "add" else -values)
        scale = values if name == "multiply" else 1.0 / values
        if not np.all(np.isfinite(scale)):
            return False
        self._emit(var, linear, scale, np.zeros(linear.channels))
        return True

    def _shift(self, var: relax.Var, call: tvm.ir.Call, linear: _Linear, shift: np.ndarray) -> bool:
        if linear.shift is not None:  # two shifts become one
            self._emit(var, linear, None, shift)
            return True
        # A bias alone is the form we fold into: it stays as written, and is remembered.
        self._rebind(var, self.visit_expr(call))
        self.linear[var] = _Linear(linear.call, linear.channels, linear.axis, shift)
        return True

    def _fold_batch_norm(self, var: relax.Var, item: relax.TupleGetItem) -> bool:
        source = item.tuple_value
        if item.index != 0 or not isinstance(source, relax.Var):
            return False
        norm = self.lookup_binding(self.visit_expr(source))
        if not isinstance(norm, tvm.ir.Call) or norm.op != tvm.ir.Op.get(_BATCH_NORM):
            return False
        data, params = self.norm_inputs.get(source), list(norm.args[1:])
        if not isinstance(data, relax.Var) or data not in self.linear:
            return False
        linear = self.linear[data]
        reason = self._why_not(norm, data, params, linear)
        if reason:
            self.log.decline("fold_batch_norm", data.name, reason)
            return False
        gamma, beta, mean, variance = (array_of(p) for p in params)
        gamma = gamma if norm.attrs.scale else np.ones_like(gamma)
        beta = beta if norm.attrs.center else np.zeros_like(beta)
        scale, shift = scale_and_shift(gamma, beta, mean, variance, float(norm.attrs.epsilon))
        self._emit(var, linear, scale, shift)
        return True

    def _why_not(
        self, norm: tvm.ir.Call, data: relax.Var, params: list[relax.Expr], linear: _Linear
    ) -> str:
        if norm.attrs.training:
            return "the normalization is in training mode"
        if not all(isinstance(p, tvm.ir.GenericConst) for p in params):
            return "the normalization's parameters are not constant"
        if int(norm.attrs.axis) % data.ty.ndim != linear.axis:
            return "the normalization is over another axis"
        if self.readers[data] > 1:
            return "it has another reader"
        return ""

    def _emit(
        self, var: relax.Var, linear: _Linear, scale: np.ndarray | None, shift: np.ndarray
    ) -> None:
        """Bind `var` to the linear operator times `scale` plus `shift`."""
        self.count += 1
        call = linear.call if scale is None else self._scaled(linear, scale)
        old = np.zeros(linear.channels) if linear.shift is None else linear.shift
        total = (old if scale is None else old * scale) + shift
        if not np.any(total):
            made = self._rebind(var, call)
            self.linear[var] = _Linear(made, linear.channels, linear.axis, None)
            return
        result = self.builder_.emit(call, f"{var.name}_{call.op.name.rpartition('.')[2]}")
        made = self.lookup_binding(result)
        along = [1] * result.ty.ndim
        along[linear.axis] = -1
        dtype = array_of(call.args[1]).dtype
        bias = constant_from(total.reshape(along).astype(dtype))
        self._rebind(var, relax.op.add(result, bias))
        self.linear[var] = _Linear(made, linear.channels, linear.axis, total)

    def _rebind(self, var: relax.Var, value: relax.Expr) -> relax.Expr:
        """Bind `var` to a new value in the new graph; return that value."""
        named = emit_as(self.builder_, var, value, var.name)
        self.set_var_remap(var, named)
        return self.lookup_binding(named)
