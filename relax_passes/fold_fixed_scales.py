"""Fold scales per channel into weights that are no constants, but the same from call to call.

    (conv(x, W) + b) * s + t  =  conv(x, W * s) + (b * s + t)      W, s, t made of parameters

What `fold_batch_norm` computes at compile time is emitted here as operators on parameters, which
`lift_preparation` moves out of the call; batch norms are scales and shifts by now.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from relax_passes.analysis.definitions import operator_name
from relax_passes.analysis.fixed_values import fixed_inputs, fixed_values
from relax_passes.analysis.readers import count_readers
from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.emit_as import emit_as
from relax_passes.linear_operators import (
    MATMUL,
    has_usual_layout,
    is_linear,
    is_transposed,
    keeps_every_scale,
    output_channels,
)
from relax_passes.lowering.rule import dtype_of, static_shape
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.rewrite_functions import rewrite_functions

NAME = "fold_fixed_scales"
_COMBINE = {"multiply": relax.op.multiply, "divide": relax.op.divide}
_SHIFT = {"add": relax.op.add, "subtract": relax.op.subtract}


@graph_pass(name=NAME, phase="rewrite")
def fold_fixed_scales(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Fold scales and shifts of parameters into the weights of linear operators, as operators."""
    graphs = [func for func in mod.functions.values() if isinstance(func, relax.Function)]
    if not any(map(fixed_inputs, graphs)) or keeps_every_scale(ctx, NAME):
        return mod, False
    rewriter = _Fold(mod)
    rewrite_functions(rewriter, mod, rewriter.read)
    if not rewriter.count:
        return mod, False
    ctx.log.fire(NAME, f"folded {rewriter.count} scales and shifts")
    return remove_dead_bindings(rewriter.builder_.get()), True


@dataclass(frozen=True)
class _Linear:
    """A value `op(x, weight) + shift`; `shift` is None or of shape (channels,)."""

    call: tvm.ir.Call
    rank: int
    channels: int
    axis: int  # the channel axis of the value
    shift: relax.Expr | None


@mutator
class _Fold(PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.count = 0
        self.fixed: set[relax.Var] = set()
        self.readers: dict[relax.Var, int] = {}
        self.linear: dict[relax.Var, _Linear] = {}  # by the old graph's variables

    def read(self, func: relax.Function) -> None:
        """Look at a function whose scales are to be folded."""
        self.fixed, self.readers = fixed_values(func), count_readers(func)
        self.linear.clear()

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        var, value = binding.var, binding.value
        name = operator_name(value)
        if name in _COMBINE or name in _SHIFT:
            folded = self._folded(var, name, value)
            if folded is not None:
                self._bind(var, folded)
                return
        super().visit_var_binding_(binding)
        if name and is_linear(value.op.name):
            self._record(var, value)

    def _record(self, var: relax.Var, call: tvm.ir.Call) -> None:
        weight, rank = call.args[1], call.ty.ndim
        shape = static_shape(weight)
        if weight not in self.fixed or shape is None or dtype_of(weight) != dtype_of(call):
            return
        product = call.op.name == MATMUL
        made = self.lookup_binding(self.visit_expr(var))
        usual = len(shape) == 2 if product else has_usual_layout(call)
        if usual and isinstance(made, tvm.ir.Call):
            channels = output_channels(call, tuple(int(size) for size in shape))
            self.linear[var] = _Linear(made, rank, channels, rank - 1 if product else 1, None)

    def _folded(self, var: relax.Var, name: str, call: tvm.ir.Call) -> _Linear | None:
        """Return what a scale or a shift makes of the linear value it reads, None if it stays."""
        a, b = call.args
        if a not in self.linear and name in ("add", "multiply"):
            a, b = b, a
        linear = self.linear.get(a) if isinstance(a, relax.Var) else None
        if linear is None or self.readers[a] > 1 or not self._is_per_channel(b, linear):
            return None
        vector = self._vector(b, linear)
        call, shift = linear.call, linear.shift
        if name in _SHIFT and shift is None:
            if name == "add":  # the form that is folded into: it stays as written
                self.linear[var] = replace(linear, shift=vector)
            return None
        if name in _SHIFT:
            return replace(linear, shift=self._emit(_SHIFT[name](shift, vector)))
        weight = self._scaled(call, vector, name)
        call = tvm.ir.Call(call.op, [call.args[0], weight], call.attrs)
        if shift is not None:
            shift = self._emit(_COMBINE[name](shift, vector))
        return replace(linear, call=call, shift=shift)

    def _is_per_channel(self, value: relax.Expr, linear: _Linear) -> bool:
        """Tell whether a value stays from call to call, and is one number for each channel."""
        constant = isinstance(value, tvm.ir.GenericConst)
        shape, rank = static_shape(value), linear.rank
        if not (constant or value in self.fixed) or shape is None or len(shape) > rank:
            return False
        if dtype_of(value) != dtype_of(linear.call.args[1]):
            return False
        full = [1] * (rank - len(shape)) + [int(size) for size in shape]
        others = full[: linear.axis] + full[linear.axis + 1 :]
        return all(size == 1 for size in others) and full[linear.axis] in (1, linear.channels)

    def _vector(self, value: relax.Expr, linear: _Linear) -> relax.Expr:
        new, channels = self.visit_expr(value), linear.channels
        size = prod(map(int, static_shape(value) or ()))
        flat = self._emit(relax.op.reshape(new, [size]))
        return flat if size == channels else self._emit(relax.op.broadcast_to(flat, [channels]))

    def _scaled(self, call: tvm.ir.Call, scale: relax.Expr, name: str) -> relax.Expr:
        """Return the weight of a call with each output channel scaled."""
        weight = call.args[1]
        shape = [int(size) for size in static_shape(weight) or ()]
        combine = _COMBINE[name]
        if call.op.name == MATMUL:
            return self._emit(combine(weight, scale))
        if not is_transposed(call):
            return self._emit(combine(weight, self._reshaped(scale, [-1], shape[1:])))
        groups, (i, o, *window) = int(call.attrs.groups), shape
        split = self._emit(relax.op.reshape(weight, [groups, i // groups, o, *window]))
        factors = self._reshaped(scale, [groups, 1, o], window)
        return self._emit(relax.op.reshape(self._emit(combine(split, factors)), shape))

    def _reshaped(self, vector: relax.Expr, lead: list[int], ones: list[int]) -> relax.Expr:
        return self._emit(relax.op.reshape(vector, [*lead, *[1] * len(ones)]))

    def _bind(self, var: relax.Var, linear: _Linear) -> None:
        """Bind `var` to a linear value in the new graph."""
        self.count += 1
        self.linear[var] = linear
        if linear.shift is None:
            named = emit_as(self.builder_, var, linear.call, var.name)
        else:
            along = [1] * linear.rank
            along[linear.axis] = linear.channels
            shift = self._emit(relax.op.reshape(linear.shift, along))
            result = self.builder_.emit(linear.call)
            named = emit_as(self.builder_, var, relax.op.add(result, shift), var.name)
        self.set_var_remap(var, named)

    def _emit(self, value: relax.Expr) -> relax.Expr:
        return self.builder_.emit(value)
