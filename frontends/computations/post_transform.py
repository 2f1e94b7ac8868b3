"""The transforms that models of the ai.onnx.ml domain apply to their scores."""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import relax
from tvm.relax import op as R

from frontends.errors import UnsupportedOperator

Emit = Callable[[relax.Expr], relax.Expr]

# Scores closer to 0 than this count as 0 for SOFTMAX_ZERO.
_ZERO = 1e-7


def transform_scores(emit: Emit, scores: relax.Expr, name: str) -> relax.Expr:
    """Return the scores (rows, classes) after a transform.

    Args:
        emit: Binds an intermediate result.
        scores: float32 or float64.
        name: NONE; LOGISTIC, 1 / (1 + exp(-x)); SOFTMAX over each row; SOFTMAX_ZERO, the same
            where scores of 0 keep the share 0; PROBIT, the inverse of the normal distribution's
            cumulative function by Winitzki's approximation.
    """
    dtype = str(scores.ty.dtype.dtype)
    if name in ("", "NONE"):
        return scores
    if name == "LOGISTIC":
        return emit(R.sigmoid(scores))
    if name.startswith("SOFTMAX") and int(scores.ty.shape.values[1]) == 1:
        raise UnsupportedOperator(f"{name} of a single score, which runtimes take differently")
    if name == "SOFTMAX":
        return emit(R.nn.softmax(scores, 1))
    if name == "SOFTMAX_ZERO":
        best = emit(R.max(scores, [1], True))
        shares = emit(R.exp(emit(R.subtract(scores, best))))
        nearly = emit(R.less(emit(R.abs(scores)), relax.const(_ZERO, dtype)))
        small = emit(R.multiply(scores, emit(R.exp(emit(R.negative(best))))))
        shares = emit(R.where(nearly, small, shares))
        total = emit(R.sum(shares, [1], True))
        empty = emit(R.equal(total, relax.const(0, dtype)))
        even = emit(R.divide(shares, emit(R.where(empty, relax.const(1, dtype), total))))
        return emit(R.where(empty, relax.const(0.5, dtype), even))
    return _probit(emit, scores, dtype)


def _probit(emit: Emit, scores: relax.Expr, dtype: str) -> relax.Expr:
    """Return sqrt(2) * erfinv(2 x - 1), S. Winitzki, "A handy approximation" (2008)."""
    a = 0.147

    def number(value: float) -> relax.Expr:
        return relax.const(value, dtype)

    x = emit(R.subtract(emit(R.multiply(scores, number(2))), number(1)))
    product = emit(R.multiply(emit(R.subtract(number(1), x)), emit(R.add(number(1), x))))
    log = emit(R.log(product))
    first = emit(R.add(emit(R.multiply(log, number(0.5))), number(2 / (math.pi * a))))
    square = emit(R.multiply(first, first))
    second = emit(R.subtract(square, emit(R.divide(log, number(a)))))
    root = emit(R.sqrt(emit(R.subtract(emit(R.sqrt(second)), first))))
    negative = emit(R.less(x, number(0)))
    signed = emit(R.where(negative, emit(R.negative(root)), root))
    inside = emit(R.equal(product, number(0)))
    return emit(R.where(inside, number(0), emit(R.multiply(signed, number(1.41421356)))))
