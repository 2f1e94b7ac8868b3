"""Elementwise operators of the com.microsoft domain that exporters and optimizers emit."""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.relax import op as R

from frontends.computations.exact_reshape import exact_reshape
from frontends.dims import is_static
from frontends.onnx.op import Op
from frontends.onnx.registry import converter, refuse
from frontends.onnx.value import Value

MICROSOFT = "com.microsoft"


@converter("Gelu", domain=MICROSOFT)
def gelu(op: Op) -> relax.Expr:
    """Return the exact GELU."""
    return R.nn.gelu(op.x())


def biased(op: Op) -> relax.Expr:
    """Return input 0 plus input 1, which broadcasts to it."""
    return op.emit(R.add(op.x(0), op.fitted(op.x(1), op.shape())))


@converter("BiasGelu", domain=MICROSOFT)
def bias_gelu(op: Op) -> relax.Expr:
    """Return the exact GELU of x + bias."""
    return R.nn.gelu(biased(op))


@converter("FastGelu", domain=MICROSOFT)
def fast_gelu(op: Op) -> relax.Expr:
    """Return the tanh GELU of x, or of x + bias."""
    x = biased(op) if op.has(1) else op.x(0)
    return R.nn.gelu_tanh(x)


@converter("QuickGelu", domain=MICROSOFT)
def quick_gelu(op: Op) -> relax.Expr:
    """Return x * sigmoid(alpha * x)."""
    x = op.x()
    scaled = op.emit(R.multiply(x, op.const(op.attr("alpha", 1.702))))
    return R.multiply(x, op.emit(R.sigmoid(scaled)))


@converter("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(op: Op) -> relax.Expr:
    """Return the first half of the last axis of x + bias, times the exact GELU of the second."""
    total = biased(op)
    width = op.shape()[-1]
    if not is_static(width):
        raise op.unsupported("a symbolic number of channels")
    last, half = op.ndim() - 1, int(width) // 2
    left = op.emit(R.strided_slice(total, [last], [0], [half]))
    right = op.emit(R.strided_slice(total, [last], [half], [2 * half]))
    return R.multiply(left, op.emit(R.nn.gelu(right)))


@converter("BiasAdd", domain=MICROSOFT)
def bias_add(op: Op) -> relax.Expr:
    """Return x + bias + skip."""
    return R.add(biased(op), op.as_shape(op.x(2), op.shape()))


@converter("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(op: Op) -> relax.Expr:
    """Return the softmax of data + bias over all axes from `axis` on, as one."""
    axis = op.axis(1)
    total = biased(op)
    if axis == op.ndim() - 1:
        return R.nn.softmax(total, axis)
    rows = op.arithmetic.product(op.shape()[:axis])
    columns = op.arithmetic.product(op.shape()[axis:])
    flat = op.emit(exact_reshape(total, relax.ShapeExpr([rows, columns])))
    return exact_reshape(op.emit(R.nn.softmax(flat, 1)), relax.ShapeExpr(list(op.shape())))


@converter("BiasDropout", domain=MICROSOFT)
def bias_dropout(op: Op) -> Any:
    """Return x + bias, plus a residual: inference only."""
    if op.has(4) and (op.constant(4) is None or bool(op.constant(4))):
        raise op.unsupported("training mode")
    if len(op.node.output) > 1 and op.node.output[1]:
        raise op.unsupported("its mask output")
    total = biased(op)
    return R.add(total, op.as_shape(op.x(2), op.shape())) if op.has(2) else total


@converter("SampleOp", domain=MICROSOFT)
def sample(op: Op) -> Value:
    """Return the input, as ONNX Runtime's example of an operator does."""
    return op.value(0)


refuse("MurmurHash3", reason="the hash serves strings", domain=MICROSOFT)
refuse(
    "BifurcationDetector",
    reason="it steers a loop that generates text, and computes nothing",
    domain=MICROSOFT,
)
