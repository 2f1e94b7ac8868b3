"""With precision "strict", hide sums and differences of floats from TVM's arithmetic simplifier.

The simplifier of TVM 0.27 writes (x + y) - x as y and (x - y) + y as x, as if floats were real
numbers, wherever fusion puts both operations into one expression. A sum that goes through its bit
pattern and back is opaque to it; LLVM removes the two reinterpretations, so that no instruction is
left. Sums that a loop adds up stay as they are: nothing is ever put into their place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from relax_passes.pass_base import PassContext, graph_pass

NAME = "guard_float_sums"
_PATTERNS = {"float16": "uint16", "float32": "uint32", "float64": "uint64"}


@graph_pass(name=NAME, phase="lower")
def guard_float_sums(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """With precision "strict", keep TVM's simplifier from cancelling sums of floats."""
    if ctx.precision != "strict":
        return mod, False
    functions = {
        var: _guard(func) if isinstance(func, tirx.PrimFunc) else func
        for var, func in mod.functions.items()
    }
    changed = sum(not func.same_as(mod[var]) for var, func in functions.items())
    if not changed:
        return mod, False
    ctx.log.fire(NAME, f"sums of floats in {changed} functions keep their order")
    return tvm.IRModule(functions, attrs=mod.attrs), True


def _guard(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return the function with its sums hidden, the same one where all are."""

    def store(node: tirx.BufferStore) -> tirx.Stmt:
        value = tvm_ffi.structural_map(
            node.value,
            [
                (tirx.Add, _hide_unless_added_up(node.buffer)),
                (tirx.Sub, _hide_unless_added_up(node.buffer)),
                (tvm.ir.Call, _once),
            ],
        )
        return tirx.BufferStore(node.buffer, value, node.indices)

    guarded = func.with_body(tvm_ffi.structural_map(func.body, (tirx.BufferStore, store)))
    return func if tvm_ffi.structural_equal(func, guarded) else guarded


def _hide_unless_added_up(result: tirx.Var) -> Callable[[Any], tirx.Expr]:
    def hide(node: Any) -> tirx.Expr:
        pattern = _PATTERNS.get(str(node.ty.dtype))
        if pattern is None or any(_loads(operand, result) for operand in (node.a, node.b)):
            return node
        return tirx.reinterpret(str(node.ty.dtype), tirx.reinterpret(pattern, node))

    return hide


def _loads(value: tirx.Expr, source: tirx.Var) -> bool:
    return isinstance(value, tvm.ir.TensorLoad) and value.source.same_as(source)


def _once(call: tvm.ir.Call) -> tirx.Expr:
    """Return a sum that was hidden before as it was: hiding it again adds nothing."""
    inner = call
    for _ in range(3):
        if not _is_reinterpret(inner):
            return call
        inner = inner.args[0]
    return call.args[0].args[0] if _is_reinterpret(inner) else call


def _is_reinterpret(value: tirx.Expr) -> bool:
    return isinstance(value, tvm.ir.Call) and getattr(value.op, "name", "") == "tirx.reinterpret"
