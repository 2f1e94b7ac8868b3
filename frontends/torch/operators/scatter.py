"""Writing elements at computed places: the result is a new tensor, the operand stays as it was."""

from __future__ import annotations

from typing import Any

import torch
from tvm import relax

from frontends.computations.masked_scatter import masked_scatter
from frontends.computations.scatter import scatter_elements, scatter_slices
from frontends.torch.graph_builder import GraphBuilder, Size, Value
from frontends.torch.operators.indexing import linear_index
from frontends.torch.operators.shapes import slice_start
from frontends.torch.registry import converter
from frontends.torch.sizes import inverse, product, same_shape

_REDUCTIONS = {"add": "add", "sum": "add", "multiply": "mul", "prod": "mul", "amax": "max",
               "amin": "min"}  # fmt: skip


@converter("aten.scatter.src", "aten.scatter.value")
def scatter(b: GraphBuilder, x: Value, dim: int, index: Value, src: Value) -> relax.Expr:
    """X with src written at `index` along one axis; of several writes to one place the last."""
    return combine_at(b, b.tensor(x), dim, index, src, "none")


@converter("aten.scatter.reduce", "aten.scatter.value_reduce")
def scatter_combined(
    b: GraphBuilder, x: Value, dim: int, index: Value, src: Value, *, reduce: str
) -> relax.Expr:
    """X with src added or multiplied in at `index` along one axis."""
    return combine_at(b, b.tensor(x), dim, index, src, _REDUCTIONS[reduce])


@converter("aten.scatter_add.default")
def scatter_add(b: GraphBuilder, x: Value, dim: int, index: Value, src: Value) -> relax.Expr:
    """X with src added at `index` along one axis; repeated places add up."""
    return combine_at(b, b.tensor(x), dim, index, src, "add")


@converter("aten.scatter_reduce.two")
def scatter_reduce(
    b: GraphBuilder,
    x: Value,
    dim: int,
    index: Value,
    src: Value,
    reduce: str,
    *,
    include_self: bool = True,
) -> relax.Expr:
    """X with src combined in at `index`; without `include_self`, x counts only where no src does.

    A mean divides by the number of elements combined, integers rounding down.
    """
    data = b.tensor(x)
    one = torch.ones([], dtype=getattr(torch, b.dtype))
    if not include_self:
        start = {"amax": _least(b.dtype), "amin": _greatest(b.dtype), "prod": 1}.get(reduce, 0)
        data = combine_at(b, data, dim, index, torch.full([], start, dtype=one.dtype), "none")
    how = "add" if reduce == "mean" else _REDUCTIONS[reduce]
    total = combine_at(b, data, dim, index, src, how)
    if reduce != "mean":
        return total
    ones = b.emit(relax.op.full_like(data, relax.const(1, b.dtype)))
    if not include_self:
        ones = combine_at(b, ones, dim, index, torch.zeros_like(one), "none")
    count = combine_at(b, ones, dim, index, one, "add")
    count = b.emit(relax.op.maximum(count, relax.const(1, b.dtype)))
    if "float" in b.dtype:
        return relax.op.divide(total, count)
    return relax.op.floor_divide(total, count)


def _least(dtype: str) -> Any:
    kind = getattr(torch, dtype)
    if kind == torch.bool:
        return False
    return float("-inf") if kind.is_floating_point else torch.iinfo(kind).min


def _greatest(dtype: str) -> Any:
    kind = getattr(torch, dtype)
    if kind == torch.bool:
        return True
    return float("inf") if kind.is_floating_point else torch.iinfo(kind).max


def write_at(b: GraphBuilder, data: relax.Expr, dim: int, index: Value, src: Value) -> relax.Expr:
    """Return data with src written at `index` along one axis."""
    return combine_at(b, data, dim, index, src, "none")


