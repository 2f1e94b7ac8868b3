"""Reductions, arg-reductions and scans."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax
from tvm.relax import op as R

from frontends.onnx.op import Op
from frontends.onnx.operators.elementwise import is_float
from frontends.onnx.registry import converter
from frontends.onnx.value import dtype_of

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
    axes = op.axes(1)
    if not axes and op.attr("noop_with_empty_axes", 0):
        return _reduce(op, [])
    return _reduce(op, axes or None)


def _reduce(op: Op, axes: list[int] | None) -> relax.Expr:
    x, keep = op.x(), bool(op.attr("keepdims", 1))
    name, dtype = op.node.op_type, op.dtype()
    axes = list(range(op.ndim())) if axes is None else axes

    def by(function: Callable[..., relax.Expr], data: relax.Expr) -> relax.Expr:
        return op.emit(function(data, axes, keep)) if axes else data

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
    function = R.argmax if op.node.op_type == "ArgMax" else R.argmin
    if not op.attr("select_last_index", 0):
        return function(op.x(), axis, keep)
    flipped = op.emit(function(op.emit(R.flip(op.x(), axis)), axis, keep))
    length = op.shape()[axis]
    return R.subtract(op.const(int(length) - 1, "int64"), flipped)


@converter("CumSum", "CumProd")
def cumulate(op: Op) -> relax.Expr:
    """Sum or multiply up along an axis, from either end, with or without the element itself."""
    axis = op.ints(1, "axis")[0] % op.ndim()
    exclusive, reverse = bool(op.attr("exclusive", 0)), bool(op.attr("reverse", 0))
    function = R.cumsum if op.node.op_type == "CumSum" else R.cumprod
    x = op.emit(R.flip(op.x(), axis)) if reverse else op.x()
    result = op.emit(function(x, axis, op.dtype(), exclusive))
    return R.flip(result, axis) if reverse else result


@converter("TopK", since=1)
def top_k_attribute(op: Op) -> tuple[relax.Expr, relax.Expr]:
    """Select the k greatest elements, k an attribute (opset 1 to 9)."""
    return _top_k(op, int(op.attr("k")))


@converter("TopK", since=10)
def top_k_input(op: Op) -> tuple[relax.Expr, relax.Expr]:
    """Select the k greatest or smallest elements; indices are int64."""
    return _top_k(op, op.ints(1, "k")[0])


def _top_k(op: Op, k: int) -> tuple[relax.Expr, relax.Expr]:
    both = op.emit(R.topk(op.x(), k, op.axis(-1), "both", bool(op.attr("largest", 1)), "int64"))
    return op.emit(both[0]), op.emit(both[1])
