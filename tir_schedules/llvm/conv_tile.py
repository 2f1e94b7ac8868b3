"""The cost model that picks a convolution's register tile and how its pixels are cut into tasks.

The kernel goes over (image, part of the pixels, panel of output blocks, tile of the part,
reduction). Within a core the slowest of multiply-adds, loads from the first-level and weights from
the second-level cache sets the pace of a step; what either cache cannot keep between two readings
is moved again. Fewer parts read the weights less often, more parts the input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from tir_schedules.machine import Machine

# An FMA takes four cycles and two start a cycle, so eight accumulators just keep the units busy
# when nothing is late; ten leave room for a load that is (10-30% on ResNet-50's 3x3 layers).
_IN_FLIGHT = 10
# Each pixel of a tile has an address of its own: more of them no longer fit scalar registers.
_MAX_PIXELS = 8
_MAX_BLOCKS = 6
# Bytes a core reads in a cycle from its second-level cache, and from what lies behind it.
_L2_BYTES_PER_CYCLE = 24
FAR_BYTES_PER_CYCLE = 6
# Up to twice as many parts as this, each number of them is looked at.
_PARTS_STEP = 32
# The model tells no two tiles apart that differ less; the larger tile then waits less for memory.
_RESOLUTION = 1.03
# Register tiles, and numbers of parts, that are worth a measurement besides the chosen ones.
_OTHER_TILES, _OTHER_PARTS = 3, 2


@dataclass(frozen=True)
class ConvTile:
    """A register tile of `blocks` output channel blocks by `pixels` output pixels.

    A task computes `task_tiles` tiles along the pixels, which are padded to whole tasks.
    """

    blocks: int
    pixels: int
    task_tiles: int


@dataclass(frozen=True)
class ConvSizes:
    """What the cost of a convolution depends on.

    `blocks` output channel blocks of `lanes` channels share their input; each of the `pixels` of an
    image (None where symbolic) sums over `depth` products. `images` counts images times groups.
    `input_bytes` is what the pixels of one image read, each byte once.
    """

    blocks: int
    lanes: int
    pixels: int | None
    depth: int
    input_bytes: int
    images: int = 1

    @property
    def weight_bytes(self) -> int:
        """Return the bytes of all weights."""
        return 4 * self.blocks * self.lanes * self.depth

    def options(self, machine: Machine) -> list[ConvTile]:
        """Return the tile of the cost model, then the others of low cost (`questions.Question`).

        One number of parts for each register tile, and other numbers for the chosen one.
        """
        chosen = choose_conv_tile(self, machine)
        if self.pixels is None:
            return [chosen]
        ranked = sorted(_tiles(self, machine), key=lambda tile: cycles(self, tile, machine))
        others: dict[tuple[int, int], ConvTile] = {}
        for tile in ranked:
            others.setdefault((tile.blocks, tile.pixels), tile)
        others.pop((chosen.blocks, chosen.pixels))
        recut = [
            tile
            for tile in ranked
            if tile != chosen and (tile.blocks, tile.pixels) == (chosen.blocks, chosen.pixels)
        ]
        return [chosen, *list(others.values())[:_OTHER_TILES], *recut[:_OTHER_PARTS]]


def fits(blocks: int, pixels: int, registers: int) -> bool:
    """Tell whether a tile stays in registers.

    It holds the sums, a step's weights, and the one input that is being broadcast. (Given a tile of
    more blocks than pixels, LLVM still loads the weights first: 4 x 3 spills on AVX2.)
    """
    return blocks * pixels + blocks + 1 <= registers


def step_cycles(blocks: int, pixels: int, lanes: int, weights_in_l1: bool, fma_units: int) -> float:
    """Return the cycles of one reduction step of a tile.

    It multiplies `blocks` weight vectors by `pixels` broadcast inputs; two loads start in a cycle.
    """
    multiply = max(blocks * pixels, _IN_FLIGHT) / fma_units
    from_l2 = 0.0 if weights_in_l1 else 4 * lanes * blocks / _L2_BYTES_PER_CYCLE
    return max(multiply, (blocks + pixels) / 2, from_l2)


@lru_cache(maxsize=1024)
def choose_conv_tile(sizes: ConvSizes, machine: Machine) -> ConvTile:
    """Choose the tile and the parts with the least cycles, waste and idle cores included."""
    if sizes.pixels is None:
        blocks, width = min(
            register_tiles(sizes, machine),
            key=lambda t: _cycles_a_product(t[0], t[1], sizes, machine),
        )
        return ConvTile(blocks, width, 1)
    tiles = _tiles(sizes, machine)
    costs = [cycles(sizes, tile, machine) for tile in tiles]
    near = [t for t, cost in zip(tiles, costs, strict=True) if cost <= min(costs) * _RESOLUTION]
    return max(near, key=lambda t: (t.blocks * t.pixels, t.pixels, t.task_tiles))


def register_tiles(sizes: ConvSizes, machine: Machine) -> list[tuple[int, int]]:
    """Return the tiles of blocks x pixels that stay in registers."""
    return [
        (blocks, width)
        for blocks, width in product(range(1, _MAX_BLOCKS + 1), range(1, _MAX_PIXELS + 1))
        if sizes.blocks % blocks == 0 and fits(blocks, width, machine.vector_registers)
    ]


def _tiles(sizes: ConvSizes, machine: Machine) -> list[ConvTile]:
    """Return the register tiles with each way to cut a known number of pixels into tasks."""
    assert sizes.pixels is not None
    return [
        ConvTile(blocks, width, task_tiles)
        for blocks, width in register_tiles(sizes, machine)
        for task_tiles in _task_sizes(-(-sizes.pixels // width))
    ]


def _cycles_a_product(
    blocks: int, width: int, sizes: ConvSizes, machine: Machine
) -> tuple[float, int]:
    """Return the cycles of a product of vectors in a full tile; of equal tiles the larger first."""
    step = step_cycles(blocks, width, sizes.lanes, False, machine.fma_units)
    return step / (blocks * width), -blocks * width


def _task_sizes(tiles: int) -> Iterator[int]:
    """Yield the tiles of a task for each number of equal parts worth a look.

    Of many parts only some are: a large image with many channels fits the second-level cache in
    hundreds of parts, and there one more is no difference.
    """
    seen, parts = 0, 1
    while parts <= tiles:
        size = -(-tiles // parts)
        if size != seen:
            yield size
        seen = size
        parts += max(1, parts // _PARTS_STEP)


def cycles(sizes: ConvSizes, tile: ConvTile, machine: Machine) -> float:
    """Return about how many cycles the convolution takes on all cores of `machine`."""
    assert sizes.pixels is not None, "a symbolic number of pixels has no cost"
    panels = sizes.blocks // tile.blocks
    parts = -(-sizes.pixels // (tile.pixels * tile.task_tiles))
    panel_bytes = sizes.weight_bytes // panels
    near = panel_bytes <= machine.l1_bytes // 2
    step = step_cycles(tile.blocks, tile.pixels, sizes.lanes, near, machine.fma_units)
    task = tile.task_tiles * sizes.depth * step + _far_bytes(sizes, panels, parts, machine) / (
        FAR_BYTES_PER_CYCLE * panels * parts
    )
    rounds = -(-sizes.images * panels * parts // machine.cores)
    return rounds * task


def _far_bytes(sizes: ConvSizes, panels: int, parts: int, machine: Machine) -> int:
    """Return the bytes an image moves from behind the second-level cache."""
    part_input = sizes.input_bytes // parts
    room = machine.l2_bytes * 3 // 4
    weights, image = sizes.weight_bytes, sizes.input_bytes
    weight_sweeps = 1 if weights + part_input <= room else parts
    input_sweeps = 1 if part_input + weights // panels <= room else panels
    return weights * weight_sweeps + image * input_sweeps
