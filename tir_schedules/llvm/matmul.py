"""Matrix products with a packed constant right operand.

The right operand is cut into panels of `nr` columns, each stored as K consecutive rows of `nr`
values, so that the inner loop streams it. One register tile holds mr x nr results (6 x 16 on
AVX2: 12 of 16 vector registers). Both result axes are padded to whole tiles inside the kernel:
rows past the end read the last row again, and are never stored, so that no guard stands in the
hot loop.

Goto, van de Geijn: Anatomy of High-Performance Matrix Multiplication, ACM TOMS 34(3), 2008.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from tvm import te, tirx

from tir_schedules.blocks import constant
from tir_schedules.llvm.prefetch_panel import fits_ahead, panels_over_cache
from tir_schedules.llvm.register_tile import (
    anchored_rule,
    register_tile,
    rows_per_tile,
    tile_count,
)
from tir_schedules.machine import Machine
from tir_schedules.operand_view import OperandView

TAG = "matmul_packed"
_STEP = 16  # a part of a reduction is a multiple of it, so that its loop unrolls


def panel_width(n: int | None, machine: Machine, depth: int | None = None) -> int:
    """Return how many columns the panels of a right operand have.

    Two vector registers; four where 32 registers hold a tile of 6 rows of them and the last panel
    is not mostly padding. Six rows are read from six cache lines at a time, the 14 that two
    registers would need evict each other (10-25% on products of 1024 and 3072 deep). A stored panel
    so deep that one core could not fetch it ahead is kept narrow: 0.91 of FMA peak where a wide one
    had 0.85 (128 rows of 3072, weights out of cache). Several cores fetch no tile of this size.

    Args:
        n: Columns of the operand, None if symbolic.
        machine: The processor with the registers and caches.
        depth: Rows of the operand, None if it is not stored in panels.
    """
    two = 2 * machine.lanes("float32")
    if n is None:
        return two
    four = 2 * two
    wide = machine.vector_registers >= 32 and -(-n // four) * four <= 1.1 * -(-n // two) * two
    ahead = depth is None or machine.cores > 1 or fits_ahead(4 * depth * four, machine)
    return four if wide and ahead else two


def depth_parts(depth: int, n: int, rows: int | None, machine: Machine) -> list[range]:
    """Return the parts of a reduction that are computed one after the other, most often one.

    A panel too deep to be fetched ahead is cut, and so are the rows that meet it: more of them stay
    in the second-level cache. The sums so far wait in the result, where the next part finds them.
    On a Zen 3 core 128 x 3072 x 768, weights out of cache, runs at 0.69 of FMA peak whole and at
    0.90 in two parts; of more parts, many rows take longer to load and store than they save. One
    row reads its panel without pause.

    Args:
        depth: Rows of the weight.
        n: Columns of the weight.
        rows: Rows of the left operand, None if symbolic.
        machine: The processor with the caches.
    """
    if rows == 1:
        return [range(depth)]
    count = panels_over_cache(4 * depth * panel_width(n, machine), machine)
    step = -(-depth // count // _STEP) * _STEP
    return [range(at, min(at + step, depth)) for at in range(0, depth, step)]


def pack_weight(w_kn: np.ndarray, machine: Machine) -> np.ndarray:
    """Pack a (K, N) weight into panels.

    Returns:
        Array of shape (ceil(N / nr), K, nr), zero past column N.

    Raises:
        ValueError: If the weight is not of rank 2.
    """
    if w_kn.ndim != 2:
        raise ValueError(f"a weight to pack has rank 2, not {w_kn.ndim}")
    k, n = w_kn.shape
    nr = panel_width(n, machine, k)
    panels = -(-n // nr)
    padded = np.zeros((k, panels * nr), w_kn.dtype)
    padded[:, :n] = w_kn
    return np.ascontiguousarray(padded.reshape(k, panels, nr).transpose(1, 0, 2))


def pack_weight_tensor(
    weight: te.Tensor | OperandView, swapped: bool, machine: Machine
) -> te.Tensor:
    """Compute what `pack_weight` returns, of a weight that is known only at run time.

    Args:
        weight: Of shape (K, N), or (N, K) where `swapped`; its extents are known.
        swapped: Whether the weight's transpose is meant.
        machine: As for `pack_weight`.
    """
    k, n = (int(extent) for extent in (weight.shape[::-1] if swapped else weight.shape))
    nr = panel_width(n, machine, k)

    def element(panel: tirx.Var, row: tirx.Var, lane: tirx.Var) -> tirx.Expr:
        col = panel * nr + lane
        value = weight(col, row) if swapped else weight(row, col)
        return te.if_then_else(col < n, value, tirx.const(0, weight.dtype)) if n % nr else value

    return te.compute((-(-n // nr), k, nr), element, name="pack_weight")


def _split_rows(lead: Sequence[tirx.Expr]) -> int:
    """Return how many leading axes stay apart from the row axis that is tiled.

    Static axes join into one row axis; beside a symbolic one, only the last axis is tiled.
    """
    long = [axis for axis, extent in enumerate(lead) if constant(extent) != 1]
    if len(long) <= 1 or all(constant(lead[axis]) is not None for axis in long):
        return 0
    return len(lead) - 1


def matmul_packed(x: te.Tensor | OperandView, packed: te.Tensor, n: int) -> te.Tensor:
    """Multiply `x` of shape (..., K) by a weight packed with `pack_weight`.

    Args:
        x: Left operand of rank >= 1; its leading extents may be symbolic.
        packed: Weight of shape (ceil(n / nr), K, nr).
        n: Columns of the weight before packing.

    Returns:
        Tensor of shape (..., n).
    """
    *lead, depth = x.shape
    panels, _, nr = (int(extent) for extent in packed.shape)
    kept = _split_rows(lead)
    row_extents = lead[kept:]
    rows = math.prod(row_extents[1:], start=row_extents[0]) if row_extents else tirx.const(1)
    mr = rows_per_tile(constant(rows), nr)
    tiles = tile_count(rows, mr)
    k = te.reduce_axis((0, depth), name="k")
    pad_rows = not (isinstance(tiles, int) and tiles * mr == int(rows))

    def left(outer: Sequence[tirx.Expr], row: tirx.Expr) -> tirx.Expr:
        row = te.min(row, rows - 1) if pad_rows else row
        return x(*outer, *_unflatten(row, row_extents), k)

    def product(*index: tirx.Expr) -> tirx.Expr:
        *outer, row, col = index
        value = left(outer, row) * packed[tirx.indexdiv(col, nr), k, tirx.indexmod(col, nr)]
        return te.sum(value, axis=k)

    padded = te.compute(
        (*lead[:kept], tiles * mr, panels * nr),
        product,
        name="matmul_tiles",
        attrs={"schedule_rule": TAG, "tile_rows": mr, "tile_cols": nr},
    )

    def crop(*index: tirx.Expr) -> tirx.Expr:
        return padded(*index[:kept], _flatten(index[kept:-1], row_extents), index[-1])

    return te.compute((*lead, n), crop, name="matmul")


def _flatten(index: Sequence[tirx.Expr], extents: Sequence[tirx.Expr]) -> tirx.Expr:
    flat: tirx.Expr | None = None
    for position, extent in zip(index, extents, strict=True):
        if constant(extent) == 1:
            continue
        flat = position if flat is None else flat * extent + position
    return tirx.const(0, "int64") if flat is None else flat


def _unflatten(row: tirx.Expr, extents: Sequence[tirx.Expr]) -> list[tirx.Expr]:
    index: list[tirx.Expr] = []
    for axis in reversed(range(len(extents))):
        if constant(extents[axis]) == 1:
            index.append(tirx.const(0, "int64"))
        elif any(constant(extent) != 1 for extent in extents[:axis]):
            index.append(tirx.indexmod(row, extents[axis]))
            row = tirx.indexdiv(row, extents[axis])
        else:
            index.append(row)
    return index[::-1]


RULE = anchored_rule("matmul", TAG, partial(register_tile, prefetch=True))
