"""Convolution of each channel, or of groups within a register, in NCHW[x]c layout.

Depthwise convolutions are groups of one channel. Of groups of several, a register of pixels is
permuted so that each lane has its group's channel; all the taps that meet a pixel share that.

A task computes some rows of one channel block, a few pixels of a row in registers. The zero border
is added to just the rows that a task reads, which then stay in the first-level cache. Kernel loops
are unrolled, so that neighbouring pixels of a tile share their loads.

Zhang, Lo, Lu: High Performance Depthwise and Pointwise Convolutions on Mobile Devices, AAAI 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, te, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV

from tir_schedules.blocks import (
    constant,
    extents,
    leaf_blocks,
    loops_within,
    points,
    vectorize_lane,
    vectorize_wide,
    work_per_point,
)
from tir_schedules.llvm.permute_lanes import can_permute, permute_reads
from tir_schedules.llvm.register_tile import PARALLEL_FMAS, anchored_rule
from tir_schedules.llvm.spatial_pad import PAD, Padding, out_extent, pad_border, static
from tir_schedules.machine import Machine
from tir_schedules.operand_view import OperandView
from tir_schedules.questions import decide

TAG = "depthwise_conv2d_nchwc"
# 4 to 8 accumulators hide the latency of an FMA and leave registers for weights and pixels.
_TILE_PIXELS = range(8, 3, -1)
# The more pixels of a row, the more multiplications share a permutation. By the lanes of a register
# that permutes: there are 32 registers of 16 lanes, 16 of 8.
_GROUP_PIXELS = {16: range(14, 3, -1), 8: range(8, 3, -1)}
# Bytes of bordered rows a task keeps: half a 32 KiB first-level cache. Rows of NHWC are gathered
# from all over a wider image, so that copying them again as another task's border costs more than
# reading them from the second-level cache.
_ROWS_BYTES, _NHWC_ROWS_BYTES = 16 << 10, 48 << 10
# Blocks of NHWC that a task copies together: lines of memory that follow each other.
_TASK_BLOCKS = 4
# Operations of an epilogue that is applied to rows, not within a tile: those with an exponential.
_LONG_EPILOGUE = 15
# Larger kernels keep a loop over their rows.
_MAX_UNROLLED_TAPS = 10


def depthwise_conv2d_nchwc(
    data: te.Tensor | OperandView,
    weight: te.Tensor,
    *,
    strides: tuple[int, int] = (1, 1),
    padding: Padding = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int | None = None,
) -> te.Tensor:
    """Convolve each channel of a blocked image with its own kernel, or each group of g channels.

    Args:
        data: Image (N, C/b, H, W, b), or (N, 1, H, W, C), which is NHWC.
        weight: Kernel (C/b, 1, kh, kw, g, b). A g above 1 divides a b that one instruction
            permutes (`permute_lanes`).
        strides: Steps down and right.
        padding: Zeros around the image as (top, left, bottom, right).
        dilation: Distance of kernel rows and columns.
        groups: C / g, or None.

    Returns:
        Tensor (N, C/b, OH, OW, b), or (N, 1, OH, OW, C).

    Raises:
        ValueError: If data, weight and groups do not have the same channels.
    """
    batch, held_blocks, height, width, held_lanes = (static(extent) for extent in data.shape)
    blocks, _, kh, kw, per_group, lanes = (int(extent) for extent in weight.shape)
    channels_last = (held_blocks, held_lanes) == (1, blocks * lanes)
    if not channels_last and (held_blocks, held_lanes) != (blocks, lanes):
        raise ValueError(f"{data.shape} and {weight.shape} do not match")
    if groups not in (None, blocks * lanes // per_group):
        raise ValueError(f"{data.shape} and {weight.shape} do not match in {groups} groups")
    (top, left, bottom, right), (sh, sw), (dh, dw) = padding, strides, dilation
    oh = out_extent(height, top, bottom, kh, sh, dh)
    ow = out_extent(width, left, right, kw, sw, dw)
    columns = constant(ow)
    tile = _tile_pixels(columns, _TILE_PIXELS if per_group == 1 else _GROUP_PIXELS[lanes])
    out_width = ow if columns is None else -(-columns // tile) * tile
    rows, cols = height + top + bottom, width + left + right
    if channels_last:
        data = _in_blocks(data, blocks, lanes)
    if columns is not None and isinstance(cols, int):
        cols = max(cols, (out_width - 1) * sw + (kw - 1) * dw + 1)
    if any(padding) or cols is not width and constant(cols) != constant(width):
        data = pad_border(data, padding, rows, cols)

    ky = te.reduce_axis((0, kh), name="ky")
    ci = te.reduce_axis((0, per_group), name="ci")
    kx = te.reduce_axis((0, kw), name="kx")

    def window(n: tirx.Var, c: tirx.Var, row: tirx.Var, col: tirx.Var, b: tirx.Var) -> tirx.Expr:
        y, x = row * sh + ky * dh, col * sw + kx * dw
        at = b if per_group == 1 else _place(b, ci, per_group)
        return te.sum(data[n, c, y, x, at] * weight[c, 0, ky, kx, ci, b], axis=[ky, ci, kx])

    tiles = te.compute(
        (batch, blocks, oh, out_width, lanes),
        window,
        name="depthwise_tiles",
        attrs={
            "schedule_rule": TAG,
            "tile_pixels": tile,
            "per_group": per_group,
            "task_blocks": _task_blocks(blocks) if channels_last else 1,
            "most_rows": _most_rows(_rows_that_fit(cols, lanes, channels_last), kh, sh, dh),
        },
    )
    if channels_last:
        return te.compute(
            (batch, 1, oh, ow, blocks * lanes),
            lambda n, _, y, x, c: tiles[n, tirx.indexdiv(c, lanes), y, x, tirx.indexmod(c, lanes)],
            name="depthwise_conv2d",
        )
    return te.compute(
        (batch, blocks, oh, ow, lanes), lambda *index: tiles(*index), name="depthwise_conv2d"
    )


def _in_blocks(data: te.Tensor | OperandView, blocks: int, lanes: int) -> OperandView:
    """Return NHWC as blocks of a register each, which the copy that adds the border makes."""
    batch, _, height, width, _ = data.shape

    def place(index: Sequence[Any]) -> list[Any]:
        n, block, row, column, lane = index
        return [n, 0, row, column, block * lanes + lane]

    return OperandView(data, (batch, blocks, height, width, lanes), place)


def _task_blocks(blocks: int) -> int:
    return next(n for n in range(_TASK_BLOCKS, 0, -1) if blocks % n == 0)


def _tile_pixels(columns: int | None, sizes: range) -> int:
    """Return the tile that pads a row least, the largest of equals; 1 for symbolic rows."""
    if columns is None:
        return 1
    if columns <= sizes.start:
        return columns
    return min(sizes, key=lambda tile: -columns % tile)


def _rows_that_fit(columns: tirx.Expr | int, lanes: int, channels_last: bool) -> int | None:
    """Return how many bordered rows of one block a task may keep, None of symbolic length."""
    known = constant(columns)
    size = _NHWC_ROWS_BYTES if channels_last else _ROWS_BYTES
    return None if known is None else size // (4 * known * lanes)


def _most_rows(kept: int | None, kernel: int, stride: int, dilation: int) -> int:
    """Return the most output rows of a task, whose input rows with their border may be `kept`."""
    halo = (kernel - 1) * dilation + 1 - stride
    return 1 if kept is None else max(1, (kept - halo) // stride)


@dataclass(frozen=True)
class TaskRows:
    """The question (`tir_schedules.questions`) how many of `rows` output rows a task has.

    A divisor, so that no task tests a bound. `plane` are the bytes of a block's results.
    """

    rows: int
    most: int
    plane: int

    def options(self, _: Machine) -> list[int]:
        """Return the most that fit the cache, then the next fewer and more."""
        sizes = [size for size in range(self.rows, 0, -1) if self.rows % size == 0]
        chosen = next(at for at, size in enumerate(sizes) if size <= max(1, self.most))
        return [sizes[chosen], *sizes[chosen + 1 : chosen + 2], *sizes[:chosen][-1:]]


def _tile(sch: s_tir.Schedule, anchor: SBlockRV, epilogue: SBlockRV, machine: Machine) -> None:
    notes = sch.get(anchor).annotations
    batch, block, y, x, lane, ky, ci, kx = sch.get_loops(anchor)
    work = points(extents(sch, [batch, block, y, x, lane, ky, ci, kx]))
    taps = points(extents(sch, [ky, ci, kx]))
    rows, plane = constant(sch.get(y).extent), points(extents(sch, [y, x, lane]))
    task_rows = (
        1 if rows is None else decide(TaskRows(rows, int(notes["most_rows"]), 4 * plane), machine)
    )
    part, row = sch.split(y, [None, task_rows])
    tile, pixel = sch.split(x, [None, int(notes["tile_pixels"])])
    group, inner = sch.split(block, [None, int(notes["task_blocks"])])
    sch.reorder(batch, group, part, inner, row, tile, ky, ci, kx, pixel, lane)
    task = sch.fuse(batch, group, part)
    if work >= PARALLEL_FMAS // 8 and machine.cores > 1:
        sch.parallel(task)
    known = None not in extents(sch, [row, tile])
    if known and work_per_point(sch.get(epilogue).body) > _LONG_EPILOGUE:
        _finish_rows_later(sch, anchor, epilogue, tile, inner)
    else:
        sch.set_scope(anchor, 0, "local")
        sch.reverse_compute_at(epilogue, tile)
        vectorize_lane(sch, epilogue, tile)
    sch.unroll(pixel)
    sch.unroll(kx)
    if taps <= _MAX_UNROLLED_TAPS:
        sch.unroll(ky)
        sch.unroll(ci)
    vectorize_wide(sch, lane)
    init = sch.decompose_reduction(anchor, ky)
    *_, init_pixel, init_lane = sch.get_loops(init)
    sch.unroll(init_pixel)
    vectorize_wide(sch, init_lane)
    for stage in leaf_blocks(sch):
        if str(sch.get(stage).name_hint) == PAD:
            sch.compute_at(stage, task, preserve_unit_loops=True)
            *_, pad_block, pad_row, pad_column, pad_lane = sch.get_loops(stage)
            sch.reorder(pad_row, pad_column, pad_block)
            vectorize_wide(sch, pad_lane)


def _finish_rows_later(
    sch: s_tir.Schedule, anchor: SBlockRV, epilogue: SBlockRV, tile: LoopRV, block: LoopRV
) -> None:
    """Store a task's sums of a channel block, and apply a long epilogue to them all at its end.

    In the same straight piece of code as the sums, LLVM puts each pixel's sum before its epilogue:
    one chain of multiply-adds after the other, and the pixels that they shared out of registers
    (5x5 with SiLU: 14 ns a register of results instead of 5).
    """
    sums = sch.cache_write(anchor, 0, "local")
    sch.reverse_compute_at(sums, tile)
    vectorize_lane(sch, sums, tile)
    sch.reverse_compute_at(epilogue, block)
    *_, lane = loops_within(sch, epilogue, block)
    vectorize_wide(sch, lane)


def _place(lane: tirx.Expr, channel: tirx.Expr, per_group: int) -> tirx.Expr:
    """Return the lane in which a lane finds a channel of its group."""
    return tirx.indexdiv(lane, per_group) * per_group + channel


def _permute_groups(sch: s_tir.Schedule, anchor: SBlockRV, machine: Machine) -> s_tir.Schedule:
    """Read the channels of groups within a register by permutations, where there are such."""
    block = sch.get(anchor)
    per_group = int(block.annotations["per_group"])
    _, _, _, _, lane, _, channel, _ = block.iter_vars
    lanes = int(lane.dom.extent)
    if per_group == 1 or not can_permute(lanes, machine):
        return sch
    return permute_reads(sch, anchor, lane.var, _place(lane.var, channel.var, per_group), lanes)


RULE = anchored_rule("depthwise_conv2d", TAG, _tile, _permute_groups)
