"""Attention of one or two queries, as the steps of a decoder have it.

The lanes of `attention_kernel.py` are queries, of which there are none here. So each query is a
task of its own, a key is met where it lies, and the lanes are columns: the products of a key's and
a query's columns are added up by a transpose in registers, of as many keys as a vector has lanes.
Time is that of reading keys and values once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T
from tvm.tirx import Buffer, Expr, Stmt

from tir_schedules.attention_nest import AttentionNest
from tir_schedules.blocks import constant
from tir_schedules.llvm.attention_mask import BlockMask
from tir_schedules.llvm.register_transpose import transposed
from tir_schedules.llvm.vector_math import exp2_of_negative
from tir_schedules.loop_statements import copy, f32, fill, i64, lanes_of, serial, when
from tir_schedules.machine import Machine

_MOST_QUERIES = 2
_GROUPS = 8  # of as many keys as lanes: a block, whose best score is known before its weights
_LOWEST = float(np.finfo("float32").min)
_LOG2_E = 1 / math.log(2.0)


def is_step(nest: AttentionNest, machine: Machine) -> bool:
    """Tell whether a kernel has few queries, and heads of whole vectors."""
    queries, lanes = constant(nest.sizes[2]), machine.lanes("float32")
    whole = all(int(size) % lanes == 0 for size in nest.sizes[4:])
    return queries is not None and queries <= _MOST_QUERIES and whole


def attention_step(nest: AttentionNest, machine: Machine, parallel: bool) -> Stmt:
    """Return the loop nest of an attention of few queries.

    Args:
        nest: What it computes; `is_step` holds.
        machine: The processor.
        parallel: Whether queries and heads run on all cores.
    """
    with IRBuilder() as builder:
        _Step(nest, machine.lanes("float32")).state(parallel)
        return builder.get()


class _Step:
    """States the loops; its methods go from the outermost loop inward."""

    def __init__(self, nest: AttentionNest, lanes: int) -> None:
        self.nest, self.lanes = nest, lanes
        self.batch, self.heads, self.queries, self.keys, size, width = nest.sizes
        self.size, self.width = int(size), int(width)
        self.block = lanes * _GROUPS
        known = constant(self.keys)
        self.whole = known is not None and known % lanes == 0

    def state(self, parallel: bool) -> None:
        tasks = i64(self.batch) * i64(self.heads) * i64(self.queries)
        with (T.parallel if parallel else T.serial)(i64(0), tasks) as task:
            self.i = T.bind(task % i64(self.queries))
            head = T.bind(task // i64(self.queries))
            self.b, self.h = T.bind(head // i64(self.heads)), T.bind(head % i64(self.heads))
            self.task()

    def task(self) -> None:
        lanes = self.lanes
        self.q = T.alloc_buffer((self.size,), "float32")
        self.weights = T.alloc_buffer((self.block,), "float32")
        self.sums = T.alloc_buffer((self.width,), "float32")
        self.total = T.alloc_buffer((lanes,), "float32")
        self.best = T.alloc_buffer((1,), "float32")
        for at in range(0, self.size, lanes):
            fill(self.q, lanes, self.query_from(at), at=at)
        for at in range(0, self.width, lanes):
            fill(self.sums, lanes, lambda x: f32(0.0), at=at)
        fill(self.total, lanes, lambda x: f32(0.0))
        T.buffer_store(self.best, f32(_LOWEST), [i64(0)])
        with serial(tirx.ceildiv(i64(self.keys), i64(self.block))) as number:
            self.start = T.bind(number * i64(self.block))
            self.count = T.bind(tirx.min(i64(self.block), i64(self.keys) - self.start))
            mask = BlockMask(self.nest, self.b, self.h, self.start, self.count)
            with when(mask.somewhere(self.i, self.i)):
                self.visit()
        self.finish()

    def query_from(self, first: int) -> Callable[[Any], Expr]:
        """Return the elements of the query from a column on, in the unit of the scores."""
        scale = self.nest.plain_scale
        unit = f32(1.0 if scale is None else scale * _LOG2_E)
        place = (self.b, self.h, self.i, i64(0))
        return lambda x: self.nest.query.at(*place, i64(first) + x) * unit

    def visit(self) -> None:
        """State what one block of keys does to the query."""
        lanes = self.lanes
        groups = T.bind(tirx.ceildiv(self.count, i64(lanes)))
        top, best, shrink = (T.alloc_buffer((n,), "float32") for n in (lanes, 1, 1))
        fill(top, lanes, lambda x: self.best[i64(0)])
        with serial(groups) as group:
            self.scores(group * i64(lanes), top)
        T.buffer_store(best, top[i64(0)], [i64(0)])
        for x in range(1, lanes):
            other = top[i64(x)]
            greater = tirx.Select(best[i64(0)] < other, other, best[i64(0)])
            T.buffer_store(best, greater, [i64(0)])
        T.buffer_store(shrink, self.exp(self.best[i64(0)] - best[i64(0)]), [i64(0)])
        T.buffer_store(self.best, best[i64(0)], [i64(0)])
        fill(self.total, lanes, lambda x: self.total[x] * shrink[i64(0)])
        with serial(groups) as group:
            first = group * i64(lanes)
            weights = self.weights
            fill(weights, lanes, lambda x: self.exp(weights[first + x] - best[i64(0)]), at=first)
            fill(self.total, lanes, lambda x: self.total[x] + self.weights[first + x])
        self.add_values(shrink)

    def exp(self, value: Expr) -> Expr:
        plain = self.nest.plain_scale is not None
        return exp2_of_negative(value if plain else value * f32(_LOG2_E))

    def key_of(self, place: Any) -> Expr:
        """Return the key at a place of the block; places past the last key repeat it."""
        key = self.start + place
        return key if self.whole else tirx.min(key, i64(self.keys) - i64(1))

    def scores(self, first: Any, top: Buffer) -> None:
        """State the scores of as many keys as lanes, and the best so far in each lane."""
        lanes, nest = self.lanes, self.nest
        held = [T.alloc_buffer((lanes,), "float32") for _ in range(lanes)]
        for product in held:
            fill(product, lanes, lambda x: f32(0.0))
        for at in range(0, self.size, lanes):
            for row, product in enumerate(held):
                self.add_product(product, self.key_of(first + i64(row)), at)
        vector = tirx.Ramp(i64(0), i64(1), lanes)
        parts = transposed([product[vector] for product in held])
        while len(parts) > 1:
            parts = [a + b for a, b in zip(parts[::2], parts[1::2], strict=True)]
        score = T.alloc_buffer((lanes,), "float32")
        T.buffer_store(score, parts[0], [vector])

        def final(x: Any) -> Expr:
            place = (self.b, self.h, self.i, self.key_of(first + x))
            value = score[x]
            if nest.plain_scale is None:
                value = nest.score_of(value, *place)
            shown = [] if self.whole else [self.start + first + x < i64(self.keys)]
            shown += [] if nest.visible is None else [nest.visible.at(*place)]
            hidden = f32(float("-inf"))
            return tirx.Select(tirx.all(*shown), value, hidden) if shown else value

        fill(self.weights, lanes, final, at=first)
        weights = self.weights

        def better(x: Any) -> Expr:
            return tirx.Select(top[x] < weights[first + x], weights[first + x], top[x])

        fill(top, lanes, better)

    def add_product(self, product: Buffer, key: Any, at: int) -> None:
        def value(x: Any) -> Expr:
            d = i64(at) + x
            return product[x] + self.q[d] * self.nest.key.at(self.b, self.h, self.i, key, d)

        fill(product, self.lanes, value)

    def add_values(self, shrink: Buffer) -> None:
        """State the sums of values, weighted; each vector of them is a buffer of its own."""
        lanes = self.lanes
        held = [(at, T.alloc_buffer((lanes,), "float32")) for at in range(0, self.width, lanes)]
        for at, sums in held:
            self.shrink_sums(sums, at, shrink)
        with serial(self.count) as j:
            for at, sums in held:
                self.add_value(sums, j, at)
        for at, sums in held:
            copy(self.sums, sums, lanes, at=at)

    def shrink_sums(self, sums: Buffer, at: int, shrink: Buffer) -> None:
        fill(sums, self.lanes, lambda x: self.sums[i64(at) + x] * shrink[i64(0)])

    def add_value(self, sums: Buffer, j: Any, at: int) -> None:
        def value(x: Any) -> Expr:
            place = (self.b, self.i, self.h, i64(at) + x, self.start + j)
            return sums[x] + self.weights[j] * self.nest.value.at(*place)

        fill(sums, self.lanes, value)

    def finish(self) -> None:
        """State the division by the sum of weights, and the stores."""
        total, share = T.alloc_buffer((1,), "float32"), T.alloc_buffer((1,), "float32")
        T.buffer_store(total, self.total[i64(0)], [i64(0)])
        for x in range(1, self.lanes):
            T.buffer_store(total, total[i64(0)] + self.total[i64(x)], [i64(0)])
        # A query that sees no key has no weights, and gives zeros.
        some = tirx.Select(total[i64(0)] == f32(0.0), f32(0.0), f32(1.0) / total[i64(0)])
        T.buffer_store(share, some, [i64(0)])
        for at in range(0, self.width, self.lanes):
            self.store(share, at)

    def store(self, share: Buffer, at: int) -> None:
        with lanes_of(self.lanes) as x:
            column = i64(at) + x
            place = (self.b, self.i, self.h, column)
            target = self.nest.result.at(*place)
            value = self.sums[column] * share[i64(0)]
            T.buffer_store(self.nest.out, value.astype(self.nest.dtype), list(target.indices))
