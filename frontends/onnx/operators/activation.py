"""Activation functions."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te
from tvm.relax import op as R

from frontends.computations.arg_reduce import arg_extremum
from frontends.onnx.op import Op, numpy_dtype
from frontends.onnx.operators.elementwise import is_float
from frontends.onnx.registry import converter


@converter("Relu")
def relu(op: Op) -> relax.Expr:
    """Return max(x, 0)."""
    return R.nn.relu(op.x())


@converter("LeakyRelu")
def leaky_relu(op: Op) -> relax.Expr:
    """Scale negative elements by alpha."""
    return R.nn.leakyrelu(op.x(), float(op.attr("alpha", 0.01)))


@converter("PRelu", since=1)
def prelu_of_channels(op: Op) -> relax.Expr:
    """Scale negative elements by one slope, or by one for each channel (opset 1 to 6)."""
    slope = op.x(1)
    if op.ndim(1) == 1 and op.ndim(0) > 2:
        slope = op.emit(R.reshape(slope, [*op.shape(1), *[1] * (op.ndim(0) - 2)]))
    return _prelu(op, op.x(0), slope)


@converter("PRelu", since=7)
def prelu(op: Op) -> relax.Expr:
    """Scale negative elements by a slope that broadcasts to x."""
    return _prelu(op, op.x(0), op.fitted(op.x(1), op.shape(0)))


def _prelu(op: Op, x: relax.Expr, slope: relax.Expr) -> relax.Expr:
    negative = op.emit(R.less(x, op.const(0)))
    return R.where(negative, op.emit(R.multiply(x, slope)), x)


@converter("Clip", since=1)
def clip_attributes(op: Op) -> relax.Expr:
    """Clip to the attributes `min` and `max` (opset 1 to 10)."""
    return clip(op, op.attr("min"), op.attr("max"))


@converter("Clip", since=11)
def clip_inputs(op: Op) -> relax.Expr:
    """Clip to the optional inputs `min` and `max`; known bounds become one Relax clip."""
    low, high = op.constant(1), op.constant(2)
    if (op.has(1) and low is None) or (op.has(2) and high is None):
        x = op.x()
        if op.has(1):
            x = op.emit(R.maximum(x, op.x(1)))
        return op.emit(R.minimum(x, op.x(2))) if op.has(2) else x
    return clip(op, None if low is None else low.item(), None if high is None else high.item())


def clip(op: Op, low: Any, high: Any) -> Any:
    """Clip between two numbers, either of which may be None."""
    dtype = numpy_dtype(op.dtype())
    if low is None and high is None:
        return op.value(0)
    if not is_float(op.dtype()):
        x = op.x()
        if low is not None:
            x = op.emit(R.maximum(x, op.const(low)))
        return R.minimum(x, op.const(high)) if high is not None else x
    if low is not None and high is not None and low > high:
        # NumPy's order: everything becomes the upper bound.
        return R.minimum(op.emit(R.maximum(op.x(), op.const(low))), op.const(high))
    if low is None:
        return R.minimum(op.x(), op.const(high))
    if high is None:
        return R.nn.relu(op.x()) if low == 0 else R.maximum(op.x(), op.const(low))
    return R.clip(op.x(), float(np.asarray(low, dtype)), float(np.asarray(high, dtype)))


@converter("HardSigmoid")
def hard_sigmoid(op: Op) -> relax.Expr:
    """Return clip(alpha * x + beta, 0, 1)."""
    alpha, beta = op.attr("alpha", 0.2), op.attr("beta", 0.5)
    line = op.emit(R.add(op.emit(R.multiply(op.x(), op.const(alpha))), op.const(beta)))
    return R.clip(line, 0.0, 1.0)


@converter("HardSwish")
def hard_swish(op: Op) -> relax.Expr:
    """Return x * clip(x / 6 + 0.5, 0, 1)."""
    x = op.x()
    line = op.emit(R.add(op.emit(R.multiply(x, op.const(1 / 6))), op.const(0.5)))
    return R.multiply(x, op.emit(R.clip(line, 0.0, 1.0)))


@converter("Elu", "Celu")
def elu(op: Op) -> relax.Expr:
    """Return x, or alpha * (exp(x) - 1) below zero; Celu divides x by alpha inside."""
    alpha, x = float(op.attr("alpha", 1.0)), op.x()
    inner = op.emit(R.divide(x, op.const(alpha))) if op.node.op_type == "Celu" else x
    below = op.emit(R.subtract(op.emit(R.exp(inner)), op.const(1)))
    below = op.emit(R.multiply(below, op.const(alpha)))
    return R.where(op.emit(R.less(x, op.const(0))), below, x)


@converter("Selu")
def selu(op: Op) -> relax.Expr:
    """Return gamma * elu(x, alpha)."""
    alpha = float(op.attr("alpha", 1.67326319217681884765625))
    gamma = float(op.attr("gamma", 1.05070102214813232421875))
    x = op.x()
    below = op.emit(R.subtract(op.emit(R.exp(x)), op.const(1)))
    below = op.emit(R.multiply(below, op.const(alpha)))
    chosen = op.emit(R.where(op.emit(R.less(x, op.const(0))), below, x))
    return R.multiply(chosen, op.const(gamma))


@converter("Softplus")
def softplus(op: Op) -> relax.Expr:
    """Return log(1 + exp(x)) in the form that does not overflow: max(x, 0) + log(1 + exp(-|x|))."""
    return stable_softplus(op, op.x())


def stable_softplus(op: Op, x: relax.Expr) -> relax.Expr:
    """Emit softplus without overflow."""
    decay = op.emit(R.exp(op.emit(R.negative(op.emit(R.abs(x))))))
    tail = op.emit(R.log(op.emit(R.add(decay, op.const(1)))))
    return op.emit(R.add(op.emit(R.nn.relu(x)), tail))


@converter("Softsign")
def softsign(op: Op) -> relax.Expr:
    """Return x / (1 + |x|)."""
    x = op.x()
    return R.divide(x, op.emit(R.add(op.emit(R.abs(x)), op.const(1))))


@converter("Mish")
def mish(op: Op) -> relax.Expr:
    """Return x * tanh(softplus(x))."""
    x = op.x()
    return R.multiply(x, op.emit(R.tanh(stable_softplus(op, x))))


@converter("Swish")
def swish(op: Op) -> relax.Expr:
    """Return x * sigmoid(alpha * x)."""
    x, alpha = op.x(), float(op.attr("alpha", 1.0))
    if alpha == 1.0:
        return R.nn.silu(x)
    return R.multiply(x, op.emit(R.sigmoid(op.emit(R.multiply(x, op.const(alpha))))))


@converter("ThresholdedRelu")
def thresholded_relu(op: Op) -> relax.Expr:
    """Return x where it exceeds alpha, else 0."""
    x = op.x()
    return R.where(op.emit(R.greater(x, op.const(op.attr("alpha", 1.0)))), x, op.const(0))


@converter("Shrink")
def shrink(op: Op) -> relax.Expr:
    """Move elements outside [-lambd, lambd] toward zero by bias; the rest becomes 0."""
    x, limit, bias = op.x(), op.attr("lambd", 0.5), op.attr("bias", 0.0)
    low = op.emit(R.less(x, op.const(-limit)))
    high = op.emit(R.greater(x, op.const(limit)))
    inner = op.emit(R.where(high, op.emit(R.subtract(x, op.const(bias))), op.const(0)))
    return R.where(low, op.emit(R.add(x, op.const(bias))), inner)


@converter("Gelu")
def gelu(op: Op) -> relax.Expr:
    """Return the Gaussian error linear unit, exact or by tanh."""
    return R.nn.gelu_tanh(op.x()) if op.attr("approximate", "none") == "tanh" else R.nn.gelu(op.x())


@converter("Softmax", "LogSoftmax", "Hardmax", since=1)
def softmax_flattened(op: Op) -> relax.Expr:
    """Normalize over all axes from `axis` on, as one (opset 1 to 12)."""
    axis = op.axis(1)
    if axis == op.ndim() - 1:
        return _normalize(op, op.x(), axis)
    shape = op.shape()
    rows = op.arithmetic.product(shape[:axis])
    columns = op.arithmetic.product(shape[axis:])
    flat = op.emit(R.reshape(op.x(), relax.ShapeExpr([rows, columns])))
    return R.reshape(op.emit(_normalize(op, flat, 1)), relax.ShapeExpr(list(shape)))


@converter("Softmax", "LogSoftmax", "Hardmax", since=13)
def softmax_axis(op: Op) -> relax.Expr:
    """Normalize over one axis (opset 13 on)."""
    return _normalize(op, op.x(), op.axis(-1))


def _normalize(op: Op, x: relax.Expr, axis: int) -> relax.Expr:
    if op.node.op_type in ("Softmax", "LogSoftmax"):
        compute = R.nn.softmax if op.node.op_type == "Softmax" else R.nn.log_softmax
        if op.dtype() not in ("float16", "bfloat16"):
            return compute(x, axis)
        # Sums of narrow floats lose too much.
        wide = op.emit(compute(op.emit(R.astype(x, "float32")), axis))
        return R.astype(wide, op.dtype())
    depth = x.ty.shape.values[axis]

    def greatest(values: te.Tensor) -> te.Tensor:
        return arg_extremum(values, axis, greatest=True, last=False, keep_axis=True)

    first = op.te(greatest, x, name="hardmax")
    places = op.emit(R.arange(0, depth, 1, "int64"))
    column = [1] * x.ty.ndim
    column[axis] = depth
    places = op.emit(R.reshape(places, relax.ShapeExpr(column)))
    return R.astype(op.emit(R.equal(places, first)), op.dtype())
