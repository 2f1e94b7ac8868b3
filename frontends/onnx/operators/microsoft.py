"""Operators of the com.microsoft domain that exporters and optimizers emit."""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.relax import op as R

from frontends.onnx.op import Op
from frontends.onnx.registry import converter

MICROSOFT = "com.microsoft"


@converter("Gelu", domain=MICROSOFT)
def gelu(op: Op) -> relax.Expr:
    """Return the exact GELU."""
    return R.nn.gelu(op.x())


@converter("BiasGelu", domain=MICROSOFT)
def bias_gelu(op: Op) -> relax.Expr:
    """Return the exact GELU of x + bias."""
    return R.nn.gelu(op.emit(R.add(op.x(0), op.x(1))))


@converter("FastGelu", domain=MICROSOFT)
def fast_gelu(op: Op) -> relax.Expr:
    """Return the tanh GELU of x, or of x + bias."""
    x = op.emit(R.add(op.x(0), op.x(1))) if op.has(1) else op.x(0)
    return R.nn.gelu_tanh(x)


@converter("QuickGelu", domain=MICROSOFT)
def quick_gelu(op: Op) -> relax.Expr:
    """Return x * sigmoid(alpha * x)."""
    x = op.x()
    scaled = op.emit(R.multiply(x, op.const(op.attr("alpha", 1.702))))
    return R.multiply(x, op.emit(R.sigmoid(scaled)))


@converter("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(op: Op) -> Any:
    """Normalize input + skip + bias over the last axis; the sum is the fourth output."""
    total = _skip_sum(op, 4)
    beta = op.x(3) if op.has(3) else op.emit(R.zeros_like(op.x(2)))
    result = R.nn.layer_norm(total, op.x(2), beta, [-1], float(op.attr("epsilon", 1e-12)))
    return _with_sum(op, result, total)


@converter("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_rms_norm(op: Op) -> Any:
    """Apply RMS normalization to input + skip + bias; the sum is the fourth output."""
    total = _skip_sum(op, 3)
    result = R.nn.rms_norm(total, op.x(2), [-1], float(op.attr("epsilon", 1e-12)))
    return _with_sum(op, result, total)


def _skip_sum(op: Op, bias: int) -> relax.Expr:
    total = op.emit(R.add(op.x(0), op.x(1)))
    return op.emit(R.add(total, op.x(bias))) if op.has(bias) else total


def _with_sum(op: Op, result: relax.Expr, total: relax.Expr) -> Any:
    if any(op.node.output[1:3]):
        raise op.unsupported("its mean and deviation outputs")
    return (result, None, None, total) if len(op.node.output) > 3 else result
