"""Views, slices, concatenation: operators that move elements and compute nothing."""

from __future__ import annotations

from typing import Any

from tvm import relax, te

from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter
from frontends.torch.sizes import same_shape
from frontends.torch.symbolic_shapes import Size

# Reshapes whose argument is the whole shape.
_ASKED = ("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default")


@converter(
    "aten.view.default",
    "aten._unsafe_view.default",
    "aten.reshape.default",
    "aten.unsqueeze.default",
    "aten.squeeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.flatten.using_ints",
)
def reshape(b: GraphBuilder, x: Value, *shape: Any) -> relax.Expr:
    """The same elements in the result's shape, which torch has worked out, -1 included.

    torch has a size of n // (n // 2) where 2 was asked for: the one holds where the other does.
    """
    asked = shape[0] if shape and str(b.node.target) in _ASKED else ()
    b.symbols.equate_where_known(asked, b.node.meta["val"].shape)
    return b.reshape(b.tensor(x), b.result_shape)


@converter("aten.permute.default")
def permute(b: GraphBuilder, x: Value, dims: Any) -> relax.Expr:
    """Reorder the axes."""
    data = b.tensor(x)
    return b.permute(data, [b.axis(d, data.ty.ndim) for d in dims])


@converter("aten.transpose.int")
def transpose(b: GraphBuilder, x: Value, dim0: int, dim1: int) -> relax.Expr:
    """Swap two axes."""
    data = b.tensor(x)
    axes = list(range(data.ty.ndim))
    first, second = (b.axis(d, data.ty.ndim) for d in (dim0, dim1))
    axes[first], axes[second] = second, first
    return b.permute(data, axes)


@converter("aten.t.default")
def transpose_matrix(b: GraphBuilder, x: Value) -> relax.Expr:
    """Transpose a matrix; vectors stay as they are."""
    data = b.tensor(x)
    return b.permute(data, list(reversed(range(data.ty.ndim))))


@converter("aten.expand.default", "aten.broadcast_to.default")
def expand(b: GraphBuilder, x: Value, size: Any, **_implicit: Any) -> relax.Expr:
    """Broadcast to the result's shape; -1 keeps a size."""
    return b.broadcast(b.tensor(x), b.result_shape)


