"""Fold scales and shifts per channel into the linear operator after them.

    conv(x * s + t, W) = conv(x, W * s) + sum over the window and the inputs of (W * t)

The shift folds only where every window lies inside the image: a padded border is zero, not t. A
scale folds with padding too, since zero stays zero, and into transposed convolutions. Networks that
normalize before they convolve (DenseNet, pre-activation ResNet without the ReLU between, input
normalization) have these. `fold_batch_norm` folds what comes after the operator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from relax_passes.analysis.readers import count_readers
from relax_passes.constant_values import array_of, constant_from
from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.decompose_inference import scale_and_shift
from relax_passes.emit_as import emit_as
from relax_passes.linear_operators import (
    MATMUL,
    constant_response,
    has_usual_layout,
    input_channels,
    is_linear,
    is_transposed,
    keeps_every_scale,
    per_channel,
    scale_inputs,
)
from relax_passes.pass_base import PassContext, PassLog, graph_pass
from relax_passes.rewrite_functions import rewrite_functions

_NAME = "fold_preceding_batch_norm"
_BATCH_NORM = tvm.ir.Op.get("relax.nn.batch_norm")
_ARITHMETIC = frozenset(f"relax.{name}" for name in ("add", "subtract", "multiply", "divide"))


@graph_pass(name=_NAME, phase="rewrite")
def fold_preceding_batch_norm(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Fold batch normalization and scales before convolutions and matrix products into them."""
    if keeps_every_scale(ctx, _NAME):
        return mod, False
    rewriter = _Fold(mod, ctx.log)
    rewrite_functions(rewriter, mod, rewriter.read)
    if not rewriter.count:
        return mod, False
    ctx.log.fire(_NAME, f"folded {rewriter.count} scales and shifts")
    return remove_dead_bindings(rewriter.builder_.get()), True


@dataclass(frozen=True)
class _Affine:
    """The data of a linear operator as `source * scale + shift`, one number per channel each."""

    source: relax.Expr
    scale: np.ndarray
    shift: np.ndarray

    def after(self, source: relax.Expr, scale: np.ndarray, shift: np.ndarray) -> _Affine:
        """Return the same value with `self.source` written as `source * scale + shift`."""
        return _Affine(source, self.scale * scale, self.scale * shift + self.shift)


class _Refused(Exception):
    """A scale or shift that cannot be folded; the text is the reason."""


