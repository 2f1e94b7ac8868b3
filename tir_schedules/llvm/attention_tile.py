"""Sizes of the tiles of an attention kernel, from the registers and caches of a machine."""

from __future__ import annotations

from dataclasses import dataclass

from tir_schedules.machine import Machine

# Keys and values of one block stay in L1 next to a tile's queries, weights and results.
_BLOCK_KEYS = 64
# Query tiles that share one copy of a block's keys and values.
_MOST_TILES = 8


@dataclass(frozen=True)
class AttentionTile:
    """How an attention kernel is cut up.

    Attributes:
        lanes: Elements of one vector register.
        queries: Queries of a tile, one vector lane each: one or two registers wide.
        key_rows: Keys whose scores with a tile of queries stay in registers.
        block_keys: Keys of a block, a multiple of key_rows.
        tiles: Query tiles that share a block of keys in one task.
        rows: Queries whose weighted sums stay in registers; divides `queries`.
        columns: Vectors in each chunk of the result's columns.
    """

    lanes: int
    queries: int
    key_rows: int
    block_keys: int
    tiles: int
    rows: int
    columns: tuple[int, ...]

    @property
    def width(self) -> int:
        """Columns of the result, rounded up to whole vectors."""
        return self.lanes * sum(self.columns)


def choose_attention_tile(
    machine: Machine,
    queries: int | None,
    keys: int | None,
    width: int,
    heads: int | None,
) -> AttentionTile:
    """Choose the tiles for a number of queries and keys, None where it is symbolic.

    Args:
        machine: The processor.
        queries: Queries of a head.
        keys: Keys of a head.
        width: Columns of the values.
        heads: Heads of all samples together.
    """
    lanes = machine.lanes("float32")
    registers = machine.vector_registers
    vectors = 1 if queries is not None and queries <= lanes else 2
    wide = vectors * lanes
    # Accumulators, the vectors of one column of queries, and the broadcast key element.
    key_rows = _key_rows((registers - 3) // vectors, keys)
    block = -(-_BLOCK_KEYS // key_rows) * key_rows
    if keys is not None:
        row_tiles = -(-keys // key_rows)
        blocks = -(-row_tiles // (block // key_rows))
        block = -(-row_tiles // blocks) * key_rows
    rows, columns = _result_tile(registers, wide, -(-width // lanes))
    tiles = _MOST_TILES
    if queries is not None:
        in_head = -(-queries // wide)
        tiles = min(tiles, in_head)
        # Enough tasks to keep every core busy to the end.
        while tiles > 1 and (heads or 1) * -(-in_head // tiles) < 4 * machine.cores:
            tiles -= 1
    return AttentionTile(lanes, wide, key_rows, block, tiles, rows, tuple(columns))


def _key_rows(most: int, keys: int | None) -> int:
    """Return how many keys a tile has: at most 14, the fewest computed for nothing at the end."""
    most = min(most, 14)
    if keys is None:
        return most
    if keys <= most:
        return max(1, keys)
    return min(range(most, most // 2, -1), key=lambda rows: -(-keys // rows) * rows)


def _result_tile(registers: int, queries: int, vectors: int) -> tuple[int, list[int]]:
    """Return the rows of a result tile and the vectors of each chunk of its columns.

    The fewest loads a multiply-add win; eight accumulators or more hide the latency of the
    multiply-adds.
    """
    choices = []
    for rows in (4, 8, 2, 1):
        if queries % rows:
            continue
        most = max(1, (registers - 1) // (rows + 1))
        chunks = -(-vectors // most)
        columns = [(vectors + at) // chunks for at in range(chunks)]
        few = sum(1 for count in columns if rows * count < 8)
        loads = sum((rows + count) / (rows * count) * count for count in columns)
        choices.append((few, loads, rows, columns))
    _, _, rows, columns = min(choices)
    return rows, columns
