"""Choose how a product of few rows is divided among lanes, warps and blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import tvm

from tir_schedules.blocks import constant
from tir_schedules.cuda.product_operands import Operand, Product
from tir_schedules.cuda.threads import WARP
from tir_schedules.cuda.tile_choice import SLICES, START_CLOCKS, joining_seconds
from tir_schedules.gpu import Gpu

LOAD_BYTES = 16
_LOADS = 4  # of weights that a lane has in flight
_SECTOR_BYTES = 32  # less than a sector for neighbouring lanes would be fetched twice
_TRIP_CLOCKS = 800  # from the loads of a trip to the last of its sums
_SHARED_BYTES = 48 << 10  # what a block has without asking


@dataclass(frozen=True)
class RowTile:
    """Of a block: all `rows`, and `column_lanes` lanes of each warp beside each other.

    A lane multiplies `lane_steps` x `lane_columns` weights at a time, which are neighbours in
    memory along the steps or along the columns; a load takes `load` of them.
    """

    warps: ClassVar[int] = 8
    rows: int
    lane_steps: int
    lane_columns: int
    column_lanes: int
    along_steps: bool
    element_bytes: int
    slices: int = 1

    @property
    def load(self) -> int:
        """Return how many weights a load takes."""
        return self.lane_steps if self.along_steps else self.lane_columns

    @property
    def threads(self) -> int:
        """Return how many threads a block has."""
        return self.warps * WARP

    @property
    def columns(self) -> int:
        """Return how many columns a block has."""
        return self.column_lanes * self.lane_columns

    @property
    def step_lanes(self) -> int:
        """Return how many lanes of a warp divide its steps among them."""
        return WARP // self.column_lanes

    @property
    def depth(self) -> int:
        """Return how many steps the warps of a block take at a time."""
        return self.warps * self.step_lanes * self.lane_steps

    @property
    def shared_bytes(self) -> int:
        """Return the shared memory in which the sums of the warps meet."""
        return 4 * self.warps * self.rows * self.columns

    @property
    def registers(self) -> int:
        """Return about how many registers a thread needs: sums, weights in float32, others."""
        weights = self.lane_steps * self.lane_columns
        return self.rows * self.lane_columns + 2 * weights + 48

    @property
    def neighbour_bytes(self) -> int:
        """Return how many bytes lanes beside each other load from one place."""
        lanes = self.step_lanes if self.along_steps else self.column_lanes
        return lanes * self.load * self.element_bytes


def choose_row_tile(product: Product, gpu: Gpu) -> RowTile:
    """Return the tile of the least estimated time.

    Raises:
        ValueError: If the number of rows is symbolic.
    """
    rows = constant(product.rows)
    if rows is None:
        raise ValueError("the number of rows is symbolic")
    bytes_of = tvm.DataType(product.right.dtype).itemsize
    along_steps, steps, columns = _load_shape(product.right, product.steps, bytes_of)

    def candidates() -> Iterator[RowTile]:
        for lanes in (1, 2, 4, 8, 16, 32):
            tile = RowTile(rows, steps, columns, lanes, along_steps, bytes_of)
            if tile.neighbour_bytes >= _SECTOR_BYTES and tile.shared_bytes <= _SHARED_BYTES:
                trips = -(-product.steps // tile.depth)
                yield from (replace(tile, slices=n) for n in SLICES if n == 1 or n <= trips)

    return min(candidates(), key=lambda tile: (row_seconds(tile, product, gpu), tile.slices))


def _load_shape(right: Operand, steps: int, bytes_of: int) -> tuple[bool, int, int]:
    """Return whether a lane's loads go along the steps, and its steps and columns at a time."""
    most = LOAD_BYTES // bytes_of
    counts = [n for n in (8, 4, 2, 1) if n <= most]
    along_steps, along_columns = (
        next(n for n in counts if right.contiguous(along, n)) for along in (True, False)
    )
    if along_steps > along_columns or (
        along_columns == 1 and right.contiguous(True, 2, aligned=False)
    ):
        return True, along_steps, _LOADS
    return False, next(n for n in (_LOADS, 2, 1) if steps % n == 0), along_columns


def row_seconds(tile: RowTile, product: Product, gpu: Gpu) -> float:
    """Return about how long a product takes, as `tile_choice.estimate_seconds` does for tiles."""
    together = gpu.blocks_together(tile.threads, tile.registers, tile.shared_bytes)
    if not together:
        return float("inf")
    blocks = -(-product.columns // tile.columns) * product.batches() * tile.slices
    share = -(-blocks // gpu.multiprocessors)
    trips = -(-product.steps // (tile.depth * tile.slices))
    resident = min(together, share)
    fetched = tile.element_bytes * tile.depth * (tile.columns + tile.rows)
    converted = tile.element_bytes < 4  # each weight once: as long as a product takes
    products = tile.depth * tile.columns * (tile.rows + converted)
    pace = max(
        fetched / gpu.l2_bytes_per_clock,
        products / gpu.float32_fmas,
        _TRIP_CLOCKS / resident,
    )
    clocks = -(-share // together) * START_CLOCKS + share * trips * pace
    results = tile.rows * product.columns * product.batches()
    operands = product.batches() * product.steps * (product.columns + tile.rows)
    moved = tile.element_bytes * (operands + results)
    seconds = max(clocks / gpu.clock_hz, moved / gpu.memory_bytes_per_second)
    return seconds + joining_seconds(tile.slices, results, gpu)
