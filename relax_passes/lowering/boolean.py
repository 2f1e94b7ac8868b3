"""Comparisons of booleans and of numbers with themselves, and the opposite of a comparison.

LLVM would be asked to compare booleans in floating point. A float equals itself unless it is NaN,
but TVM's simplifier takes `x == x` for true once fusion has given the operand a name. It also
writes not (x < y) as y <= x, which differs where either is NaN: fusion may put the comparison and
the opposite into one expression, so the opposite is a select of two constants.
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

# Comparisons of a float with itself, by whether they hold where it is not NaN.
_HOLDS_OF_ITSELF = {"equal": True, "greater_equal": True, "less_equal": True, "not_equal": False}


def _compare(name: str) -> LoweringRule:
    def lower(bb: relax.BlockBuilder, call: tvm.ir.Call) -> relax.Expr:
        dtype = dtype_of(call.args[0])
        if name in _HOLDS_OF_ITSELF and "float" in dtype and call.args[0].same_as(call.args[1]):
            return _lower_with_itself(bb, call, _HOLDS_OF_ITSELF[name])
        if dtype != "bool":
            return default_lowering(bb, call)

        def compare(a: te.Tensor, b: te.Tensor) -> te.Tensor:
            return _COMPARISONS[name](topi.cast(a, "uint8"), topi.cast(b, "uint8"))

        return bb.call_te(compare, *call.args, primfunc_name_hint=name)

    return lower


def _lower_with_itself(bb: relax.BlockBuilder, call: tvm.ir.Call, holds: bool) -> relax.Expr:
    """Compare floats with themselves: `holds` unless they are NaN."""

    def compare(x: te.Tensor) -> te.Tensor:
        def element(*i: tirx.Expr) -> tirx.Expr:
            wide = x(*i) if str(x.dtype) in ("float32", "float64") else x(*i).astype("float32")
            return tirx.Select(
                tirx.isnan(wide), tirx.const(not holds, "bool"), tirx.const(holds, "bool")
            )

        return te.compute(x.shape, element, name="is_number" if holds else "is_nan")

    return bb.call_te(compare, call.args[0], primfunc_name_hint="is_number" if holds else "is_nan")


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
