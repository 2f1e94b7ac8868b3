"""Read an attention computation back from its loop nest, as the expressions a kernel is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock
from tvm.tirx import (
    Buffer,
    BufferStore,
    Cast,
    Expr,
    FloatImm,
    IterVar,
    Mul,
    PrimFunc,
    Select,
    SeqStmt,
    Stmt,
)

from tir_schedules.attention import STAGE, STAGES
from tir_schedules.blocks import constant
from tir_schedules.rule import Decline
from tir_schedules.variables import substitute


@dataclass(frozen=True)
class Template:
    """An expression over the axes of the block it was read from."""

    axes: tuple[Any, ...]
    value: Expr

    def at(self, *place: Any) -> Expr:
        """Return the expression for one point of the block."""
        given = {
            axis: at if str(at.ty) == str(axis.ty) else at.astype(str(axis.ty))
            for axis, at in zip(self.axes, place, strict=True)
        }
        return substitute(self.value, given)


@dataclass(frozen=True)
class AttentionNest:
    """What an attention kernel computes; b, h, i, j, d, c are batch, head, query, key and columns.

    Attributes:
        sizes: Batch, heads, queries, keys, head size, value size; the last two are known.
        query: Query element, over (b, h, i, j, d).
        key: Key element, over (b, h, i, j, d).
        value: Value element, over (b, i, h, c, j).
        score: The score to take the softmax of, over (b, h, i, j).
        raw: The buffer that `score` reads the product of query and key from.
        visible: Where scores count, over (b, h, i, j); None for everywhere.
        result: Where the block over (b, i, h, c) stores what.
        stored: What that is, of an element of `sums`, the buffer of the weighted sums.
        out: The tensor it is stored in.
    """

    sizes: tuple[Any, ...]
    query: Template
    key: Template
    value: Template
    score: Template
    raw: Buffer
    visible: Template | None
    result: Template
    stored: Template
    sums: Buffer
    out: Buffer
    dtype: str

    @property
    def operand_dtype(self) -> str:
        """The type of queries, keys and values in memory, "" where they differ."""
        kinds = {_read_dtype(each.value) for each in (self.query, self.key, self.value)}
        return kinds.pop() if len(kinds) == 1 else ""

    def score_of(self, product: Expr, *place: Any) -> Expr:
        """Return the score of a product of query and key."""
        return _with_element(self.score.at(*place), self.raw, product)

    def stored_of(self, weighted: Expr, *place: Any) -> Expr:
        """Return what is stored of a weighted sum, which may be worked on further."""
        return _with_element(self.stored.at(*place), self.sums, weighted)

    @property
    def plain_scale(self) -> float | None:
        """The factor of the product where the score is nothing else, None where it is more."""
        score = self.score.value
        if isinstance(score, TensorLoad):
            return 1.0
        if isinstance(score, Mul) and isinstance(score.a, TensorLoad):
            if score.a.source.same_as(self.raw) and isinstance(score.b, FloatImm):
                return float(score.b.value)
        return None


def read_attention(func: PrimFunc) -> tuple[AttentionNest, list[Stmt], list[Stmt]]:
    """Return the attention of a function, and the other statements before and after it.

    Raises:
        Decline: If the function holds no attention, several, or one that is not as
            `tir_schedules.attention` writes it in float32.
    """
    statements = list(_statements(func.body.block.body))
    blocks: dict[str, SBlock] = {}
    places = []
    for at, statement in enumerate(statements):
        for block in _blocks(statement):
            stage = str(block.annotations.get(STAGE, ""))
            if stage:
                if stage in blocks:
                    raise Decline("has several attentions")
                blocks[stage] = block
                places.append(at)
    if set(blocks) != set(STAGES):
        raise Decline("has no attention")
    first, last = places[0], places[-1]
    if len(set(places)) != last - first + 1:
        raise Decline("has other stages between those of the attention")
    return _read(blocks), statements[:first], statements[last + 1 :]


def _read_dtype(value: Expr) -> str:
    """Return the type of what an expression converts."""
    while isinstance(value, Cast):
        value = value.value
    return str(value.ty.dtype)


def _with_element(value: Expr, buffer: Buffer, element: Expr) -> Expr:
    """Return an expression with `element` in place of what it reads from `buffer`."""

    def swap(load: TensorLoad) -> Expr:
        return element if load.source.same_as(buffer) else load

    return tvm_ffi.structural_map(value, (TensorLoad, swap))


def _statements(body: Stmt) -> Sequence[Stmt]:
    return body.seq if isinstance(body, SeqStmt) else [body]


def _blocks(statement: Stmt) -> list[SBlock]:
    found: list[SBlock] = []
    tvm_ffi.structural_walk(statement, (SBlock, found.append), order="pre")
    return found


def _read(blocks: dict[str, SBlock]) -> AttentionNest:
    scores, product = _store(blocks["scores"]), _store(blocks["product"])
    dtype = str(scores.buffer.dtype)
    if dtype != "float32":
        raise Decline(f"sums in {dtype}")
    axes = _axes(blocks["scores"], "SSSSR")
    pair, weighted = scores.value.b, product.value.b
    masked = _store(blocks["masked"])
    score, visible = masked.value, None
    if isinstance(score, Select) and _is_minus_infinity(score.false_value):
        score, visible = score.true_value, score.condition
    points = _axes(blocks["masked"], "SSSS")
    output = _store(blocks["output"])
    columns = _axes(blocks["product"], "SSSSR")
    extents = [axis.dom.extent for axis in blocks["scores"].iter_vars]
    sizes = (*extents, blocks["product"].iter_vars[3].dom.extent)
    if any(constant(size) is None for size in sizes[4:]):
        raise Decline("its heads have a symbolic size")
    return AttentionNest(
        sizes=sizes,
        query=Template(axes, pair.a),
        key=Template(axes, pair.b),
        value=Template(columns, weighted.b),
        score=Template(points, score),
        raw=scores.buffer,
        visible=None if visible is None else Template(points, visible),
        result=Template(_axes(blocks["output"], "SSSS"), output.buffer[tuple(output.indices)]),
        stored=Template(_axes(blocks["output"], "SSSS"), output.value),
        sums=product.buffer,
        out=output.buffer,
        dtype=str(output.buffer.dtype),
    )


def _store(block: SBlock) -> BufferStore:
    if not isinstance(block.body, BufferStore):
        raise Decline(f"block {block.name_hint} is no single store")
    return block.body


def _axes(block: SBlock, kinds: str) -> tuple[Any, ...]:
    """Return the axes of a block, which must be spatial (S) and reduced (R) as `kinds` says."""
    have = "".join(
        "S" if int(axis.iter_type) == IterVar.DataPar else "R" for axis in block.iter_vars
    )
    if have != kinds:
        raise Decline(f"block {block.name_hint} has axes {have} where {kinds} are needed")
    return tuple(axis.var for axis in block.iter_vars)


def _is_minus_infinity(value: Expr) -> bool:
    return isinstance(value, FloatImm) and float(value.value) == float("-inf")
