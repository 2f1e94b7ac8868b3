"""Operators that count equal elements, and whose result's length only the data decides."""

from __future__ import annotations

import torch
from tvm import relax

from frontends.computations.gather import gather
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.operators.data_dependent import mask_places
from frontends.torch.operators.scatter import combine_at
from frontends.torch.operators.value_checks import require_between
from frontends.torch.registry import converter
from frontends.torch.sizes import product


@converter("aten.unique_consecutive.default")
def unique_consecutive(
    b: GraphBuilder,
    x: Value,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[relax.Expr | None, ...]:
    """The first of each run of equal elements or slices, the run of each, and how long each is."""
    data, size = b.tensor(x), b.result_shape[0 if dim is None else dim]
    if dim is None:
        data, along = b.reshape(data, [product(b.shape(data))]), 0
    else:
        along = b.axis(dim, data.ty.ndim)
    length = b.shape(data)[along]
    after = b.slice_axis(data, along, 1, length)
    differs = b.emit(relax.op.not_equal(after, b.slice_axis(data, along, 0, length - 1)))
    others = [axis for axis in range(data.ty.ndim) if axis != along]
    if others:
        differs = b.cast(b.emit(relax.op.max(b.cast(differs, "int8"), others)), "bool")
    first = b.emit(relax.op.full(relax.ShapeExpr([1]), relax.const(True, "bool"), "bool"))
    begins = b.emit(relax.op.concat([first, differs], axis=0))
    (places,) = mask_places(b, begins, size)
    values = b.te(lambda t, i: gather(t, i, along), data, places, name="unique_consecutive")
    runs = b.emit(relax.op.cumsum(b.cast(begins, "int64"), 0))
    inverse = b.emit(relax.op.subtract(runs, relax.const(1, "int64")))
    ends = b.emit(
        relax.op.concat(
            [b.slice_axis(places, 0, 1, size), b.reshape(b.size_tensor(length), [1])], axis=0
        )
    )
    counts = b.emit(relax.op.subtract(ends, places))
    shape = b.shape(b.tensor(x)) if dim is None else [length]
    return (
        values,
        b.reshape(inverse, shape) if return_inverse else None,
        counts if return_counts else None,
    )


@converter("aten.bincount.default")
def bincount(b: GraphBuilder, x: Value, weights: Value = None, minlength: int = 0) -> relax.Expr:
    """How often each number from 0 on occurs in a vector, or the sum of its weights."""
    data, size = b.tensor(x, "int64"), b.result_shape[0]
    require_between(b, data, "bincount only supports 1-d non-negative integral inputs.")
    least = relax.const([minlength], "int64")
    beyond = b.emit(relax.op.add(b.emit(relax.op.max(data, [0], True)), relax.const(1, "int64")))
    if b.is_undefined(size):
        b.define_sizes(b.emit(relax.op.maximum(beyond, least)), [size])
    zeros = b.emit(relax.op.zeros(relax.ShapeExpr([size]), b.dtype))
    one = torch.ones([], dtype=getattr(torch, b.dtype))
    return combine_at(b, zeros, 0, data, one if weights is None else weights, "add")
