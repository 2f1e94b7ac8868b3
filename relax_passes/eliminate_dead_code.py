"""Remove bindings that nothing reads and functions that nothing calls."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import relax

from relax_passes.pass_base import PassContext, graph_pass

NAME = "eliminate_dead_code"


@graph_pass(name=NAME, phase="canonicalize")
def eliminate_dead_code(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Remove unused bindings and functions that cannot be reached from `main`."""
    cleaned = relax.transform.DeadCodeElimination(["main"])(mod)
    before, after = _size(mod), _size(cleaned)
    if before == after:
        return mod, False
    ctx.log.fire(NAME, f"{before - after} bindings and functions removed")
    return cleaned, True


def _size(mod: tvm.IRModule) -> int:
    """Count the functions and all their bindings, those in branches included."""
    count = len(mod.functions)
    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            found: list[relax.Binding] = []
            tvm_ffi.structural_walk(
                func.body, [(relax.VarBinding, found.append), (relax.MatchCast, found.append)]
            )
            count += len(found)
    return count
