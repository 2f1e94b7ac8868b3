"""Replace kernels that check indices by the indices themselves, where a check cannot run.

A GPU kernel raises no error. What reads at the indices limits them to the tensor all the same, so
memory is safe; an index out of range then gives the nearest element.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import relax, tirx

from relax_passes.memory.live_ranges import CALL_TIR, is_call_to
from relax_passes.pass_base import PassContext, graph_pass

NAME = "drop_index_checks"


@graph_pass(name=NAME, phase="lower")
def drop_index_checks(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Drop checks of indices on targets whose kernels cannot raise an error."""
    if ctx.machine.kind == "llvm":
        return mod, False
    dropped = without_index_checks(mod)
    if dropped is mod:
        return mod, False
    ctx.log.decline(NAME, "indices", "kernels of this target raise no errors: they are limited")
    return dropped, True


def without_index_checks(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with each call of a check replaced by what it checks."""
    checks = {
        var
        for var, func in mod.functions.items()
        if isinstance(func, tirx.PrimFunc) and _asserts(func)
    }
    if not checks:
        return mod

    def replace(call: relax.Call) -> relax.Expr:
        if not is_call_to(call, CALL_TIR) or call.args[0] not in checks:
            return call
        return call.args[1].fields[0]

    functions = {
        var: tvm_ffi.structural_map(func, (relax.Call, replace))
        if isinstance(func, relax.Function)
        else func
        for var, func in mod.functions.items()
        if var not in checks
    }
    return relax.transform.Normalize()(tvm.IRModule(functions, attrs=mod.attrs))


def _asserts(func: tirx.PrimFunc) -> bool:
    found: list[tirx.AssertStmt] = []
    tvm_ffi.structural_walk(func.body, (tirx.AssertStmt, found.append))
    return bool(found)
