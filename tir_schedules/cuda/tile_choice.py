"""Choose the tile of a product by a model of the time it takes on a GPU.

A tile of `rows` x `columns` results belongs to a block of threads, `warp_rows` x `warp_columns` of
it to each warp; steps go through shared memory `depth` at a time, `stages` of them in flight. Where
the tiles alone leave multiprocessors idle, the steps are divided into `slices`, each computed by
blocks of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from tir_schedules.gpu import Gpu

_WARP = 32
_OTHER_REGISTERS = 48  # addresses and counters
START_CLOCKS = 1500  # launch of a block and the first trip to memory
_STEP_CLOCKS = 60  # from the load of a fragment to the sum that an mma makes of it
_IDLE_WARPS = 0.5  # how far a Tensor Core is from busy with few warps to choose from
_JOIN_SECONDS = 3e-6  # launch of the kernel that adds up slices, behind the one that makes them


@dataclass(frozen=True)
class Tile:
    """How a product is cut, in elements: here for Tensor Cores, 2-byte operands."""

    element_bytes: ClassVar[int] = 2
    rows: int
    columns: int
    depth: int
    warp_rows: int
    warp_columns: int
    stages: int = 3
    slices: int = 1

    @property
    def warps(self) -> int:
        """Return how many warps a block has."""
        return (self.rows // self.warp_rows) * (self.columns // self.warp_columns)

    @property
    def threads(self) -> int:
        """Return how many threads a block has."""
        return self.warps * _WARP

    def divides(self, steps: int) -> bool:
        """Tell whether no slice is empty when stages are dealt out to them evenly, rounded up."""
        trips = -(-steps // self.depth)
        return -(-trips // -(-trips // self.slices)) == self.slices

    @property
    def stage_bytes(self) -> int:
        """Return the shared memory of one stage of the pipeline."""
        return self.element_bytes * (self.rows + self.columns) * self.depth

    @property
    def epilogue_bytes(self) -> int:
        """Return the shared memory in which warps turn 16 rows of sums each into lines."""
        return self.warps * 16 * self.warp_columns * 4

    @property
    def shared_bytes(self) -> int:
        """Return the shared memory of a block; the epilogue uses the pipeline's."""
        return max(self.stages * self.stage_bytes, self.epilogue_bytes)

    @property
    def registers(self) -> int:
        """Return about how many registers a thread needs: sums, two sets of fragments, others."""
        sums = self.warp_rows * self.warp_columns // _WARP
        fragments = (self.warp_rows + self.warp_columns) // 16 * 4
        return sums + 2 * fragments + _OTHER_REGISTERS

    def rate(self, gpu: Gpu) -> int:
        """Return how many products a multiprocessor adds in a clock."""
        return gpu.matrix_fmas

    def shared_reads(self) -> int:
        """Return the bytes of shared memory that all warps read for one stage."""
        return self.warps * 2 * (self.warp_rows + self.warp_columns) * self.depth

    def step_clocks(self) -> int:
        """Return how long one warp alone takes for a stage: loads and sums wait for each other."""
        return self.depth // 16 * _STEP_CLOCKS


@dataclass(frozen=True)
class Tf32Tile(Tile):
    """A tile for Tensor Cores in tf32: operands of 4 bytes, half as many products in a clock."""

    element_bytes: ClassVar[int] = 4

    def rate(self, gpu: Gpu) -> int:
        """Return how many products a multiprocessor adds in a clock."""
        return gpu.matrix_fmas // 2

    def shared_reads(self) -> int:
        """Return the bytes of shared memory that all warps read for one stage."""
        return 2 * super().shared_reads()

    def step_clocks(self) -> int:
        """Return how long one warp alone takes for a stage."""
        return 2 * super().step_clocks()


