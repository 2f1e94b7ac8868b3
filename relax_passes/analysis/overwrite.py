"""Which operands a kernel reads only where it writes, so that a result may overwrite them."""

from __future__ import annotations

from collections.abc import Sequence

import tvm_ffi
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock
from tvm.tirx import BufferStore, IterVar, PrimFunc, Var

from relax_passes.analysis.category import Category, categorize

IN_PLACE_OPERANDS = "relaxc.in_place_operands"  # attribute of a scheduled PrimFunc


def overwritable_operands(func: PrimFunc) -> list[tuple[int, int]]:
    """Return pairs of parameter numbers: an operand, and the result that may overwrite it.

    The operand must have the result's shape and dtype. It may be read by maps only (elementwise or
    broadcast): a reduction may read an operand again for a later tile. Each load of it, and of what
    is computed from it on the way to a result, must be at the storing block's own point, and the
    block that stores the result must be the last of these.
    """
    buffers = [number for number, p in enumerate(func.params) if hasattr(p, "shape")]
    written = {s.buffer for s in _stores(func)}
    results = [number for number in buffers if func.params[number] in written]
    # A kernel with one result may hold reductions beside its maps; its tiles have any order.
    if not results or len(results) == 1 and categorize(func).category > Category.BROADCAST:
        return []
    blocks: list[SBlock] = []
    tvm_ffi.structural_walk(func.body, (SBlock, blocks.append), order="pre")
    blocks = [b for b in blocks if len(b.iter_vars)]
    outputs = [func.params[number] for number in results]
    return [
        (operand, result)
        for operand in buffers
        if operand not in results
        for result in results
        if _same_type(func.params[operand], func.params[result])
        and _pointwise(func.params[operand], func.params[result], outputs, blocks)
    ]


def _stores(func: PrimFunc) -> list[BufferStore]:
    stores: list[BufferStore] = []
    tvm_ffi.structural_walk(func.body, (BufferStore, stores.append))
    return stores


def _same_type(a: Var, b: Var) -> bool:
    return bool(tvm_ffi.structural_equal(a.shape, b.shape) and str(a.dtype) == str(b.dtype))


def _pointwise(operand: Var, result: Var, outputs: Sequence[Var], blocks: list[SBlock]) -> bool:
    """Follow `operand` through the blocks in order: every access must be at the block's point.

    What is stored as a result is not followed further: who reads it reads those bytes.
    """
    derived = {operand}
    last = None
    for block in blocks:
        stores: list[BufferStore] = []
        loads: list[TensorLoad] = []
        tvm_ffi.structural_walk(
            block.body, [(BufferStore, stores.append), (TensorLoad, loads.append)]
        )
        touching = [load for load in loads if load.source in derived]
        if not touching:
            continue
        if any(int(axis.iter_type) != IterVar.DataPar for axis in block.iter_vars):
            return False
        for store in stores:
            last = store.buffer
            for load in touching:
                if not tvm_ffi.structural_equal(list(load.indices), list(store.indices)):
                    return False
            if not any(store.buffer.same_as(output) for output in outputs):
                derived.add(store.buffer)
    return last is not None and last.same_as(result)
