"""Elementary functions written out once the loops around them are vectors.

`vector_math` names what it reads twice by let expressions. TVM's passes, and its LLVM code
generation, write a name's value out for each reader: time exponential in how deep names nest. So
the functions stay calls through all passes, and here each name becomes a local buffer of one
vector, stored in a statement of its own. LLVM keeps such buffers in registers.
"""

from __future__ import annotations

from collections.abc import Mapping

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call
from tvm.tirx import (
    AllocBuffer,
    Buffer,
    BufferLoad,
    BufferStore,
    Expr,
    IfThenElse,
    Let,
    PrimFunc,
    SeqStmt,
    Stmt,
    Var,
)

from tir_schedules.blocks import let_depth
from tir_schedules.llvm.vector_math import written_out
from tir_schedules.variables import substitute


@tirx.transform.prim_func_pass(opt_level=0)
def lower_math(func: PrimFunc, _mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> PrimFunc:
    """Write out the elementary functions of a lowered host function."""
    return func.with_body(
        tvm_ffi.structural_map(func.body, [(Call, written_out), (BufferStore, _in_statements)])
    )


def _in_statements(store: BufferStore) -> Stmt:
    """Return a store after a statement for each name that its value binds."""
    steps = _Steps({})
    value = steps.flat(store.value)
    if not steps.statements:
        return store
    return SeqStmt([*steps.statements, BufferStore(store.buffer, value, store.indices)])


class _Steps:
    """The statements that compute what an expression names, in their order.

    What `if_then_else` may skip stays within it, since its loads may lie outside their tensor: a
    choice that binds names becomes a branch.
    """

    def __init__(self, named: Mapping[Var, Expr]) -> None:
        self.statements: list[Stmt] = []
        self._named = dict(named)
        self._kept: dict[Var, Expr] = {}

    def flat(self, value: Expr) -> Expr:
        """Return an expression without bindings, its names computed in `statements`."""
        callbacks = [
            (Let, self._bind),
            (Call, self._choose),
            (Var, lambda var: self._named.get(var, var)),
        ]
        return substitute(tvm_ffi.structural_map(value, callbacks, order="pre"), self._kept)

    def _bind(self, let: Let) -> Expr:
        buffer = tirx.decl_buffer((1,), str(let.var.ty), name=let.var.name, scope="local")
        value = self.flat(let.value)
        self.statements += [AllocBuffer(buffer), BufferStore(buffer, value, [0])]
        self._named[let.var] = BufferLoad(buffer, [0])
        return self.flat(let.body)

    def _choose(self, call: Call) -> Expr:
        if not getattr(call.op, "name", "").endswith(".if_then_else"):
            return call
        condition, *values = call.args
        if not any(map(let_depth, values)):
            placeholder = Var("kept", str(call.ty))
            self._kept[placeholder] = substitute(call, self._named)
            return placeholder
        chosen = tirx.decl_buffer((1,), str(call.ty), name="chosen", scope="local")
        branches = [self._branch(value, chosen) for value in values]
        self.statements += [AllocBuffer(chosen), IfThenElse(self.flat(condition), *branches)]
        return BufferLoad(chosen, [0])

    def _branch(self, value: Expr, chosen: Buffer) -> Stmt:
        steps = _Steps(self._named)
        last = BufferStore(chosen, steps.flat(value), [0])
        return SeqStmt([*steps.statements, last]) if steps.statements else last
