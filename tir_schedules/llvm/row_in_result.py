"""The row that a kernel works on, kept where its result will be.

A softmax stores the exponentials of a row and scales them once their sum is known. Held in a buffer
of their own they would take a third of the first-level cache for a row of 4096; and the lines of
the result would be fetched by the last, short pass, not by the one that computes.
"""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir
from tvm.s_tir import SBlock
from tvm.s_tir.schedule import SBlockRV
from tvm.tirx import BufferStore, IterVar

from tir_schedules.blocks import leaf_blocks, new_schedule
from tir_schedules.loads import loads_in
from tir_schedules.replaced_buffer import replace_buffer, same_type


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
        if not block.same_as(last) and _is_map(block) and same_type(block.writes[0].source, result)
    ]
    if len(maps) != 1:
        return sch
    row = blocks[maps[0]].writes[0].source
    stores: list[BufferStore] = []
    tvm_ffi.structural_walk(last.body, (BufferStore, stores.append), order="pre")
    (place,) = (store.indices for store in stores)
    loads = loads_in(last.body, row)
    own_point = all(tvm_ffi.structural_equal(load.indices, place) for load in loads)
    read_later = [load.source for b in blocks[maps[0] + 1 :] for load in loads_in(b.body)]
    params = set(sch.mod["main"].params)
    if not own_point or any(b in params and same_type(b, result) for b in read_later):
        return sch
    return new_schedule(replace_buffer(sch.mod["main"], row, result))


def _is_map(block: SBlock) -> bool:
    return all(int(axis.iter_type) == IterVar.DataPar for axis in block.iter_vars)
