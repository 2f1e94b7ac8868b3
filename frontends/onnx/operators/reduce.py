"""Reductions, arg-reductions and scans."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax, tirx
from tvm.relax import op as R

from frontends.computations.arg_reduce import arg_extremum
from frontends.computations.exact_reshape import exact_reshape
from frontends.computations.reduce import REDUCTIONS, kept_dims, reduce_axes
from frontends.computations.scan import cumulate
from frontends.dims import dtype_of, is_static, prim
from frontends.errors import InvalidModel
from frontends.onnx.indices import indices_within
from frontends.onnx.op import Op, normalize_axis
from frontends.onnx.operators.elementwise import is_float
from frontends.onnx.operators.run_time_size import parts, read_sizes
from frontends.onnx.registry import converter

_NAMES = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
    "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare",
)  # fmt: skip


@converter(*_NAMES)
def reduce_attribute(op: Op) -> relax.Expr:
    """Reduce over the attribute `axes` (until opset 12 for ReduceSum, 17 for the others)."""
    return _reduce(op, op.axes(None))


@converter("ReduceSum", since=13)
def reduce_sum_input(op: Op) -> relax.Expr:
    """Reduce over the input `axes`."""
    return _reduce_input(op)


@converter(*(name for name in _NAMES if name != "ReduceSum"), since=18)
def reduce_input(op: Op) -> relax.Expr:
    """Reduce over the input `axes`."""
    return _reduce_input(op)


def _reduce_input(op: Op) -> relax.Expr:
    keep_all = bool(op.attr("noop_with_empty_axes", 0))
    if not op.has(1) or (is_static(op.shape(1)[0]) and op.shape(1)[0] == 0):
        return _reduce(op, [] if keep_all else None)
    if op.constant(1) is None:
        return _reduce_run_time(op)
    return _reduce(op, op.axes(1))


_KINDS = {
    "ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min",
    "ReduceProd": "prod", "ReduceL1": "l1", "ReduceL2": "l2", "ReduceSumSquare": "sum_square",
    "ReduceLogSum": "log_sum", "ReduceLogSumExp": "log_sum_exp",
}  # fmt: skip


def _reduce_run_time(op: Op) -> relax.Expr:
    """Reduce over axes that are known only at run time: so is the result's shape."""
    dims, keep = list(op.shape()), bool(op.attr("keepdims", 1))
    number = op.shape(1)[0]
    if not keep and not is_static(number):
        raise op.unsupported("an unknown number of axes that are dropped: the result has no rank")
    given = indices_within(op, 1, [len(dims)])
    every = not op.attr("noop_with_empty_axes", 0)
    found = op.te(
        lambda axes, sizes: kept_dims(axes, sizes, keep=keep, every_if_none=every),
        given, name="kept_dims", dims=dims,
    )  # fmt: skip
    shape, reduced = parts(op, found, 2)
    kind = REDUCTIONS[_KINDS[op.node.op_type]]
    sizes = read_sizes(op, shape) if keep or int(number) < len(dims) else []
    if not sizes:
        return op.te(lambda x, mask: reduce_axes(x, mask, [], kind), op.x(), reduced)
    return op.te(
        lambda x, mask, sizes: reduce_axes(x, mask, sizes, kind), op.x(), reduced, dims=sizes
    )


