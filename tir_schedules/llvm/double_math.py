"""Functions of float64 by the C math library, where TVM has no code for them or a poor one."""

from __future__ import annotations

import tvm_ffi
from tvm import tirx
from tvm.ir import Call
from tvm.tirx import Expr, PrimFunc

# TVM knows no float64 code for sinh and cosh; libm does, and has an erf of full accuracy.
_DOUBLE = frozenset({"erf", "sinh", "cosh"})


def call_double_math(func: PrimFunc) -> PrimFunc:
    """Return the function with calls of the C library for those functions of float64."""

    def lower(call: Call) -> Expr:
        name = getattr(call.op, "name", "").rpartition(".")[2]
        if name in _DOUBLE and str(call.ty) == "float64":
            return tirx.call_pure_extern("float64", name, *call.args)
        return call

    return func.with_body(tvm_ffi.structural_map(func.body, (Call, lower)))
