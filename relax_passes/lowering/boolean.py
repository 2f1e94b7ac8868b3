"""Comparisons of booleans, which LLVM would be asked to do in floating point, and their opposite.

TVM's simplifier writes not (x < y) as y <= x, which differs where either is NaN. Fusion may put the
comparison and the opposite into one expression, so the opposite is a select of two constants.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax, te, tirx, topi

from relax_passes.lowering.rule import LoweringRule, default_lowering, dtype_of
from relax_passes.pass_base import PassContext

_COMPARISONS: dict[str, Callable[[te.Tensor, te.Tensor], te.Tensor]] = {
    "equal": topi.equal,
    "not_equal": topi.not_equal,
    "greater": topi.greater,
    "greater_equal": topi.greater_equal,
    "less": topi.less,
    "less_equal": topi.less_equal,
}


def _compare(name: str) -> LoweringRule:
    def lower(bb: relax.BlockBuilder, call: tvm.ir.Call) -> relax.Expr:
        if dtype_of(call.args[0]) != "bool":
            return default_lowering(bb, call)

        def compare(a: te.Tensor, b: te.Tensor) -> te.Tensor:
            return _COMPARISONS[name](topi.cast(a, "uint8"), topi.cast(b, "uint8"))

        return bb.call_te(compare, *call.args, primfunc_name_hint=name)

    return lower


def _lower_not(bb: relax.BlockBuilder, call: tvm.ir.Call) -> relax.Expr:
    if dtype_of(call.args[0]) != "bool":
        return default_lowering(bb, call)
    no, yes = tirx.const(False, "bool"), tirx.const(True, "bool")

    def opposite(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: tirx.Select(x(*i), no, yes), name="logical_not")

    return bb.call_te(opposite, *call.args, primfunc_name_hint="logical_not")


def lowerings(ctx: PassContext) -> dict[str, LoweringRule]:
    """Return the rules for the comparisons and the opposite."""
    del ctx  # the same on every target
    opposites = {f"relax.{name}": _lower_not for name in ("logical_not", "bitwise_not")}
    return {f"relax.{name}": _compare(name) for name in _COMPARISONS} | opposites
