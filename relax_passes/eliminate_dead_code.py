"""Remove bindings that nothing reads, and functions that nothing calls."""

from __future__ import annotations

import tvm
from tvm import relax

from relax_passes.dead_bindings import remove_dead_bindings
from relax_passes.pass_base import PassContext, graph_pass


@graph_pass(name="eliminate_dead_code", phase="canonicalize", aliases=("dce",))
def eliminate_dead_code(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Remove bindings that nothing reads and private functions that nothing calls."""
    before = _size(mod)
    cleaned = remove_dead_bindings(mod)
    after = _size(cleaned)
    if after == before:
        return mod, False
    ctx.log.fire("eliminate_dead_code", f"removed {before[0] - after[0]} bindings")
    return cleaned, True


def _size(mod: tvm.IRModule) -> tuple[int, int]:
    """Return the number of bindings, branches included, and of functions."""
    bindings = 0
    pending = [f.body for f in mod.functions.values() if isinstance(f, relax.Function)]
    while pending:
        for block in pending.pop().blocks:
            bindings += len(block.bindings)
            for binding in block.bindings:
                if isinstance(binding.value, relax.If):
                    pending += [binding.value.true_branch, binding.value.false_branch]
    return bindings, len(mod.functions)
