"""Attention on a CPU as one kernel that never stores the scores.

Keys are visited in blocks. The softmax is "online" (Milakov and Gimelshein, "Online normalizer
calculation for softmax", 2018; Dao et al., "FlashAttention", 2022): each query keeps the best score
so far, the sum of its weights and its weighted sum of values, and scales the latter two down when a
block brings a better score. Memory is linear in the number of tokens.

Vector lanes are queries while scores are made: a tile holds the scores of `key_rows` keys with
`queries` queries, an element of a key meets a vector of queries, and the maximum and the sum over
keys are vertical. For the weighted sums lanes are the columns of the values: a weight, which the
transposed tile has side by side for the queries, meets a row of values. So neither keys nor values
are transposed, only the queries, once for all keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T
from tvm.tirx import Expr, ForKind, Stmt

from tir_schedules.attention_nest import AttentionNest
from tir_schedules.blocks import constant
from tir_schedules.llvm.attention_mask import BlockMask
from tir_schedules.llvm.attention_tile import AttentionTile
from tir_schedules.llvm.register_transpose import transposed
from tir_schedules.llvm.vector_math import exp2_of_negative
from tir_schedules.loop_statements import copy, f32, fill, i64, lanes_of, serial, when

_LOWEST = float(np.finfo("float32").min)
_LOG2_E = 1 / math.log(2.0)


def attention_kernel(nest: AttentionNest, tile: AttentionTile, parallel: bool) -> Stmt:
    """Return the loop nest of an attention.

    Args:
        nest: What it computes.
        tile: How it is cut up.
        parallel: Whether tasks, which are blocks of queries of one head, run on all cores.
    """
    with IRBuilder() as builder:
        _Kernel(nest, tile).state(ForKind.PARALLEL if parallel else ForKind.SERIAL)
        return builder.get()


class _Kernel:
    """States the loops; its methods go from the outermost loop inward."""

    def __init__(self, nest: AttentionNest, tile: AttentionTile) -> None:
        self.nest, self.tile = nest, tile
        self.batch, self.heads, self.queries, self.keys, size, width = nest.sizes
        self.size, self.columns = int(size), int(width)
        # The queries take the scale of a plain score, in the exponential's units of log 2.
        scale = nest.plain_scale
        self.is_plain = scale is not None
        self.unit = 1.0 if scale is None else scale * _LOG2_E
        known = constant(self.queries)
        self.whole_tiles = known is not None and known % tile.queries == 0
        known = constant(self.keys)
        self.whole_blocks = known is not None and known % tile.block_keys == 0
        self.whole_rows = known is not None and known % tile.key_rows == 0

    def state(self, kind: int) -> None:
        per_task = self.tile.queries * self.tile.tiles
        blocks = tirx.ceildiv(i64(self.queries), i64(per_task))
        tasks = i64(self.batch) * i64(self.heads) * blocks
        loop = T.parallel if kind == ForKind.PARALLEL else T.serial
        with loop(i64(0), tasks) as task:
            head = T.bind(task // blocks)
            self.b, self.h = T.bind(head // i64(self.heads)), T.bind(head % i64(self.heads))
            self.first = T.bind(task % blocks * i64(per_task))
            self.task()

    # One task: some query tiles of one head ----------------------------------------------------

    def task(self) -> None:
        tile, dtype = self.tile, "float32"
        wide = tile.queries
        self.q = T.alloc_buffer((tile.tiles, self.size, wide), dtype)
        self.sums = T.alloc_buffer((tile.tiles, wide, tile.width), dtype)
        self.best = T.alloc_buffer((tile.tiles, wide), dtype)
        self.total = T.alloc_buffer((tile.tiles, wide), dtype)
        self.weights = T.alloc_buffer((tile.block_keys, wide), dtype)
        self.shrink = T.alloc_buffer((wide,), dtype)
        self.k = T.alloc_buffer((tile.block_keys, self.size), dtype)
        self.v = T.alloc_buffer((tile.block_keys, tile.width), dtype)
        left = i64(self.queries) - self.first
        tiles = T.bind(tirx.min(i64(tile.tiles), tirx.ceildiv(left, i64(wide))))
        with serial(tiles) as t:
            self.begin(t)
        with serial(tirx.ceildiv(i64(self.keys), i64(tile.block_keys))) as block:
            self.start = T.bind(block * i64(tile.block_keys))
            count = i64(tile.block_keys)
            if not self.whole_blocks:
                count = T.bind(tirx.min(count, i64(self.keys) - self.start))
            self.count = count
            self.block = BlockMask(self.nest, self.b, self.h, self.start, count)
            last = tirx.min(self.first + tiles * i64(wide), i64(self.queries)) - i64(1)
            with when(self.block.somewhere(self.first, last)):
                self.copy_block()
                with serial(tiles) as t:
                    self.visit(t)
        with serial(tiles) as t:
            self.finish(t)

    def query_of(self, t: Any, x: Any) -> Expr:
        """Return the query of a lane; lanes past the last query repeat it."""
        query = self.first + t * i64(self.tile.queries) + x
        return query if self.whole_tiles else tirx.min(query, i64(self.queries) - i64(1))

    def begin(self, t: Any) -> None:
        tile, wide = self.tile, self.tile.queries
        self.pack_queries(t)
        with serial(wide) as r:
            fill(self.sums, tile.width, lambda x: f32(0.0), t, r)
        fill(self.best, wide, lambda x: f32(_LOWEST), t)
        fill(self.total, wide, lambda x: f32(0.0), t)

    def query(self, t: Any, x: Any, d: Any) -> Expr:
        """Return an element of the query of lane x."""
        place = (self.b, self.h, self.query_of(t, x), i64(0), d)
        return self.nest.query.at(*place) * f32(self.unit)

    def pack_queries(self, t: Any) -> None:
        """State the transposed copy of the queries: squares in registers, then what is left."""
        lanes, wide = self.tile.lanes, self.tile.queries
        whole = self.size // lanes * lanes
        if whole:
            with serial(wide // lanes) as group, serial(whole // lanes) as at:
                self.pack_square(t, group * i64(lanes), at * i64(lanes))
        if whole < self.size:
            with serial(self.size - whole) as rest:
                d = i64(whole) + rest
                fill(self.q, wide, lambda x: self.query(t, x, d), t, d)

    def pack_square(self, t: Any, first: Any, d: Any) -> None:
        lanes = self.tile.lanes
        rows = [T.alloc_buffer((lanes,), "float32") for _ in range(lanes)]
        for r, row in enumerate(rows):
            self.load_query(row, t, first + i64(r), d)
        vector = tirx.Ramp(i64(0), i64(1), lanes)
        for c, column in enumerate(transposed([row[vector] for row in rows])):
            T.buffer_store(self.q, column, [t, d + i64(c), tirx.Ramp(first, i64(1), lanes)])

    def load_query(self, row: Any, t: Any, lane: Any, d: Any) -> None:
        fill(row, self.tile.lanes, lambda x: self.query(t, lane, d + x))

    def finish(self, t: Any) -> None:
        """State the division by the sum of weights, and the stores."""
        first = self.first + t * i64(self.tile.queries)
        rows = i64(self.tile.queries)
        if not self.whole_tiles:
            rows = tirx.min(rows, i64(self.queries) - first)
        with serial(rows) as r:
            share = T.alloc_buffer((1,), "float32")
            # A query that sees no key has no weights, and gives zeros.
            total = self.total[t, r]
            some = tirx.Select(total == f32(0.0), f32(0.0), f32(1.0) / total)
            T.buffer_store(share, some, [i64(0)])

            def store(column: Any) -> None:
                place = self.nest.result.at(self.b, first + r, self.h, column).indices
                value = self.sums[t, r, column] * share[i64(0)]
                T.buffer_store(self.nest.out, value.astype(self.nest.dtype), list(place))

            self.by_vectors(self.columns, store)

    def by_vectors(self, extent: int, body: Callable[[Any], None]) -> None:
        """State `body(column)` in whole vectors, then for the elements that are left."""
        lanes = self.tile.lanes
        if extent // lanes:
            with serial(extent // lanes) as at, lanes_of(lanes) as x:
                body(at * i64(lanes) + x)
        if extent % lanes:
            with serial(extent % lanes) as at:
                body(i64(extent - extent % lanes) + at)

    # One block of keys --------------------------------------------------------------------------

    def copy_block(self) -> None:
        """State the copy of keys and values to consecutive float32, which all tiles then read."""
        nest, tile = self.nest, self.tile
        with serial(self.count) as j:
            key = self.start + j

            def copy_key(d: Any) -> None:
                T.buffer_store(self.k, nest.key.at(self.b, self.h, i64(0), key, d), [j, d])

            def copy_value(c: Any) -> None:
                T.buffer_store(self.v, nest.value.at(self.b, i64(0), self.h, c, key), [j, c])

            self.by_vectors(self.size, copy_key)
            self.by_vectors(self.columns, copy_value)
            for column in range(self.columns, tile.width):
                T.buffer_store(self.v, f32(0.0), [j, i64(column)])

    def visit(self, t: Any) -> None:
        """State what one block of keys does to one tile of queries."""
        low = self.first + t * i64(self.tile.queries)
        high = low + i64(self.tile.queries - 1)
        if not self.whole_tiles:
            high = tirx.min(high, i64(self.queries) - i64(1))
        low, high = T.bind(low), T.bind(high)
        with when(self.block.somewhere(low, high)):
            self.products(t)
            best = T.alloc_buffer((self.tile.queries,), "float32")
            fill(best, self.tile.queries, lambda x: self.best[t, x])
            self.mask(t, best, low, high)
            self.exponentials(t, best)
            self.weighted_sums(t)

    def rows(self) -> Expr:
        """Return the keys of the block, rounded up to whole tiles."""
        tile_rows = i64(self.tile.key_rows)
        return tirx.ceildiv(self.count, tile_rows) * tile_rows

    def products(self, t: Any) -> None:
        """State the scores of all keys of the block, transposed: a row for each key."""
        rows, wide = self.tile.key_rows, self.tile.queries
        with serial(tirx.ceildiv(self.count, i64(rows))) as group:
            sums = {
                group * i64(rows) + i64(j): T.alloc_buffer((wide,), "float32") for j in range(rows)
            }
            for held in sums.values():
                fill(held, wide, lambda x: f32(0.0))
            with serial(self.size) as d:
                for key, held in sums.items():
                    self.add_product(held, t, key, d)
            for key, held in sums.items():
                copy(self.weights, held, wide, key)

    def add_product(self, held: Any, t: Any, key: Any, d: Any) -> None:
        factor = self.k[key, d]
        fill(held, self.tile.queries, lambda x: held[x] + self.q[t, d, x] * factor)

    def mask(self, t: Any, best: Any, low: Any, high: Any) -> None:
        """State what becomes of the scores, and the best of them for each query."""
        everywhere = self.everywhere(low, high)
        if everywhere is None:
            self.rescore(t, best, False)
            return
        with T.If(everywhere):
            with T.Then():
                self.rescore(t, best, False)
            with T.Else():
                self.rescore(t, best, True)

    def rescore(self, t: Any, best: Any, masked: bool) -> None:
        nest, wide = self.nest, self.tile.queries
        with serial(self.rows()) as j:
            key = self.start + j
            if masked and not self.whole_rows:
                key = tirx.min(key, i64(self.keys) - i64(1))

            def score(x: Any) -> Expr:
                place = (self.b, self.h, self.query_of(t, x), key)
                value = self.weights[j, x]
                if not self.is_plain:
                    value = nest.score_of(value, *place)
                if masked:
                    shown = [] if self.whole_rows else [self.start + j < i64(self.keys)]
                    shown += [] if nest.visible is None else [nest.visible.at(*place)]
                    value = tirx.Select(tirx.all(*shown), value, f32(float("-inf")))
                return value

            if masked or not self.is_plain:
                fill(self.weights, wide, score, j)
            rows = self.weights
            fill(best, wide, lambda x: tirx.Select(best[x] < rows[j, x], rows[j, x], best[x]))

    def exponentials(self, t: Any, best: Any) -> None:
        """State the weights, their sum, and by how much what was summed before shrinks."""
        wide = self.tile.queries

        def exp(value: Expr) -> Expr:
            return exp2_of_negative(value if self.is_plain else value * f32(_LOG2_E))

        total = T.alloc_buffer((wide,), "float32")
        fill(self.shrink, wide, lambda x: exp(self.best[t, x] - best[x]))
        fill(self.best, wide, lambda x: best[x], t)
        fill(total, wide, lambda x: self.total[t, x] * self.shrink[x])
        with serial(self.rows()) as j:
            fill(self.weights, wide, lambda x: exp(self.weights[j, x] - best[x]), j)
            fill(total, wide, lambda x: total[x] + self.weights[j, x])
        fill(self.total, wide, lambda x: total[x], t)

    def weighted_sums(self, t: Any) -> None:
        """State the weighted sums of values, a tile of queries and columns at a time."""
        tile = self.tile
        with serial(tile.queries // tile.rows) as group:
            first = 0
            for vectors in tile.columns:
                columns = range(first, first + vectors * tile.lanes, tile.lanes)
                self.result_tile(t, group * i64(tile.rows), columns)
                first = columns.stop

    def result_tile(self, t: Any, first: Any, columns: range) -> None:
        """State the weighted sums of some rows; each vector register is a buffer of its own."""
        lanes = self.tile.lanes
        held = {
            (first + i64(r), column): T.alloc_buffer((lanes,), "float32")
            for r in range(self.tile.rows)
            for column in columns
        }
        for (row, column), sums in held.items():
            self.shrink_sums(sums, t, row, column)
        with serial(self.count) as j:
            for (row, column), sums in held.items():
                self.add_values(sums, j, row, column)
        for (row, column), sums in held.items():
            copy(self.sums, sums, lanes, t, row, at=column)

    def shrink_sums(self, held: Any, t: Any, row: Any, column: int) -> None:
        shrink = self.shrink[row]
        fill(held, self.tile.lanes, lambda x: self.sums[t, row, i64(column) + x] * shrink)

    def add_values(self, held: Any, j: Any, row: Any, column: int) -> None:
        weight = self.weights[j, row]
        fill(held, self.tile.lanes, lambda x: held[x] + weight * self.v[j, i64(column) + x])

    def everywhere(self, low: Any, high: Any) -> Expr | None:
        """Return whether all queries of a range see all keys of the block; None for yes."""
        conditions = []
        if not self.whole_rows:
            conditions.append(self.start + self.rows() <= i64(self.keys))
        shown = self.block.everywhere(low, high)
        conditions += [] if shown is None else [shown]
        return tirx.all(*conditions) if conditions else None
