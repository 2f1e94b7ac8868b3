"""The cost model that cuts a Winograd convolution into tasks.

A group of tiles goes through all three stages in one task, its points and products staying in the
second-level cache, while each group streams all weights past them. Where the weights are much and
the tiles few, each stage is a loop nest over all tiles: the weights are read once, and cores share
them rather than the tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from tir_schedules.llvm.conv_tile import (
    FAR_BYTES_PER_CYCLE,
    ConvSizes,
    ConvTile,
    choose_conv_tile,
    cycles,
    register_tiles,
    step_cycles,
)
from tir_schedules.llvm.prefetch_panel import fits_ahead
from tir_schedules.llvm.winograd_matrices import Matrix, winograd
from tir_schedules.machine import Machine

# The part of the second-level cache that a group's points and products may take; the weights that
# pass, the image and the results take the rest.
_SHARE = 0.75
# Larger groups read the weights less often, but no longer notably so.
_MOST_TILES = 128
# Addresses this far apart share a set of the first-level cache, which holds a few of them.
_SET_BYTES = 4096
# Of the time of three nests: a large third-level cache hides part of what they take to memory and
# back, which the model counts in full, and few large groups keep cores less evenly busy.
_WORTH = 0.6
# Groups that are worth a measurement besides the chosen one.
_OTHERS = 3


@dataclass(frozen=True)
class WinogradTile:
    """The register tile of the products, and whether a task does all stages for its tiles.

    A group is the `tile.task_tiles` x `tile.pixels` tiles of the image that one task multiplies.
    """

    tile: ConvTile
    grouped: bool

    @property
    def group(self) -> int:
        """Return the tiles of a group."""
        return self.tile.pixels * self.tile.task_tiles


@dataclass(frozen=True)
class WinogradSizes:
    """What the cost of F(`outputs`, 3) depends on; a question (`tir_schedules.questions`).

    `blocks` output channel blocks of `lanes` channels sum over `channels`. Each of the `images` is
    cut into `tiles` tiles, None where their number is symbolic.
    """

    images: int
    channels: int
    blocks: int
    lanes: int
    tiles: int | None
    outputs: int

    @property
    def products(self) -> ConvSizes:
        """Return the sizes of the products at all points, each of which is a 1x1 convolution."""
        points, tiles = winograd(self.outputs).points ** 2, self.tiles
        read = 4 * self.channels * (tiles or 0)
        return ConvSizes(self.blocks, self.lanes, tiles, self.channels, read, self.images * points)

    def options(self, machine: Machine) -> Sequence[WinogradTile]:
        """Return the choice of the cost model, then what is worth a measurement."""
        return _options(self, machine)


def choose_winograd_tile(sizes: WinogradSizes, machine: Machine) -> WinogradTile:
    """Choose the register tile and the groups with the least cycles."""
    return _options(sizes, machine)[0]


@lru_cache(maxsize=1024)
def _options(sizes: WinogradSizes, machine: Machine) -> tuple[WinogradTile, ...]:
    apart = WinogradTile(choose_conv_tile(sizes.products, machine), False)
    if sizes.tiles is None:
        return (apart,)
    cost = partial(winograd_cycles, sizes, machine=machine)
    groups = sorted(_groups(sizes, machine), key=cost)[: _OTHERS + 1]
    if groups and cost(groups[0]) < _WORTH * cost(apart):
        return (*groups, apart)
    return (apart, *groups)


def winograd_cycles(sizes: WinogradSizes, choice: WinogradTile, machine: Machine) -> float:
    """Return about how many cycles the convolution takes on all cores of `machine`."""
    assert sizes.tiles is not None, "a symbolic number of tiles has no cost"
    if choice.grouped:
        groups = -(-sizes.tiles // choice.group)
        rounds = -(-sizes.images * groups // machine.cores)
        # Within a network the first group of each core finds the weights in memory.
        cold = _weight_bytes(sizes) / FAR_BYTES_PER_CYCLE
        return cold + rounds * _group_cycles(sizes, choice, machine)
    sums = sizes.images * _sums(sizes, sizes.tiles) / machine.fma_units / machine.cores
    return sums + _spilled(sizes, machine) + cycles(sizes.products, choice.tile, machine)


def group_bytes(sizes: WinogradSizes, choice: WinogradTile) -> int:
    """Return the bytes that a task holds: a group's points, and its products of one panel."""
    points = winograd(sizes.outputs).points ** 2
    return 4 * points * choice.group * (sizes.channels + choice.tile.blocks * sizes.lanes)


def _groups(sizes: WinogradSizes, machine: Machine) -> list[WinogradTile]:
    """Return the ways to cut the tiles into groups that the second-level cache holds."""
    assert sizes.tiles is not None
    found = []
    for blocks, pixels in register_tiles(sizes.products, machine):
        most = min(_MOST_TILES, sizes.tiles + pixels - 1) // pixels
        for task_tiles in range(1, most + 1):
            choice = WinogradTile(ConvTile(blocks, pixels, task_tiles), True)
            fits = group_bytes(sizes, choice) <= machine.l2_bytes * _SHARE
            if fits and 4 * sizes.channels * choice.group % _SET_BYTES:
                found.append(choice)
    return found


def _group_cycles(sizes: WinogradSizes, choice: WinogradTile, machine: Machine) -> float:
    """Return the cycles of one task: transforms, products, and the weights it streams."""
    tile, points = choice.tile, winograd(sizes.outputs).points ** 2
    panels = sizes.blocks // tile.blocks
    panel_bytes = 4 * tile.blocks * sizes.lanes * sizes.channels
    near = panel_bytes <= machine.l1_bytes // 2
    step = step_cycles(tile.blocks, tile.pixels, sizes.lanes, near, machine.fma_units)
    products = points * panels * tile.task_tiles * sizes.channels * step
    weights = _weight_bytes(sizes)
    kept = weights + group_bytes(sizes, choice) <= machine.l2_bytes * _SHARE
    streamed = 0 if kept else weights / FAR_BYTES_PER_CYCLE
    ahead = tile.task_tiles > 1 and fits_ahead(panel_bytes, machine)
    multiplied = max(products, streamed) if ahead else products + streamed
    return _sums(sizes, choice.group) / machine.fma_units + multiplied


def _weight_bytes(sizes: WinogradSizes) -> int:
    """Return the bytes of the weights at all points."""
    return winograd(sizes.outputs).points ** 2 * sizes.products.weight_bytes


def _sums(sizes: WinogradSizes, tiles: int) -> float:
    """Return the multiply-adds of vectors that transform some tiles of all channels."""
    matrices = winograd(sizes.outputs)
    data = 2 * matrices.points * _terms(matrices.data)
    results = (matrices.points + sizes.outputs) * _terms(matrices.results)
    return tiles * (sizes.channels // sizes.lanes * data + sizes.blocks * results)


def _spilled(sizes: WinogradSizes, machine: Machine) -> float:
    """Return the cycles that points and products of all tiles take to the far memory and back."""
    assert sizes.tiles is not None
    read = 4 * winograd(sizes.outputs).points ** 2 * sizes.tiles
    points, products = read * sizes.channels, read * sizes.blocks * sizes.lanes
    room = machine.l2_bytes * machine.cores * _SHARE
    if points + products <= room:
        return 0.0
    moved = sizes.images * (points + 2 * products)  # reading the points is the products' cost
    return moved / FAR_BYTES_PER_CYCLE / machine.cores


def _terms(matrix: Matrix) -> int:
    """Return how many multiply-adds a matrix times a vector takes."""
    return sum(value != 0 for row in matrix for value in row)