def _reduce(op: Op, axes: list[int] | None) -> relax.Expr:
    x, keep = op.x(), bool(op.attr("keepdims", 1))
    name, dtype = op.node.op_type, op.dtype()
    axes = list(range(op.ndim())) if axes is None else axes

    def by(function: Callable[..., relax.Expr], data: relax.Expr) -> relax.Expr:
        return op.emit(function(data, axes, keep)) if axes else data

    over = [op.shape()[axis] for axis in axes]
    if name == "ReduceMean" and is_float(dtype) and any(is_static(d) and d == 0 for d in over):
        # 0 / 0, which TVM refuses to write down where it sees the 0.
        return R.multiply(by(R.sum, x), op.const(np.nan))
    if name == "ReduceMean" and not is_float(dtype):
        return R.astype(by(R.mean, op.emit(R.astype(x, "float64"))), dtype)
    if name in ("ReduceMax", "ReduceMin") and dtype == "bool":
        function = R.max if name == "ReduceMax" else R.min
        return R.astype(by(function, op.emit(R.astype(x, "uint8"))), "bool")
    simple = {"ReduceSum": R.sum, "ReduceMean": R.mean, "ReduceMax": R.max, "ReduceMin": R.min,
              "ReduceProd": R.prod}  # fmt: skip
    if name in simple:
        return by(simple[name], x)
    if name == "ReduceL1":
        return by(R.sum, op.emit(R.abs(x)))
    if name == "ReduceSumSquare":
        return by(R.sum, op.emit(R.multiply(x, x)))
    if name == "ReduceL2":
        wide = x if is_float(dtype) else op.emit(R.astype(x, "float64"))
        root = op.emit(R.sqrt(by(R.sum, op.emit(R.multiply(wide, wide)))))
        return root if is_float(dtype) else R.astype(root, dtype)
    wide = x if is_float(dtype) else op.emit(R.astype(x, "float64"))
    if name == "ReduceLogSum":
        result = op.emit(R.log(by(R.sum, wide)))
    else:
        result = _log_sum_exp(op, wide, axes, keep)
    return result if is_float(dtype) else R.astype(result, dtype)


def _log_sum_exp(op: Op, x: relax.Expr, axes: list[int], keep: bool) -> relax.Expr:
    """Emit log(sum(exp(x))) with the maximum taken out first, so that exp cannot overflow."""
    if not axes:
        return x
    top = op.emit(R.max(x, axes, True))
    zero = op.const(0, dtype_of(x))
    top = op.emit(R.where(op.emit(R.isinf(top)), zero, top))
    total = op.emit(R.sum(op.emit(R.exp(op.emit(R.subtract(x, top)))), axes, True))
    result = op.emit(R.add(op.emit(R.log(total)), top))
    return result if keep else op.emit(R.squeeze(result, axes))


@converter("ArgMax", "ArgMin")
def arg_reduce(op: Op) -> relax.Expr:
    """Return the first, or with `select_last_index` the last, place of the extremum."""
    axis, keep = op.axis(0), bool(op.attr("keepdims", 1))
    greatest = op.node.op_type == "ArgMax"
    _state_that_an_element_is_there(op, axis)
    last = bool(op.attr("select_last_index", 0))
    return op.te(
        lambda x: arg_extremum(x, axis, greatest=greatest, last=last, keep_axis=keep), op.x()
    )


def _state_that_an_element_is_there(op: Op, axis: int) -> None:
    """State that the axis is not empty, unless there is no place to return."""
    dims = op.shape()
    length = dims[axis]
    if op.arithmetic.is_nonnegative(length - 1):
        return
    others = op.arithmetic.product([*dims[:axis], *dims[axis + 1 :]])
    if is_static(others) and others == 0:
        return
    if is_static(length) and is_static(others):
        raise InvalidModel(f"axis {axis} has size 0: no element is the extremum")
    holds = prim(length) >= 1
    if not op.arithmetic.is_nonnegative(others - 1):
        holds = tirx.any(holds, prim(others) == 0)
    op.require(holds, f"axis_{axis}_has_an_element")


@converter("CumSum", "CumProd")
def cumulative(op: Op) -> relax.Expr:
    """Sum or multiply up along an axis, from either end, with or without the element itself."""
    dims = list(op.shape())
    known = op.constant(1)
    axis = None if known is None else normalize_axis(int(known.reshape(-1)[0]), len(dims))
    options = {
        "multiply": op.node.op_type == "CumProd",
        "exclusive": bool(op.attr("exclusive", 0)),
        "reverse": bool(op.attr("reverse", 0)),
    }
    flat = op.emit(exact_reshape(op.x(), relax.ShapeExpr([op.arithmetic.product(dims)])))
    op.state(1, [1] * op.ndim(1))
    given = [indices_within(op, 1, [len(dims)])] if axis is None else []
    result = op.te(
        lambda x, *rest: cumulate(x, rest[-1], rest[0] if axis is None else axis, **options),
        flat, *given, dims=dims,
    )  # fmt: skip
    return exact_reshape(result, relax.ShapeExpr(dims))
