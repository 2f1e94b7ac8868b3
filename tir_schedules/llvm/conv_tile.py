"""The cost model that picks a convolution's register tile: output blocks x output pixels."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

# An FMA takes four cycles and two start a cycle, so eight accumulators just keep the units busy
# when nothing is late; ten leave room for a load that is (10-30% on ResNet-50's 3x3 layers).
_IN_FLIGHT = 10
# Each pixel of a tile has an address of its own: more of them no longer fit scalar registers.
_MAX_PIXELS = 8
# Input of the pixels one task sweeps, in bytes: half a 512 KiB second-level cache.
_TASK_BYTES = 256 << 10
# Tasks a kernel is cut into, so that a few cores finish at about the same time.
_MIN_TASKS = 16


@dataclass(frozen=True)
class ConvTile:
    """A register tile of `blocks` output channel blocks by `pixels` output pixels.

    A task computes `task_tiles` tiles along the pixels, which are padded to whole tasks.
    """

    blocks: int
    pixels: int
    task_tiles: int


def vector_registers(lane_block: int) -> int:
    """Return the vector registers of a processor whose channel block is `lane_block` floats."""
    return 32 if lane_block >= 16 else 16


def tile_cycles(blocks: int, pixels: int) -> float:
    """Return the cycles of one reduction step: two FMAs and two loads start in each.

    One step loads `blocks` weight vectors and broadcasts `pixels` inputs.
    """
    return max(max(blocks * pixels, _IN_FLIGHT) / 2, (blocks + pixels) / 2)


def fits(blocks: int, pixels: int, registers: int) -> bool:
    """Tell whether the tile, its operands of the shorter side and one more stay in registers."""
    return blocks * pixels + min(blocks, pixels) + 1 <= registers


def choose_conv_tile(
    channel_blocks: int, pixels: int | None, registers: int, *, bytes_per_pixel: int, tasks: int = 1
) -> ConvTile:
    """Choose the tile with the least cycles over the whole output, waste of the last tile included.

    Args:
        channel_blocks: Output channel blocks that share their input (of one group).
        pixels: Output pixels of an image, None when symbolic.
        registers: Vector registers; a channel block counts as one.
        bytes_per_pixel: Input bytes an output pixel needs anew.
        tasks: Independent images and groups.
    """

    def cost(tile: tuple[int, int]) -> tuple[float, int]:
        blocks, width = tile
        tiles = -(-pixels // width) if pixels is not None else 1 / width
        return channel_blocks // blocks * tiles * tile_cycles(blocks, width), -blocks * width

    candidates = [
        (blocks, width)
        for blocks, width in product(range(1, 7), range(1, _MAX_PIXELS + 1))
        if channel_blocks % blocks == 0 and fits(blocks, width, registers)
    ]
    blocks, width = min(candidates, key=cost)
    if pixels is None:
        return ConvTile(blocks, width, 1)
    tiles = -(-pixels // width)
    per_task = max(1, _TASK_BYTES // max(1, width * bytes_per_pixel))
    others = tasks * channel_blocks // blocks
    wanted = min(tiles, max(-(-tiles // per_task), -(-_MIN_TASKS // others)))
    # Equal tasks: of the counts near the wanted one, that which rounds the tiles up least.
    parts = min(
        range(max(1, wanted // 2), min(tiles, 2 * wanted) + 1),
        key=lambda count: (-tiles % count, abs(count - wanted)),
    )
    return ConvTile(blocks, width, -(-tiles // parts))
