"""Direct convolution in NCHW[x]c layout with a register tile of output blocks x pixels.

Output rows and columns are one flat axis of pixels, cut into tiles whatever the image's width:
49 pixels of a 7x7 image are 10 tiles of 5. The pixels past the end of the last tile compute the
last pixel again and are never stored, so that no guard stands in the hot loop. The cost model is
in `conv_tile`; 10-12 of 16 AVX2 registers hold results.

Georganas et al.: Anatomy of High-Performance Deep Learning Convolutions on SIMD Architectures,
SC 2018.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import s_tir, te, tirx
from tvm.s_tir.schedule import SBlockRV

from tir_schedules.blocks import (
    constant,
    extents,
    leaf_blocks,
    points,
    vectorize_lane,
    vectorize_wide,
)
from tir_schedules.llvm.conv_tile import ConvSizes
from tir_schedules.llvm.one_tile import keep_one_tile
from tir_schedules.llvm.prefetch_panel import insert_prefetches, mark_prefetch
from tir_schedules.llvm.register_tile import (
    PARALLEL_FMAS,
    anchored_rule,
    tile_count,
    unroll_channels,
)
from tir_schedules.llvm.spatial_pad import PAD, Padding, out_extent, pad_border, static
from tir_schedules.machine import Machine
from tir_schedules.operand_view import OperandView
from tir_schedules.questions import decide

TAG = "conv2d_nchwc"
TILES, TOP, LEFT = "conv2d_tiles", "pixel_top", "pixel_left"
Pair = tuple[int, int]


def conv2d_nchwc(
    data: te.Tensor | OperandView,
    weight: te.Tensor,
    machine: Machine,
    *,
    strides: tuple[int, int] = (1, 1),
    padding: Padding = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
) -> te.Tensor:
    """Convolve a blocked image with a blocked kernel.

    Args:
        data: Image (N, Ci/ib, H, W, ib).
        weight: Kernel (Co/ob, Ci/groups/ib, kh, kw, ib, ob).
        machine: The processor whose register tile the pixels are padded to.
        strides: Steps down and right.
        padding: Zeros around the image as (top, left, bottom, right).
        dilation: Distance of kernel rows and columns.
        groups: Groups of channels that see only each other.

    Returns:
        Tensor (N, Co/ob, OH, OW, ob).

    Raises:
        ValueError: If the channels of data, weight and groups do not match.
    """
    batch, in_blocks, height, width, _ = (static(extent) for extent in data.shape)
    out_blocks, group_blocks, kh, kw, ib, ob = (int(extent) for extent in weight.shape)
    data_block = int(data.shape[4])
    if int(in_blocks) * data_block != group_blocks * ib * groups or out_blocks * ob % groups:
        raise ValueError(f"{data.shape} and {weight.shape} do not match in {groups} groups")
    (top, left, bottom, right), (sh, sw), (dh, dw) = padding, strides, dilation
    oh = out_extent(height, top, bottom, kh, sh, dh)
    ow = out_extent(width, left, right, kw, sw, dw)
    pixels = oh * ow
    # A group of output channels that ends inside a block picks its input lane by lane.
    whole = data_block == ib and out_blocks * ob // groups % ob == 0
    count = constant(pixels)
    sizes = ConvSizes(
        blocks=out_blocks // groups if whole else 1,
        lanes=ob,
        pixels=count,
        depth=group_blocks * ib * kh * kw,
        input_bytes=4 * group_blocks * ib * sh * sw * (count or 0),
        images=(constant(batch) or 1) * (groups if whole else out_blocks),
    )
    tile = decide(sizes, machine)
    if any(padding):
        data = pad_border(data, padding, height + top + bottom, width + left + right)
    unit = tile.pixels * tile.task_tiles
    padded = tile_count(pixels, unit) * unit
    # Tasks of all pixels and all output blocks of a group share no input: each adds its own border.
    own_input = (
        whole and out_blocks // groups == tile.blocks and count is not None and unit >= count
    )

    ci = te.reduce_axis((0, group_blocks), name="ci")
    ky = te.reduce_axis((0, kh), name="ky")
    kx = te.reduce_axis((0, kw), name="kx")
    cb = te.reduce_axis((0, ib), name="cb")

    corner = _window_corners(padded, pixels, ow, (sh, sw))

    def window(n: tirx.Var, block: tirx.Var, pixel: tirx.Var, lane: tirx.Var) -> tirx.Expr:
        top, left = corner(pixel)
        y, x = top + ky * dh, left + kx * dw
        if groups == 1 and data_block == ib:
            value = data[n, ci, y, x, cb]
        elif whole:
            first = tirx.indexdiv(block, out_blocks // groups) * group_blocks
            value = data[n, first + ci, y, x, cb]
        else:
            group = tirx.indexdiv(block * ob + lane, out_blocks * ob // groups)
            channel = group * (group_blocks * ib) + ci * ib + cb
            value = data[
                n,
                tirx.indexdiv(channel, data_block),
                y,
                x,
                tirx.indexmod(channel, data_block),
            ]
        return te.sum(value * weight[block, ci, ky, kx, cb, lane], axis=[ci, ky, kx, cb])

    tiles = te.compute(
        (batch, out_blocks, padded, ob),
        window,
        name=TILES,
        attrs={
            "schedule_rule": TAG,
            "tile_blocks": tile.blocks,
            "tile_pixels": tile.pixels,
            "task_tiles": tile.task_tiles,
            "own_input": int(own_input),
        },
    )
    return te.compute(
        (batch, out_blocks, oh, ow, ob),
        lambda n, c, y, x, lane: tiles[n, c, y * ow + x, lane],
        name="conv2d",
    )


def _window_corners(
    padded: tirx.Expr | int, pixels: tirx.Expr | int, columns: tirx.Expr | int, strides: Pair
) -> Callable[[tirx.Var], tuple[tirx.Expr, tirx.Expr]]:
    """Return what gives the top row and left column of a pixel's window, the border included.

    By a symbolic number of columns each pixel of a tile is divided once, in a stage of its own: the
    code generator would have to simplify the division in each step of the unrolled loop. Pixels are
    never negative, so the division rounds as the machine's does.
    """
    count, (down, right) = constant(pixels), strides
    if count is None:
        last = pixels - 1
        tops = te.compute(
            (padded,),
            lambda pixel: tirx.truncdiv(te.min(pixel, last), columns) * down,
            name=TOP,
        )
        lefts = te.compute(
            (padded,),
            lambda pixel: tirx.truncmod(te.min(pixel, last), columns) * right,
            name=LEFT,
        )
        return lambda pixel: (tops[pixel], lefts[pixel])

    def corner(pixel: tirx.Var) -> tuple[tirx.Expr, tirx.Expr]:
        inside = pixel if padded == count else te.min(pixel, pixels - 1)
        return tirx.indexdiv(inside, columns) * down, tirx.indexmod(inside, columns) * right

    return corner


def _tile(sch: s_tir.Schedule, anchor: SBlockRV, epilogue: SBlockRV, machine: Machine) -> None:
    """Tile the convolution, with the epilogue at each tile.

    Tasks go over (n, part of the pixels, output blocks): the input of a part stays in the
    second-level cache while all output blocks read it.
    """
    notes = sch.get(anchor).annotations
    batch, block, pixel, lane, ci, ky, kx, cb = sch.get_loops(anchor)
    work = points(extents(sch, [batch, block, pixel, lane, ci, ky, kx, cb]))
    panel, row = sch.split(block, [None, int(notes["tile_blocks"])])
    part, tile, col = sch.split(pixel, [None, int(notes["task_tiles"]), int(notes["tile_pixels"])])
    steps = unroll_channels(sch, cb)
    sch.reorder(batch, part, panel, tile, ci, ky, kx, *steps, col, row, lane)
    task = sch.fuse(batch, part, panel)
    if work >= PARALLEL_FMAS and machine.cores > 1:
        sch.parallel(task)
    sch.unroll(col)
    sch.unroll(row)
    sch.vectorize(lane)
    sch.reverse_compute_at(epilogue, tile)
    vectorize_lane(sch, epilogue, tile)
    for stage in leaf_blocks(sch):
        if str(sch.get(stage).name_hint) == PAD and int(notes["own_input"]):
            sch.compute_at(stage, task, preserve_unit_loops=True)
            vectorize_wide(sch, sch.get_loops(stage)[-1])
        if str(sch.get(stage).name_hint) in (TOP, LEFT):
            sch.set_scope(stage, 0, "local")
            sch.compute_at(stage, tile)
            sch.unroll(sch.get_loops(stage)[-1])
    init = sch.decompose_reduction(anchor, ci)
    vectorize_lane(sch, init, tile)
    mark_prefetch(
        sch,
        anchor,
        tile=tile,
        steps=steps[0],
        elements=points(extents(sch, [row, ci, ky, kx, *steps, lane])),
        machine=machine,
    )


def _finish(sch: s_tir.Schedule, anchor: SBlockRV, _: Machine) -> s_tir.Schedule:
    notes = sch.get(anchor).annotations
    *_, pixels, lanes = sch.get(anchor).writes[0].source.shape
    sch = insert_prefetches(sch, anchor)
    if constant(pixels) is not None:
        return sch
    width = int(notes["tile_pixels"])
    sch = keep_one_tile(sch, f"{TILES}_update", (1, int(notes["tile_blocks"]), width, int(lanes)))
    for corner in (TOP, LEFT):
        sch = keep_one_tile(sch, corner, (width,))
    return sch


RULE = anchored_rule("conv2d_nchwc", TAG, _tile, _finish)
