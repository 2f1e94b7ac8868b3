"""A zero that something is divided by stays a tensor; with "strict", each that arithmetic reads.

TVM computes with scalar constants while it writes the loop nest, and makes x * 0 and 0 / x zero
even where x is NaN, infinite or zero. It makes x + 0 and x - (-0) x, which is 0 where x is -0.
It refuses x / 0, which is an infinity or NaN.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax, te, topi

from relax_passes.constant_values import array_of
from relax_passes.lowering.rule import LoweringRule, default_lowering
from relax_passes.pass_base import PassContext

_OPERATORS: dict[str, Callable[[te.Tensor, te.Tensor], te.Tensor]] = {
    "add": topi.add,
    "subtract": topi.subtract,
    "multiply": topi.multiply,
    "divide": topi.divide,
}


def lowerings(ctx: PassContext) -> dict[str, LoweringRule]:
    """Return the rules for arithmetic with zeros, that for divisors alone if others may go."""
    if ctx.precision != "strict":
        return {"relax.divide": _keep_zero("divide", first=1)}
    return {f"relax.{name}": _keep_zero(name) for name in _OPERATORS}


def _keep_zero(name: str, first: int = 0) -> LoweringRule:
    """Return the rule that keeps the zeros among the operands from number `first` on."""

    def lower(bb: relax.BlockBuilder, call: tvm.ir.Call) -> relax.Expr:
        if not any(map(_is_float_zero, list(call.args)[first:])):
            return default_lowering(bb, call)
        return bb.call_te(_OPERATORS[name], *call.args, primfunc_name_hint=name)

    return lower


def _is_float_zero(value: relax.Expr) -> bool:
    if not isinstance(value, tvm.ir.GenericConst) or value.ty.ndim != 0:
        return False
    array = array_of(value)
    return array.dtype.kind not in "iub" and not array.any()
