"""Reading elements at computed places, each of which lies in its axis or the run fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tvm import relax, te, tirx

from frontends.computations.gather import gather as gather_slices
from frontends.computations.gather import gather_elements
from frontends.torch.graph_builder import GraphBuilder, Size, Value
from frontends.torch.operators.data_dependent import mask_places
from frontends.torch.registry import converter
from frontends.torch.sizes import product


@converter("aten.embedding.default")
def embedding(b: GraphBuilder, weight: Value, indices: Value, *_training: Any) -> relax.Expr:
    """Rows of `weight` [V, E] at `indices` [...]: [..., E]."""
    return _take(b, b.tensor(weight), indices, 0)


@converter("aten.embedding_renorm.default")
def embedding_renorm(
    b: GraphBuilder, weight: Value, indices: Value, max_norm: float, norm_type: float
) -> relax.Expr:
    """The table whose rows at `indices` are shrunk to a norm of at most `max_norm`."""
    table = b.tensor(weight)
    rows = b.shape(table)[0]
    size = b.emit(relax.op.abs(table))
    power = relax.const(norm_type, b.dtype)
    total = b.emit(relax.op.sum(b.emit(relax.op.power(size, power)), [1], keepdims=True))
    norm = b.emit(relax.op.power(total, relax.const(1.0 / norm_type, b.dtype)))
    # torch divides by a little more, so that a rounded norm is not above the limit.
    safe = b.emit(relax.op.add(norm, relax.const(1e-7, b.dtype)))
    scale = b.emit(relax.op.divide(relax.const(max_norm, b.dtype), safe))
    places = b.reshape(b.checked(indices, rows), [-1])

    def is_named(named: te.Tensor, table: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, named.shape[0]), "k")
        one, count = tirx.const(1, "int32"), tirx.Cast(named.dtype, table.shape[0])

        def at(row: Any, _: Any) -> Any:
            place = tirx.Select(named(k) < 0, named(k) + count, named(k))
            return te.max(tirx.Select(place == row, one, one - 1), axis=k)

        return te.compute((table.shape[0], 1), at, name="is_named")

    named = b.cast(b.te(is_named, places, table, name="is_named"), "bool")
    above = b.emit(relax.op.greater(norm, relax.const(max_norm, b.dtype)))
    shrinks = b.emit(relax.op.logical_and(named, above))
    factor = b.emit(relax.op.where(shrinks, scale, relax.const(1, b.dtype)))
    return relax.op.multiply(table, factor)


@converter("aten.index_select.default")
def index_select(b: GraphBuilder, x: Value, dim: int, index: Value) -> relax.Expr:
    """The slices of one axis at the places in `index`, a vector or one number."""
    data = b.tensor(x)
    if data.ty.ndim == 0:  # all its places are 0
        return data
    axis = b.axis(dim, data.ty.ndim)
    places = b.reshape(b.tensor(index), [-1])
    return _take(b, data, places, axis)


def _take(b: GraphBuilder, data: relax.Expr, indices: Value, axis: int) -> relax.Expr:
    """Slices of one axis; the axis is replaced by the shape of `indices`."""
    places = b.checked(indices, b.shape(data)[axis])
    return b.te(lambda x, i: gather_slices(x, i, axis), data, places, name="take")


@converter("aten.gather.default")
def gather(b: GraphBuilder, x: Value, dim: int, index: Value, **_grad: Any) -> relax.Expr:
    """out[i][j][k] = x[index[i][j][k]][j][k] for dim 0, and so on."""
    data, places = b.tensor(x), b.tensor(index)
    if data.ty.ndim == 0:
        return b.broadcast(data, b.shape(places))
    if places.ty.ndim == 0:
        places = b.reshape(places, [1])
    axis = b.axis(dim, data.ty.ndim)
    places = b.checked(places, b.shape(data)[axis])
    found = b.te(lambda x, i: gather_elements(x, i, axis), data, places, name="gather")
    return b.reshape(found, b.result_shape)


@converter("aten.take.default")
def take(b: GraphBuilder, x: Value, index: Value) -> relax.Expr:
    """Elements of the flattened tensor."""
    return _take(b, b.reshape(b.tensor(x), [-1]), index, 0)


@converter("aten.masked_select.default")
def masked_select(b: GraphBuilder, x: Value, mask: Value) -> relax.Expr:
    """The elements [n] of x where the mask holds, both broadcast; only the data decides n."""
    shape = b.symbols.shape(torch.broadcast_shapes(b.operand(0).shape, b.operand(1).shape))
    operands = b.tensor(x), b.tensor(mask, "bool")
    data, holds = (b.reshape(b.broadcast(t, shape), [product(shape)]) for t in operands)
    (places,) = mask_places(b, holds, b.result_shape[0])
    return b.te(lambda t, i: gather_slices(t, i, 0), data, places, name="masked_select")


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
    merged = b.reshape(data, [*shape[:front], product(sizes), *shape[front + len(axes) :]])
    linear = linear_index(b, [places[axis] for axis in axes], sizes)
    found = b.te(lambda x, i: gather_slices(x, i, front), merged, linear, name="index")
    return b.reshape(found, b.result_shape)


def _expand_masks(b: GraphBuilder, indices: list[Value]) -> list[Value]:
    """Replace every boolean mask by one index tensor for each axis it covers.

    How often a mask holds that is only known at run time is read then, into a new symbol.
    """
    places: list[Value] = []
    for place in indices:
        if place is None:
            places.append(place)
        elif isinstance(place, torch.Tensor):
            masked = place.dtype in (torch.bool, torch.uint8)
            found = place.nonzero(as_tuple=True) if masked else [place]
            for size in b.result_shape if masked else []:
                if b.is_undefined(size):  # torch does not look at the elements of a constant
                    b.fix_size(size, found[0].numel())
            places.extend(found)
        elif place.ty.dtype in ("bool", "uint8"):
            places.extend(mask_places(b, place, _mask_count(b)))
        else:
            places.append(place)
    return places


def _mask_count(b: GraphBuilder) -> Size:
    """Return the size that a mask gives the result: its one symbol without a value so far."""
    new = [size for size in b.result_shape if b.is_undefined(size)]
    if len(new) != 1:
        raise b.unsupported("a mask known only at run time, whose count is no size of the result")
    return new[0]


def linear_index(b: GraphBuilder, places: list[Value], sizes: list[Size]) -> relax.Expr:
    """Return sum(place * stride) as int64, each place in range or the run fails."""
    constants = [p for p in places if isinstance(p, torch.Tensor)]
    if len(constants) == len(places) and all(isinstance(size, int) for size in sizes):
        b.check_constant(constants, sizes)
        arrays = [np.asarray(p) % max(n, 1) for p, n in zip(constants, sizes, strict=True)]
        arrays = list(np.broadcast_arrays(*arrays))
        strides = np.cumprod([1, *sizes[:0:-1]])[::-1]
        linear = sum(a.astype("int64") * int(n) for a, n in zip(arrays, strides, strict=True))
        return relax.const(np.asarray(linear), "int64")
    total: relax.Expr | None = None
    for place, size in zip(places, sizes, strict=True):
        checked = b.checked(place, size)
        term = checked if checked.ty.dtype == "int64" else b.cast(checked, "int64")
        if total is None:
            total = term
        else:
            scaled = b.emit(relax.op.multiply(total, b.size_tensor(size)))
            total = b.emit(relax.op.add(scaled, term))
    assert total is not None
    return total


@converter("aten.tril.default")
def tril(b: GraphBuilder, x: Value, diagonal: int = 0) -> relax.Expr:
    """The lower triangle of each matrix, zeros above."""
    return relax.op.tril(b.tensor(x), diagonal)


@converter("aten.triu.default")
def triu(b: GraphBuilder, x: Value, diagonal: int = 0) -> relax.Expr:
    """The upper triangle of each matrix, zeros below."""
    return relax.op.triu(b.tensor(x), diagonal)
