"""Sorting and selection by order. Equal elements keep their order; NaN counts as the greatest."""

from __future__ import annotations

from typing import Any

from tvm import relax, te

from frontends.computations.gather import gather_elements
from frontends.computations.sort import argsort, top_k
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter

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
    """The lower middle element along an axis, and where it is; NaN where there is one."""
    if "nan" in str(b.node.target):
        raise b.unsupported("NaNs that do not count")
    if "float" in b.dtype:  # the middle moves to the end where an element is NaN
        raise b.unsupported("float elements, which may be NaN")
    data = b.tensor(x)
    shape = b.shape(data) or [1]
    return _nth(b, x, (b.static(shape[b.axis(dim, len(shape))]) - 1) // 2, dim)


def _nth(b: GraphBuilder, x: Value, place: int, dim: int) -> Pair:
    data = b.tensor(x)
    axis = b.axis(dim, data.ty.ndim)
    shape = b.result_shape
    values, places = (b.rows(part, axis) for part in sort(b, data, axis))
    return (
        b.reshape(b.slice_axis(values, 1, place, place + 1), shape),
        b.reshape(b.slice_axis(places, 1, place, place + 1), shape),
    )
