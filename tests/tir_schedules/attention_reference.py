"""Attention in float64, for the tests of what computes it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Variant = Callable[[np.ndarray], np.ndarray]


def reference(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    rescore: Variant = lambda scores: scores,
    shown: np.ndarray | bool = True,
    scale: float | None = None,
) -> np.ndarray:
    """Return attention of (batch, length, heads, size) operands; zeros where nothing is shown.

    Args:
        q, k, v: The operands; fewer key heads than query heads are shared by groups.
        rescore: From scores (batch, heads, queries, keys) to what they become.
        shown: Which scores count; broadcasts to the scores.
        scale: Of the products; 1 / sqrt(head size) by default.
    """
    q, k, v = (x.astype("float64") for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[2] // x.shape[2], axis=2) for x in (k, v))
    scores = np.einsum("bihd,bjhd->bhij", q, k) * (q.shape[3] ** -0.5 if scale is None else scale)
    scores = np.where(shown, rescore(scores), -np.inf)
    best = np.maximum(scores.max(-1, keepdims=True), np.finfo("float32").min)
    weights = np.exp(scores - best)
    total = weights.sum(-1, keepdims=True)
    shares = np.divide(weights, total, out=np.zeros_like(weights), where=total != 0)
    return np.einsum("bhij,bjhc->bihc", shares, v)
