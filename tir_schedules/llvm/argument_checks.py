"""Kernels trust what they are called with.

TVM has each kernel check the number, types, devices, shapes and strides of its arguments. Kernels
are called by the virtual machine alone: it checks the inputs of a model at its entry, and gives
every other tensor the shape that was planned. The checks are more code than most kernels have, and
LLVM's time with them is a quarter of what compiling a small model takes.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx

# What stands in this scope is the kernel itself; what stands before it unpacks the arguments.
_KERNEL = "compute_scope"


@tirx.transform.prim_func_pass(opt_level=0)
def drop_argument_checks(
    func: tirx.PrimFunc, _mod: tvm.IRModule, _ctx: tvm.transform.PassContext
) -> tirx.PrimFunc:
    """Leave out the checks of a packed function's arguments, none of the kernel's own."""
    scopes: list[tirx.AttrStmt] = []
    tvm_ffi.structural_walk(func.body, (tirx.AttrStmt, scopes.append), order="pre")
    packed = any(scope.attr_key == _KERNEL for scope in scopes)
    return func.with_body(_unchecked(func.body)) if packed else func


def _unchecked(stmt: tirx.Stmt) -> tirx.Stmt:
    """Return `stmt` without the checks that stand outside the kernel."""
    if isinstance(stmt, tirx.AttrStmt) and stmt.attr_key != _KERNEL:
        return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, _unchecked(stmt.body))
    if isinstance(stmt, tirx.SeqStmt):
        return tirx.SeqStmt([_unchecked(part) for part in stmt.seq if not _is_check(part)])
    return stmt


def _is_check(stmt: tirx.Stmt) -> bool:
    """Return whether `stmt` does nothing but check; strides are checked where there are any."""
    if isinstance(stmt, tirx.SeqStmt):
        return all(map(_is_check, stmt.seq))
    if isinstance(stmt, tirx.IfThenElse):
        return _is_check(stmt.then_case) and (stmt.else_case is None or _is_check(stmt.else_case))
    return isinstance(stmt, tirx.AssertStmt)
