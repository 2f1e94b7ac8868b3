"""Sorting and selection by order. Equal elements keep their order; NaN counts as the greatest."""

from __future__ import annotations

import math
from typing import Any

from tvm import relax, te, tirx

from frontends.computations.gather import gather_elements
from frontends.computations.kernel import index
from frontends.computations.not_a_number import is_nan
from frontends.computations.sort import argsort, top_k
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter
from frontends.torch.sizes import product

Pair = tuple[relax.Expr, relax.Expr]


@converter("aten.sort.default")
def sort(b: GraphBuilder, x: Value, dim: int = -1, descending: bool = False) -> Pair:
    """The elements in order along an axis, and where they were."""
    data = b.tensor(x)
    shape = b.shape(data)
    rows = b.rows(data, b.axis(dim, len(shape)))
    places = sorted_places(b, rows, descending=descending)
    values = b.te(lambda t, i: gather_elements(t, i, 1), rows, places, name="sorted")
    return b.reshape(values, shape), b.reshape(places, shape)


def sorted_places(b: GraphBuilder, rows: relax.Expr, *, descending: bool) -> relax.Expr:
    """Return where the elements of (outer, n, inner) in order along the middle axis were, int64."""

    def compute(t: te.Tensor) -> list[te.Tensor]:
        order = argsort(t, descending=descending)
        return [te.compute(t.shape, lambda o, j, i: order(0, o, j, i), name="places"), order]

    return b.parts(b.te(compute, rows, name="argsort"), 1)[0]


@converter("aten.sort.stable")
def sort_stable(
    b: GraphBuilder,
    x: Value,
    *,
    stable: bool | None = None,
    dim: int = -1,
    descending: bool = False,
) -> Pair:
    """As `sort`, which is stable either way."""
    return sort(b, x, dim, descending)


@converter("aten.argsort.default")
def argsort_(b: GraphBuilder, x: Value, dim: int = -1, descending: bool = False) -> relax.Expr:
    """Where the elements in order along an axis were."""
    return sort(b, x, dim, descending)[1]


@converter("aten.argsort.stable")
def argsort_stable(
    b: GraphBuilder, x: Value, *, stable: bool, dim: int = -1, descending: bool = False
) -> relax.Expr:
    """As `argsort`, which is stable either way."""
    return sort(b, x, dim, descending)[1]


@converter("aten.topk.default")
def topk(
    b: GraphBuilder, x: Value, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Pair:
    """The k greatest (or least) elements along an axis in order, and where they are."""
    data = b.tensor(x)
    shape = b.result_shape
    rows = b.rows(data, b.axis(dim, data.ty.ndim))
    count = b.size(k)
    if isinstance(count, int):
        both = b.te(lambda t: top_k(t, count, largest=largest), rows)
    else:
        both = b.te(lambda t, sizes: top_k(t, sizes[0], largest=largest), rows, dims=[count])
    values, places = b.parts(both, 2)
    return b.reshape(values, shape), b.reshape(places, shape)


@converter("aten.kthvalue.default")
def kthvalue(b: GraphBuilder, x: Value, k: int, dim: int = -1, keepdim: bool = False) -> Pair:
    """The k-th smallest element along an axis (from 1), and where it is."""
    return _nth(b, x, k - 1, dim)


@converter("aten.median.dim", "aten.nanmedian.dim")
def median(b: GraphBuilder, x: Value, dim: int, keepdim: bool = False) -> Pair:
    """The lower middle element along an axis, and where it is.

    Where there is NaN, it is the first one; for `nanmedian` NaN does not count.
    """
    data, shape = b.tensor(x), b.result_shape
    axis = b.axis(dim, data.ty.ndim)
    rows = b.rows(data, axis)
    return tuple(b.reshape(part, shape) for part in _middle(b, rows))


@converter("aten.median.default", "aten.nanmedian.default")
def median_of_all(b: GraphBuilder, x: Value) -> relax.Expr:
    """The lower middle element of all; of none it is NaN."""
    data = b.tensor(x)
    count = product(b.shape(data))
    if isinstance(count, int) and count == 0:
        return relax.const(math.nan, b.dtype)
    return b.reshape(_middle(b, b.reshape(data, [1, count, 1]))[0], [])


def _middle(b: GraphBuilder, rows: relax.Expr) -> Pair:
    """Return the median along the middle axis of (outer, n, inner), and where it is."""
    skips_nan = "nan" in str(b.node.target)
    order = sorted_places(b, rows, descending=False)
    values = b.te(lambda t, i: gather_elements(t, i, 1), rows, order, name="sorted")

    def place(t: te.Tensor) -> te.Tensor:
        outer, n, inner = t.shape
        k = te.reduce_axis((0, n), name="k")
        one, zero = tirx.const(1, "int64"), tirx.const(0, "int64")

        def number(o: Any, _: Any, i: Any) -> Any:
            is_float = "float" in str(t.dtype)
            counted = tirx.Select(is_nan(t(o, k, i)), zero, one) if is_float else one
            return te.sum(counted, axis=k)

        numbers = te.compute((outer, 1, inner), number, name="numbers")

        def middle(o: Any, j: Any, i: Any) -> Any:
            found = numbers(o, j, i)  # NaN stands behind the numbers
            half = tirx.max(tirx.floordiv(found - 1, tirx.const(2, "int64")), zero)
            return half if skips_nan else tirx.Select(found < index(n), found, half)

        return te.compute((outer, 1, inner), middle, name="middle")

    at = b.te(place, values, name="middle")
    values, places = (
        b.te(lambda t, i: gather_elements(t, i, 1), part, at, name="median")
        for part in (values, order)
    )
    return values, places


def _nth(b: GraphBuilder, x: Value, place: int, dim: int) -> Pair:
    data = b.tensor(x)
    axis = b.axis(dim, data.ty.ndim)
    shape = b.result_shape
    values, places = (b.rows(part, axis) for part in sort(b, data, axis))
    return (
        b.reshape(b.slice_axis(values, 1, place, place + 1), shape),
        b.reshape(b.slice_axis(places, 1, place, place + 1), shape),
    )
