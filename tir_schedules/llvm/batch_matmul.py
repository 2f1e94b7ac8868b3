"""Matrix products of two run-time tensors, as attention needs them.

One panel of the right operand is packed into a scratch buffer next to the tiles that use it, so
that a transposed or ragged operand streams like a packed weight. Both result axes are padded to
whole register tiles, as in matmul.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import s_tir, te, tirx
from tvm.s_tir.schedule import SBlockRV

from tir_schedules.blocks import constant
from tir_schedules.llvm.register_tile import (
    anchor_of,
    anchored_rule,
    register_tile,
    rows_per_tile,
    tile_count,
)
from tir_schedules.machine import Machine
from tir_schedules.operand_view import OperandView

TAG = "batch_matmul"
PACK_TAG = "batch_matmul_pack"


def _broadcast(index: Sequence[tirx.Expr], shape: Sequence[tirx.Expr]) -> list[tirx.Expr]:
    """Return the position in an operand of batch shape `shape` for a result's batch position."""
    own = list(index[len(index) - len(shape) :]) if shape else []
    return [
        tirx.const(0, "int64") if constant(extent) == 1 else position
        for position, extent in zip(own, shape, strict=True)
    ]


def _joint_batch(a: Sequence[tirx.Expr], b: Sequence[tirx.Expr]) -> list[tirx.Expr]:
    rank = max(len(a), len(b))
    wide_a = [1] * (rank - len(a)) + list(a)
    wide_b = [1] * (rank - len(b)) + list(b)
    return [y if constant(x) == 1 else x for x, y in zip(wide_a, wide_b, strict=True)]


def batch_matmul(
    a: te.Tensor | OperandView,
    b: te.Tensor | OperandView,
    transpose_a: bool = False,
    transpose_b: bool = False,
    *,
    panel: int = 16,
) -> te.Tensor:
    """Multiply two tensors of rank >= 2 over their last two axes; batch axes broadcast.

    Args:
        a: Left operand (..., M, K), or (..., K, M) when `transpose_a`.
        b: Right operand (..., K, N), or (..., N, K) when `transpose_b`.
        transpose_a: Whether the last two axes of `a` are swapped.
        transpose_b: Whether the last two axes of `b` are swapped.
        panel: Columns of a register tile, two vector registers wide.

    Returns:
        Tensor of shape (..., M, N).
    """
    *batch_a, a0, a1 = a.shape
    *batch_b, b0, b1 = b.shape
    rows, depth = (a1, a0) if transpose_a else (a0, a1)
    cols = b0 if transpose_b else b1
    batch = _joint_batch(batch_a, batch_b)
    rank = len(batch)
    mr = rows_per_tile(constant(rows), panel)
    row_tiles = tile_count(rows, mr)
    panels = tile_count(cols, panel)

    def packed_value(*index: tirx.Expr) -> tirx.Expr:
        *outer, block, step, lane = index
        col = block * panel + lane
        inside = te.min(col, cols - 1)
        if isinstance(panels, int) and panels * panel == constant(cols):
            inside = col
        last = (inside, step) if transpose_b else (step, inside)
        return b(*outer, *last)

    packed = te.compute(
        (*batch_b, panels, depth, panel),
        packed_value,
        name="matmul_panel",
        attrs={"schedule_rule": PACK_TAG},
    )
    k = te.reduce_axis((0, depth), name="k")

    def product(*index: tirx.Expr) -> tirx.Expr:
        outer, row, col = index[:rank], index[rank], index[rank + 1]
        if not (isinstance(row_tiles, int) and row_tiles * mr == constant(rows)):
            row = te.min(row, rows - 1)
        last = (k, row) if transpose_a else (row, k)
        left = a(*_broadcast(outer, batch_a), *last)
        right = packed(
            *_broadcast(outer, batch_b), tirx.indexdiv(col, panel), k, tirx.indexmod(col, panel)
        )
        return te.sum(left * right, axis=k)

    padded = te.compute(
        (*batch, row_tiles * mr, panels * panel),
        product,
        name="matmul_tiles",
        attrs={"schedule_rule": TAG, "tile_rows": mr, "tile_cols": panel},
    )
    return te.compute((*batch, rows, cols), lambda *index: padded(*index), name="matmul")


def _tile(sch: s_tir.Schedule, anchor: SBlockRV, epilogue: SBlockRV, machine: Machine) -> None:
    pack = anchor_of(sch, PACK_TAG)
    panel_loop = register_tile(sch, anchor, epilogue, machine)
    sch.compute_at(pack, panel_loop)
    sch.unroll(sch.get_loops(pack)[-1])


RULE = anchored_rule("batch_matmul", TAG, _tile)
