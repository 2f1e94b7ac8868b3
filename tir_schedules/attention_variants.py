"""The usual `score_mod`s and `mask_mod`s of attention, and what composes them.

Each function here returns one; a model's attention is their composition:

    mask_mod=all_of(causal(), sliding_window(left=1023), shorter_than(lengths))
    score_mod=in_turn(soft_cap(50.0), alibi(slopes))

Positions count from 0. A query's position is its index plus `offset`, which aligns the queries with
the end of the keys (offset = keys - queries) when the first keys come from a cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx
from tvm.tirx import Expr

from tir_schedules.attention import MaskMod, ScoreMod
from tir_schedules.blocks import constant


def causal(offset: Any = 0) -> MaskMod:
    """Hide the keys after a query's position."""
    return lambda b, h, q, k: k <= q + offset


def sliding_window(left: int | None = None, right: int | None = None, offset: Any = 0) -> MaskMod:
    """Hide keys more than `left` before or `right` after a query's position (Beltagy et al. 2020).

    Raises:
        ValueError: If neither bound is given.
    """
    if left is None and right is None:
        raise ValueError("a window has a left or a right bound")

    def mask(b: Expr, h: Expr, q: Expr, k: Expr) -> Expr:
        bounds = []
        if left is not None:
            bounds.append(k >= q + offset - left)
        if right is not None:
            bounds.append(k <= q + offset + right)
        return tirx.all(*bounds)

    return mask


def shorter_than(lengths: te.Tensor) -> MaskMod:
    """Hide the padding behind each sample's keys: lengths (batch,), integer."""
    return lambda b, h, q, k: k < lengths(b).astype(str(k.ty))


def shown_by(mask: te.Tensor) -> MaskMod:
    """Show where a boolean mask is true; it broadcasts to (batch, heads, queries, keys)."""
    return lambda *place: mask(*_own(mask, place))


def all_of(*masks: MaskMod) -> MaskMod:
    """Show the keys that every mask shows."""
    return lambda *place: tirx.all(*(mask(*place) for mask in masks))


def any_of(*masks: MaskMod) -> MaskMod:
    """Show the keys that some mask shows."""
    return lambda *place: tirx.any(*(mask(*place) for mask in masks))


def soft_cap(limit: float) -> ScoreMod:
    """Bound scores smoothly: limit * tanh(score / limit), as Gemma 2 does."""

    def mod(score: Expr, b: Expr, h: Expr, q: Expr, k: Expr) -> Expr:
        bound = tirx.const(limit, str(score.ty))
        return tirx.tanh(score / bound) * bound

    return mod


def alibi(slopes: te.Tensor) -> ScoreMod:
    """Add slopes[head] * (key - query) (Press et al., "Train Short, Test Long", 2022).

    Args:
        slopes: (heads,), float; `alibi_slopes` gives the paper's.
    """

    def mod(score: Expr, b: Expr, h: Expr, q: Expr, k: Expr) -> Expr:
        dtype = str(score.ty)
        return score + slopes(h).astype(dtype) * (k - q).astype(dtype)

    return mod


def alibi_slopes(heads: int) -> list[float]:
    """Return the slopes of the paper, section 3: 2^(-8 i / heads), i = 1 .. heads.

    For a number of heads that is no power of two, the authors take those of the next lower power
    and every other one of the next higher power.
    """
    power = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * i / power) for i in range(1, power + 1)]
    between = [2.0 ** (-4.0 * i / power) for i in range(1, 2 * power + 1, 2)]
    return slopes + between[: heads - power]


def biased(bias: te.Tensor) -> ScoreMod:
    """Add a tensor that broadcasts to (batch, heads, queries, keys)."""

    def mod(score: Expr, *place: Expr) -> Expr:
        return score + bias(*_own(bias, place)).astype(str(score.ty))

    return mod


def in_turn(*mods: ScoreMod) -> ScoreMod:
    """Apply several score functions, the first one first."""

    def mod(score: Expr, *place: Expr) -> Expr:
        for each in mods:
            score = each(score, *place)
        return score

    return mod


def _own(tensor: te.Tensor, place: Sequence[Expr]) -> tuple[Expr, ...]:
    """Return where a tensor that broadcasts is read for a result's place."""
    last = place[len(place) - len(tensor.shape) :]
    return tuple(
        tirx.const(0, str(at.ty)) if constant(extent) == 1 else at
        for at, extent in zip(last, tensor.shape, strict=True)
    )
