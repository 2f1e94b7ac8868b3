"""Slicing, gathering, scattering, selection by index."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op as R

from frontends.computations.exact_reshape import exact_reshape
from frontends.computations.gather import (
    gather,
    gather_elements,
    gather_nd,
    reverse_sequences,
)
from frontends.computations.run_time_slice import INVALID, plan_slice, take_slice
from frontends.computations.scatter import scatter_elements, scatter_slices
from frontends.dims import Dim, all_static, is_static
from frontends.errors import InvalidModel
from frontends.onnx.indices import at_most, indices_within
from frontends.onnx.op import Op, normalize_axis
from frontends.onnx.operators.run_time_size import parts, read_sizes, refusing, run_time_size
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
    starts, ends = op.dims(1), op.dims(2)
    fixed = all(op.constant(place) is not None for place in (3, 4) if op.has(place))
    if starts is None or ends is None or not fixed:
        return _run_time_slice(op)
    axes = op.ints(3, "axes") if op.has(3) else None
    steps = op.ints(4, "steps") if op.has(4) else None
    return _slice(op, starts, ends, axes, steps)


def _run_time_slice(op: Op) -> relax.Expr:
    """Slice by bounds, axes or steps read at run time; they may be negative."""
    for place in (2, 3, 4):
        if op.has(place):
            op.state(place, op.shape(1))
    if op.constant(3) is not None:
        _distinct_axes(op, op.ints(3, "axes"))
    if op.constant(4) is not None and 0 in op.ints(4, "steps"):
        raise InvalidModel("a step of zero never arrives")
    given = [op.x(place) for place in (1, 2, 3, 4) if op.has(place)]
    has_axes, has_steps = op.has(3), op.has(4)

    def plan(starts: te.Tensor, ends: te.Tensor, *rest: Any) -> list[te.Tensor]:
        *others, have = rest
        axes = others[0] if has_axes else None
        steps = others[-1] if has_steps else None
        return plan_slice(starts, ends, axes, steps, have)

    planned = op.te(plan, *given, name="plan_slice", dims=op.shape())
    counts, firsts, strides = parts(op, planned, 3)
    if any(op.has(place) and op.constant(place) is None for place in (3, 4)):
        counts = refusing(
            op, counts, INVALID, "a step is 0, or an axis is given twice or does not exist"
        )
    sizes = read_sizes(op, counts)
    return op.te(take_slice, op.x(), firsts, strides, name="take_slice", dims=sizes)


def _slice(
    op: Op,
    starts: list[Dim],
    ends: list[Dim],
    axes: list[int] | None,
    steps: list[int] | None,
) -> Any:
    axes = _distinct_axes(op, list(range(len(starts))) if axes is None else axes)
    steps = [1] * len(starts) if steps is None else steps
    x: relax.Expr | None = None
    plain: list[tuple[int, int, int, int]] = []
    general: list[tuple[int, Dim, Dim, int]] = []
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        length = op.shape()[axis]
        step = _clamped_step(step, length)
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


def _clamped_step(step: int, length: Dim) -> int:
    """Return a step that selects the same, and with which no index overflows."""
    if step == 0:
        raise InvalidModel("a step of zero never arrives")
    most = max(int(length), 1) if is_static(length) else _LONGEST_STEP
    return max(min(step, most), -most)


def _distinct_axes(op: Op, axes: list[int]) -> list[int]:
    """Return axes counted from the front; raise InvalidModel if one occurs twice."""
    found = [normalize_axis(axis, op.ndim()) for axis in axes]
    if len(set(found)) < len(found):
        raise InvalidModel(f"an axis is given twice: {axes}")
    return found


# Exporters write such bounds to mean "to the end"; no axis is that long.
_INFINITE = 10**9
# A longer step selects one element of any axis, as this one does.
_LONGEST_STEP = 2**31 - 1


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


@converter("Gather")
def gather_slices(op: Op) -> relax.Expr:
    """Take slices along an axis."""
    axis = op.axis(0)
    known = op.constant(1)
    length = op.shape()[axis]
    if known is not None and known.size == 1 and is_static(length):
        indices_within(op, 1, [length])
        # One slice: a strided slice and a view, which fuse.
        index = int(known.reshape(-1)[0]) % int(length)
        part = op.emit(R.strided_slice(op.x(), [axis], [index], [index + 1]))
        dims = [*op.shape()[:axis], *known.shape, *op.shape()[axis + 1 :]]
        return exact_reshape(part, relax.ShapeExpr(dims))
    indices = indices_within(op, 1, [length])
    if known is not None and known.ndim == 1 and is_static(length):
        run = _even_steps(known, int(length))
        if run is not None:
            return _whole_or_slice(op, axis, *run)
    return op.te(lambda x, i: gather(x, i, axis), op.x(), indices)


def _even_steps(indices: np.ndarray, length: int) -> tuple[int, int, int] | None:
    """Return (first, end, step) of constant indices that rise in equal steps, else None."""
    places = np.where(indices < 0, indices + length, indices)
    steps = np.unique(np.diff(places))
    if places.size < 2 or steps.size != 1 or steps[0] < 1:
        return None
    return int(places[0]), int(places[-1]) + 1, int(steps[0])


def _whole_or_slice(op: Op, axis: int, first: int, end: int, step: int) -> relax.Expr:
    """Return the elements from `first` up to `end` along an axis of static size."""
    if (first, end, step) == (0, int(op.shape()[axis]), 1):
        return op.value(0)
    return R.strided_slice(op.x(), [axis], [first], [end], [step])


@converter("GatherElements")
def gather_single(op: Op) -> relax.Expr:
    """Take single elements along an axis."""
    axis = op.axis(0)
    _indices_lie_over_the_data(op, axis)
    indices = indices_within(op, 1, [op.shape()[axis]])
    return op.te(lambda x, i: gather_elements(x, i, axis), op.x(), indices)


def _indices_lie_over_the_data(op: Op, axis: int) -> None:
    """State that indices, input 1, exist for places of the data only, but for one axis."""
    if op.ndim(1) != op.ndim():
        raise InvalidModel(f"indices of rank {op.ndim(1)} for data of rank {op.ndim()}")
    for place, (have, most) in enumerate(zip(op.shape(1), op.shape(), strict=True)):
        if place != axis:
            op.require_at_most(have, most, "indices_lie_over_the_data")


@converter("GatherND")
def gather_tuples(op: Op) -> relax.Expr:
    """Take slices at index tuples."""
    batch = int(op.attr("batch_dims", 0))
    if not is_static(op.shape(1)[-1]):
        raise op.unsupported("index tuples of symbolic length")
    width = int(op.shape(1)[-1])
    op.state(1, [*op.shape()[:batch], *op.shape(1)[batch:]])
    indices = indices_within(op, 1, op.shape()[batch : batch + width]) if width else op.x(1)
    return op.te(lambda x, i: gather_nd(x, i, batch), op.x(0), indices)


@converter("ScatterElements", "Scatter")
def scatter_single(op: Op) -> relax.Expr:
    """Write single elements along an axis."""
    axis, how = op.axis(0), op.attr("reduction", "none")
    _indices_lie_over_the_data(op, axis)
    op.state(2, op.shape(1))
    indices = indices_within(op, 1, [op.shape()[axis]])
    return op.te(
        lambda x, i, updates: scatter_elements(x, i, updates, axis, how), op.x(0), indices, op.x(2)
    )


@converter("ScatterND")
def scatter_tuples(op: Op) -> relax.Expr:
    """Write slices at index tuples."""
    how, dims, product = op.attr("reduction", "none"), list(op.shape()), op.arithmetic.product
    *lead, width = op.shape(1)
    if not is_static(width):
        raise op.unsupported("index tuples of symbolic length")
    rows, inner = dims[: int(width)], product(dims[int(width) :])
    number = product(lead)

    def flat(x: relax.Expr, shape: list[Dim]) -> relax.Expr:
        return op.emit(exact_reshape(x, relax.ShapeExpr(shape)))

    data, updates = flat(op.x(0), [product(rows), inner]), flat(op.x(2), [number, inner])
    indices = indices_within(op, 1, rows) if rows else op.x(1)
    written = op.te(
        lambda x, i, u, sizes: scatter_slices(x, i, u, sizes[1:], how),
        data, flat(indices, [number, width]), updates, dims=[inner, *rows],
    )  # fmt: skip
    return exact_reshape(written, relax.ShapeExpr(dims))


@converter("OneHot")
def one_hot(op: Op) -> relax.Expr:
    """Spread indices over a new axis; those outside [-depth, depth) give only `off` values."""
    depth = run_time_size(op, 1)
    axis = normalize_axis(int(op.attr("axis", -1)), op.ndim() + 1)

    def compute(indices: te.Tensor, values: te.Tensor, sizes: list[Any]) -> te.Tensor:
        dims = list(indices.shape)
        dims.insert(axis, sizes[0])

        def pick(*i: Any) -> Any:
            index = indices(*(p for k, p in enumerate(i) if k != axis)).astype("int64")
            wrapped = tirx.Select(index < 0, index + sizes[0], index)
            return tirx.Select(wrapped == i[axis], values(1), values(0))

        return te.compute(dims, pick, name="one_hot")

    op.state(2, [2])
    return op.te(compute, op.x(0), op.x(2), name="one_hot", dims=[depth])


@converter("Trilu")
def trilu(op: Op) -> relax.Expr:
    """Keep one triangle of the last two axes; the diagonal may be given at run time."""
    upper = bool(op.attr("upper", 1))
    known = op.constant(1)
    fixed = int(known.reshape(-1)[0]) if known is not None else 0
    if op.has(1):
        op.state(1, [1] * op.ndim(1))
    diagonal = [op.x(1)] if op.has(1) and known is None else []
    dtype = op.dtype()

    def compute(x: te.Tensor, *given: te.Tensor) -> te.Tensor:
        def pick(*i: Any) -> Any:
            k = given[0](*([0] * len(given[0].shape))).astype("int64") if given else fixed
            kept = i[-1] - i[-2] >= k if upper else i[-1] - i[-2] <= k
            return tirx.Select(kept, x(*i), tirx.const(0, dtype))

        return te.compute(x.shape, pick, name="trilu")

    return op.te(compute, op.x(), *diagonal)


@converter("ReverseSequence")
def reverse_sequence(op: Op) -> relax.Expr:
    """Reverse the first elements of each sequence, as many as its length."""
    time, batch = int(op.attr("time_axis", 0)), int(op.attr("batch_axis", 1))
    op.state(1, [op.shape()[batch]])
    lengths = at_most(op, 1, op.shape()[time], "the length of a sequence")
    return op.te(lambda x, n: reverse_sequences(x, n, time, batch), op.x(0), lengths)
