"""Writing at computed places, in the order of the updates, so that duplicates combine as specified.

Negative indices count from the end; an update outside the tensor is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from frontends.computations.kernel import (
    Scalar,
    divided,
    index,
    kernel,
    parallel,
    product,
    serial,
    when,
)
from frontends.computations.not_a_number import is_nan


def combine(old: Any, new: Any, how: str) -> Any:
    """Return `new` combined with what was there: none, add, mul, max or min; NaN propagates."""
    dtype = str(old.ty)
    if how == "none":
        return new
    if dtype == "bool":
        return tirx.any(old, new) if how in ("add", "max") else tirx.all(old, new)
    if how == "add":
        return old + new
    if how == "mul":
        return old * new
    wins = old > new if how == "max" else old < new
    if "float" in dtype:
        wins = tirx.any(wins, is_nan(old))
    return tirx.Select(wins, old, new)


def scatter_elements(
    data: te.Tensor, indices: te.Tensor, updates: te.Tensor, axis: int, how: str
) -> te.Tensor:
    """Return `data` with single elements written along `axis`.

    Args:
        data: Any shape.
        indices: Of the same rank, no longer than `data` on the other axes.
        updates: Shaped like `indices`.
        axis: Counted from the front.
        how: none, add, mul, max or min.
    """
    rank = len(data.shape)
    others = [place for place in range(rank) if place != axis]

    def body(ins: list[Any], outs: list[Any]) -> None:
        source, places, values = ins
        out = outs[0]
        with parallel(product(data.shape)) as flat:
            out[flat] = source[flat]
        # Updates meet only on the same line along the axis, which one iteration goes through.
        with parallel(product([indices.shape[other] for other in others])) as line:
            rest, at = line, [index(0)] * rank
            for other in reversed(others):
                rest, at[other] = divided(rest, indices.shape[other])
            with serial(indices.shape[axis]) as step:
                here = tuple([*at[:axis], step, *at[axis + 1 :]])
                place = Scalar(places[here])
                size = index(data.shape[axis])
                with when(place() < 0):
                    place.set(place() + size)
                with when(tirx.all(place() >= 0, place() < size)):
                    target = tuple([*at[:axis], place(), *at[axis + 1 :]])
                    out[target] = combine(out[target], values[here], how)

    shape = (data.shape, str(data.dtype))
    return kernel([data, indices, updates], [shape], body, "scatter_elements")[0]


def scatter_slices(
    data: te.Tensor, indices: te.Tensor, updates: te.Tensor, sizes: Sequence[Any], how: str
) -> te.Tensor:
    """Return `data` with whole slices written at index tuples.

    Args:
        data: (product of `sizes`, slice size).
        indices: (number of updates, length of `sizes`).
        updates: (number of updates, slice size).
        sizes: The leading dimensions of the data, which the tuples index.
        how: none, add, mul, max or min.
    """

    def body(ins: list[Any], outs: list[Any]) -> None:
        source, places, values = ins
        out = outs[0]
        with parallel(product(data.shape)) as flat:
            out[flat] = source[flat]
        with serial(indices.shape[0]) as number:
            row, inside = Scalar(0), Scalar(True, "bool")
            for column, size in enumerate(sizes):
                place = Scalar(places[number, column])
                with when(place() < 0):
                    place.set(place() + index(size))
                inside.set(tirx.all(inside(), place() >= 0, place() < index(size)))
                row.set(row() * index(size) + place())
            with when(inside()), serial(data.shape[1]) as column:
                out[row(), column] = combine(out[row(), column], values[number, column], how)

    shape = (data.shape, str(data.dtype))
    return kernel([data, indices, updates], [shape], body, "scatter_slices")[0]
