"""Reductions that read operands only: nothing in the function has to run before them."""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir
from tvm.ir import TensorLoad
from tvm.tirx import SeqStmt, Stmt, Var

from tir_schedules.blocks import leaf_blocks, new_schedule


def reductions_of_operands_first(sch: s_tir.Schedule) -> tuple[s_tir.Schedule, int]:
    """Move the reductions that read operands only before everything else.

    Nothing they read is computed here, and their loops can become one only where no block between
    them reads a result. Returns the new schedule and how many there are.
    """
    func = sch.mod["main"]
    root = func.body.block
    nests = list(root.body.seq) if isinstance(root.body, SeqStmt) else [root.body]
    written = {region.source for block in leaf_blocks(sch) for region in sch.get(block).writes}
    first = [nest for nest in nests if _reduces_operands(nest, written)]
    rest = [nest for nest in nests if not any(nest.same_as(other) for other in first)]
    block = s_tir.SBlock(
        root.iter_vars,
        root.reads,
        root.writes,
        root.name_hint,
        SeqStmt([*first, *rest]),
        root.init,
        root.alloc_buffers,
        root.match_buffers,
        root.annotations,
    )
    realize = s_tir.SBlockRealize(func.body.iter_values, func.body.predicate, block)
    return new_schedule(func.with_body(realize)), len(first)


def _reduces_operands(nest: Stmt, written: set[Var]) -> bool:
    """Tell whether a nest is a reduction that reads no buffer in `written` but its own."""
    blocks: list[s_tir.SBlock] = []
    loads: list[TensorLoad] = []
    tvm_ffi.structural_walk(nest, [(s_tir.SBlock, blocks.append), (TensorLoad, loads.append)])
    own = {region.source for block in blocks for region in block.writes}
    return any(block.init is not None for block in blocks) and not any(
        load.source in written - own for load in loads
    )
