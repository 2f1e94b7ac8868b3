"""Scaled dot-product attention as one computation: `score_mod` and `mask_mod` say which variant.

The two functions are those of FlexAttention (Dong et al., "Flex Attention: A Programming Model for
Generating Optimized Attention Kernels", 2024): one rewrites a score, the other tells which keys a
query sees. `attention_variants.py` has the usual ones and what composes them.

The computation is plain: scores, their softmax, the weighted sum of the values. Its stages are
tagged, so that a target's schedule rule may recognize them and write the whole as one kernel which
never stores the scores (`llvm/attention.py`); any other target schedules the stages as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx
from tvm.tirx import Expr

from tir_schedules.blocks import constant

# (score, batch, head, query, key) -> score; (batch, head, query, key) -> whether it counts.
ScoreMod = Callable[[Expr, Expr, Expr, Expr, Expr], Expr]
MaskMod = Callable[[Expr, Expr, Expr, Expr], Expr]

STAGE = "attention_stage"  # block annotation; the value is one of STAGES
STAGES = ("scores", "masked", "best", "weights", "total", "shares", "product", "output")


def attention(
    q: te.Tensor,
    k: te.Tensor,
    v: te.Tensor,
    *,
    score_mod: ScoreMod | None = None,
    mask_mod: MaskMod | None = None,
    scale: float | None = None,
    heads_first: Sequence[bool] = (False, False, False),
) -> te.Tensor:
    """Return softmax(score_mod(scale * q k') where mask_mod, else -inf) v.

    A query that sees no key gives zeros. Sums are in float32, or in float64 for float64 operands.

    Args:
        q: Queries (batch, queries, heads, head size).
        k: Keys (batch, keys, key heads, head size); key heads divide heads, and query head h reads
            key head h // (heads / key heads) (grouped-query attention, Ainslie et al. 2023).
        v: Values (batch, keys, key heads, value size).
        score_mod: What becomes of a score; nothing by default.
        mask_mod: Which scores count; all by default.
        scale: What products of queries and keys are multiplied by; 1 / sqrt(head size) by default.
        heads_first: Which of q, k, v have their second and third axis swapped.

    Returns:
        Tensor (batch, queries, heads, value size) of q's dtype.

    Raises:
        ValueError: If the key heads do not divide the heads.
    """
    scores = masked_scores(
        q, k, score_mod=score_mod, mask_mod=mask_mod, scale=scale, heads_first=heads_first[:2]
    )
    return weighted_values(softmax_of_masked(scores), v, str(q.dtype), heads_first[2])


def masked_scores(
    q: te.Tensor,
    k: te.Tensor,
    *,
    score_mod: ScoreMod | None = None,
    mask_mod: MaskMod | None = None,
    scale: float | None = None,
    heads_first: Sequence[bool] = (False, False),
) -> te.Tensor:
    """Return the scores (batch, heads, queries, keys) of `attention`, -inf where masked."""
    (batch, queries, heads, size), query = _heads_last(q, heads_first[0])
    (_, keys, groups, _), key = _heads_last(k, heads_first[1])
    inner = "float64" if q.dtype == "float64" else "float32"
    key_head = _key_head(heads, groups)
    factor = tirx.const(int(size) ** -0.5 if scale is None else scale, inner)
    d = te.reduce_axis((0, size), name="d")

    def product(b: Any, h: Any, i: Any, j: Any) -> Expr:
        left = query(b, i, h, d).astype(inner)
        return te.sum(left * key(b, j, key_head(h), d).astype(inner), axis=d)

    scores = _stage("scores", (batch, heads, queries, keys), product)

    def masked(b: Any, h: Any, i: Any, j: Any) -> Expr:
        score = scores(b, h, i, j) * factor
        if score_mod is not None:
            score = score_mod(score, b, h, i, j)
        if mask_mod is None:
            return score
        return tirx.Select(mask_mod(b, h, i, j), score, tirx.const(float("-inf"), inner))

    return _stage("masked", scores.shape, masked)


def softmax_of_masked(scores: te.Tensor) -> te.Tensor:
    """Return the softmax over the last axis of (batch, heads, queries, keys), 0 in rows of -inf."""
    rows, keys = scores.shape[:3], scores.shape[3]
    j0, j1 = (te.reduce_axis((0, keys), name="j") for _ in range(2))
    # The maximum starts at the lowest finite number: a row of -inf has weights exp(-inf) = 0.
    best = _stage("best", rows, lambda b, h, i: te.max(scores(b, h, i, j0), axis=j0))
    weights = _stage(
        "weights",
        scores.shape,
        lambda b, h, i, j: tirx.exp(scores(b, h, i, j) - best(b, h, i)),
    )
    total = _stage("total", rows, lambda b, h, i: te.sum(weights(b, h, i, j1), axis=j1))

    def share(b: Any, h: Any, i: Any, j: Any) -> Expr:
        whole, zero = total(b, h, i), tirx.const(0.0, str(scores.dtype))
        return tirx.Select(whole == zero, zero, weights(b, h, i, j) / whole)

    return _stage("shares", scores.shape, share)


def weighted_values(
    shares: te.Tensor, v: te.Tensor, dtype: str, heads_first: bool = False
) -> te.Tensor:
    """Return the sums of values (batch, queries, heads, value size) with given weights.

    Args:
        shares: Weights (batch, heads, queries, keys).
        v: Values (batch, keys, key heads, value size).
        dtype: Of the result.
        heads_first: Whether v is (batch, key heads, keys, value size).
    """
    batch, heads, queries, keys = shares.shape
    (_, _, groups, width), values = _heads_last(v, heads_first)
    shape = (batch, queries, heads, width)
    key_head = _key_head(heads, groups)
    j = te.reduce_axis((0, keys), name="j")

    def product(b: Any, i: Any, h: Any, c: Any) -> Expr:
        value = values(b, j, key_head(h), c).astype(str(shares.dtype))
        return te.sum(shares(b, h, i, j) * value, axis=j)

    sums = _stage("product", shape, product)
    return _stage("output", shape, lambda *place: sums(*place).astype(dtype))


def _heads_last(x: te.Tensor, heads_first: bool) -> tuple[list[Any], Callable[..., Expr]]:
    """Return the shape (batch, length, heads, size) of an operand, and how to read it so."""
    if not heads_first:
        return list(x.shape), x
    batch, heads, length, size = x.shape
    return [batch, length, heads, size], lambda b, i, h, d: x(b, h, i, d)


def _stage(name: str, shape: Sequence[Any], value: Callable[..., Expr]) -> te.Tensor:
    label = "attention" if name == "output" else f"attention_{name}"
    return te.compute(tuple(shape), value, name=label, attrs={STAGE: name})


def _key_head(heads: Any, groups: Any) -> Callable[[Any], Any]:
    """Return which key head a query head reads."""
    known, known_groups = constant(heads), constant(groups)
    if known is None or known_groups is None or known == known_groups:
        return lambda head: head
    if known % known_groups:
        raise ValueError(f"{known} query heads are no multiple of {known_groups} key heads")
    share = known // known_groups
    return lambda head: head // share if known_groups > 1 else tirx.const(0, str(head.ty))
