"""Raise decomposed root-mean-square normalization to one operator.

    x / sqrt(mean(x^2) + e) * gamma  ->  rms_norm(x, gamma)

over trailing axes. Zhang, Sennrich: Root Mean Square Layer Normalization, 2019. Written out it is
two kernels, the mean and the scaling, and reads x twice; as one operator it is one row kernel.
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

NAME = "raise_rms_norm"


@graph_pass(name=NAME, phase="raise")
def raise_rms_norm(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Raise decomposed root-mean-square normalization to R.nn.rms_norm."""
    rewriter = _Raise(mod, ctx.log)
    rewrite_functions(rewriter, mod)
    if not rewriter.count:
        return mod, False
    ctx.log.fire(NAME, f"raised {rewriter.count} RMS normalizations")
    return remove_dead_bindings(rewriter.builder_.get()), True


@mutator
class _Raise(CallRewriter):
    def __init__(self, mod: tvm.IRModule, log: PassLog) -> None:
        super().__init__(mod)
        self.log = log

    def replacement(self, call: tvm.ir.Call) -> relax.Expr | None:
        if operator_name(call) != "multiply":
            return None
        for norm, gamma in (call.args, list(call.args)[::-1]):
            found = self._normalized(norm)
            if found is None:
                continue
            x, axes, epsilon = found
            scale = per_element(gamma, x, axes)
            if scale is not None:
                return relax.op.nn.rms_norm(x, scale, axes, epsilon)
            reason = "its scale is no constant over the normalized axes"
            self.log.decline(NAME, "RMS norm", reason)
        return None

    def _normalized(self, value: relax.Expr) -> tuple[relax.Expr, list[int], float] | None:
        """Match x / sqrt(mean(x^2) + e) and give x, the axes, and e."""
        for x, inside in divided_by_root(self.look_up, value):
            shifted = plus_constant(self.look_up, inside)
            if shifted is None:
                continue
            mean, epsilon = self.look_up(shifted[0]), shifted[1]
            axes = mean_axes(mean)
            if axes is None:
                continue
            factors = squared(self.look_up, mean.args[0])
            if factors and all(factor.same_as(x) for factor in factors):
                return x, axes, epsilon
        return None
