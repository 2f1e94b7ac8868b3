"""Raise decomposed layer normalization to one operator.

    d = x - mean(x);  d / sqrt(mean(d^2) + e) * gamma + beta  ->  layer_norm(x, gamma, beta)

over trailing axes. Ba, Kiros, Hinton: Layer Normalization, 2016. Exporters to ONNX before opset 17
write it as ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt, Div, Mul, Add.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from relax_passes.analysis.definitions import operator_name
from relax_passes.analysis.normalization import (
    divided_by_root,
    mean_axes,
    per_element,
    plus_constant,
    squared,
)
from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.pass_base import PassContext, PassLog, graph_pass
from relax_passes.rewrite_functions import CallRewriter, rewrite_functions


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
class _Raise(CallRewriter):
    def __init__(self, mod: tvm.IRModule, log: PassLog) -> None:
        super().__init__(mod)
        self.log = log

    def replacement(self, call: tvm.ir.Call) -> relax.Expr | None:
        if operator_name(call) != "add":
            return None
        for scaled, beta in (call.args, list(call.args)[::-1]):
            product = self.look_up(scaled)
            if operator_name(product) != "multiply":
                continue
            for norm, gamma in (product.args, list(product.args)[::-1]):
                found = self._normalized(norm)
                if found is None:
                    continue
                x, axes, epsilon = found
                scale, shift = (per_element(p, x, axes) for p in (gamma, beta))
                if scale is None or shift is None:
                    reason = "its scale and shift are no constants over the normalized axes"
                    self.log.decline("raise_layer_norm", "layer norm", reason)
                    return None
                return relax.op.nn.layer_norm(x, scale, shift, axes, epsilon)
        return None

    def _normalized(self, value: relax.Expr) -> tuple[relax.Expr, list[int], float] | None:
        """Match (x - mean) / sqrt(var + e) and give x, the axes, and e."""
        for difference, inside in divided_by_root(self.look_up, value):
            centered = self.look_up(difference)
            shifted = plus_constant(self.look_up, inside)
            if operator_name(centered) != "subtract" or shifted is None:
                continue
            x, mean = centered.args[0], self.look_up(centered.args[1])
            axes = mean_axes(mean)
            if axes is None or not mean.args[0].same_as(x):
                continue
            if self._is_mean_square(shifted[0], centered, axes):
                return x, axes, shifted[1]
        return None

    def _is_mean_square(self, value: relax.Expr, centered: relax.Expr, axes: list[int]) -> bool:
        """Return whether `value` is the mean of the squares of the centered tensor."""
        mean = self.look_up(value)
        if mean_axes(mean) != axes:
            return False
        factors = squared(self.look_up, mean.args[0])
        return bool(factors) and all(self._same(factor, centered) for factor in factors)

    def _same(self, value: relax.Expr, definition: relax.Expr) -> bool:
        own = self.look_up(value)
        # Exporters compute x - mean twice: equal subtractions of the same operands count as one.
        return own.same_as(definition) or (
            operator_name(own) == "subtract"
            and all(
                self.look_up(a).same_as(self.look_up(b))
                for a, b in zip(own.args, definition.args, strict=True)
            )
        )
