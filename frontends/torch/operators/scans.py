"""Running sums, products, extrema and log-sums along an axis."""

from __future__ import annotations

from typing import Any

from tvm import relax

from frontends.computations.running import running_extremum, running_logsumexp
from frontends.computations.scan import cumulate
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter
from frontends.torch.sizes import product


@converter("aten.cumsum.default")
def cumsum(b: GraphBuilder, x: Value, dim: int, **_dtype: Any) -> relax.Expr:
    """The running sum along an axis."""
    return _scan(b, x, dim, multiply=False)


@converter("aten.cumprod.default")
def cumprod(b: GraphBuilder, x: Value, dim: int, **_dtype: Any) -> relax.Expr:
    """The running product along an axis."""
    return _scan(b, x, dim, multiply=True)


def _scan(b: GraphBuilder, x: Value, dim: int, *, multiply: bool) -> relax.Expr:
    data = b.tensor(x, b.dtype)
    shape = b.shape(data)
    if not shape:
        return data
    axis = b.axis(dim, len(shape))

    def compute(t: Any, dims: list[Any]) -> Any:
        return cumulate(t, dims, axis, multiply=multiply, exclusive=False, reverse=False)

    flat = b.reshape(data, [product(shape)])
    name = "cumprod" if multiply else "cumsum"
    return b.reshape(b.te(compute, flat, name=name, dims=shape), shape)


@converter("aten.cummax.default")
def cummax(b: GraphBuilder, x: Value, dim: int) -> tuple[relax.Expr, relax.Expr]:
    """The running maximum along an axis, and the last place where it is."""
    return _extremum(b, x, dim, greatest=True)


@converter("aten.cummin.default")
def cummin(b: GraphBuilder, x: Value, dim: int) -> tuple[relax.Expr, relax.Expr]:
    """The running minimum along an axis, and the last place where it is."""
    return _extremum(b, x, dim, greatest=False)


def _extremum(
    b: GraphBuilder, x: Value, dim: int, *, greatest: bool
) -> tuple[relax.Expr, relax.Expr]:
    data = b.tensor(x)
    shape = b.shape(data)
    rows = b.rows(data, b.axis(dim, len(shape)))
    both = b.te(lambda t: running_extremum(t, greatest=greatest), rows, name="running_extremum")
    values, places = b.parts(both, 2)
    return b.reshape(values, shape), b.reshape(places, shape)


@converter("aten.logcumsumexp.default")
def logcumsumexp(b: GraphBuilder, x: Value, dim: int) -> relax.Expr:
    """The logarithm of the running sum of exponentials along an axis."""
    data = b.tensor(x)
    shape = b.shape(data)
    rows = b.rows(data, b.axis(dim, len(shape)))
    return b.reshape(b.te(running_logsumexp, rows), shape)
