"""Attention on a GPU as one kernel that never stores the scores (sm_80 and newer).

A block of threads has some queries of one head and visits the keys in blocks (Dao et al.,
"FlashAttention", 2022). The next block of keys and values arrives by asynchronous copies while one
is worked on. The softmax is online: each query keeps its best score so far, the sum of its weights
and its weighted sum of values, and scales the latter two down when a better score comes.

Blocks of keys that the mask hides from all queries of the block are skipped, and are not fetched;
in those that it shows to all of them no mask is evaluated.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.tirx import Expr, PrimFunc
from tvm.tirx.script import builder as T

from tir_schedules.attention_nest import AttentionNest, Template
from tir_schedules.blocks import constant
from tir_schedules.cuda.attention_end import store_attention
from tir_schedules.cuda.attention_products import products_of
from tir_schedules.cuda.attention_softmax import OnlineSoftmax
from tir_schedules.cuda.attention_tile import STAGES, AttentionTile
from tir_schedules.cuda.product_operands import Operand
from tir_schedules.cuda.shared_tile import SharedTile
from tir_schedules.cuda.written_kernel import write_kernel
from tir_schedules.loop_statements import when
from tir_schedules.mask_bounds import Range, shown_everywhere, shown_somewhere
from tir_schedules.rule import Decline

_BLOCKS_TOGETHER = "tirx.launch_bounds_min_blocks_per_sm"


class AttentionKernel:
    """Emits the kernel of one attention; its methods go from the whole to the parts.

    Args:
        nest: The computation.
        tile: How it is cut up.
        together: Blocks of threads that a multiprocessor shall hold, None to let nvcc decide.
    """

    def __init__(
        self, nest: AttentionNest, tile: AttentionTile, together: int | None = None
    ) -> None:
        self.nest, self.tile, self.together = nest, tile, together
        self.batch, self.heads, self.queries, self.keys, size, columns = nest.sizes
        self.size, self.columns = int(size), int(columns)
        self.ragged_queries = (constant(self.queries) or 1) % tile.rows != 0
        self.ragged_keys = (constant(self.keys) or 1) % tile.keys != 0
        dtype = nest.operand_dtype
        self.query = SharedTile(self._operand(nest.query, "query"), tile.rows, tile.depth, True)
        self.key = SharedTile(self._operand(nest.key, "key"), tile.keys, tile.depth, True)
        self.value = SharedTile(self._operand(nest.value, "value"), tile.width, tile.keys, False)
        self.products = products_of(self, dtype)
        self.softmax = OnlineSoftmax(self)

    def _operand(self, template: Template, which: str) -> Operand:
        """Return an operand as matrices, one for each head of each sample."""
        zero = tirx.IntImm("int64", 0)

        def locate(head: Expr, outer: Expr, step: Expr) -> tuple[Any, None]:
            b, h = tirx.floordiv(head, self.heads), tirx.floormod(head, self.heads)
            places = {
                "query": (b, h, outer, zero, step),
                "key": (b, h, zero, outer, step),
                "value": (b, zero, h, outer, step),
            }
            element = template.at(*places[which])
            while isinstance(element, tirx.Cast):
                element = element.value
            if not isinstance(element, TensorLoad):
                raise Decline("an operand is computed, not read")
            return element, None

        return Operand(self.nest.operand_dtype, locate)

    def write(self, func: PrimFunc) -> PrimFunc:
        """Return the kernel with the parameters of `func`."""
        return write_kernel(func, self._emit)

    def _emit(self) -> None:
        tile = self.tile
        tiles = tirx.ceildiv(self.queries, tile.rows)
        with (
            T.launch_thread("blockIdx.z", self.batch) as self.b,
            T.launch_thread("blockIdx.y", self.heads) as self.h,
            T.launch_thread("blockIdx.x", tiles) as block,
            T.launch_thread("threadIdx.x", tile.threads) as thread,
            self._blocks_together(),
        ):
            self.thread, self.lane = thread, tirx.floormod(thread, 32)
            warp = tirx.floordiv(thread, 32)
            self.row_warp = tirx.floordiv(warp, tile.key_warps)
            self.key_warp = tirx.floormod(warp, tile.key_warps)
            self.first_row = self.row_warp * (16 * tile.row_tiles)
            self.first_key = self.key_warp * tile.warp_keys
            self.head = self.b * self.heads + self.h
            if constant(tiles) is not None:
                # Last queries first: under a causal mask they see the most keys.
                block = tiles - 1 - block
            self.first = block * tile.rows
            self.shared = T.alloc_buffer((tile.shared_bytes,), "uint8", scope="shared.dyn")
            # nvcc unrolls: TVM would carry every step through all its passes.
            with T.attr(tirx.const(0, "int32"), "pragma_unroll_explicit", False):
                self._declare()
                self._visit_keys()
                store_attention(self)

    def _blocks_together(self) -> AbstractContextManager[Any]:
        if self.together is None:
            return nullcontext()
        return T.attr(tirx.const(0, "int32"), _BLOCKS_TOGETHER, self.together)

    def _declare(self) -> None:
        tile = self.tile
        key_tiles, column_tiles = tile.warp_keys // 8, -(-self.columns // 16) * 2
        self.key_tiles, self.column_tiles = key_tiles, column_tiles
        self.scores = T.alloc_buffer((tile.row_tiles * key_tiles * 4,), "float32", scope="local")
        self.sums = T.alloc_buffer((tile.row_tiles * column_tiles * 4,), "float32", scope="local")
        with T.unroll(0, tile.row_tiles * column_tiles * 4) as at:
            T.buffer_store(self.sums, tirx.const(0, "float32"), [at])
        self.softmax.begin()

    def score_registers(self, row: Any, key: Any) -> list[Any]:
        """Return a lane's scores of 16 queries and 8 keys: two neighbours of two queries."""
        first = (row * self.key_tiles + key) * 4
        return [self.scores[first + at] for at in range(4)]

    def sum_registers(self, row: Any, column: Any) -> list[Any]:
        """Return a lane's weighted sums of 16 queries and 8 columns."""
        first = (row * self.column_tiles + column) * 4
        return [self.sums[first + at] for at in range(4)]

    # The blocks of keys -------------------------------------------------------------------------

    def _visit_keys(self) -> None:
        tile = self.tile
        skips = self._seen(tirx.const(0, "int32")) is not None
        limits = (self.queries, self.size)
        whole = not self.ragged_queries and self.size == tile.depth
        self._fill(self.query, 0, self.first, 0, None if whole else limits)
        T.evaluate(T.ptx["cp.async.commit_group"]())
        if not skips:
            self._fetch(tirx.const(0, "int32"))
        self._arrived(but=0 if skips else 1)
        self.products.begin()
        blocks = tirx.ceildiv(self.keys, tile.keys)
        with T.serial(0, blocks) as at, when(self._seen(at)):
            if skips:
                with when(tirx.any(at == 0, tirx.Not(self._seen(at - 1)))):
                    T.evaluate(T.tvm_storage_sync("shared"))
                    self._fetch(at)
            self._arrived()
            following = [at + 1 < blocks] + [self._seen(at + 1)] * skips
            with when(tirx.all(*following)):
                self._fetch(at + 1)
            self._visit(at)
        T.evaluate(T.ptx["cp.async.wait_group"](0))

    def _arrived(self, but: int = 0) -> None:
        """Wait for what all threads have fetched, but for the last groups of copies."""
        T.evaluate(T.ptx["cp.async.wait_group"](but))
        T.evaluate(T.tvm_storage_sync("shared"))

    def _fetch(self, at: Any) -> None:
        """Start the copies of a block of keys and values into its stage."""
        tile, start = self.tile, at * self.tile.keys
        base, limit = self._stage(at), self.keys if self.ragged_keys else None
        whole = limit is None and self.size == tile.depth
        self._fill(self.key, base, start, 0, None if whole else (self.keys, self.size))
        whole = limit is None and self.columns == tile.width
        values = base + tile.keys * tile.depth * tile.element_bytes
        self._fill(self.value, values, 0, start, None if whole else (self.columns, self.keys))
        T.evaluate(T.ptx["cp.async.commit_group"]())

    def _stage(self, at: Any) -> Any:
        """Return the byte of shared memory at which a block of keys begins."""
        return self.tile.query_bytes + tirx.floormod(at, STAGES) * self.tile.stage_bytes

    def _fill(self, tile: SharedTile, base: Any, outer: Any, step: Any, limits: Any) -> None:
        where = (self.head, outer, step)
        tile.fill(self.shared, base, where, limits, self.thread, self.tile.threads)

    def _visit(self, at: Any) -> None:
        """Emit what a block of keys does to the sums."""
        tile, base = self.tile, self._stage(at)
        with T.unroll(0, tile.row_tiles * self.key_tiles * 4) as register:
            T.buffer_store(self.scores, tirx.const(0, "float32"), [register])
        self.products.score(base)
        self.softmax.rescore(at * tile.keys, self._shown(at))
        self.softmax.weigh()
        self.products.weigh(base + tile.keys * tile.depth * tile.element_bytes)

    # What the mask says about a block -----------------------------------------------------------

    def _ranges(self, at: Any) -> tuple[Expr, dict[Any, Range]]:
        query, key = tirx.Var("query", "int64"), tirx.Var("key", "int64")
        assert self.nest.visible is not None
        mask = self.nest.visible.at(self.b, self.h, query, key)
        first, start = tirx.Cast("int64", self.first), tirx.Cast("int64", at * self.tile.keys)
        last = first + self.tile.rows - 1
        if self.ragged_queries:
            last = tirx.min(last, self.queries - 1)
        keys = Range(start, start + (self.tile.keys - 1))
        return mask, {query: Range(first, last), key: keys}

    def _seen(self, at: Any) -> Expr | None:
        """Return whether some query of the block sees some key of block `at`; None for yes."""
        if self.nest.visible is None:
            return None
        return _unless_true(shown_somewhere(*self._ranges(at)))

    def _shown(self, at: Any) -> Expr | None:
        """Return whether all queries see all keys of block `at`; None for yes."""
        conditions = []
        if self.ragged_keys:
            conditions.append((at + 1) * self.tile.keys <= self.keys)
        if self.nest.visible is not None:
            conditions.append(shown_everywhere(*self._ranges(at)))
        return _unless_true(tirx.all(*conditions)) if conditions else None


def _unless_true(condition: Expr) -> Expr | None:
    condition = tvm.sym.Analyzer().simplify(condition)
    return None if isinstance(condition, tirx.IntImm) and int(condition) else condition
