"""Reading and writing elements at computed places."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tvm import relax

from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter
from frontends.torch.symbolic_shapes import Size


@converter("aten.embedding.default")
def embedding(b: GraphBuilder, weight: Value, indices: Value, *_training: Any) -> relax.Expr:
    """Rows of `weight` [V, E] at `indices` [...]: [..., E]."""
    return relax.op.take(b.tensor(weight), b.tensor(indices), axis=0)


@converter("aten.index_select.default")
def index_select(b: GraphBuilder, x: Value, dim: int, index: Value) -> relax.Expr:
    """The slices of one axis at the places in `index`."""
    data = b.tensor(x)
    return relax.op.take(data, b.tensor(index), axis=b.axis(dim, data.ty.ndim))


@converter("aten.gather.default")
def gather(b: GraphBuilder, x: Value, dim: int, index: Value, **_grad: Any) -> relax.Expr:
    """out[i][j][k] = x[index[i][j][k]][j][k] for dim 0, and so on."""
    data = b.tensor(x)
    return relax.op.gather_elements(data, b.tensor(index), axis=b.axis(dim, data.ty.ndim))


@converter("aten.index.Tensor")
def index(b: GraphBuilder, x: Value, indices: Any) -> relax.Expr:
    """x[i, j, …] with index tensors, NumPy's advanced indexing.

    The indexed axes are merged into one and read by one `take` at the linear index. Their result
    axes stand where the indexed axes stood if those are adjacent, and in front otherwise.
    Negative indices count from the end; constant masks become the places where they hold.
    """
    data = b.tensor(x)
    places = _expand_masks(b, list(indices))
    axes = [axis for axis, place in enumerate(places) if place is not None]
    adjacent = axes == list(range(axes[0], axes[-1] + 1))
    front = axes[0] if adjacent else 0
    rest = [axis for axis in range(data.ty.ndim) if axis not in axes]
    data = b.permute(data, [*rest[:front], *axes, *rest[front:]])
    shape = b.shape(data)
    sizes = shape[front : front + len(axes)]
    merged = b.reshape(data, [*shape[:front], _product(sizes), *shape[front + len(axes) :]])
    linear = _linear_index(b, [places[axis] for axis in axes], sizes)
    return relax.op.take(merged, linear, axis=front)


def _expand_masks(b: GraphBuilder, indices: list[Value]) -> list[Value]:
    """Replace every constant boolean mask by one index tensor for each axis it covers."""
    places: list[Value] = []
    for place in indices:
        known = isinstance(place, torch.Tensor)
        if known and place.dtype in (torch.bool, torch.uint8):
            places.extend(place.nonzero(as_tuple=True))
        elif place is not None and not known and place.ty.dtype == "bool":
            raise b.unsupported("a mask that is only known at run time (the result's size varies)")
        else:
            places.append(place)
    return places


def _linear_index(b: GraphBuilder, places: list[Value], sizes: list[Size]) -> relax.Expr:
    """Return sum(place * stride) with negative places counted from the end."""
    constants = [p for p in places if isinstance(p, torch.Tensor)]
    if len(constants) == len(places) and all(isinstance(size, int) for size in sizes):
        arrays = [np.asarray(p) % size for p, size in zip(constants, sizes, strict=True)]
        arrays = list(np.broadcast_arrays(*arrays))
        return relax.const(np.ravel_multi_index(arrays, sizes).astype("int64"))
    total: relax.Expr | None = None
    for place, size in zip(places, sizes, strict=True):
        term = _from_front(b, b.tensor(place), size)
        if total is None:
            total = term
        else:
            scaled = b.emit(relax.op.multiply(total, _size_tensor(b, size)))
            total = b.emit(relax.op.add(scaled, term))
    assert total is not None
    return total


def _from_front(b: GraphBuilder, place: relax.Expr, size: Size) -> relax.Expr:
    wide = place if place.ty.dtype == "int64" else b.cast(place, "int64")
    negative = b.emit(relax.op.less(wide, relax.const(0, "int64")))
    shifted = b.emit(relax.op.add(wide, _size_tensor(b, size)))
    return b.emit(relax.op.where(negative, shifted, wide))


def _size_tensor(b: GraphBuilder, size: Size) -> relax.Expr:
    """Return a size as a rank-0 int64 tensor."""
    if isinstance(size, int):
        return relax.const(size, "int64")
    # The tensor form of a shape is the only operator that makes a number of a symbolic size.
    return b.reshape(b.emit(relax.op.shape_to_tensor(relax.ShapeExpr([size]))), [])


def _product(sizes: list[Size]) -> Size:
    total: Size = 1
    for size in sizes:
        total = total * size
    return total


@converter("aten.scatter.src", "aten.scatter.value")
def scatter(b: GraphBuilder, x: Value, dim: int, index: Value, src: Value) -> relax.Expr:
    """X with src written at `index` along one axis."""
    return _scatter(b, x, dim, index, src, "update")


@converter("aten.scatter_add.default")
def scatter_add(b: GraphBuilder, x: Value, dim: int, index: Value, src: Value) -> relax.Expr:
    """X with src added at `index` along one axis; repeated places add up."""
    return _scatter(b, x, dim, index, src, "add")


def _scatter(
    b: GraphBuilder, x: Value, dim: int, index: Value, src: Value, reduction: str
) -> relax.Expr:
    data, places = b.tensor(x), b.tensor(index)
    updates = b.tensor(src, b.dtype)
    shape = b.shape(places)
    if updates.ty.ndim == 0:
        updates = b.emit(relax.op.broadcast_to(updates, shape))
    for axis, size in enumerate(shape):  # torch reads only the part of src that index covers
        if updates.ty.shape.values[axis] != size:
            updates = b.slice_axis(updates, axis, 0, size)
    axis = b.axis(dim, data.ty.ndim)
    return relax.op.scatter_elements(data, places, updates, axis=axis, reduction=reduction)


@converter("aten.slice_scatter.default")
def slice_scatter(
    b: GraphBuilder,
    x: Value,
    src: Value,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> relax.Expr:
    """X with src written over x[start:end:step] of one axis."""
    data, patch = b.tensor(x), b.tensor(src, b.dtype)
    axis = b.axis(dim, data.ty.ndim)
    length = b.static(b.shape(data)[axis])
    places = range(length)[slice(start, end, step)]
    if len(places) == length:
        return patch
    if step != 1:
        raise b.unsupported(f"step {step}")
    parts = [b.slice_axis(data, axis, 0, places.start)] if places.start else []
    parts.append(patch)
    if places.stop < length:
        parts.append(b.slice_axis(data, axis, places.stop, length))
    return relax.op.concat(parts, axis=axis)


@converter("aten.select_scatter.default")
def select_scatter(b: GraphBuilder, x: Value, src: Value, dim: int, index: int) -> relax.Expr:
    """X with src written over x[index] of one axis."""
    data = b.tensor(x)
    axis = b.axis(dim, data.ty.ndim)
    place = index % b.static(b.shape(data)[axis])
    patch = b.emit(relax.op.expand_dims(b.tensor(src, b.dtype), axis))
    return slice_scatter(b, data, patch, axis, place, place + 1)


@converter("aten.tril.default")
def tril(b: GraphBuilder, x: Value, diagonal: int = 0) -> relax.Expr:
    """The lower triangle of each matrix, zeros above."""
    return relax.op.tril(b.tensor(x), diagonal)


@converter("aten.triu.default")
def triu(b: GraphBuilder, x: Value, diagonal: int = 0) -> relax.Expr:
    """The upper triangle of each matrix, zeros below."""
    return relax.op.triu(b.tensor(x), diagonal)


@converter("aten.topk.default")
def topk(
    b: GraphBuilder, x: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[relax.Expr, relax.Expr]:
    """The k greatest (or least) elements along an axis in order, and where they are."""
    data = b.tensor(x)
    axis = b.axis(dim, data.ty.ndim)
    both = b.emit(relax.op.topk(data, k, axis, "both", largest, dtype="int64"))
    return b.emit(relax.TupleGetItem(both, 0)), b.emit(relax.TupleGetItem(both, 1))
