"""Stable sorting and selection along an axis.

Both order elements by value and equal ones by place, lower first. NaN counts as greater than every
number, as in NumPy and PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from frontends.computations.kernel import (
    Scalar,
    Shape,
    divided,
    index,
    kernel,
    parallel,
    serial,
    when,
)

# Up to this k keeping the best k in order costs less than sorting everything.
MAX_INSERTION = 32


def precedes(a: Any, b: Any, descending: bool = False) -> Any:
    """Tell whether scalar `a` comes strictly before `b`."""
    dtype = str(a.ty)
    if dtype == "bool":
        a, b = a.astype("uint8"), b.astype("uint8")
    low, high = (b, a) if descending else (a, b)
    if "float" not in dtype:
        return low < high
    if dtype in ("float16", "bfloat16"):
        low, high = low.astype("float32"), high.astype("float32")
    return tirx.any(low < high, tirx.all(tirx.isnan(high), tirx.Not(tirx.isnan(low))))


def argsort(x: te.Tensor, *, descending: bool) -> te.Tensor:
    """Return the places of the elements in order, along the middle axis.

    Args:
        x: (outer, n, inner), any number type.
        descending: Greatest first; equal elements keep their order either way.

    Returns:
        int64 (2, outer, n, inner), of which entry 0 counts.
    """
    outer, n, inner = x.shape

    def body(ins: list[Any], outs: list[Any]) -> None:
        with parallel(outer * inner) as row:
            _sort_row(ins[0], outs[0], row, descending)

    return kernel([x], [((2, outer, n, inner), "int64")], body, "argsort")[0]


def _sort_row(data: Any, order: Any, row: Any, descending: bool) -> None:
    """Sort row `row` of (outer, n, inner) data."""
    _, n, inner = data.shape
    o, i = divided(row, inner)
    merge_sort(
        n,
        lambda side, j: (side, o, j, i),
        order,
        lambda a, b: precedes(data[o, a, i], data[o, b, i], descending),
    )


def merge_sort(
    n: Any,
    place: Callable[[Any, Any], tuple[Any, ...]],
    order: Any,
    comes_before: Callable[[Any, Any], Any],
) -> None:
    """State a bottom-up merge sort of [0, n); O(n log n) whatever the data.

    Args:
        n: How many items.
        place: The index into `order` for a side, 0 or 1, and a position.
        order: Holds the items in two sides, of which side 0 is the result.
        comes_before: Tells whether one item comes strictly before another.
    """
    with serial(n) as j:
        order[place(index(0), j)] = j
    width, side = Scalar(1), Scalar(0)
    with T.While(width() < n):
        with serial(tirx.floordiv(n + 2 * width() - 1, 2 * width())) as pair:
            start = pair * 2 * width()
            middle = Scalar(tirx.min(start + width(), index(n)))
            end = Scalar(tirx.min(start + 2 * width(), index(n)))
            left, right = Scalar(start), Scalar(middle())
            with serial(end() - start) as step:
                # The right one goes first only if it is strictly before: stable.
                take_right = Scalar(left() >= middle(), "bool")
                with when(tirx.all(left() < middle(), right() < end())):
                    first, second = order[place(side(), left())], order[place(side(), right())]
                    take_right.set(comes_before(second, first))
                target = place(1 - side(), start + step)
                with T.If(take_right()):
                    with T.Then():
                        order[target] = order[place(side(), right())]
                        right.set(right() + 1)
                    with T.Else():
                        order[target] = order[place(side(), left())]
                        left.set(left() + 1)
        width.set(width() * 2)
        side.set(1 - side())
    with when(side() == 1):
        with serial(n) as j:
            order[place(index(0), j)] = order[place(index(1), j)]


def top_k(x: te.Tensor, k: Any, *, largest: bool) -> list[te.Tensor]:
    """Return the first k elements in order, and their places, along the middle axis.

    Args:
        x: (outer, n, inner), any number type.
        k: An int or an int64 expression, at most n.
        largest: Whether the greatest or the least elements are wanted.

    Returns:
        Values (outer, k, inner) of x's dtype, places of int64, and perhaps scratch memory.
    """
    outer, n, inner = x.shape
    few = isinstance(k, int) and k <= MAX_INSERTION

    def body(ins: list[Any], outs: list[Any]) -> None:
        data, (values, places, *order) = ins[0], outs
        with parallel(outer * inner) as row:
            o, i = divided(row, inner)
            if few:
                _select_row(data, places, row, k, largest)
            else:
                _sort_row(data, order[0], row, largest)
            with serial(k) as j:
                if not few:
                    places[o, j, i] = order[0][0, o, j, i]
                values[o, j, i] = data[o, places[o, j, i], i]

    shapes: list[tuple[Shape, str]] = [((outer, k, inner), str(x.dtype))]
    shapes.append(((outer, k, inner), "int64"))
    if not few:
        shapes.append(((2, outer, n, inner), "int64"))
    return kernel([x], shapes, body, "top_k")


def _select_row(data: Any, best: Any, row: Any, k: int, descending: bool) -> None:
    """Keep the best k so far in order; most elements fail against the last of them."""
    _, n, inner = data.shape
    o, i = divided(row, inner)
    with serial(n) as j:
        slot = Scalar(tirx.min(j, index(k)))
        searching = Scalar(slot() > 0, "bool")
        with T.While(searching()):
            before = slot() - 1
            with T.If(precedes(data[o, j, i], data[o, best[o, before, i], i], descending)):
                with T.Then():
                    with when(slot() < k):
                        best[o, slot(), i] = best[o, before, i]
                    slot.set(before)
                    searching.set(slot() > 0)
                with T.Else():
                    searching.set(False)
        with when(slot() < k):
            best[o, slot(), i] = j