def combine_at(
    b: GraphBuilder, data: relax.Expr, dim: int, index: Value, src: Value, how: str
) -> relax.Expr:
    """Return data with src combined in at `index` along one axis: "none" writes, "add" adds."""
    places = b.tensor(index)
    updates = b.tensor(src, b.dtype)
    scalar = data.ty.ndim == 0
    if scalar:
        data = b.reshape(data, [1])
    if places.ty.ndim == 0:
        places = b.reshape(places, [1])
    shape = b.shape(places)
    if updates.ty.ndim == 0:
        updates = b.broadcast(updates, shape)
    for axis, size in enumerate(shape):  # torch reads only the part of src that index covers
        if b.shape(updates)[axis] != size:
            updates = b.slice_axis(updates, axis, 0, size)
    if any(isinstance(size, int) and size == 0 for size in shape):
        return b.reshape(data, []) if scalar else data
    axis = b.axis(dim, data.ty.ndim)
    places = b.checked(places, b.shape(data)[axis])
    result = b.te(
        lambda x, i, u: scatter_elements(x, i, u, axis, how), data, places, updates, name="scatter"
    )
    return b.reshape(result, []) if scalar else result


@converter("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    b: GraphBuilder, x: Value, indices: Any, values: Value, accumulate: bool = False
) -> relax.Expr:
    """X with values written (or added) at x[i, j, …], NumPy's advanced indexing.

    A mask known only at run time over leading axes, with one value for all places, is a `where`.
    """
    data = b.tensor(x)
    given = list(indices)
    masked = _masked_put(b, data, given, values, accumulate)
    if masked is not None:
        return masked
    places: list[Value] = []
    for place in given:
        if isinstance(place, torch.Tensor) and place.dtype in (torch.bool, torch.uint8):
            places.extend(place.nonzero(as_tuple=True))
        elif isinstance(place, relax.Expr) and place.ty.dtype in ("bool", "uint8"):
            return _masked_values(b, data, given, values, accumulate)
        else:
            places.append(place)
    axes = [axis for axis, place in enumerate(places) if place is not None]
    rest = [axis for axis in range(data.ty.ndim) if axis not in axes]
    adjacent = axes == list(range(axes[0], axes[-1] + 1))
    shape = b.shape(data)
    indexed, others = [shape[axis] for axis in axes], [shape[axis] for axis in rest]
    linear = linear_index(b, [places[axis] for axis in axes], indexed)
    lead = b.shape(linear)
    # The values' axes stand where the indexed axes stood; the kernel wants the index axes first.
    front = axes[0] if adjacent else 0
    wanted = [*others[:front], *lead, *others[front:]]
    updates = b.broadcast(b.tensor(values, b.dtype), wanted)
    moved = [
        *range(front, front + len(lead)),
        *range(front),
        *range(front + len(lead), len(wanted)),
    ]
    updates = b.reshape(b.permute(updates, moved), [product(lead), product(others)])
    order = [*axes, *rest]
    table = b.reshape(b.permute(data, order), [product(indexed), product(others)])
    how = "add" if accumulate else "none"
    if accumulate and b.dtype == "bool":  # a sum of booleans is whether one of them is true
        how, table, updates = "max", b.cast(table, "int8"), b.cast(updates, "int8")
    written = b.te(
        lambda t, i, u: scatter_slices(t, i, u, [t.shape[0]], how),
        table, b.reshape(linear, [product(lead), 1]), updates, name="index_put",
    )  # fmt: skip
    written = b.tensor(b.reshape(written, [*indexed, *others]), b.dtype)
    return b.permute(written, inverse(order))


def _masked_put(
    b: GraphBuilder, data: relax.Expr, indices: list[Value], values: Value, accumulate: bool
) -> relax.Expr | None:
    """Return x where a leading mask does not hold and one value elsewhere; None if it is not so."""
    if len(indices) != 1 or not isinstance(indices[0], relax.Expr):
        return None
    mask, value = indices[0], b.tensor(values, b.dtype)
    if mask.ty.dtype != "bool" or product(b.shape(value)) != 1:
        return None
    trailing = data.ty.ndim - mask.ty.ndim
    wide = b.reshape(mask, [*b.shape(mask), *[1] * trailing])
    single = b.reshape(value, [])
    if accumulate:
        single = _sum(b, data, single)
    return relax.op.where(wide, single, data)


