"""A cache of keys and values whose samples are filled to different lengths, as tensor expressions.

com.microsoft's GroupQueryAttention has one buffer for the whole batch; a vector tells how much of
it is valid for each sample, the new tokens included.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx


def filled_before(valid: te.Tensor, sizes: tuple[Any, Any, Any]) -> te.Tensor:
    """Return how many tokens of each sample came before the new ones, (batch,) of int64.

    Args:
        valid: Number of valid tokens less one, (batch,).
        sizes: Batch, new tokens, and the greatest number of valid tokens of the batch. Where the
            last two are equal everything is new: a prompt, which may be padded at its end.
    """
    batch, fresh, total = sizes

    def element(b: Any) -> Any:
        before = valid(b).astype("int64") + 1 - fresh
        return tirx.Select(total == fresh, tirx.const(0, "int64"), before)

    return te.compute((batch,), element, name="filled_before")


def positions(before: te.Tensor, fresh: Any) -> te.Tensor:
    """Return the position of each new token, (batch, fresh) of int64; of padding, at least 0."""
    return te.compute(
        (before.shape[0], fresh), lambda b, s: tirx.max(before(b) + s, 0), name="positions"
    )


def updated(past: te.Tensor | None, new: te.Tensor, before: te.Tensor, capacity: Any) -> te.Tensor:
    """Return the cache with the new tokens written behind the valid ones.

    Args:
        past: (batch, heads, old capacity, size); None for an empty cache.
        new: (batch, heads, fresh, size).
        before: How many tokens of each sample are valid, (batch,).
        capacity: Of the result, whose elements behind the valid ones are those of `past`, or 0.
    """
    batch, heads, fresh, size = new.shape

    def element(b: Any, h: Any, t: Any, d: Any) -> Any:
        rest: Any = tirx.const(0, new.dtype)
        if past is not None:
            rest = tirx.if_then_else(t < past.shape[2], past(b, h, t, d), rest)
        step = t - before(b)
        return tirx.if_then_else(tirx.all(step >= 0, step < fresh), new(b, h, step, d), rest)

    return te.compute((batch, heads, capacity, size), element, name="updated_cache")


def cache_bias(
    before: te.Tensor,
    added: te.Tensor | None,
    sizes: tuple[Any, Any, Any],
    dtype: str,
    *,
    causal: bool,
    window: int,
) -> te.Tensor:
    """Return what is added to the scores of the new tokens against the cache.

    Args:
        before: How many tokens of each sample came before, (batch,).
        added: A bias (1 or batch, 1 or heads, fresh, at most capacity), or None.
        sizes: Batch, new tokens, capacity of the cache.
        dtype: Of the result.
        causal: Hide keys after a token's position; without it, those after the last new token.
        window: How many keys a token sees, its own included; 0 or less for all.
    """
    batch, fresh, capacity = sizes
    heads = added.shape[1] if added is not None else 1

    def element(b: Any, h: Any, i: Any, j: Any) -> Any:
        position = before(b) + i
        seen = [j <= position if causal else j < before(b) + fresh]
        if window > 0:
            seen.append(j > position - window)
        value: Any = tirx.const(0, dtype)
        if added is not None:
            row = b if not _is_one(added.shape[0]) else 0
            inside = j < added.shape[3]
            value = tirx.if_then_else(inside, added(row, h, i, j), value)
        return tirx.Select(tirx.all(*seen), value, tirx.const(-np.inf, dtype))

    return te.compute((batch, heads, fresh, capacity), element, name="cache_bias")


def _is_one(size: Any) -> bool:
    return isinstance(size, int | tirx.IntImm) and int(size) == 1
