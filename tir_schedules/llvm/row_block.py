"""How the row tiles of a matrix product are cut into blocks, which are spread over the cores."""

from __future__ import annotations

from dataclasses import dataclass

from tir_schedules.machine import Machine


@dataclass(frozen=True)
class RowBlock:
    """The question (`tir_schedules.questions`) how many row tiles a block has; None: it has all.

    `rows` and `depth` are the product's, None where symbolic; `tasks` are its panels and batches.
    """

    rows: int | None
    depth: int | None
    tile_rows: int
    tile_cols: int
    tasks: int

    def options(self, machine: Machine) -> list[int | None]:
        """Return what half the second-level cache holds and keeps all cores busy; half, and all."""
        chosen = self._chosen(machine)
        if self.rows is None:
            return [chosen]
        tiles = -(-self.rows // self.tile_rows)
        others: list[int | None] = [None, -(-(chosen or tiles) // 2)]
        return [chosen, *(block for block in others if block != chosen)]

    def _chosen(self, machine: Machine) -> int | None:
        bytes_per_tile = 4 * self.tile_rows * (self.depth or 512)
        block = max(1, machine.l2_bytes // 2 // bytes_per_tile)
        if self.rows is None:
            return block
        tiles, cores = -(-self.rows // self.tile_rows), machine.cores
        if tiles <= block and (self.tasks >= 4 * cores or self.tasks % cores == 0):
            return None
        wanted = max(1, -(-4 * cores // max(1, self.tasks)))
        block = min(block, max(1, -(-tiles // wanted)))
        return next((b for b in range(block, max(1, block // 2) - 1, -1) if tiles % b == 0), block)
