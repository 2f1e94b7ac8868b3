"""Where numbers stand among sorted ones."""

from __future__ import annotations

from tvm import relax

from frontends.computations.binary_search import insertion_places
from frontends.computations.gather import gather_elements
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.operators.elementwise import common_dtype
from frontends.torch.registry import converter


@converter("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def bucketize(
    b: GraphBuilder, x: Value, boundaries: Value, *, out_int32: bool = False, right: bool = False
) -> relax.Expr:
    """Before which boundary each x stands; with `right`, behind equal ones. NaN is above all."""
    return _places(b, boundaries, x, right, 0)


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
    """Before which number of each sorted last axis x stands; from the right, behind equal ones."""
    ranks = b.tensor(sorted_sequence).ty.ndim - 1
    if sorter is not None:  # the order that sorts each last axis
        data = b.tensor(sorted_sequence)
        order = b.checked(sorter, b.shape(data)[ranks])
        sorted_sequence = b.te(
            lambda t, places: gather_elements(t, places, ranks), data, order, name="sorted"
        )
    return _places(b, sorted_sequence, x, right or side == "right", ranks)


def _places(b: GraphBuilder, bounds: Value, x: Value, right: bool, shared: int) -> relax.Expr:
    """Search the last axis of `bounds`, whose first `shared` axes are those of x too."""
    dtype = common_dtype(bounds, x)
    table, data, count = b.tensor(bounds, dtype), b.tensor(x, dtype), b.dtype
    return b.te(lambda t, v: insertion_places(t, v, shared, right, count), table, data)