@converter("aten.slice.Tensor")
def slice_(
    b: GraphBuilder, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> relax.Expr:
    """x[start:end:step] of one axis, with Python's rules for negative and missing bounds."""
    data = b.tensor(x)
    axis = b.axis(dim, data.ty.ndim)
    length, count = b.shape(data)[axis], b.result_shape[axis]
    begin = slice_start(b, start, length)
    if _is_zero(begin) and step == 1 and same_shape([length], [count]):
        return data
    if _is_zero(count):
        return relax.op.zeros(relax.ShapeExpr(b.result_shape), b.dtype)
    stop = begin + count if step == 1 else begin + (count - 1) * step + 1
    return b.slice_axis(data, axis, begin, stop, step)


def slice_start(b: GraphBuilder, bound: Any, length: Size) -> Size:
    """Return a slice's first index counted from the front and within the axis."""
    if bound is None:
        return 0
    size = b.size(bound)
    if isinstance(size, int) and size < 0:
        size = length + size
    if isinstance(size, int) and isinstance(length, int):
        return min(max(size, 0), length)
    return size


@converter("aten.select.int")
def select(b: GraphBuilder, x: Value, dim: int, index: Any) -> relax.Expr:
    """x[index] of one axis, which goes away."""
    data = b.tensor(x)
    axis = b.axis(dim, data.ty.ndim)
    begin = b.size(index)
    if isinstance(begin, int) and begin < 0:
        begin = b.shape(data)[axis] + begin
    return relax.op.squeeze(b.slice_axis(data, axis, begin, begin + 1), [axis])


@converter("aten.cat.default")
def cat(b: GraphBuilder, tensors: Any, dim: int = 0) -> relax.Expr:
    """Concatenate along an axis; operands take the promoted dtype.

    torch lets a legacy empty tensor of shape (0,) stand among operands of any rank.
    """
    rank = len(b.result_shape)
    parts = [b.tensor(t, b.dtype) for t in tensors]
    kept = [p for p in parts if p.ty.ndim == rank and not _is_zero(b.shape(p)[b.axis(dim, rank)])]
    if len(kept) == 1:
        return kept[0]
    return relax.op.concat(kept or parts, axis=b.axis(dim, rank))


@converter("aten.stack.default")
def stack(b: GraphBuilder, tensors: Any, dim: int = 0) -> relax.Expr:
    """Join along a new axis."""
    axis = b.axis(dim, len(b.result_shape))
    parts = [b.emit(relax.op.expand_dims(b.tensor(t, b.dtype), axis)) for t in tensors]
    return relax.op.concat(parts, axis=axis)


@converter("aten.split_with_sizes.default")
def split_with_sizes(
    b: GraphBuilder, x: Value, split_sizes: Any, dim: int = 0
) -> tuple[relax.Expr, ...]:
    """Cut an axis into pieces of the given sizes."""
    data = b.tensor(x)
    axis = b.axis(dim, data.ty.ndim)
    pieces, begin = [], 0
    for size in map(b.size, split_sizes):
        pieces.append(b.slice_axis(data, axis, begin, begin + size))
        begin = begin + size
    return tuple(pieces)


@converter("aten.split.Tensor")
def split(b: GraphBuilder, x: Value, split_size: int, dim: int = 0) -> tuple[relax.Expr, ...]:
    """Cut an axis into pieces of one size, the last perhaps smaller."""
    length = b.static(b.shape(b.tensor(x))[b.axis(dim, b.tensor(x).ty.ndim)])
    sizes = [min(split_size, length - begin) for begin in range(0, length, split_size)]
    return split_with_sizes(b, x, sizes or [0], dim)


@converter("aten.unbind.int")
def unbind(b: GraphBuilder, x: Value, dim: int = 0) -> tuple[relax.Expr, ...]:
    """Every slice along an axis, which goes away."""
    length = b.static(b.shape(b.tensor(x))[b.axis(dim, b.tensor(x).ty.ndim)])
    return tuple(b.emit(select(b, x, dim, index)) for index in range(length))


@converter("aten.flip.default")
def flip(b: GraphBuilder, x: Value, dims: Any) -> relax.Expr:
    """Reverse every axis in `dims`."""
    data = b.tensor(x)
    for dim in dims:
        data = b.emit(relax.op.flip(data, b.axis(dim, data.ty.ndim)))
    return data


@converter("aten.roll.default")
def roll(b: GraphBuilder, x: Value, shifts: Any, dims: Any = ()) -> relax.Expr:
    """Shift elements along axes, those pushed off the end coming in at the front."""
    data = b.tensor(x)
    moves = [shifts] if isinstance(shifts, int) else list(shifts)
    axes = [dims] if isinstance(dims, int) else list(dims)
    if not axes:  # by the specification: over the flattened tensor
        return b.reshape(_roll_axis(b, b.reshape(data, [-1]), 0, moves[0]), b.result_shape)
    for shift, dim in zip(moves, axes, strict=True):
        data = _roll_axis(b, data, b.axis(dim, data.ty.ndim), shift)
    return data


def _roll_axis(b: GraphBuilder, x: relax.Expr, axis: int, shift: int) -> relax.Expr:
    length = b.static(b.shape(x)[axis])
    cut = -shift % max(length, 1)
    if cut == 0:
        return x
    tail, head = b.slice_axis(x, axis, cut, length), b.slice_axis(x, axis, 0, cut)
    return b.emit(relax.op.concat([tail, head], axis=axis))


@converter("aten.repeat.default")
def repeat(b: GraphBuilder, x: Value, repeats: Any) -> relax.Expr:
    """Tile the tensor; missing leading axes count as 1."""
    counts = [b.size(count) for count in repeats]
    if all(isinstance(count, int) for count in counts):
        return relax.op.tile(b.tensor(x), counts)
    own = b.shape(b.tensor(x))
    data = b.reshape(b.tensor(x), [1] * (len(counts) - len(own)) + own)

    def compute(t: te.Tensor, sizes: list[Any]) -> te.Tensor:
        def element(*at: Any) -> Any:
            return t(*(i % n for i, n in zip(at, t.shape, strict=True)))

        return te.compute(tuple(sizes), element, name="repeat")

    return b.te(compute, data, dims=b.result_shape)


def _is_zero(size: Size) -> bool:
    return isinstance(size, int) and size == 0
