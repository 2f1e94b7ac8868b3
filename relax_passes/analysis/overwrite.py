"""Which operands a kernel reads only where it writes, so that a result may overwrite them."""

from __future__ import annotations

from collections.abc import Sequence

import tvm_ffi
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock
from tvm.tirx import BufferStore, IterVar, PrimFunc, Var

from relax_passes.analysis.category import Category, categorize
from relax_passes.analysis.definitions import equal_sizes
from tir_schedules.loads import loads_in
from tir_schedules.replaced_buffer import same_type

IN_PLACE_OPERANDS = "relaxc.in_place_operands"  # attribute of a scheduled PrimFunc


def overwritable_operands(func: PrimFunc) -> list[tuple[int, int]]:
    """Return pairs of parameter numbers: an operand, and the result that may overwrite it.

    The operand must have the result's shape and dtype. It may be read by maps only (elementwise or
    broadcast): a reduction may read an operand again for a later tile. Each load of it, and of what
    is computed from it on the way to a result, must be at the storing block's own point, and the
    block that stores the result must be the last of these.
    """
    # A kernel with one result may hold reductions beside its maps; its tiles have any order.
    many = len({store.buffer for store in stores_of(func)} & set(func.params)) > 1
    if not many and categorize(func).category > Category.INJECTIVE:
        return []
    return _pairs(func, by_rows=False)


def row_operands(func: PrimFunc) -> list[tuple[int, int]]:
    """Return the pairs of a kernel that finishes all reductions of a row before it writes the row.

    Softmax and norms do, where `row_kernel` schedules them. An operand may then be read by the
    reductions of its own row, besides the maps that read it where they write.
    """
    return _pairs(func, by_rows=True)


def _pairs(func: PrimFunc, by_rows: bool) -> list[tuple[int, int]]:
    buffers = [number for number, p in enumerate(func.params) if hasattr(p, "shape")]
    written = {s.buffer for s in stores_of(func)}
    results = [number for number in buffers if func.params[number] in written]
    blocks: list[SBlock] = []
    tvm_ffi.structural_walk(func.body, (SBlock, blocks.append), order="pre")
    blocks = [b for b in blocks if len(b.iter_vars)]
    outputs = [func.params[number] for number in results]
    return [
        (operand, result)
        for operand in buffers
        if operand not in results
        for result in results
        if same_type(func.params[operand], func.params[result])
        and _pointwise(func.params[operand], func.params[result], outputs, blocks, by_rows)
    ]


def stores_of(node: PrimFunc | SBlock) -> list[BufferStore]:
    """Return all stores within a function or a block."""
    stores: list[BufferStore] = []
    tvm_ffi.structural_walk(node.body, (BufferStore, stores.append))
    return stores


def _pointwise(
    operand: Var, result: Var, outputs: Sequence[Var], blocks: list[SBlock], by_rows: bool
) -> bool:
    """Follow `operand` through the blocks in order: every access must be at the block's point.

    With `by_rows`, a reduction may read all of the row that it keeps. What is stored as a result is
    not followed further: who reads it reads those bytes.
    """
    derived = {operand}
    last = None
    for block in blocks:
        touching = [load for load in loads_in(block.body) if load.source in derived]
        if not touching:
            continue
        if any(int(axis.iter_type) != IterVar.DataPar for axis in block.iter_vars):
            if by_rows and all(_is_of_row(load, block) for load in touching):
                continue
            return False
        for store in stores_of(block):
            last = store.buffer
            for load in touching:
                if not tvm_ffi.structural_equal(list(load.indices), list(store.indices)):
                    return False
            if not any(store.buffer.same_as(output) for output in outputs):
                derived.add(store.buffer)
    return last is not None and last.same_as(result)


def _is_of_row(load: TensorLoad, block: SBlock) -> bool:
    """Tell whether a reduction reads only the row, in the leading axes, that it keeps."""
    kept = [
        axis.var
        for axis in block.iter_vars
        if int(axis.iter_type) == IterVar.DataPar and not equal_sizes(axis.dom.extent, 1)
    ]
    sizes = zip(load.indices, load.source.shape, strict=True)
    leading = [index for index, size in sizes if not equal_sizes(size, 1)][: len(kept)]
    return len(leading) == len(kept) and all(
        index.same_as(var) for index, var in zip(leading, kept, strict=True)
    )