@dataclass(frozen=True)
class LaneTile(Tile):
    """A tile for CUDA cores in float32: lanes are 4 x 8, each has rows and columns of its own."""

    element_bytes: ClassVar[int] = 4

    @property
    def lane_rows(self) -> int:
        """Return how many rows a lane has."""
        return self.warp_rows // 4

    @property
    def lane_columns(self) -> int:
        """Return how many columns a lane has."""
        return self.warp_columns // 8

    @property
    def epilogue_bytes(self) -> int:
        """Return 0: sums are stored as they are."""
        return 0

    @property
    def registers(self) -> int:
        """Return about how many registers a thread needs: sums, operands of 4 steps, others."""
        sides = self.lane_rows + self.lane_columns
        return self.lane_rows * self.lane_columns + 4 * sides + _OTHER_REGISTERS

    def rate(self, gpu: Gpu) -> int:
        """Return how many products a multiprocessor adds in a clock."""
        return gpu.float32_fmas

    def shared_reads(self) -> int:
        """Return the bytes that lanes read; those that read the same ones share half of them."""
        return self.warps * 64 * (self.lane_rows + self.lane_columns) * self.depth

    def step_clocks(self) -> int:
        """Return how long one warp alone takes for a stage."""
        return self.depth * (self.lane_rows * self.lane_columns // 2 + 8)


@dataclass(frozen=True)
class ByteTile(Tile):
    """A tile for Tensor Cores of operands of a byte: 32 steps an `mma`, sums in int32."""

    element_bytes: ClassVar[int] = 1

    def rate(self, gpu: Gpu) -> int:
        """Return how many products a multiprocessor adds in a clock."""
        return gpu.byte_fmas

    def divides(self, steps: int) -> bool:
        """Tell whether no slice is empty; sums of slices are kept in float32, so there is one."""
        return self.slices == 1

    def shared_reads(self) -> int:
        """Return the bytes of shared memory that all warps read for one stage."""
        return super().shared_reads() // 2

    def step_clocks(self) -> int:
        """Return how long one warp alone takes for a stage."""
        return super().step_clocks() // 2


MATRIX_TILES = (
    Tile(256, 128, 32, 64, 64),
    Tile(128, 256, 32, 64, 64),
    Tile(128, 128, 32, 64, 64),
    Tile(128, 64, 32, 64, 32),
    Tile(64, 128, 32, 32, 64),
    Tile(64, 64, 64, 32, 32),
    Tile(32, 128, 64, 32, 32),
    Tile(32, 64, 64, 16, 32),
    Tile(16, 128, 64, 16, 32),
    Tile(16, 64, 64, 16, 16),
)
TF32_TILES = tuple(
    Tf32Tile(tile.rows, tile.columns, tile.depth // 2, tile.warp_rows, tile.warp_columns)
    for tile in MATRIX_TILES
)
BYTE_TILES = tuple(
    ByteTile(tile.rows, tile.columns, 2 * tile.depth, tile.warp_rows, tile.warp_columns)
    for tile in MATRIX_TILES
)
LANE_TILES = (
    LaneTile(128, 128, 16, 32, 64),
    LaneTile(128, 64, 16, 32, 32),
    LaneTile(64, 64, 16, 32, 32),
    LaneTile(32, 64, 32, 16, 32),
    LaneTile(32, 32, 32, 16, 32),
)
STAGES = (5, 4, 3)
SLICES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


def choose_tile(
    rows: int, columns: int, steps: int, batch: int, gpu: Gpu, tiles: Sequence[Tile]
) -> Tile:
    """Return the tile of the least estimated time, with as many stages as cost no occupancy."""

    def key(tile: Tile) -> tuple[float, int, int]:  # of those that memory bounds, the smallest
        seconds = estimate_seconds(tile, rows, columns, steps, batch, gpu)
        return seconds, tile.slices, tile.rows * tile.columns

    divided = [replace(tile, slices=slices) for tile in tiles for slices in SLICES]
    best = min((tile for tile in divided if tile.divides(steps)), key=key)
    together = _together(best, gpu)
    for stages in STAGES:
        deeper = replace(best, stages=stages)
        if deeper.shared_bytes <= gpu.block_shared_bytes and _together(deeper, gpu) >= together:
            return deeper
    return best


def estimate_seconds(
    tile: Tile, rows: int, columns: int, steps: int, batch: int, gpu: Gpu
) -> float:
    """Return about how long a product takes, infinity where a block does not fit.

    On each multiprocessor, blocks that run together share its Tensor Cores, its shared memory and
    its way to the L2 cache; the slowest of these sets the pace, unless too few warps are there to
    hide the latency of an `mma`. Memory as a whole bounds the product from below.
    """
    together = _together(tile, gpu)
    if tile.shared_bytes > gpu.block_shared_bytes or not together:
        return float("inf")
    blocks = -(-rows // tile.rows) * -(-columns // tile.columns) * batch * tile.slices
    share = -(-blocks // gpu.multiprocessors)
    trips = -(-steps // (tile.depth * tile.slices))
    resident = min(together, share)
    products = tile.rows * tile.columns * tile.depth / tile.rate(gpu)
    waiting = tile.step_clocks() / resident
    there = min(tile.rows, rows) + min(tile.columns, columns)  # zeros beyond cost no trip
    fetched = tile.element_bytes * there * tile.depth / gpu.l2_bytes_per_clock
    shared = (tile.shared_reads() + tile.stage_bytes) / gpu.shared_bytes_per_clock
    idle = 1 + _IDLE_WARPS / (resident * tile.warps)
    pace = max(products * idle, waiting, fetched, shared)
    rounds = -(-share // together)
    clocks = rounds * START_CLOCKS + share * trips * pace
    moved = tile.element_bytes * batch * (rows * steps + steps * columns + rows * columns)
    seconds = max(clocks / gpu.clock_hz, moved / gpu.memory_bytes_per_second)
    return seconds + joining_seconds(tile.slices, rows * columns * batch, gpu)


def joining_seconds(slices: int, results: int, gpu: Gpu) -> float:
    """Return how long it takes to write the sums of all slices, read them again and add them up."""
    if slices == 1:
        return 0.0
    written = 4 * slices * results  # in float32
    cached = gpu.multiprocessors * gpu.l2_bytes_per_clock * gpu.clock_hz
    rate = cached if 2 * written <= gpu.l2_bytes else gpu.memory_bytes_per_second
    return _JOIN_SECONDS + 2 * written / rate


def _together(tile: Tile, gpu: Gpu) -> int:
    return gpu.blocks_together(tile.threads, tile.registers, tile.shared_bytes)
