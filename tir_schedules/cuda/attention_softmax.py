"""The online softmax of an attention kernel, on scores that lie in registers.

Lanes 4 g to 4 g + 3 of a warp have the scores of queries g and g + 8 of a tile (Milakov and
Gimelshein, "Online normalizer calculation for softmax", 2018).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import tirx
from tvm.tirx import Expr
from tvm.tirx.script import builder as T

from tir_schedules.cuda.warp_shuffle import shuffled

LOWEST = float(np.finfo("float32").min)
_LOG2_E = 1 / math.log(2.0)
_QUAD = (1, 2)  # distances of the lanes that share a query


class OnlineSoftmax:
    """Holds, for each query of a lane, its best score and its part of the sum of weights."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        scale = kernel.nest.plain_scale
        # Scores that are no more than products are in the exponential's units of log 2.
        self.unit = None if scale is None else scale * _LOG2_E

    def begin(self) -> None:
        """Emit the registers: no key has been seen."""
        count = self.kernel.tile.row_tiles * 2
        self.best = T.alloc_buffer((count,), "float32", scope="local")
        self.total = T.alloc_buffer((count,), "float32", scope="local")
        self.new = T.alloc_buffer((1,), "float32", scope="local")
        self.shrink = T.alloc_buffer((1,), "float32", scope="local")
        for at in range(count):
            T.buffer_store(self.best, _f(LOWEST), [at])
            T.buffer_store(self.total, _f(0), [at])

    def rescore(self, start: Any, shown: Expr | None) -> None:
        """Turn products into scores, -inf where they do not count.

        Args:
            start: First key of the block.
            shown: Whether all of the block counts, None for yes.
        """
        if shown is None:
            self._rescore(start, masked=False)
        elif self.unit is None or isinstance(shown, tirx.IntImm):
            # A long expression is not worth a second copy of the code without the mask.
            self._rescore(start, masked=True)
        else:
            with T.If(shown):
                with T.Then():
                    self._rescore(start, masked=False)
                with T.Else():
                    self._rescore(start, masked=True)

    def _rescore(self, start: Any, masked: bool) -> None:
        with T.unroll(0, 2 * self.kernel.tile.row_tiles) as row:
            with T.unroll(0, self.kernel.key_tiles) as tile, T.unroll(0, 2) as at:
                place = self._register(row, tile, at)
                value = self._score(self.kernel.scores[place], row, start, tile, at, masked)
                T.buffer_store(self.kernel.scores, value, [place])

    def _score(self, product: Any, row: Any, start: Any, tile: Any, at: Any, masked: bool) -> Expr:
        kernel, nest = self.kernel, self.kernel.nest
        query = kernel.first + self.row_of(row)
        key = start + kernel.first_key + tile * 8 + tirx.floormod(kernel.lane, 4) * 2 + at
        there = key < kernel.keys
        if kernel.ragged_queries:  # what is read for a query must exist
            query = tirx.min(query, kernel.queries - 1)
        if masked and kernel.ragged_keys:
            key = tirx.min(key, kernel.keys - 1)
        place = (kernel.b, kernel.h, query, key)
        if self.unit is not None:
            value = product * _f(self.unit)
        else:
            value = nest.score_of(product, *place)
        if not masked:
            return value
        conditions = [there] if kernel.ragged_keys else []
        conditions += [] if nest.visible is None else [nest.visible.at(*place)]
        return tirx.Select(tirx.all(*conditions), value, _f(float("-inf")))

    def weigh(self) -> None:
        """Turn scores into weights; sums so far shrink by as much as the best scores grew."""
        kernel = self.kernel
        with T.unroll(0, 2 * kernel.tile.row_tiles) as row:
            scores = kernel.scores
            T.buffer_store(self.new, self.best[row], [0])
            with T.unroll(0, kernel.key_tiles) as tile, T.unroll(0, 2) as at:
                score = scores[self._register(row, tile, at)]
                T.buffer_store(self.new, tirx.max(self.new[0], score), [0])
            combine_quad(self.new, 0, tirx.max)
            T.buffer_store(self.shrink, self.exp(self.best[row] - self.new[0]), [0])
            T.buffer_store(self.best, self.new[0], [row])
            T.buffer_store(self.total, self.total[row] * self.shrink[0], [row])
            with T.unroll(0, kernel.key_tiles) as tile, T.unroll(0, 2) as at:
                place = self._register(row, tile, at)
                T.buffer_store(scores, self.exp(scores[place] - self.new[0]), [place])
                T.buffer_store(self.total, self.total[row] + scores[place], [row])
            self.scale_sums(row, self.shrink[0])

    def scale_sums(self, row: Any, factor: Expr) -> None:
        """Multiply a lane's weighted sums of one query."""
        kernel = self.kernel
        with T.unroll(0, kernel.column_tiles) as tile, T.unroll(0, 2) as at:
            place = self.sum_place(row, tile, at)
            T.buffer_store(kernel.sums, kernel.sums[place] * factor, [place])

    def row_of(self, row: Any) -> Expr:
        """Return which query of the block is a lane's `row`-th."""
        kernel = self.kernel
        return (
            kernel.first_row
            + tirx.floordiv(row, 2) * 16
            + tirx.floormod(row, 2) * 8
            + tirx.floordiv(kernel.lane, 4)
        )

    def sum_place(self, row: Any, tile: Any, at: Any) -> Expr:
        """Return where a lane's `row`-th query has its sum of a column, `at` of two neighbours."""
        tiles = self.kernel.column_tiles
        half = tirx.floormod(row, 2)
        return (tirx.floordiv(row, 2) * tiles + tile) * 4 + half * 2 + at

    def _register(self, row: Any, tile: Any, at: Any) -> Any:
        return (
            (tirx.floordiv(row, 2) * self.kernel.key_tiles + tile) * 4
            + tirx.floormod(row, 2) * 2
            + at
        )

    def exp(self, difference: Expr) -> Expr:
        """Return what a difference of two scores makes of a weight."""
        return tirx.exp2(difference if self.unit is not None else difference * _f(_LOG2_E))


def combine_quad(buffer: Any, at: Any, combine: Any) -> None:
    """Combine a value of the four lanes that share a query."""
    for distance in _QUAD:
        other = shuffled(buffer[at], distance)
        T.buffer_store(buffer, combine(buffer[at], other), [at])


def _f(value: float) -> Expr:
    return tirx.const(value, "float32")
