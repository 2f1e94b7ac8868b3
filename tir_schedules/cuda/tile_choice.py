"""Choose the tile of a Tensor Core product by a model of the time it takes on a GPU.

A tile of `rows` x `columns` results belongs to a block of threads, `warp_rows` x `warp_columns` of
it to each warp; steps go through shared memory `depth` at a time, `stages` of them in flight.
"""

from __future__ import annotations

from dataclasses import dataclass

from tir_schedules.gpu import Gpu

_WARP = 32
_OTHER_REGISTERS = 40  # addresses and counters
_START_CLOCKS = 1500  # launch of a block and the first trip to memory
_STEP_CLOCKS = 60  # from the load of a fragment to the sum that an mma makes of it
_IDLE_WARPS = 0.5  # how far a Tensor Core is from busy with few warps to choose from


@dataclass(frozen=True)
class Tile:
    """How a product is cut, in elements; 2-byte operands, sums in float32."""

    rows: int
    columns: int
    depth: int
    warp_rows: int
    warp_columns: int
    stages: int = 3

    @property
    def warps(self) -> int:
        """Return how many warps a block has."""
        return (self.rows // self.warp_rows) * (self.columns // self.warp_columns)

    @property
    def threads(self) -> int:
        """Return how many threads a block has."""
        return self.warps * _WARP

    @property
    def stage_bytes(self) -> int:
        """Return the shared memory of one stage of the pipeline."""
        return 2 * (self.rows + self.columns) * self.depth

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

    def with_stages(self, stages: int) -> Tile:
        """Return the tile with another number of stages."""
        return Tile(**{**self.__dict__, "stages": stages})


TILES = (
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
STAGES = (5, 4, 3)


def choose_tile(rows: int, columns: int, steps: int, batch: int, gpu: Gpu) -> Tile:
    """Return the tile of the least estimated time, with as many stages as cost no occupancy."""

    def key(tile: Tile) -> tuple[float, int]:  # of those that memory bounds, the smallest
        return estimate_seconds(tile, rows, columns, steps, batch, gpu), tile.rows * tile.columns

    best = min(TILES, key=key)
    together = _together(best, gpu)
    for stages in STAGES:
        deeper = best.with_stages(stages)
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
    blocks = -(-rows // tile.rows) * -(-columns // tile.columns) * batch
    share = -(-blocks // gpu.multiprocessors)
    trips = -(-steps // tile.depth)
    resident = min(together, share)
    products = tile.rows * tile.columns * tile.depth / gpu.matrix_fmas
    waiting = tile.depth // 16 * _STEP_CLOCKS / resident
    there = min(tile.rows, rows) + min(tile.columns, columns)  # zeros beyond cost no trip
    fetched = 2 * there * tile.depth / gpu.l2_bytes_per_clock
    reads = tile.warps * 2 * (tile.warp_rows + tile.warp_columns) * tile.depth
    shared = (reads + tile.stage_bytes) / gpu.shared_bytes_per_clock
    idle = 1 + _IDLE_WARPS / (resident * tile.warps)
    pace = max(products * idle, waiting, fetched, shared)
    rounds = -(-share // together)
    clocks = rounds * _START_CLOCKS + share * trips * pace
    moved = 2 * batch * (rows * steps + steps * columns + rows * columns)
    return max(clocks / gpu.clock_hz, moved / gpu.memory_bytes_per_second)


def _together(tile: Tile, gpu: Gpu) -> int:
    return gpu.blocks_together(tile.threads, tile.registers, tile.shared_bytes)
