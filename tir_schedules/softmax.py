"""Softmax and its logarithm along one axis, written for what processors are good at.

The exponential is a power of 2, whose argument is at most 0, which `min` says: `vector_math` then
takes half the operations of a general exponential. One division a row, not one an element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tvm import te, tirx
from tvm.tirx import Expr


def softmax(x: te.Tensor, axis: int) -> te.Tensor:
    """Return exp(x - max(x)) / sum(exp(x - max(x))) of a float tensor of any shape, in its type.

    A row with a NaN, with infinity, or of -infinity alone is NaN.

    Args:
        x: The tensor.
        axis: The axis of the sums, not negative.
    """
    best = _reduced(x, axis, "softmax_best", te.max)
    weights = te.compute(
        x.shape,
        lambda *at: _weight(x(*at), best(*_kept(at, axis))),
        name="softmax_weights",
    )
    total = _reduced(weights, axis, "softmax_total", te.sum)
    one = tirx.const(1.0, x.dtype)
    return te.compute(
        x.shape, lambda *at: weights(*at) * (one / total(*_kept(at, axis))), name="softmax"
    )


def log_softmax(x: te.Tensor, axis: int) -> te.Tensor:
    """Return x - max(x) - log(sum(exp(x - max(x)))); shapes and types as for `softmax`."""
    best = _reduced(x, axis, "log_softmax_best", te.max)
    step = te.reduce_axis((0, x.shape[axis]), name="k")

    def sum_of_weights(*at: Expr) -> Expr:
        value = x(*at[:axis], step, *at[axis:])
        return te.sum(_weight(value, best(*at)), axis=step)

    total = te.compute(_kept(x.shape, axis), sum_of_weights, name="log_softmax_total")

    def element(*at: Expr) -> Expr:
        row = _kept(at, axis)
        return x(*at) - best(*row) - tirx.log(total(*row))

    return te.compute(x.shape, element, name="log_softmax")


def _weight(value: Expr, greatest: Expr) -> Expr:
    """Return e^(value - greatest); the difference first, for both may be the lowest float."""
    difference = value - greatest
    log2_e, zero = (tirx.const(c, str(difference.ty.dtype)) for c in (1 / math.log(2.0), 0.0))
    return tirx.exp2(tirx.min(difference * log2_e, zero))


def _reduced(x: te.Tensor, axis: int, name: str, combine: Callable[..., Expr]) -> te.Tensor:
    step = te.reduce_axis((0, x.shape[axis]), name="k")
    return te.compute(
        _kept(x.shape, axis),
        lambda *at: combine(x(*at[:axis], step, *at[axis:]), axis=step),
        name=name,
    )


def _kept(values: Sequence[Expr], axis: int) -> list[Expr]:
    """Return the values of all axes but one."""
    return [value for number, value in enumerate(values) if number != axis]
