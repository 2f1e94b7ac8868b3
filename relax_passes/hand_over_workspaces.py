"""Have the caller allocate what a GPU function of several kernels keeps between them.

A buffer that a PrimFunc allocates for itself comes from the runtime's pool, whose pages are freed
and made anew when another function wants more: a recorded CUDA graph would go on to use the old
page. As one more result of the call, which nobody reads, it has a place in the arena instead, like
everything else that a run needs, and the planner lets others use the place afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import mutator
from tvm.s_tir import SBlock, SBlockRealize

from relax_passes.memory.live_ranges import CALL_TIR, is_call_to, result_types
from relax_passes.name_conversions import handed_over
from relax_passes.pass_base import PassContext, graph_pass
from relax_passes.rewrite_functions import CalleeRewriter, rewrite_callers

NAME = "hand_over_workspaces"


@dataclass(frozen=True)
class _Lifted:
    """A function whose workspaces are parameters, the one it was made of, and they."""

    func: tirx.PrimFunc
    former: tirx.PrimFunc
    workspaces: tuple[tirx.Var, ...]


@graph_pass(name=NAME, phase="schedule")
def hand_over_workspaces(mod: tvm.IRModule, ctx: PassContext) -> tuple[tvm.IRModule, bool]:
    """Make what functions of several GPU kernels keep between them results of their calls."""
    if not ctx.machine.is_gpu:
        return mod, False
    lifted = {
        var: found
        for var, func in mod.functions.items()
        if isinstance(func, tirx.PrimFunc) and (found := _lift(func)) is not None
    }
    if not lifted:
        return mod, False
    ctx.log.fire(NAME, f"{len(lifted)} functions are given what they keep between their kernels")
    return rewrite_callers(_CallLifted(mod, lifted), mod), True


def _lift(func: tirx.PrimFunc) -> _Lifted | None:
    """Make parameters of the buffers in global memory that a function allocates, if there are."""
    body, workspaces = func.body, []
    if isinstance(body, SBlockRealize):
        root = body.block
        workspaces = [b for b in root.alloc_buffers if str(b.scope()) == "global"]
        kept = [b for b in root.alloc_buffers if str(b.scope()) != "global"]
        block = SBlock(
            *(root.iter_vars, root.reads, root.writes, root.name_hint, root.body, root.init),
            *(kept, root.match_buffers, root.annotations),
        )
        body = SBlockRealize(body.iter_values, body.predicate, block)
    elif isinstance(body, tirx.SeqStmt):
        workspaces = [stmt.buffer for stmt in body.seq if _allocates(stmt)]
        body = tirx.SeqStmt([stmt for stmt in body.seq if not _allocates(stmt)])
    if not workspaces:
        return None
    changed = tirx.PrimFunc([*func.params, *workspaces], body, func.ret_type, func.attrs)
    return _Lifted(changed, func, tuple(workspaces))


def _allocates(stmt: Any) -> bool:
    return isinstance(stmt, tirx.AllocBuffer) and str(stmt.buffer.scope()) == "global"


@mutator
class _CallLifted(CalleeRewriter):
    """Calls each function with more results, and takes those that its caller knows."""

    def __init__(self, mod: tvm.IRModule, lifted: dict[tvm.ir.GlobalVar, _Lifted]) -> None:
        super().__init__(mod, {var: each.func for var, each in lifted.items()})
        self.lifted = lifted

    def replacement(self, call: tvm.ir.Call) -> relax.Expr | None:
        """Return the results of a call that also returns workspaces."""
        if not is_call_to(call, CALL_TIR) or call.args[0] not in self.callees:
            return None
        callee, lifted = self.callees[call.args[0]], self.lifted[call.args[0]]
        known = result_types(call.ty_args[0])
        types = [*known, *(self._type(buffer, lifted, call) for buffer in lifted.workspaces)]
        made = relax.Call(call.op, [callee, *call.args[1:]], call.attrs, [relax.TupleType(types)])
        results = self.builder_.emit(made)
        items = [relax.TupleGetItem(results, at) for at in range(len(known))]
        return relax.Tuple(items) if isinstance(call.ty_args[0], relax.TupleType) else items[0]

    def _type(self, buffer: tirx.Var, lifted: _Lifted, call: tvm.ir.Call) -> relax.TensorType:
        """Return the type of a workspace in terms of the caller's sizes."""
        shape = handed_over(tuple(buffer.shape), lifted.former, call)
        return relax.TensorType(list(shape), str(buffer.dtype))
