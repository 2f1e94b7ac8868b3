"""Operators that count equal elements, and whose result's length only the data decides."""

from __future__ import annotations

from typing import Any

import torch
from tvm import relax, te, tirx

from frontends.computations.gather import gather
from frontends.computations.kernel import index
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
    if dim == -1:
        raise b.unsupported("dim=-1, for which torch works out a wrong shape: count from the front")
    data, size = b.tensor(x), b.result_shape[0 if dim is None else dim]
    along = 0 if dim is None else b.axis(dim, data.ty.ndim)
    flat = b.reshape(data, [product(b.shape(data))]) if dim is None else data
    length = b.shape(flat)[along]
    # Kernels compare no truth values.
    numbers = b.cast(flat, "int8") if str(flat.ty.dtype) == "bool" else flat
    differs = b.te(lambda t: _unlike_before(t, along), numbers, name="unlike_before")
    others = [axis for axis in range(flat.ty.ndim) if axis != along]
    begins = b.cast(b.emit(relax.op.max(differs, others)) if others else differs, "bool")
    (places,) = mask_places(b, begins, size)
    values = b.te(lambda t, i: gather(t, i, along), flat, places, name="unique_consecutive")
    runs = b.emit(relax.op.cumsum(b.cast(begins, "int64"), 0))
    inverse = b.emit(relax.op.subtract(runs, relax.const(1, "int64")))
    counts = b.te(_distances, places, name="run_lengths", dims=[length])
    shape = b.shape(data) if dim is None else [length]
    return (
        values,
        b.reshape(inverse, shape) if return_inverse else None,
        counts if return_counts else None,
    )


def _unlike_before(x: te.Tensor, axis: int) -> te.Tensor:
    """Return 1 where an element differs from the one before it, and in the first place, int8."""

    def element(*at: Any) -> Any:
        before = *at[:axis], tirx.max(at[axis] - 1, 0), *at[axis + 1 :]
        return tirx.any(at[axis] == 0, x(*at) != x(*before)).astype("int8")

    return te.compute(x.shape, element, name="unlike_before")


def _distances(places: te.Tensor, dims: list[Any]) -> te.Tensor:
    """Return how far it is from each of rising places to the next, the last one to `dims[0]`."""
    count = places.shape[0]

    def element(k: Any) -> Any:
        following = tirx.Select(k + 1 < count, places(tirx.min(k + 1, count - 1)), index(dims[0]))
        return following - places(k)

    return te.compute(places.shape, element, name="run_lengths")


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
