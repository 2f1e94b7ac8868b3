"""Give each let binding a variable of its own.

Inlining a producer that is read twice, by one reader or by two, repeats the producer's bindings.
Later steps of a schedule refuse a function in which a variable has two definitions.
"""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.schedule import SBlockRV


def bind_names_once(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return the function with a variable of its own for each let binding."""
    return tirx.transform.ConvertSSA()(tvm.IRModule({"main": func}))["main"]


def renew_let_names(sch: s_tir.Schedule, block: SBlockRV) -> None:
    """Give every let binding in the body of `block` a new variable."""
    old = sch.get(block)
    renamed = s_tir.renew_defs(bind_names_once(tirx.PrimFunc([], old.body))).body
    new = s_tir.SBlock(
        old.iter_vars,
        old.reads,
        old.writes,
        old.name_hint,
        renamed,
        old.init,
        old.alloc_buffers,
        old.match_buffers,
        old.annotations,
    )
    sch.state.replace(sch.get_sref(block), new, {old: new})
