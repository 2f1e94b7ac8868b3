"""Operators whose result's size depends on the data: one kernel counts, a second one fills."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op as R

from frontends.computations.exact_reshape import exact_reshape
from frontends.computations.gather import gather
from frontends.computations.non_max_suppression import selected_boxes, suppress
from frontends.computations.selection import count_nonzero, nonzero
from frontends.computations.unique import describe_groups, group_equal
from frontends.dims import Dim
from frontends.onnx.op import Op
from frontends.onnx.operators.run_time_size import as_rows, counted, parts
from frontends.onnx.registry import converter


@converter("NonZero")
def non_zero(op: Op) -> relax.Expr:
    """Return the coordinates of elements that are not zero, one row an axis."""
    dims = list(op.shape()) or [1]
    count = counted(op, op.te(count_nonzero, op.x(), name="count_nonzero"))
    return op.te(
        lambda x, sizes: nonzero(x, sizes[0], sizes[1:]),
        op.x(),
        name="nonzero",
        dims=[count, *dims],
    )


@converter("Compress")
def compress(op: Op) -> relax.Expr:
    """Keep the slices, or elements of the flat tensor, whose condition is true."""
    if op.has_attr("axis"):
        x, axis, length = op.x(), op.axis(0), op.shape()[op.axis(0)]
    else:
        length = op.arithmetic.product(op.shape())
        x, axis = op.emit(exact_reshape(op.x(), relax.ShapeExpr([length]))), 0
    known = op.constant(1)
    if known is not None:
        places = np.nonzero(known)[0].astype("int64")
        if places.size and isinstance(length, int) and places[-1] >= length:
            raise IndexError(f"the condition selects {places[-1]} of {length}")
        return op.te(lambda t, i: gather(t, i, axis), x, op.const(places, "int64"), name="compress")
    condition = op.x(1)
    limited = op.te(
        lambda c, sizes: count_nonzero(c, sizes[0]), condition, name="count_nonzero", dims=[length]
    )
    count = counted(op, limited)
    found = op.te(
        lambda c, sizes: nonzero(c, sizes[0], c.shape), condition, name="nonzero", dims=[count]
    )
    return op.te(
        lambda t, i: gather(t, i, axis),
        x,
        op.emit(exact_reshape(found, relax.ShapeExpr([count]))),
        name="compress",
    )


@converter("Unique")
def unique(op: Op) -> list[relax.Expr | None]:
    """Return the distinct elements or slices, where they first are, the way back, their counts."""
    if op.has_attr("axis"):
        axis = op.axis(0)
        x = as_rows(op, op.x(), op.shape(), axis)
        before, after = list(op.shape()[:axis]), list(op.shape()[axis + 1 :])
    else:
        x = as_rows(op, op.x(), [op.arithmetic.product(op.shape())], 0)
        before, after = [], []
    order, group, number = parts(op, op.te(group_equal, x, name="group_equal"), 3)
    count = counted(op, number)
    is_sorted = bool(op.attr("sorted", 1))
    described = op.te(
        lambda o, g, sizes: describe_groups(o, g, sizes[0], is_sorted=is_sorted),
        order, group, name="describe_groups", dims=[count],
    )  # fmt: skip
    first, inverse, sizes = parts(op, described, 3)
    rows = op.te(lambda t, i: gather(t, i, 1), x, first, name="unique")
    values = exact_reshape(rows, relax.ShapeExpr([*before, count, *after]))
    return [op.emit(values), first, inverse, sizes][: len(op.node.output)]


@converter("NonMaxSuppression")
def non_max_suppression(op: Op) -> relax.Expr:
    """Return (image, class, box) of each box that no better one overlaps too much."""
    if not op.has(2):
        return op.const(np.zeros((0, 3)), "int64")  # at most 0 boxes, the default
    center = bool(op.attr("center_point_box", 0))

    def scalar(place: int, dtype: str, default: float) -> relax.Expr:
        if not op.has(place):
            return op.const([default], dtype)
        flat = op.emit(exact_reshape(op.x(place), relax.ShapeExpr([1])))
        return flat if op.dtype(place) == dtype else op.emit(R.astype(flat, dtype))

    images, boxes = op.shape()[:2]
    op.state(0, [images, boxes, 4])
    op.state(1, [images, op.shape(1)[1], boxes])
    thresholds = [scalar(4, op.dtype(1), 0.0)] if op.has(4) else []
    suppressed = op.te(
        lambda boxes, scores, most, overlap, *least: suppress(
            boxes, scores, most, overlap, least[0] if least else None, center=center
        ),
        op.x(0), op.x(1), scalar(2, "int64", 0), scalar(3, op.dtype(0), 0.0), *thresholds,
        name="suppress",
    )  # fmt: skip
    chosen, number, total = parts(op, suppressed, 3)
    count: Dim = counted(op, total)
    return op.te(
        lambda boxes, counts, sizes: selected_boxes(boxes, counts, sizes[0]),
        chosen, number, name="selected_boxes", dims=[count],
    )  # fmt: skip
