"""Which operands a scheduled kernel reads in its last step alone, each element where it is written.

A convolution or a product that ends by adding a residual reads it at the very point it then
stores. Its result may lie on the residual if that is the only read, if nothing reads what is
stored, and if no point is stored twice: a schedule may compute a point again in two tiles that
overlap, and would then add the result to itself. So this is asked of the scheduled loops, where the
map from iterations to points can be shown to be one to one.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm.s_tir import SBlock, SBlockRealize
from tvm.sym import detect_iter_map
from tvm.tirx import BufferStore, IterVar, PrimFunc, Var

from relax_passes.analysis.overwrite import stores_of
from tir_schedules.loads import loads_in
from tir_schedules.replaced_buffer import same_type


def epilogue_operands(func: PrimFunc) -> list[tuple[int, int]]:
    """Return pairs of parameter numbers: an operand, and the one result that may overwrite it.

    Args:
        func: A scheduled function, its loops still around blocks.
    """
    numbers = [number for number, p in enumerate(func.params) if hasattr(p, "shape")]
    stored = {store.buffer for store in stores_of(func)}
    results = [number for number in numbers if func.params[number] in stored]
    if len(results) != 1:
        return []
    output, candidates = func.params[results[0]], []
    realizes: list[SBlockRealize] = []
    tvm_ffi.structural_walk(func.body, (SBlockRealize, realizes.append), order="pre")
    realizes = [r for r in realizes if len(r.block.iter_vars)]
    writers = [r for r in realizes if any(s.buffer.same_as(output) for s in stores_of(r.block))]
    if len(writers) != 1 or loads_in(func.body, output):
        return []
    (realize,) = writers
    stores = stores_of(realize.block)
    if len(stores) != 1 or _has_inner_blocks(realize.block):
        return []
    for number in numbers:
        operand = func.params[number]
        loads = loads_in(func.body, operand)
        here = loads_in(realize.block.body, operand)
        pointwise = all(
            tvm_ffi.structural_equal(list(load.indices), list(stores[0].indices)) for load in here
        )
        if same_type(operand, output) and loads and len(loads) == len(here) and pointwise:
            candidates.append((number, results[0]))
    return candidates if candidates and _stores_once(func, realize, stores[0]) else []


def _stores_once(func: PrimFunc, realize: SBlockRealize, store: BufferStore) -> bool:
    """Tell whether each iteration of the loops around a block stores to a point of its own."""
    block = realize.block
    if any(int(iv.iter_type) != IterVar.DataPar for iv in block.iter_vars):
        return False
    schedule = tvm.s_tir.Schedule(func)
    try:
        found = schedule.get_sblock(block.name_hint)
    except tvm.s_tir.ScheduleError:  # two blocks of one name
        return False
    loops = [schedule.get(loop) for loop in schedule.get_loops(found)]
    domains = {loop.loop_var: tvm.ir.Range.from_min_extent(loop.min, loop.extent) for loop in loops}
    points = {iv.var: iv.dom for iv in block.iter_vars}
    return _is_bijective(list(realize.iter_values), domains, realize.predicate) and _is_bijective(
        list(store.indices), points, tvm.tirx.const(True, "bool")
    )


def _is_bijective(
    indices: list[tvm.ir.Expr], domains: dict[Var, tvm.ir.Range], predicate: tvm.ir.Expr
) -> bool:
    return bool(len(detect_iter_map(indices, domains, predicate, "bijective").indices))


def _has_inner_blocks(block: SBlock) -> bool:
    inner: list[SBlock] = []
    tvm_ffi.structural_walk(block.body, (SBlock, inner.append))
    return bool(inner)
