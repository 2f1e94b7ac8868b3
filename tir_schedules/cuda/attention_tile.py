"""Sizes of the tiles of an attention kernel, from what a multiprocessor has."""

from __future__ import annotations

from dataclasses import dataclass

import tvm

from tir_schedules.cuda.shared_tile import BANK_BYTES, CHUNK_BYTES
from tir_schedules.gpu import Gpu
from tir_schedules.rule import Decline

TYPES = ("float16", "bfloat16", "float32")
STAGES = 2  # blocks of keys and values in shared memory: one is worked on, the next one arrives
_MOST_COLUMNS = 256
_FEW_QUERIES = 16
_WARP_ROWS = 16  # of one matrix instruction


@dataclass(frozen=True)
class AttentionTile:
    """How an attention kernel is cut up.

    Attributes:
        row_warps: Warps with queries of their own.
        key_warps: Warps that share queries and divide the keys of a block.
        row_tiles: Tiles of 16 queries that a warp has.
        warp_keys: Keys of a block that a warp has.
        depth: Elements of a query in shared memory.
        width: Elements of a value in shared memory.
        element_bytes: Of an operand.
    """

    row_warps: int
    key_warps: int
    row_tiles: int
    warp_keys: int
    depth: int
    width: int
    element_bytes: int

    @property
    def threads(self) -> int:
        """Return how many threads a block has."""
        return 32 * self.row_warps * self.key_warps

    @property
    def rows(self) -> int:
        """Return how many queries a block has."""
        return _WARP_ROWS * self.row_tiles * self.row_warps

    @property
    def keys(self) -> int:
        """Return how many keys are worked on at a time."""
        return self.warp_keys * self.key_warps

    @property
    def query_bytes(self) -> int:
        """Return the shared memory of the queries."""
        return self.rows * self.depth * self.element_bytes

    @property
    def stage_bytes(self) -> int:
        """Return the shared memory of a block of keys and values."""
        return self.keys * (self.depth + self.width) * self.element_bytes

    @property
    def exchanged(self) -> int:
        """Return the numbers that a lane hands over where warps divide the keys."""
        return self.row_tiles * (self.width // 2 + 4)

    @property
    def shared_bytes(self) -> int:
        """Return the shared memory of a block; what warps hand over takes that of the keys."""
        handed = (self.key_warps - 1) * self.row_warps * self.exchanged * 32 * 4
        return max(self.query_bytes + STAGES * self.stage_bytes, handed)


def choose_attention_tile(
    dtype: str,
    heads: int,
    queries: int | None,
    size: int | None,
    columns: int | None,
    gpu: Gpu,
    plain: bool = True,
) -> AttentionTile:
    """Choose the tiles of an attention.

    Few queries leave warps free to divide the keys. Two tiles of queries a warp halve what it
    reads of keys and values; their sums must fit in its registers, and the blocks fill the GPU.

    Args:
        dtype: Of queries, keys and values.
        heads: Heads of all samples together.
        queries: Of a head, None where that is symbolic.
        size: Elements of a query, None where that is symbolic.
        columns: Elements of a value.
        gpu: The GPU.
        plain: Whether scores are no more than scaled products; more takes registers.

    Raises:
        Decline: If there is no kernel for it.
    """
    if gpu.capability < 80:
        raise Decline("needs asynchronous copies: sm_80 or newer")
    if dtype not in TYPES:
        raise Decline(f"is in {dtype}, not {', '.join(TYPES)}")
    if size is None or columns is None or max(size, columns) > _MOST_COLUMNS:
        raise Decline(f"its heads have more than {_MOST_COLUMNS} elements, or any number")
    item = tvm.DataType(dtype).itemsize
    depth, width = _row_elements(size, item), _row_elements(columns, item)
    few = queries is not None and queries <= _FEW_QUERIES
    row_warps, key_warps = (1, 4) if few else (4, 1)
    narrow = max(depth, width) <= 64 and item == 2
    blocks = heads * -(-(queries or 1024) // 128)
    row_tiles = 2 if narrow and plain and not few and blocks >= gpu.multiprocessors else 1
    for warp_keys in (64, 32, 16):
        if (few or not narrow) and warp_keys == 64:
            continue
        tile = AttentionTile(row_warps, key_warps, row_tiles, warp_keys, depth, width, item)
        if tile.shared_bytes <= min(gpu.block_shared_bytes, gpu.shared_bytes // 2):
            return tile
    if tile.shared_bytes <= gpu.block_shared_bytes:
        return tile
    raise Decline("its keys and values do not fit in shared memory")


def _row_elements(size: int, item: int) -> int:
    """Return how long rows are in shared memory: whole chunks, as the swizzle wants them."""
    line = BANK_BYTES // item
    if size > line:
        return -(-size // line) * line
    row = 2 * CHUNK_BYTES // item
    while row < size:
        row *= 2
    return row
