"""Elementary functions written out once the loops around them are vectors.

`vector_math` names what it reads twice by let expressions. TVM's passes, and its LLVM code
generation, write a name's value out for each reader: time exponential in how deep names nest. So
the functions stay calls through all passes, and here each name becomes a local buffer of one
vector, stored in a statement of its own. LLVM keeps such buffers in registers.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call
from tvm.tirx import AllocBuffer, BufferLoad, BufferStore, Expr, Let, PrimFunc, SeqStmt, Stmt, Var

from tir_schedules.llvm.vector_math import written_out
from tir_schedules.variables import substitute


@tirx.transform.prim_func_pass(opt_level=0)
def lower_math(func: PrimFunc, _mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> PrimFunc:
    """Write out the elementary functions of a lowered host function."""
    return func.with_body(
        tvm_ffi.structural_map(func.body, [(Call, written_out), (BufferStore, _in_statements)])
    )


def _in_statements(store: BufferStore) -> Stmt:
    """Return a store after a statement for each name that its value binds.

    What `if_then_else` may skip stays within it: its loads may lie outside their tensor.
    """
    statements: list[Stmt] = []
    named: dict[Var, Expr] = {}
    skipped: dict[Var, Expr] = {}

    def bind(let: Let) -> Expr:
        buffer = tirx.decl_buffer((1,), str(let.var.ty), name=let.var.name, scope="local")
        value = flat(let.value)
        statements.extend([AllocBuffer(buffer), BufferStore(buffer, value, [0])])
        named[let.var] = BufferLoad(buffer, [0])
        return flat(let.body)

    def set_aside(call: Call) -> Expr:
        if not getattr(call.op, "name", "").endswith(".if_then_else"):
            return call
        placeholder = Var("skipped", str(call.ty))
        skipped[placeholder] = substitute(call, named)
        return placeholder

    def flat(value: Expr) -> Expr:
        callbacks = [(Let, bind), (Call, set_aside), (Var, lambda var: named.get(var, var))]
        return substitute(tvm_ffi.structural_map(value, callbacks, order="pre"), skipped)

    value = flat(store.value)
    if not statements:
        return store
    return SeqStmt([*statements, BufferStore(store.buffer, value, store.indices)])
