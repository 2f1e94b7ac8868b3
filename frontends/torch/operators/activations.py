"""Activation functions, each as the Relax operator where there is one."""

from __future__ import annotations

from tvm import relax

from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.operators.elementwise import expm1, log1p
from frontends.torch.registry import converter


@converter("aten.relu.default")
def relu(b: GraphBuilder, x: Value) -> relax.Expr:
    """max(x, 0)."""
    value = b.tensor(x)
    return value if b.dtype.startswith("uint") else relax.op.nn.relu(value)


@converter("aten.gelu.default")
def gelu(b: GraphBuilder, x: Value, *, approximate: str = "none") -> relax.Expr:
    """X * Phi(x), exact or by tanh."""
    op = relax.op.nn.gelu_tanh if approximate == "tanh" else relax.op.nn.gelu
    return op(b.tensor(x))


@converter("aten.silu.default")
def silu(b: GraphBuilder, x: Value) -> relax.Expr:
    """X * sigmoid(x)."""
    return relax.op.nn.silu(b.tensor(x))


@converter("aten.hardtanh.default")
def hardtanh(b: GraphBuilder, x: Value, min_val: float = -1, max_val: float = 1) -> relax.Expr:
    """Clip to [min_val, max_val]; ReLU6 arrives as this."""
    return relax.op.clip(b.tensor(x), min_val, max_val)


@converter("aten.hardsigmoid.default")
def hardsigmoid(b: GraphBuilder, x: Value) -> relax.Expr:
    """clip(x + 3, 0, 6) / 6."""
    value = b.tensor(x)
    return relax.op.multiply(_relu6_shifted(b, value), relax.const(1 / 6, b.dtype))


@converter("aten.hardswish.default")
def hardswish(b: GraphBuilder, x: Value) -> relax.Expr:
    """X * clip(x + 3, 0, 6) / 6."""
    value = b.tensor(x)
    gated = b.emit(relax.op.multiply(value, _relu6_shifted(b, value)))
    return relax.op.multiply(gated, relax.const(1 / 6, b.dtype))


def _relu6_shifted(b: GraphBuilder, x: relax.Expr) -> relax.Expr:
    shifted = b.emit(relax.op.add(x, relax.const(3, b.dtype)))
    return b.emit(relax.op.clip(shifted, 0, 6))


@converter("aten.leaky_relu.default")
def leaky_relu(b: GraphBuilder, x: Value, negative_slope: float = 0.01) -> relax.Expr:
    """X where positive, negative_slope * x elsewhere."""
    return relax.op.nn.leakyrelu(b.tensor(x), negative_slope)


@converter("aten.elu.default")
def elu(
    b: GraphBuilder, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1
) -> relax.Expr:
    """Scale * (x where positive, alpha * (exp(input_scale * x) - 1) elsewhere)."""
    value = b.tensor(x)

    def const(number: float) -> relax.Expr:
        return relax.const(number, b.dtype)

    grown = b.emit(expm1(b, b.emit(relax.op.multiply(value, const(input_scale)))))
    below = b.emit(relax.op.multiply(grown, const(alpha)))
    positive = b.emit(relax.op.greater(value, const(0)))
    return relax.op.multiply(b.emit(relax.op.where(positive, value, below)), const(scale))


@converter("aten.softplus.default")
def softplus(b: GraphBuilder, x: Value, beta: float = 1, threshold: float = 20) -> relax.Expr:
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x exceeds the threshold."""
    value = b.tensor(x)
    scaled = b.emit(relax.op.multiply(value, relax.const(beta, b.dtype)))
    return relax.op.where(
        b.emit(relax.op.greater(scaled, relax.const(threshold, b.dtype))),
        value,
        b.emit(relax.op.divide(_log1p_exp(b, scaled), relax.const(beta, b.dtype))),
    )


@converter("aten.mish.default")
def mish(b: GraphBuilder, x: Value) -> relax.Expr:
    """X * tanh(log(1 + exp(x)))."""
    value = b.tensor(x)
    return relax.op.multiply(value, b.emit(relax.op.tanh(_log1p_exp(b, value))))


def _log1p_exp(b: GraphBuilder, x: relax.Expr) -> relax.Expr:
    """log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)), which cannot overflow."""
    decayed = b.emit(relax.op.exp(b.emit(relax.op.negative(b.emit(relax.op.abs(x))))))
    above = b.emit(relax.op.maximum(x, relax.const(0, b.dtype)))
    return b.emit(relax.op.add(above, b.emit(log1p(b, decayed))))
