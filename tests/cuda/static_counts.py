"""Count what a written-out kernel executes, from its loops: no size is too large."""

from __future__ import annotations

from collections import Counter

import tvm_ffi
from tvm import tirx
from tvm.ir import Call
from tvm.sym import Analyzer
from tvm.tirx import PrimFunc


def count_instructions(func: PrimFunc) -> Counter[str]:
    """Return how often each PTX instruction runs in all threads of all blocks, by its name.

    Raises:
        NotImplementedError: At a statement that is not counted.
    """
    counts: Counter[str] = Counter()
    _visit(func.body, 1, {}, counts)
    return counts


def _visit(stmt: object, times: int, values: dict[tirx.Var, int], counts: Counter[str]) -> None:
    if isinstance(stmt, tirx.SeqStmt):
        for part in stmt.seq:
            _visit(part, times, values, counts)
    elif isinstance(stmt, tirx.AttrStmt):
        threads = int(_known(stmt.value, values)) if stmt.attr_key == "thread_extent" else 1
        if threads > 1 and str(stmt.node.thread_tag) == "blockIdx.z":  # slices may differ
            for at in range(threads):
                _visit(stmt.body, times, {**values, stmt.node.var: at}, counts)
            return
        _visit(stmt.body, times * threads, values, counts)
    elif isinstance(stmt, tirx.For):
        for at in range(int(_known(stmt.extent, values))):
            _visit(stmt.body, times, {**values, stmt.loop_var: at}, counts)
    elif isinstance(stmt, tirx.IfThenElse):
        condition = _known(stmt.condition, values)
        if not isinstance(condition, tirx.IntImm) or int(condition):
            _visit(stmt.then_case, times, values, counts)
    elif isinstance(stmt, tirx.Evaluate):
        call = stmt.value
        if isinstance(call, Call) and call.op.name.startswith("tirx.ptx."):
            counts[call.op.name.removeprefix("tirx.ptx.")] += times
    elif not isinstance(stmt, tirx.AllocBuffer | tirx.BufferStore):
        raise NotImplementedError(type(stmt))


def _known(value: tirx.Expr, values: dict[tirx.Var, int]) -> tirx.Expr:
    def put(var: tirx.Var) -> tirx.Expr:
        return tirx.IntImm(var.ty.dtype, values[var]) if var in values else var

    return Analyzer().simplify(tvm_ffi.structural_map(value, (tirx.Var, put)))
