"""Sums, means, extrema and variance along axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx.experimental.symbolic_shapes import statically_known_true
from tvm import relax

from frontends.computations.arg_reduce import arg_extremum
from frontends.errors import InvalidModel
from frontends.torch.graph_builder import GraphBuilder, Size, Value
from frontends.torch.operators.creation import filled
from frontends.torch.registry import converter
from frontends.torch.sizes import product
from frontends.torch.source_line import source_line


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
    return _extremum_with_index(b, x, dim, greatest=True)


@converter("aten.min.dim")
def min_dim(
    b: GraphBuilder, x: Value, dim: int, keepdim: bool = False
) -> tuple[relax.Expr, relax.Expr]:
    """The minimum along an axis, and where it is."""
    return _extremum_with_index(b, x, dim, greatest=False)


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
    return _arg(b, x, dim, greatest=True)


@converter("aten.argmin.default")
def argmin(b: GraphBuilder, x: Value, dim: int | None = None, keepdim: bool = False) -> relax.Expr:
    """Where the minimum along an axis is (in the flattened tensor without an axis)."""
    return _arg(b, x, dim, greatest=False)


@converter("aten.var.correction")
def var(
    b: GraphBuilder,
    x: Value,
    dim: Any = None,
    *,
    correction: float | None = 1,
    keepdim: bool = False,
) -> relax.Expr:
    """The variance with divisor n - correction."""
    return _variance_and_mean(b, x, dim, correction, keepdim)[0]


@converter("aten.var_mean.correction")
def var_mean(
    b: GraphBuilder,
    x: Value,
    dim: Any = None,
    *,
    correction: float | None = 1,
    keepdim: bool = False,
) -> tuple[relax.Expr, relax.Expr]:
    """The variance, and the mean."""
    variance, centre = _variance_and_mean(b, x, dim, correction, keepdim)
    return variance, b.reshape(centre, b.result_shape)


def _variance_and_mean(
    b: GraphBuilder, x: Value, dim: Any, correction: float | None, keepdim: bool
) -> tuple[relax.Expr, relax.Expr]:
    """Return both in two passes, mean first, then the deviations; the mean keeps its axes."""
    data = b.tensor(x)
    if data.ty.ndim == 0:
        data = b.reshape(data, [1])
    if _is_over_nothing(b, data, dim):
        undefined = b.emit(filled(b, float("nan")))
        return undefined, undefined
    axes = b.axes(dim, data.ty.ndim)
    centre = b.emit(relax.op.mean(data, axes, keepdims=True))
    deviation = b.emit(relax.op.subtract(data, centre))
    squares = b.emit(relax.op.multiply(deviation, deviation))
    total = b.emit(relax.op.sum(squares, axes, keepdims=keepdim))
    count = product([b.shape(data)[axis] for axis in axes])
    divisor = _divisor(b, count, 1 if correction is None else correction)
    return b.reshape(b.emit(relax.op.divide(total, divisor)), b.result_shape), centre


def _divisor(b: GraphBuilder, count: Size, taken: float) -> relax.Expr:
    """Return count - taken, at least 0, in the result's dtype."""
    if isinstance(count, int):
        return relax.const(max(count - taken, 0), b.dtype)
    size = b.cast(b.size_tensor(count), b.dtype)
    left = b.emit(relax.op.subtract(size, relax.const(taken, b.dtype)))
    return b.emit(relax.op.maximum(left, relax.const(0, b.dtype)))


@converter("aten.var.dim")
def var_unbiased(
    b: GraphBuilder, x: Value, dim: Any, unbiased: bool = True, keepdim: bool = False
) -> relax.Expr:
    """The variance with divisor n - 1, or n."""
    return var(b, x, dim, correction=1 if unbiased else 0, keepdim=keepdim)


def _reduce(
    b: GraphBuilder, op: Callable[..., relax.Expr], x: Value, dim: Any, keepdim: bool
) -> relax.Expr:
    data = b.tensor(x, b.dtype)
    if data.ty.ndim == 0:
        return data
    if op in (relax.op.max, relax.op.min):
        _refuse_nothing(b, data, dim)
    elif _is_over_nothing(b, data, dim):
        return filled(b, _OF_NOTHING[op])
    if b.dtype == "bool":  # extrema of booleans
        return _reduce_bool(b, op, data, dim, keepdim)
    return op(data, b.axes(dim, data.ty.ndim), keepdims=keepdim)


# What a reduction of no elements gives; extrema have no such value.
_OF_NOTHING = {relax.op.sum: 0.0, relax.op.prod: 1.0, relax.op.mean: float("nan")}


def _is_over_nothing(b: GraphBuilder, data: relax.Expr, dim: Any) -> bool:
    sizes = [b.shape(data)[axis] for axis in b.axes(dim, data.ty.ndim)]
    return any(isinstance(size, int) and size == 0 for size in sizes)


def _refuse_nothing(b: GraphBuilder, data: relax.Expr, dim: Any) -> None:
    """Refuse an extremum of no elements, as torch does; where only the run knows, it is checked.

    Raises:
        InvalidModel: Naming the operator and the user's line.
    """
    message = f"{b.node.target}: no elements, so there is no extremum{source_line(b.node)}"
    if _is_over_nothing(b, data, dim):
        raise InvalidModel(message, node=b.node.name)
    fake = b.operand(0).shape
    if all(statically_known_true(fake[axis] != 0) for axis in b.axes(dim, data.ty.ndim)):
        return
    count = product([b.shape(data)[axis] for axis in b.axes(dim, data.ty.ndim)])
    b.requirements.add(b.size_tensor(count), message)


def _reduce_bool(
    b: GraphBuilder, op: Callable[..., relax.Expr], x: Value, dim: Any, keepdim: bool
) -> relax.Expr:
    """`any` is the maximum of 0s and 1s, `all` their minimum."""
    truth = b.tensor(x, "bool")
    if truth.ty.ndim == 0:
        return truth
    if _is_over_nothing(b, truth, dim):
        return filled(b, op is relax.op.min)
    bits = b.cast(truth, "int8")
    return b.cast(b.emit(op(bits, b.axes(dim, truth.ty.ndim), keepdims=keepdim)), "bool")


def _arg(b: GraphBuilder, x: Value, dim: int | None, *, greatest: bool) -> relax.Expr:
    data = b.tensor(x)
    if data.ty.ndim:
        _refuse_nothing(b, data, dim)
    if dim is None or data.ty.ndim == 0:
        data, dim = b.reshape(data, [product(b.shape(data))]), 0
    axis = b.axis(dim, data.ty.ndim)
    place = b.te(
        lambda t: arg_extremum(t, axis, greatest=greatest, last=False, keep_axis=False), data
    )
    return b.reshape(place, b.result_shape)


def _extremum_with_index(
    b: GraphBuilder, x: Value, dim: int, *, greatest: bool
) -> tuple[relax.Expr, relax.Expr]:
    data, shape = b.tensor(x), b.result_shape
    if data.ty.ndim == 0:
        return data, b.emit(relax.op.zeros(relax.ShapeExpr([]), "int64"))
    axis = b.axis(dim, data.ty.ndim)
    rows = b.cast(data, "int8") if b.dtype == "bool" else data
    value = b.emit((relax.op.max if greatest else relax.op.min)(rows, [axis]))
    value = b.cast(value, "bool") if b.dtype == "bool" else value
    place = b.emit(_arg(b, data, dim, greatest=greatest))
    return b.reshape(value, shape), b.reshape(place, shape)
