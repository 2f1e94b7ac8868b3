"""Which operands a kernel reads only where it writes, so that its result may overwrite them."""

from __future__ import annotations

import tvm_ffi
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock
from tvm.tirx import BufferStore, PrimFunc, Var

from relax_passes.analysis.category import Category, categorize

IN_PLACE_OPERANDS = "relaxc.in_place_operands"  # attribute of a scheduled PrimFunc


def overwritable_operands(func: PrimFunc) -> list[int]:
    """Return the numbers of the parameters that the function's one result may overwrite.

    Only maps qualify (each block elementwise or broadcast): a kernel with a reduction may read an
    operand again for a later tile. The operand must have the result's shape and dtype, and each
    load of it, and of everything computed from it, must be at the storing block's own point.
    """
    if categorize(func).category > Category.BROADCAST or len(func.params) < 2:
        return []
    # Symbolic sizes are parameters too, after the buffers, and have no shape.
    *inputs, output = [p for p in func.params if hasattr(p, "shape")]
    written = {s.buffer for s in _stores(func)}
    if sum(p in written for p in func.params) != 1:
        return []
    blocks: list[SBlock] = []
    tvm_ffi.structural_walk(func.body, (SBlock, blocks.append), order="pre")
    blocks = [b for b in blocks if len(b.iter_vars)]
    return [n for n, p in enumerate(inputs) if _same_type(p, output) and _pointwise(p, blocks)]


def _stores(func: PrimFunc) -> list[BufferStore]:
    stores: list[BufferStore] = []
    tvm_ffi.structural_walk(func.body, (BufferStore, stores.append))
    return stores


def _same_type(a: Var, b: Var) -> bool:
    return bool(tvm_ffi.structural_equal(a.shape, b.shape) and str(a.dtype) == str(b.dtype))


def _pointwise(operand: Var, blocks: list[SBlock]) -> bool:
    """Follow `operand` through the blocks in order: every access must be at the block's point."""
    derived = {operand}
    used = False
    for block in blocks:
        stores: list[BufferStore] = []
        loads: list[TensorLoad] = []
        tvm_ffi.structural_walk(
            block.body, [(BufferStore, stores.append), (TensorLoad, loads.append)]
        )
        touching = [load for load in loads if load.source in derived]
        if not touching:
            continue
        used = True
        for store in stores:
            for load in touching:
                if not tvm_ffi.structural_equal(list(load.indices), list(store.indices)):
                    return False
            derived.add(store.buffer)
    return used
