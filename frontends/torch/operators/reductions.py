"""Sums, means, extrema, variance, and scans along axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter


@converter("aten.sum.default", "aten.sum.dim_IntList")
def sum_(
    b: GraphBuilder, x: Value, dim: Any = None, keepdim: bool = False, **_dtype: Any
) -> relax.Expr:
    """The sum over axes, in the result's dtype (int64 for integers and booleans)."""
    return _reduce(b, relax.op.sum, x, dim, keepdim)


@converter("aten.mean.default", "aten.mean.dim")
def mean(
    b: GraphBuilder, x: Value, dim: Any = None, keepdim: bool = False, **_dtype: Any
) -> relax.Expr:
    """The mean over axes."""
    return _reduce(b, relax.op.mean, x, dim, keepdim)


@converter("aten.amax.default")
def amax(b: GraphBuilder, x: Value, dim: Any = (), keepdim: bool = False) -> relax.Expr:
    """The maximum over axes; NaN wins."""
    return _reduce(b, relax.op.max, x, list(dim), keepdim)


@converter("aten.amin.default")
def amin(b: GraphBuilder, x: Value, dim: Any = (), keepdim: bool = False) -> relax.Expr:
    """The minimum over axes; NaN wins."""
    return _reduce(b, relax.op.min, x, list(dim), keepdim)


@converter("aten.max.default")
def max_all(b: GraphBuilder, x: Value) -> relax.Expr:
    """The maximum of all elements."""
    return _reduce(b, relax.op.max, x, None, False)


@converter("aten.min.default")
def min_all(b: GraphBuilder, x: Value) -> relax.Expr:
    """The minimum of all elements."""
    return _reduce(b, relax.op.min, x, None, False)


@converter("aten.max.dim")
def max_dim(
    b: GraphBuilder, x: Value, dim: int, keepdim: bool = False
) -> tuple[relax.Expr, relax.Expr]:
    """The maximum along an axis, and where it is."""
    return _extremum_with_index(b, relax.op.max, relax.op.argmax, x, dim, keepdim)


@converter("aten.min.dim")
def min_dim(
    b: GraphBuilder, x: Value, dim: int, keepdim: bool = False
) -> tuple[relax.Expr, relax.Expr]:
    """The minimum along an axis, and where it is."""
    return _extremum_with_index(b, relax.op.min, relax.op.argmin, x, dim, keepdim)


@converter("aten.prod.default", "aten.prod.dim_int")
def prod(
    b: GraphBuilder, x: Value, dim: Any = None, keepdim: bool = False, **_dtype: Any
) -> relax.Expr:
    """The product over one axis, or all."""
    return _reduce(b, relax.op.prod, x, dim, keepdim)


@converter("aten.any.default", "aten.any.dim", "aten.any.dims")
def any_(b: GraphBuilder, x: Value, dim: Any = None, keepdim: bool = False) -> relax.Expr:
    """Whether any element along the axes is true."""
    return _reduce_bool(b, relax.op.max, x, dim, keepdim)


@converter("aten.all.default", "aten.all.dim", "aten.all.dims")
def all_(b: GraphBuilder, x: Value, dim: Any = None, keepdim: bool = False) -> relax.Expr:
    """Whether all elements along the axes are true."""
    return _reduce_bool(b, relax.op.min, x, dim, keepdim)


@converter("aten.argmax.default")
def argmax(b: GraphBuilder, x: Value, dim: int | None = None, keepdim: bool = False) -> relax.Expr:
    """Where the maximum along an axis is (in the flattened tensor without an axis)."""
    return _arg(b, relax.op.argmax, x, dim, keepdim)


@converter("aten.argmin.default")
def argmin(b: GraphBuilder, x: Value, dim: int | None = None, keepdim: bool = False) -> relax.Expr:
    """Where the minimum along an axis is (in the flattened tensor without an axis)."""
    return _arg(b, relax.op.argmin, x, dim, keepdim)


@converter("aten.var.correction")
def var(
    b: GraphBuilder,
    x: Value,
    dim: Any = None,
    *,
    correction: float | None = 1,
    keepdim: bool = False,
) -> relax.Expr:
    """The variance with divisor n - correction, in two passes: mean first, then the deviations."""
    data = b.tensor(x)
    axes = b.axes(dim, data.ty.ndim)
    centre = b.emit(relax.op.mean(data, axes, keepdims=True))
    deviation = b.emit(relax.op.subtract(data, centre))
    squares = b.emit(relax.op.multiply(deviation, deviation))
    count = 1
    for axis in axes:
        count *= b.static(b.shape(data)[axis])
    divisor = max(count - (1 if correction is None else correction), 0)
    total = b.emit(relax.op.sum(squares, axes, keepdims=keepdim))
    return relax.op.divide(total, relax.const(divisor, b.dtype))


@converter("aten.cumsum.default")
def cumsum(b: GraphBuilder, x: Value, dim: int, **_dtype: Any) -> relax.Expr:
    """The running sum along an axis."""
    return _scan(b, relax.op.cumsum, x, dim)


@converter("aten.cumprod.default")
def cumprod(b: GraphBuilder, x: Value, dim: int, **_dtype: Any) -> relax.Expr:
    """The running product along an axis."""
    return _scan(b, relax.op.cumprod, x, dim)


def _scan(b: GraphBuilder, op: Callable[..., relax.Expr], x: Value, dim: int) -> relax.Expr:
    data = b.tensor(x, b.dtype)
    if data.ty.ndim == 0:
        return data
    return op(data, axis=b.axis(dim, data.ty.ndim), dtype=b.dtype)


def _reduce(
    b: GraphBuilder, op: Callable[..., relax.Expr], x: Value, dim: Any, keepdim: bool
) -> relax.Expr:
    data = b.tensor(x, b.dtype)
    if data.ty.ndim == 0:
        return data
    return op(data, b.axes(dim, data.ty.ndim), keepdims=keepdim)


def _reduce_bool(
    b: GraphBuilder, op: Callable[..., relax.Expr], x: Value, dim: Any, keepdim: bool
) -> relax.Expr:
    """`any` is the maximum of 0s and 1s, `all` their minimum."""
    truth = b.tensor(x, "bool")
    if truth.ty.ndim == 0:
        return truth
    bits = b.cast(truth, "int8")
    return b.cast(b.emit(op(bits, b.axes(dim, truth.ty.ndim), keepdims=keepdim)), "bool")


def _arg(
    b: GraphBuilder, op: Callable[..., relax.Expr], x: Value, dim: int | None, keepdim: bool
) -> relax.Expr:
    data = b.tensor(x)
    if data.ty.dtype == "bool":
        data = b.cast(data, "int8")
    if dim is None:
        flat = b.reshape(data, [-1])
        return b.reshape(b.emit(op(flat, axis=0, keepdims=False)), b.result_shape)
    return op(data, axis=b.axis(dim, data.ty.ndim), keepdims=keepdim)


def _extremum_with_index(
    b: GraphBuilder,
    value_op: Callable[..., relax.Expr],
    index_op: Callable[..., relax.Expr],
    x: Value,
    dim: int,
    keepdim: bool,
) -> tuple[relax.Expr, relax.Expr]:
    data = b.tensor(x)
    axis = b.axis(dim, data.ty.ndim)
    return (
        b.emit(value_op(data, [axis], keepdims=keepdim)),
        b.emit(index_op(data, axis=axis, keepdims=keepdim)),
    )
