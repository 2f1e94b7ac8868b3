"""Norms of vectors: (sum of |x|^p)^(1/p) along axes."""

from __future__ import annotations

import math
from typing import Any

from tvm import relax

from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter


@converter("aten.linalg_vector_norm.default")
def vector_norm(
    b: GraphBuilder,
    x: Value,
    order: float = 2,
    dim: Any = None,
    keepdim: bool = False,
    **_dtype: Any,
) -> relax.Expr:
    """The norm over axes; order 0 counts what is not zero, infinite orders give an extremum."""
    data = b.tensor(x, b.dtype)
    if not b.shape(data):
        data, dim, keepdim = b.reshape(data, [1]), 0, False
    axes = b.axes(dim, len(b.shape(data)))
    if math.isinf(order):
        extremum = relax.op.max if order > 0 else relax.op.min
        return extremum(b.emit(relax.op.abs(data)), axes, keepdim)
    if order == 0:
        counted = b.cast(b.cast(data, "bool"), b.dtype)
        return relax.op.sum(counted, axes, keepdim)
    if order == 2:
        total = relax.op.sum(b.emit(relax.op.multiply(data, data)), axes, keepdim)
        return relax.op.sqrt(b.emit(total))
    size = b.emit(relax.op.abs(data))
    if order == 1:
        return relax.op.sum(size, axes, keepdim)
    powers = b.emit(relax.op.power(size, relax.const(float(order), b.dtype)))
    total = b.emit(relax.op.sum(powers, axes, keepdim))
    return relax.op.power(total, relax.const(1 / order, b.dtype))
