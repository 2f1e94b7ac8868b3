"""Raise decomposed layer normalization to one operator.

    d = x - mean(x);  d / sqrt(mean(d^2) + e) * gamma + beta  ->  layer_norm(x, gamma, beta)

over trailing axes. Ba, Kiros, Hinton: Layer Normalization, 2016. Exporters to ONNX before opset 17
write it as ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt, Div, Mul, Add.
"""

from __future__ import annotations

import math

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from relax_passes.constant_values import array_of
from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.lowering.rule import dtype_of
from relax_passes.pass_base import PassContext, PassLog, graph_pass
from relax_passes.rewrite_functions import definition_of, rewrite_functions


@graph_pass(name="raise_layer_norm", phase="raise")
def raise_layer_norm(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Raise decomposed layer normalization to R.nn.layer_norm."""
    rewriter = _Raise(mod, ctx.log)
    rewrite_functions(rewriter, mod)
    if not rewriter.count:
        return mod, False
    ctx.log.fire("raise_layer_norm", f"raised {rewriter.count} layer normalizations")
    return remove_dead_bindings(rewriter.builder_.get()), True


@mutator
class _Raise(PyExprMutator):
    def __init__(self, mod: tvm.IRModule, log: PassLog) -> None:
        super().__init__(mod)
        self.log = log
        self.count = 0

    def visit_call_(self, call: tvm.ir.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        result = self._match(call) if _is(call, "add") else None
        if result is None:
            return call
        self.count += 1
        return result

    def _match(self, call: tvm.ir.Call) -> relax.Expr | None:
        for scaled, beta in (call.args, list(call.args)[::-1]):
            product = definition_of(self, scaled)
            if not _is(product, "multiply"):
                continue
            for norm, gamma in (product.args, list(product.args)[::-1]):
                found = self._normalized(norm)
                if found is None:
                    continue
                x, axes, epsilon = found
                scale, shift = (self._parameter(p, x, axes) for p in (gamma, beta))
                if scale is None or shift is None:
                    reason = "its scale and shift are no constants over the normalized axes"
                    self.log.decline("raise_layer_norm", "layer norm", reason)
                    return None
                return relax.op.nn.layer_norm(x, scale, shift, axes, epsilon)
        return None

    def _normalized(self, value: relax.Expr) -> tuple[relax.Expr, list[int], float] | None:
        """Match (x - mean) / sqrt(var + e) and give x, the axes, and e."""
        norm = definition_of(self, value)
        if _is(norm, "divide"):
            root = definition_of(self, norm.args[1])
            inner = root.args[0] if _is(root, "sqrt") else None
        elif _is(norm, "multiply"):
            root = definition_of(self, norm.args[1])
            inner = root.args[0] if _is(root, "rsqrt") else None
        else:
            return None
        centered = definition_of(self, norm.args[0])
        if inner is None or not _is(centered, "subtract"):
            return None
        x = centered.args[0]
        axes = self._mean_axes(centered.args[1], x)
        variance = definition_of(self, inner)
        if axes is None or not _is(variance, "add"):
            return None
        for part, offset in (variance.args, list(variance.args)[::-1]):
            epsilon = _scalar(offset)
            if epsilon is not None and self._is_mean_square(part, norm.args[0], axes):
                return x, axes, epsilon
        return None

    def _mean_axes(self, value: relax.Expr, x: relax.Expr) -> list[int] | None:
        """Return the trailing axes over which `value` is the mean of `x`, kept as 1."""
        mean = definition_of(self, value)
        if not _is(mean, "mean") or not mean.args[0].same_as(x) or not mean.attrs.keepdims:
            return None
        rank = x.ty.ndim
        axes = range(rank) if mean.attrs.axis is None else mean.attrs.axis
        axes = sorted(int(axis) % rank for axis in axes)
        return axes if axes == list(range(rank - len(axes), rank)) else None

    def _is_mean_square(self, value: relax.Expr, centered: relax.Expr, axes: list[int]) -> bool:
        """Return whether `value` is the mean of the squares of the centered tensor."""
        mean = definition_of(self, value)
        if not _is(mean, "mean") or self._mean_axes(value, mean.args[0]) != axes:
            return False
        square = definition_of(self, mean.args[0])
        same = definition_of(self, centered)
        if _is(square, "power"):
            return _scalar(square.args[1]) == 2.0 and self._same(square.args[0], same)
        if _is(square, "square"):
            return self._same(square.args[0], same)
        return _is(square, "multiply") and all(self._same(a, same) for a in square.args)

    def _same(self, value: relax.Expr, definition: relax.Expr) -> bool:
        own = definition_of(self, value)
        # Exporters compute x - mean twice: equal subtractions of the same operands count as one.
        return own.same_as(definition) or (
            _is(own, "subtract")
            and all(
                definition_of(self, a).same_as(definition_of(self, b))
                for a, b in zip(own.args, definition.args, strict=True)
            )
        )

    def _parameter(self, value: relax.Expr, x: relax.Expr, axes: list[int]) -> relax.Expr | None:
        """Return a constant as R.nn.layer_norm takes it: one value per normalized element."""
        dims = [x.ty.shape.values[a] for a in axes] if hasattr(x.ty.shape, "values") else []
        if not isinstance(value, tvm.ir.GenericConst) or not dims:
            return None
        if not all(isinstance(d, tvm.tirx.IntImm) for d in dims):
            return None
        shape = tuple(int(d) for d in dims)
        array = array_of(value)
        if dtype_of(value) != dtype_of(x) or array.size not in (1, math.prod(shape)):
            return None
        lead = array.shape[: max(array.ndim - len(shape), 0)]
        if any(d != 1 for d in lead):
            return None
        return relax.const(np.broadcast_to(array.reshape(array.shape[len(lead) :]), shape).copy())


def _is(value: relax.Expr, name: str) -> bool:
    """Return whether `value` calls the operator `name`."""
    return isinstance(value, tvm.ir.Call) and value.op == tvm.ir.Op.get(f"relax.{name}")


def _scalar(value: relax.Expr) -> float | None:
    """Return the number in a constant of one element."""
    if not isinstance(value, tvm.ir.GenericConst) or math.prod(value.value.shape) != 1:
        return None
    return float(value.value.numpy().reshape(()))
