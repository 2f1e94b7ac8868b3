"""3x3 convolution in NCHW[x]c layout by Winograd's minimal filtering: fewer products, more sums.

An image is cut into tiles of m x m results. The tiles of the input become n x n points each
(n = m + 2), at each point one matrix product sums over the channels, and the points of each result
tile become its m x m pixels, which meet the epilogue. `winograd_tile` decides whether a task does
all of this for a group of tiles, or each step is a loop nest over all tiles.
F(2, 3) needs 2.25, F(4, 3) 4 times fewer products than the direct sum. The matrices are in
`winograd_matrices`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from tvm import te, tirx

from tir_schedules.blocks import constant
from tir_schedules.llvm.register_tile import tile_count
from tir_schedules.llvm.spatial_pad import Padding, out_extent, static
from tir_schedules.llvm.winograd_matrices import TAPS, Matrix, winograd
from tir_schedules.llvm.winograd_tile import WinogradSizes, WinogradTile
from tir_schedules.machine import Machine
from tir_schedules.operand_view import OperandView
from tir_schedules.questions import decide

TAG = "winograd_conv2d"
PATCH, ROWS, POINTS = "winograd_patch", "winograd_rows", "winograd_points"
PRODUCTS, COLUMNS, PIXELS = "winograd_products", "winograd_columns", "winograd_pixels"


def transform_weight(weight: np.ndarray, outputs: int) -> np.ndarray:
    """Transform a constant kernel as `winograd_weight` does."""
    matrix = np.array([[float(value) for value in row] for row in winograd(outputs).kernel])
    rows = np.tensordot(matrix, weight.astype("float64"), axes=(1, 2))
    points = np.tensordot(matrix, rows, axes=(1, 3))
    order = (1, 0, 2, 3, 4, 5)
    return np.ascontiguousarray(points.transpose(order).astype(weight.dtype))


def winograd_weight(weight: te.Tensor, outputs: int) -> te.Tensor:
    """Transform a kernel (Co/ob, Ci/ib, 3, 3, ib, ob) to its points (n, n, Co/ob, Ci/ib, ib, ob).

    The sums are taken in float64, so that a kernel known at compile time gives the same points as
    one that is an argument.
    """
    matrix = winograd(outputs).kernel
    co, ci, _, _, ib, ob = weight.shape

    def point(y: tirx.Var, x: tirx.Var, *place: tirx.Var) -> tirx.Expr:
        o, i, below, lane = place

        def tap(row: int, col: int) -> tirx.Expr:
            return tirx.Cast("float64", weight[o, i, row, col, below, lane])

        rows = [
            _one_of(y, [_combine(line, [tap(r, c) for r in range(TAPS)]) for line in matrix])
            for c in range(TAPS)
        ]
        value = _one_of(x, [_combine(line, rows) for line in matrix])
        return tirx.Cast(weight.dtype, value)

    size = len(matrix)
    return te.compute((size, size, co, ci, ib, ob), point, name="winograd_weight")


def winograd_conv2d(
    data: te.Tensor | OperandView,
    points: te.Tensor,
    machine: Machine,
    *,
    padding: Padding = (0, 0, 0, 0),
) -> te.Tensor:
    """Convolve a blocked image with the points of a blocked 3x3 kernel, at stride 1.

    Args:
        data: Image (N, Ci/ib, H, W, ib).
        points: Kernel (n, n, Co/ob, Ci/ib, ib, ob), as `winograd_weight` gives it.
        machine: The processor whose register tile the products are cut for.
        padding: Zeros around the image as (top, left, bottom, right).

    Returns:
        Tensor (N, Co/ob, OH, OW, ob).
    """
    n, _, height, width, _ = (static(extent) for extent in data.shape)
    in_blocks, ib = (int(data.shape[axis]) for axis in (1, 4))
    size, _, out_blocks, _, _, ob = (int(extent) for extent in points.shape)
    m = size - TAPS + 1
    matrices = winograd(m)
    top, left, bottom, right = padding
    oh = out_extent(height, top, bottom, TAPS, 1, 1)
    ow = out_extent(width, left, right, TAPS, 1, 1)
    down, across = (tile_count(extent, m) for extent in (oh, ow))
    tiles = down * across
    count = constant(tiles)
    sizes = WinogradSizes(constant(n) or 1, in_blocks * ib, out_blocks, ob, count, m)
    choice: WinogradTile = decide(sizes, machine)
    # The tiles beyond the image see only zeros, and no result of theirs is read.
    groups, group = tile_count(tiles, choice.group), choice.group
    if count is None:  # one group, as TVM could not prove that several hold all tiles
        groups, group = 1, groups * group

    def place(t: tirx.Expr) -> tuple[tirx.Expr | int, tirx.Expr]:
        return (0, t) if count is None else (tirx.indexdiv(t, group), tirx.indexmod(t, group))

    def patch(b: Any, g: Any, c: Any, t: Any, row: Any, col: Any, lane: Any) -> tirx.Expr:
        at = t if count is None else g * group + t
        y = tirx.indexdiv(at, across) * m + row - top
        x = tirx.indexmod(at, across) * m + col - left
        inside = tirx.all(y >= 0, y < height, x >= 0, x < width)
        return tirx.if_then_else(inside, data[b, c, y, x, lane], tirx.const(0, data.dtype))

    def shape(*extents: tirx.Expr | int) -> list[tirx.Expr | int]:
        return [
            tirx.const(e, "int64") if isinstance(e, int) and count is None else e for e in extents
        ]

    d = te.compute(shape(n, groups, in_blocks, group, size, size, ib), patch, name=PATCH)
    rows = te.compute(
        d.shape,
        lambda b, g, c, t, y, x, lane: _transform(
            matrices.data, y, lambda k: d(b, g, c, t, k, x, lane)
        ),
        name=ROWS,
    )
    v = te.compute(
        shape(n, groups, size, size, in_blocks, group, ib),
        lambda b, g, y, x, c, t, lane: _transform(
            matrices.data, x, lambda k: rows(b, g, c, t, y, k, lane)
        ),
        name=POINTS,
    )
    ci, cb = (
        te.reduce_axis((0, extent), name=name)
        for extent, name in zip(shape(in_blocks, ib), ("ci", "cb"), strict=True)
    )
    products = te.compute(
        shape(n, groups, size, size, out_blocks, group, ob),
        lambda b, g, y, x, c, t, lane: te.sum(
            v[b, g, y, x, ci, t, cb] * points[y, x, c, ci, cb, lane], axis=[ci, cb]
        ),
        name=PRODUCTS,
        attrs={
            "schedule_rule": TAG,
            "tile_blocks": choice.tile.blocks,
            "tile_pixels": choice.tile.pixels,
            "grouped": choice.grouped,
        },
    )

    def column(b: Any, c: Any, t: Any, y: Any, x: Any, lane: Any) -> tirx.Expr:
        g, at = place(t)
        return _transform(matrices.results, y, lambda k: products(b, g, k, x, c, at, lane))

    columns = te.compute(shape(n, out_blocks, tiles, m, size, ob), column, name=COLUMNS)

    def pixel(b: Any, c: Any, y: Any, x: Any, lane: Any) -> tirx.Expr:
        t = tirx.indexdiv(y, m) * across + tirx.indexdiv(x, m)
        return _transform(
            matrices.results,
            tirx.indexmod(x, m),
            lambda k: columns(b, c, t, tirx.indexmod(y, m), k, lane),
        )

    return te.compute(shape(n, out_blocks, oh, ow, ob), pixel, name=PIXELS)


def _transform(matrix: Matrix, line: tirx.Expr, value: Callable[[int], tirx.Expr]) -> tirx.Expr:
    """Return row `line` of a matrix times the vector of values; `line` is known once unrolled."""
    values = [value(k) for k in range(len(matrix[0]))]
    pairs = _opposite_columns(matrix)
    if pairs:
        return _one_of(line, [_combine_pairs(row, values, pairs) for row in matrix])
    return _one_of(line, [_combine(row, values) for row in matrix])


def _one_of(index: tirx.Expr, values: Sequence[tirx.Expr]) -> tirx.Expr:
    *others, chosen = values
    for at in reversed(range(len(others))):
        chosen = tirx.Select(index.equal(tirx.const(at, str(index.ty))), others[at], chosen)
    return chosen


def _opposite_columns(matrix: Matrix) -> list[int]:
    """Return the columns that differ from the next one in signs only, as those of A^T do.

    They belong to points of opposite signs.
    """
    columns = [[abs(row[k]) for row in matrix] for k in range(len(matrix[0]))]
    return [k for k in range(len(columns) - 1) if columns[k] == columns[k + 1]]


def _combine_pairs(
    factors: Sequence[Fraction], values: Sequence[tirx.Expr], pairs: Sequence[int]
) -> tirx.Expr:
    """Return the sum of values times factors, by sums and differences that rows have in common."""
    terms = []
    for k, (factor, value) in enumerate(zip(factors, values, strict=True)):
        if k in pairs:
            other = values[k + 1]
            terms.append((factor, value + other if factors[k + 1] == factor else value - other))
        elif k - 1 not in pairs:
            terms.append((factor, value))
    return _sum(terms)


def _combine(factors: Sequence[Fraction], values: Sequence[tirx.Expr]) -> tirx.Expr:
    """Return the sum of values times factors, first of the even ones, then of the odd ones.

    Points of opposite signs have rows in B^T and G that differ in the sign of all odd ones: these
    rows share both sums.
    """
    terms = list(zip(factors, values, strict=True))
    even, odd = ([term for term in terms[k::2] if term[0]] for k in (0, 1))
    if not even or not odd:
        return _sum(even or odd)
    if odd[-1][0] < 0:
        return _sum(even) - _sum([(-factor, value) for factor, value in odd])
    return _sum(even) + _sum(odd)


def _sum(terms: Sequence[tuple[Fraction, tirx.Expr]]) -> tirx.Expr:
    """Return the sum of values times factors, without products by 0, 1 and -1."""
    total: tirx.Expr | None = None
    for factor, value in terms:
        if factor == 0:
            continue
        if total is None:
            total = value if factor == 1 else value * tirx.const(float(factor), str(value.ty.dtype))
        elif abs(factor) == 1:
            total = total + value if factor > 0 else total - value
        else:
            total = total + value * tirx.const(float(factor), str(value.ty.dtype))
    assert total is not None, "no row of the matrices is zero"
    return total
