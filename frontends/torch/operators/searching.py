"""Where numbers stand among sorted ones."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from frontends.computations.gather import gather_elements
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.operators.elementwise import common_dtype
from frontends.torch.registry import converter


@converter("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def bucketize(
    b: GraphBuilder, x: Value, boundaries: Value, *, out_int32: bool = False, right: bool = False
) -> relax.Expr:
    """How many boundaries are less than each x; with `right`, not greater. NaN is above all."""
    return _count_below(b, boundaries, x, right, 0)


@converter("aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def searchsorted(
    b: GraphBuilder,
    sorted_sequence: Value,
    x: Value,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value = None,
) -> relax.Expr:
    """How many numbers of each sorted last axis are less than x; from the right, not greater."""
    ranks = b.tensor(sorted_sequence).ty.ndim - 1
    if sorter is not None:  # the order that sorts each last axis
        data = b.tensor(sorted_sequence)
        order = b.checked(sorter, b.shape(data)[ranks])
        sorted_sequence = b.te(
            lambda t, places: gather_elements(t, places, ranks), data, order, name="sorted"
        )
    return _count_below(b, sorted_sequence, x, right or side == "right", ranks)


def _count_below(b: GraphBuilder, bounds: Value, x: Value, right: bool, shared: int) -> relax.Expr:
    """Count in the last axis of `bounds`, whose first `shared` axes are those of x too."""
    dtype = common_dtype(bounds, x)
    table, data = b.tensor(bounds, dtype), b.tensor(x, dtype)
    count = b.dtype

    def compute(bound: te.Tensor, value: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, bound.shape[-1]), name="k")

        def place(*at: Any) -> Any:
            limit, number = bound(*at[:shared], k), value(*at)
            above = limit > number if right else limit >= number
            return te.sum(tirx.Select(above, tirx.const(0, count), tirx.const(1, count)), axis=k)

        return te.compute(value.shape, place, name="place")

    return b.te(compute, table, data)
