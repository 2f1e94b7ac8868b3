"""Tensors from nothing: only those of symbolic shape arrive here, the rest is folded."""

from __future__ import annotations

import math
from typing import Any

from tvm import relax

from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter


@converter("aten.full.default")
def full(b: GraphBuilder, size: Any, fill_value: Value, **_options: Any) -> relax.Expr:
    """A tensor of one value."""
    return filled(b, fill_value)


def filled(b: GraphBuilder, value: Value) -> relax.Expr:
    """Return the node's result, all of whose elements are one value."""
    number = b.tensor(value, b.dtype)
    if isinstance(value, float) and not math.isfinite(value):  # TVM cannot fill with these
        return b.broadcast(number, b.result_shape)
    return relax.op.full(relax.ShapeExpr(b.result_shape), number, b.dtype)


@converter("aten.full_like.default")
def full_like(b: GraphBuilder, x: Value, fill_value: Value, **_options: Any) -> relax.Expr:
    """A tensor of one value in the shape of another."""
    return full(b, None, fill_value)


@converter(
    "aten.zeros.default",
    "aten.zeros_like.default",
    "aten.empty.memory_format",
    "aten.empty_like.default",
    "aten.new_zeros.default",
    "aten.new_empty.default",
    "aten.new_empty_strided.default",
    "aten.empty_strided.default",
    "aten.empty_permuted.default",
)
def zeros(b: GraphBuilder, *_size: Any, **_options: Any) -> relax.Expr:
    """A tensor of zeros; also where torch leaves the contents open."""
    return full(b, None, 0)


@converter("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def ones(b: GraphBuilder, *_size: Any, **_options: Any) -> relax.Expr:
    """A tensor of ones."""
    return full(b, None, 1)


@converter("aten.fill.Scalar", "aten.fill.Tensor")
def fill(b: GraphBuilder, x: Value, value: Value) -> relax.Expr:
    """A tensor of one value in the shape and dtype of another."""
    if isinstance(value, relax.Expr):
        return b.broadcast(b.tensor(value, b.dtype), b.result_shape)
    return full(b, None, value)


@converter("aten.scalar_tensor.default")
def scalar_tensor(b: GraphBuilder, value: Value, **_options: Any) -> relax.Expr:
    """A rank-0 tensor."""
    return b.tensor(value, b.dtype)


@converter("aten.arange.start_step")
def arange(b: GraphBuilder, start: Any, end: Any, step: Any = 1, **_options: Any) -> relax.Expr:
    """start, start + step, … below end."""
    return relax.op.arange(b.size(start), b.size(end), b.size(step), b.dtype)