@mutator
class _Fold(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, log: PassLog) -> None:
        super().__init__(mod)
        self.log = log
        self.count = 0
        self.readers: dict[relax.Var, int] = {}
        self.definitions: dict[relax.Var, relax.Expr] = {}  # of the old graph

    def read(self, func: relax.Function) -> None:
        """Look at a function whose scales are to be folded."""
        self.readers = count_readers(func)
        self.definitions.clear()

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.BindingBlock:
        # Variables of one block may be out of scope in the next.
        self.definitions.clear()
        return super().visit_dataflow_block_(block)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        var, value = binding.var, binding.value
        self.definitions[var] = value
        is_call = isinstance(value, tvm.ir.Call) and isinstance(value.op, tvm.ir.Op)
        if not is_call or not is_linear(value.op.name) or not self._fold(var, value):
            super().visit_var_binding_(binding)

    def _fold(self, var: relax.Var, call: tvm.ir.Call) -> bool:
        """Rebind `var` to the operator of the unscaled data; return whether that was done."""
        data, weight = call.args[:2]
        rank = data.ty.ndim
        if not isinstance(data, relax.Var) or rank < 2:
            return False
        axis = rank - 1 if call.op.name == MATMUL else 1
        if not isinstance(weight, tvm.ir.GenericConst):
            self._note_run_time_weight(data, call, axis)
            return False
        array = array_of(weight)
        usual = array.ndim == 2 if call.op.name == MATMUL else has_usual_layout(call)
        if not usual or array.dtype.kind != "f":
            return False
        found = self._affine(data, call, input_channels(call, array.shape), axis)
        if found is None:
            return False
        self._emit(var, call, array, found)
        return True

    def _note_run_time_weight(self, data: relax.Var, call: tvm.ir.Call, axis: int) -> None:
        channels = data.ty.shape.values[axis] if hasattr(data.ty.shape, "values") else None
        if not isinstance(channels, tvm.tirx.IntImm):
            return
        try:
            step = self._step(data, int(channels), axis)
        except _Refused:
            return
        if step is not None:
            self.log.decline(_NAME, data.name, f"the weight of {call.op.name} is not constant")

    def _affine(
        self, data: relax.Var, call: tvm.ir.Call, channels: int, axis: int
    ) -> _Affine | None:
        """Return the longest chain before `call` that folds, None if there is none."""
        chain = _Affine(data, np.ones(channels), np.zeros(channels))
        best: _Affine | None = None
        refusal = _why_no_shift(call)
        try:
            while (step := self._step(chain.source, channels, axis)) is not None:
                chain = chain.after(*step)
                if not refusal or not np.any(chain.shift):
                    best = chain
            if refusal and np.any(chain.shift):
                raise _Refused(refusal)
        except _Refused as fault:
            self.log.decline(_NAME, data.name, str(fault))
        return best

    def _step(
        self, value: relax.Expr, channels: int, axis: int
    ) -> tuple[relax.Expr, np.ndarray, np.ndarray] | None:
        """Return `value` as (source, scale, shift), None if it is no scale or shift.

        Raises:
            _Refused: If it is one and must stay.
        """
        definition = self.definitions.get(value) if isinstance(value, relax.Var) else None
        if isinstance(definition, relax.TupleGetItem):
            norm = self.definitions.get(definition.tuple_value)
            if definition.index != 0 or getattr(norm, "op", None) != _BATCH_NORM:
                return None
            self._refuse_shared(definition.tuple_value)
            step = _norm_step(norm, axis)
        elif isinstance(definition, tvm.ir.Call) and isinstance(definition.op, tvm.ir.Op):
            if definition.op.name not in _ARITHMETIC:
                return None
            step = _arithmetic_step(definition, channels, axis, value.ty.ndim)
        else:
            return None
        if step is not None:
            self._refuse_shared(value)
        return step

    def _refuse_shared(self, value: relax.Var) -> None:
        if self.readers[value] > 1:
            raise _Refused(f"{value.name} has another reader")

    def _emit(self, var: relax.Var, call: tvm.ir.Call, weight: np.ndarray, found: _Affine) -> None:
        self.count += 1
        scaled = constant_from(scale_inputs(call, weight, found.scale))
        args = [self.visit_expr(found.source), scaled, *call.args[2:]]
        result: relax.Expr = tvm.ir.Call(call.op, args, call.attrs)
        if np.any(found.shift):
            bias = constant_response(call, weight, found.shift)
            made = self.builder_.emit(result, f"{var.name}_{call.op.name.rpartition('.')[2]}")
            along = [1] * made.ty.ndim
            along[made.ty.ndim - 1 if call.op.name == MATMUL else 1] = -1
            result = relax.op.add(made, constant_from(bias.reshape(along).astype(weight.dtype)))
        self.set_var_remap(var, emit_as(self.builder_, var, result, var.name))


def _why_no_shift(call: tvm.ir.Call) -> str:
    """Return why a shift of the data is no constant in the result, "" if it is one."""
    if call.op.name == MATMUL:
        return ""
    if is_transposed(call):
        return "a shift before a transposed convolution is not the same for each pixel after it"
    if any(int(width) for width in call.attrs.padding):
        return "the convolution pads with zeros, which the shift would not reach"
    return ""


def _norm_step(norm: tvm.ir.Call, axis: int) -> tuple[relax.Expr, np.ndarray, np.ndarray] | None:
    data, *params = norm.args
    if norm.attrs.training:
        raise _Refused("the normalization is in training mode")
    if not all(isinstance(p, tvm.ir.GenericConst) for p in params):
        raise _Refused("the normalization's parameters are not constant")
    if int(norm.attrs.axis) % data.ty.ndim != axis:
        raise _Refused("the normalization is over another axis")
    gamma, beta, mean, variance = (array_of(p) for p in params)
    gamma = gamma if norm.attrs.scale else np.ones_like(gamma)
    beta = beta if norm.attrs.center else np.zeros_like(beta)
    scale, shift = scale_and_shift(gamma, beta, mean, variance, float(norm.attrs.epsilon))
    return data, scale, shift


def _arithmetic_step(
    call: tvm.ir.Call, channels: int, axis: int, rank: int
) -> tuple[relax.Expr, np.ndarray, np.ndarray] | None:
    name = call.op.name.removeprefix("relax.")
    a, b = call.args
    negated = False
    if isinstance(a, tvm.ir.GenericConst):
        if name == "divide":
            return None
        a, b, negated = b, a, name == "subtract"
    if not isinstance(b, tvm.ir.GenericConst) or a.ty.ndim != rank:
        return None
    constant = per_channel(array_of(b), channels, axis, rank)
    if constant is None or not tvm_ffi.structural_equal(a.ty, call.ty):
        return None
    ones, zeros = np.ones(channels), np.zeros(channels)
    if name == "add":
        return a, ones, constant
    if name == "subtract":
        return (a, -ones, constant) if negated else (a, ones, -constant)
    with np.errstate(divide="ignore"):
        scale = constant if name == "multiply" else 1.0 / constant
    if not np.all(np.isfinite(scale)):
        raise _Refused("the scale is not finite")
    return a, scale, zeros
