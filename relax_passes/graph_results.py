"""Let every function that is recorded as a CUDA graph return something.

TVM's `RewriteCUDAGraph` makes functions of stretches of kernels; one that only writes to tensors
allocated before it, as a kernel between two that are not recorded, returns nothing. TVM's virtual
machine then stores nothing into a register that is not there, and the run ends.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from relax_passes.memory.live_ranges import is_call_to
from relax_passes.rewrite_functions import CalleeRewriter, rewrite_callers

_RECORD = "vm.builtin.cuda_graph.run_or_capture"
_BUILTIN = "relax.call_builtin_with_ctx"


def give_results(mod: tvm.IRModule, recorded: list[tvm.ir.GlobalVar]) -> tvm.IRModule:
    """Let those of the `recorded` functions that return nothing return their first argument."""
    silent = {var: mod[var] for var in recorded if mod[var].params and not mod[var].ret_ty.fields}
    if not silent:
        return mod
    rewriter = _CallForResult(mod, {var: _with_result(func) for var, func in silent.items()})
    return relax.transform.Normalize()(rewrite_callers(rewriter, mod))


def _with_result(func: relax.Function) -> relax.Function:
    first = func.params[0]
    body = relax.SeqExpr(func.body.blocks, relax.Tuple([first]))
    return relax.Function(func.params, body, relax.TupleType([first.ty]), func.is_pure, func.attrs)


@mutator
class _CallForResult(CalleeRewriter):
    """Calls the functions with the type of what they now return."""

    def replacement(self, call: tvm.ir.Call) -> relax.Expr | None:
        """Return the call that records or launches a graph, with a result."""
        if not is_call_to(call, _BUILTIN) or call.args[0].global_symbol != _RECORD:
            return None
        old, *rest = call.args[1].fields
        if old not in self.callees:
            return None
        callee = self.callees[old]
        results = self.builder_.get()[callee].ret_ty
        args = [call.args[0], relax.Tuple([callee, *rest])]
        return relax.Call(call.op, args, call.attrs, [results])
