"""Slicing, gathering, scattering, selection by index."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op as R

from frontends.onnx.dims import Dim, all_static, is_static
from frontends.onnx.op import Op, normalize_axis
from frontends.onnx.operators.shape import slice_axis
from frontends.onnx.registry import converter


@converter("Slice", since=1)
def slice_attributes(op: Op) -> Any:
    """Slice by attributes (opset 1 to 9)."""
    starts, ends = op.attr("starts"), op.attr("ends")
    return _slice(op, starts, ends, op.attr("axes"), None)


@converter("Slice", since=10)
def slice_inputs(op: Op) -> Any:
    """Slice by inputs (opset 10 on)."""
    axes = op.ints(3, "axes") if op.has(3) else None
    steps = op.ints(4, "steps") if op.has(4) else None
    return _slice(op, op.runtime_dims(1), op.runtime_dims(2), axes, steps)


def _slice(
    op: Op,
    starts: list[Dim],
    ends: list[Dim],
    axes: list[int] | None,
    steps: list[int] | None,
) -> Any:
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    x: relax.Expr | None = None
    plain: list[tuple[int, int, int, int]] = []
    general: list[tuple[int, Dim, Dim, int]] = []
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis = normalize_axis(axis, op.ndim())
        length = op.shape()[axis]
        first, count = slice_bounds(op, length, start, end, step)
        if op.arithmetic.equal(count, length) and step == 1:
            continue
        if all_static([first, count, length]) and step > 0 and count > 0:
            plain.append((axis, first, first + (count - 1) * step + 1, step))
        else:
            general.append((axis, first, count, step))
    if not plain and not general:
        return op.value(0)
    x = op.x()
    if plain:
        where, begin, end, by = (list(column) for column in zip(*plain, strict=True))
        x = op.emit(R.strided_slice(x, where, begin, end, by))
    for axis, first, count, step in general:
        x = slice_axis(op, x, axis, first, count, step)
    return x


# Exporters write such bounds to mean "to the end"; no axis is that long.
_INFINITE = 10**9


def slice_bounds(op: Op, length: Dim, start: Dim, end: Dim, step: int) -> tuple[Dim, Dim]:
    """Return the first index and the count of a slice, clamped as ONNX (and Python) do."""
    arithmetic = op.arithmetic

    def place(bound: Dim, lowest: Dim, highest: Dim) -> Dim:
        if is_static(bound):
            if bound < 0:
                moved = arithmetic.simplify(length + int(bound))
                if bound <= -_INFINITE:
                    return lowest
                return arithmetic.maximum(moved, lowest)
            if bound >= _INFINITE:
                return highest
        elif not arithmetic.is_nonnegative(bound):
            bound = tirx.Select(bound < 0, bound + length, bound)
        return arithmetic.maximum(arithmetic.minimum(bound, highest), lowest)

    if step > 0:
        first, last = place(start, 0, length), place(end, 0, length)
        count = arithmetic.truncdiv(arithmetic.simplify(last - first + (step - 1)), step)
    else:
        top = arithmetic.simplify(length - 1)
        first, last = place(start, 0, top), place(end, -1, top)
        count = arithmetic.truncdiv(arithmetic.simplify(first - last - step - 1), -step)
    return first, arithmetic.maximum(count, 0)


def positive_indices(op: Op, place: int, length: Dim) -> relax.Expr:
    """Return an index input with negative entries counted from the end."""
    known = op.constant(place)
    if known is not None:
        if is_static(length):
            outside = (known < -int(length)) | (known >= int(length))
            if outside.any():
                raise IndexError(f"index {known[outside].flat[0]} is out of range for {length}")
        if (known >= 0).all():
            return op.x(place)
        if is_static(length):
            return op.const(np.where(known < 0, known + int(length), known), str(known.dtype))

    def compute(indices: te.Tensor, dims: list[Any]) -> te.Tensor:
        def pick(*i: Any) -> Any:
            index = indices(*i)
            size = tirx.Cast(indices.dtype, dims[0])
            return tirx.Select(index < 0, index + size, index)

        return te.compute(indices.shape, pick, name="positive_indices")

    indices = op.x(place)
    if not is_static(length):
        return op.te(compute, indices, name="positive_indices", dims=[length])
    size = op.const(int(length), op.dtype(place))
    negative = op.emit(R.less(indices, op.const(0, op.dtype(place))))
    return op.emit(R.where(negative, op.emit(R.add(indices, size)), indices))


@converter("Gather")
def gather(op: Op) -> relax.Expr:
    """Take slices along an axis."""
    axis = op.axis(0)
    known = op.constant(1)
    length = op.shape()[axis]
    if known is not None and known.size == 1 and is_static(length):
        # One slice: a strided slice and a view, which fuse.
        index = int(known.reshape(-1)[0])
        if not -int(length) <= index < int(length):
            raise IndexError(f"index {index} is out of range for {length}")
        index %= int(length)
        part = op.emit(R.strided_slice(op.x(), [axis], [index], [index + 1]))
        dims = [*op.shape()[:axis], *known.shape, *op.shape()[axis + 1 :]]
        return R.reshape(part, relax.ShapeExpr(dims))
    return R.take(op.x(), positive_indices(op, 1, length), axis)


@converter("GatherElements")
def gather_elements(op: Op) -> relax.Expr:
    """Take single elements along an axis."""
    axis = op.axis(0)
    return R.gather_elements(op.x(), positive_indices(op, 1, op.shape()[axis]), axis)


def _nd_indices(op: Op, place: int, first: int) -> relax.Expr:
    """Return index tuples (last axis) with negative entries counted from the end."""
    width = op.shape(place)[-1]
    if not is_static(width):
        raise op.unsupported("index tuples of symbolic length")
    sizes = op.shape()[first : first + int(width)]
    known = op.constant(place)
    if known is not None and (known >= 0).all():
        return op.x(place)
    if not all_static(sizes):
        raise op.unsupported("indices into symbolic dimensions")
    lengths = np.array([int(size) for size in sizes], dtype="int64")
    if known is not None:
        return op.const(np.where(known < 0, known + lengths, known), str(known.dtype))
    negative = op.emit(R.less(op.x(place), op.const(0, "int64")))
    return op.emit(
        R.where(negative, op.emit(R.add(op.x(place), op.const(lengths, "int64"))), op.x(place))
    )


@converter("GatherND")
def gather_nd(op: Op) -> relax.Expr:
    """Take slices at index tuples."""
    batch = int(op.attr("batch_dims", 0))

    def compute(data: te.Tensor, indices: te.Tensor) -> te.Tensor:
        width = int(indices.shape[-1])
        lead = len(indices.shape) - 1
        dims = [*indices.shape[:-1], *data.shape[batch + width :]]

        def pick(*i: Any) -> Any:
            places = []
            for k in range(width):
                index = indices(*i[:lead], k).astype("int64")
                size = data.shape[batch + k]
                places.append(tirx.Select(index < 0, index + size, index))
            return data(*i[:batch], *places, *i[lead:])

        return te.compute(dims, pick, name="gather_nd")

    if not is_static(op.shape(1)[-1]):
        raise op.unsupported("index tuples of symbolic length")
    return op.te(compute, op.x(0), op.x(1), name="gather_nd")


_REDUCTIONS = {"none": "update", "add": "add", "mul": "mul", "max": "max", "min": "min"}


@converter("ScatterElements", "Scatter")
def scatter_elements(op: Op) -> relax.Expr:
    """Write single elements along an axis."""
    axis = op.axis(0)
    indices = positive_indices(op, 1, op.shape()[axis])
    reduction = _REDUCTIONS[op.attr("reduction", "none")]
    return R.scatter_elements(op.x(0), indices, op.x(2), axis, reduction)


@converter("ScatterND")
def scatter_nd(op: Op) -> relax.Expr:
    """Write slices at index tuples."""
    reduction = _REDUCTIONS[op.attr("reduction", "none")]
    indices = _nd_indices(op, 1, 0)
    return R.scatter_nd(op.x(0), indices, op.x(2), reduction)


@converter("OneHot")
def one_hot(op: Op) -> relax.Expr:
    """Spread indices over a new axis; those outside [-depth, depth) give only `off` values."""
    known = op.dims(1)
    depth = known[0] if known else int(op.require_constant(1, "depth").reshape(-1)[0])
    axis = normalize_axis(int(op.attr("axis", -1)), op.ndim() + 1)

    def compute(indices: te.Tensor, values: te.Tensor, sizes: list[Any]) -> te.Tensor:
        dims = list(indices.shape)
        dims.insert(axis, sizes[0])

        def pick(*i: Any) -> Any:
            index = indices(*(p for k, p in enumerate(i) if k != axis)).astype("int64")
            wrapped = tirx.Select(index < 0, index + sizes[0], index)
            return tirx.Select(wrapped == i[axis], values(1), values(0))

        return te.compute(dims, pick, name="one_hot")

    return op.te(compute, op.x(0), op.x(2), name="one_hot", dims=[depth])


@converter("NonZero")
def nonzero(op: Op) -> relax.Expr:
    """Return the places of elements that are not zero; their number is a new symbol."""
    return R.nonzero(op.x())


@converter("Compress")
def compress(op: Op) -> relax.Expr:
    """Keep the slices whose condition, which must be constant, is true."""
    condition = op.require_constant(1, "condition")
    places = np.nonzero(condition)[0].astype("int64")
    if not op.has_attr("axis"):
        flat = op.emit(R.reshape(op.x(), relax.ShapeExpr([op.arithmetic.product(op.shape())])))
        return R.take(flat, op.const(places, "int64"), 0)
    return R.take(op.x(), op.const(places, "int64"), op.axis(0))


@converter("Trilu")
def trilu(op: Op) -> relax.Expr:
    """Keep one triangle of the last two axes."""
    k = op.ints(1, "k")[0] if op.has(1) else 0
    upper = bool(op.attr("upper", 1))
    zero = tirx.const(0, op.dtype())

    def compute(x: te.Tensor) -> te.Tensor:
        def pick(*i: Any) -> Any:
            kept = i[-1] - i[-2] >= k if upper else i[-1] - i[-2] <= k
            return tirx.Select(kept, x(*i), zero)

        return te.compute(x.shape, pick, name="trilu")

    return op.te(compute, op.x())


@converter("ReverseSequence")
def reverse_sequence(op: Op) -> relax.Expr:
    """Reverse the first elements of each sequence, as many as its length."""
    return R.reverse_sequence(
        op.x(0), op.x(1), int(op.attr("time_axis", 0)), int(op.attr("batch_axis", 1))
    )
