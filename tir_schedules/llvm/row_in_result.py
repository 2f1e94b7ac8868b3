"""The row that a kernel works on, kept where its result will be.

A softmax stores the exponentials of a row and scales them once their sum is known. Held in a buffer
of their own they would take a third of the first-level cache for a row of 4096; and the lines of
the result would be fetched by the last, short pass, not by the one that computes.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import s_tir
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock
from tvm.s_tir.schedule import SBlockRV
from tvm.tirx import Buffer, BufferStore, IterVar

from tir_schedules.blocks import leaf_blocks, new_schedule
from tir_schedules.replaced_buffer import replace_buffer


def keep_row_in_result(sch: s_tir.Schedule, out: SBlockRV) -> s_tir.Schedule:
    """Return the schedule with the one row that a map stores for `out` in the memory of its result.

    It is done where `out`, the last pass, reads the row only where it writes, and nothing behind
    the map reads an operand of the result's shape, which the result may overwrite.

    Args:
        sch: A schedule whose blocks run row by row.
        out: The block that stores the result.
    """
    last = sch.get(out)
    result = last.writes[0].source
    blocks = [sch.get(block) for block in leaf_blocks(sch)]
    maps = [
        number
        for number, block in enumerate(blocks)
        if not block.same_as(last) and _is_map(block) and _alike(block.writes[0].source, result)
    ]
    if len(maps) != 1:
        return sch
    row = blocks[maps[0]].writes[0].source
    (place,) = (store.indices for store in _found(last, BufferStore))
    loads = [load for load in _found(last, TensorLoad) if load.source.same_as(row)]
    own_point = all(tvm_ffi.structural_equal(load.indices, place) for load in loads)
    read_later = [load.source for b in blocks[maps[0] + 1 :] for load in _found(b, TensorLoad)]
    params = set(sch.mod["main"].params)
    if not own_point or any(b in params and _alike(b, result) for b in read_later):
        return sch
    return new_schedule(replace_buffer(sch.mod["main"], row, result))


def _is_map(block: SBlock) -> bool:
    return all(int(axis.iter_type) == IterVar.DataPar for axis in block.iter_vars)


def _alike(one: Buffer, other: Buffer) -> bool:
    same_shape = tvm_ffi.structural_equal(list(one.shape), list(other.shape))
    return bool(same_shape) and str(one.dtype) == str(other.dtype)


def _found(block: SBlock, kind: type) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(block.body, (kind, found.append), order="pre")
    return found
