"""Distances between the rows of matrices, by any p-norm."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

from frontends.computations.gather import gather
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter


@converter("aten._cdist_forward.default")
def cdist(b: GraphBuilder, x: Value, y: Value, p: float, _mode: Any) -> relax.Expr:
    """The p-norm of x[..., i, :] - y[..., j, :]: [..., P, M] and [..., R, M] give [..., P, R]."""
    rows = b.emit(relax.op.expand_dims(b.tensor(x), -2))
    columns = b.emit(relax.op.expand_dims(b.tensor(y), -3))
    return _norm(b, b.emit(relax.op.subtract(rows, columns)), p)


@converter("aten._pdist_forward.default")
def pdist(b: GraphBuilder, x: Value, p: float = 2.0) -> relax.Expr:
    """The p-norm of x[i] - x[j] for i < j, in order: [N, M] gives [N (N - 1) / 2]."""
    data = b.tensor(x)
    first, second = np.triu_indices(b.static(b.shape(data)[0]), 1)
    left, right = (
        b.te(lambda x, i: gather(x, i, 0), data, relax.const(places, "int64"), name="rows")
        for places in (first, second)
    )
    return _norm(b, b.emit(relax.op.subtract(left, right)), p)


def _norm(b: GraphBuilder, x: relax.Expr, p: float) -> relax.Expr:
    """The p-norm along the last axis; for p = 0 the number of elements that are not zero."""
    if b.shape(x)[-1] == 0:
        return relax.op.zeros(relax.ShapeExpr(b.result_shape), b.dtype)
    size = b.emit(relax.op.abs(x))
    if p == 0:
        size = b.cast(b.emit(relax.op.not_equal(x, relax.const(0, b.dtype))), b.dtype)
    if math.isinf(p):
        return relax.op.max(size, [-1])
    if p == 2:
        return relax.op.sqrt(b.emit(relax.op.sum(b.emit(relax.op.multiply(x, x)), [-1])))
    if p in (0, 1):
        return relax.op.sum(size, [-1])
    powers = b.emit(relax.op.power(size, relax.const(p, b.dtype)))
    total = b.emit(relax.op.sum(powers, [-1]))
    return relax.op.power(total, relax.const(1 / p, b.dtype))