def _masked_values(
    b: GraphBuilder, data: relax.Expr, indices: list[Value], values: Value, accumulate: bool
) -> relax.Expr:
    """Write one value (or slice) after the other where a leading mask holds."""
    if len(indices) != 1:
        raise b.unsupported("a mask only known at run time beside other indices")
    mask, shape = b.tensor(indices[0], "bool"), b.shape(data)
    trailing = shape[mask.ty.ndim :]
    rows = b.tensor(values, b.dtype)
    if rows.ty.ndim <= len(trailing) or same_shape(b.shape(rows)[:1], [1]):
        slice_ = rows if rows.ty.ndim <= len(trailing) else b.reshape(rows, b.shape(rows)[1:])
        one = b.broadcast(slice_, shape)  # the same slice everywhere
        one = _sum(b, data, one) if accumulate else one
        return relax.op.where(b.reshape(mask, [*b.shape(mask), *[1] * len(trailing)]), one, data)
    if rows.ty.ndim != len(trailing) + 1:
        raise b.unsupported("a mask only known at run time and values to broadcast")
    rows = b.broadcast(rows, [b.shape(rows)[0], *trailing])
    wide = b.broadcast(b.reshape(mask, [*b.shape(mask), *[1] * len(trailing)]), shape)
    start = b.emit(relax.op.zeros_like(data)) if accumulate else data
    written = b.te(masked_scatter, start, wide, rows, name="index_put")
    return _sum(b, data, written) if accumulate else written


def _sum(b: GraphBuilder, x: relax.Expr, y: relax.Expr) -> relax.Expr:
    return b.emit((relax.op.logical_or if b.dtype == "bool" else relax.op.add)(x, y))


@converter("aten.masked_scatter.default")
def masked_scatter_(b: GraphBuilder, x: Value, mask: Value, source: Value) -> relax.Expr:
    """X with the elements of `source`, in order, where the mask holds."""
    shape = b.result_shape
    data = b.broadcast(b.tensor(x), shape)
    holds = b.broadcast(b.tensor(mask, "bool"), shape)
    return b.te(masked_scatter, data, holds, b.tensor(source, b.dtype))


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
    shape = b.shape(data)
    length, first = shape[axis], slice_start(b, start, shape[axis])
    if step != 1:
        return _strided_scatter(b, data, patch, axis, slice(start, end, step))
    if isinstance(length, int) and (end is None or isinstance(end, int)):
        count: Size = len(range(length)[slice(b.static(first), end)])
        patch = b.broadcast(patch, [*shape[:axis], count, *shape[axis + 1 :]])
    count = b.shape(patch)[axis]
    if same_shape([count], [0]):
        return data
    if same_shape([count], [length]):
        return patch
    stop = first + count
    parts = [] if same_shape([first], [0]) else [b.slice_axis(data, axis, 0, first)]
    parts.append(patch)
    if not same_shape([stop], [length]):
        parts.append(b.slice_axis(data, axis, stop, length))
    return relax.op.concat(parts, axis=axis)


def _strided_scatter(
    b: GraphBuilder, data: relax.Expr, patch: relax.Expr, axis: int, window: slice
) -> relax.Expr:
    """Write over every step-th place of an axis of known length."""
    shape = b.shape(data)
    places = torch.arange(b.static(shape[axis]))[window]
    patch = b.broadcast(patch, [*shape[:axis], len(places), *shape[axis + 1 :]])
    return index_put(b, data, [*[None] * axis, places], patch)


@converter("aten.select_scatter.default")
def select_scatter(b: GraphBuilder, x: Value, src: Value, dim: int, index: int) -> relax.Expr:
    """X with src written over x[index] of one axis."""
    data = b.tensor(x)
    axis = b.axis(dim, data.ty.ndim)
    place = index % b.static(b.shape(data)[axis])
    patch = b.emit(relax.op.expand_dims(b.tensor(src, b.dtype), axis))
    return slice_scatter(b, data, patch, axis, place, place + 1)


@converter("aten.diagonal_scatter.default")
def diagonal_scatter(
    b: GraphBuilder, x: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> relax.Expr:
    """X with src written over its diagonals."""
    data = b.tensor(x)
    first, second = b.axis(dim1, data.ty.ndim), b.axis(dim2, data.ty.ndim)
    shape = b.static_shape(data)
    line = torch.arange(shape[first])
    columns = line + offset
    inside = (columns >= 0) & (columns < shape[second])
    others = [a for a in range(len(shape)) if a not in (first, second)]
    order = [first, second, *others]
    table = b.permute(data, order)
    patch = b.tensor(src, b.dtype)
    patch = b.permute(patch, [patch.ty.ndim - 1, *range(patch.ty.ndim - 1)])
    written = index_put(b, table, [line[inside], columns[inside]], patch)
    return b.permute(b.emit(written), inverse(order))
