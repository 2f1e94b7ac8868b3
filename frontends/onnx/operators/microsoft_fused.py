"""Fused matrix products and convolutions, which ONNX Runtime's optimizer writes."""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.relax import op as R

from frontends.dims import dims_of
from frontends.errors import InvalidModel
from frontends.onnx.op import Op
from frontends.onnx.operators.conv import conv
from frontends.onnx.operators.matmul import gemm, transposed
from frontends.onnx.registry import converter

MICROSOFT = "com.microsoft"


@converter("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(op: Op) -> relax.Expr:
    """Return alpha * A' B', each operand transposed as its attributes say."""
    product = R.matmul(
        _operand(op, 0, "transA", "transBatchA"), _operand(op, 1, "transB", "transBatchB")
    )
    alpha = float(op.attr("alpha", 1.0))
    return product if alpha == 1.0 else R.multiply(op.emit(product), op.const(alpha))


@converter("FusedMatMulActivation", domain=MICROSOFT)
def fused_matmul_activation(op: Op) -> relax.Expr:
    """Return FusedMatMul followed by an activation."""
    return activated(op, fused_matmul(op), "activation_")


def _operand(op: Op, place: int, last: str, batch: str) -> relax.Expr:
    """Return an operand with its axes in the order of a matrix product.

    `transBatch*` says that the first of the matrix axes comes before the batch axes: A is stored as
    [M, batch..., K]. `trans*` then swaps the two matrix axes.
    """
    rank = op.ndim(place)
    axes = list(range(rank))
    if rank >= 2 and op.attr(batch, 0):
        axes = [*axes[1:-1], 0, rank - 1]
    if rank >= 2 and op.attr(last, 0):
        axes[-1], axes[-2] = axes[-2], axes[-1]
    return op.x(place) if axes == list(range(rank)) else transposed(op, place, axes)


@converter("FusedGemm", domain=MICROSOFT)
def fused_gemm(op: Op) -> relax.Expr:
    """Return a Gemm followed by an activation."""
    return activated(op, gemm(op), "activation_")


@converter("FusedConv", domain=MICROSOFT)
def fused_conv(op: Op) -> relax.Expr:
    """Return a convolution, plus input 3 if given, followed by an activation."""
    result = conv(op)
    if op.has(3):
        result = op.emit(result)
        result = R.add(result, op.as_shape(op.x(3), dims_of(result)))
    return activated(op, result)


def activated(op: Op, x: relax.Expr, prefix: str = "") -> relax.Expr:
    """Apply the activation that the attributes name to `x`.

    Args:
        op: The node; attribute `activation` names the operator.
        x: What to apply it to.
        prefix: "activation_" where its parameters are attributes `activation_alpha`, ..., "" where
            they are the list `activation_params`.
    """
    name = op.attr("activation", "")
    simple = {"Relu": R.nn.relu, "Sigmoid": R.sigmoid, "Tanh": R.tanh}
    if not name:
        return x
    if name in simple:
        return simple[name](op.emit(x))
    first, second = _parameters(op, prefix, name)
    x = op.emit(x)
    if name == "LeakyRelu":
        return R.nn.leakyrelu(x, first)
    if name == "Clip":
        return R.clip(x, first, second)
    if name == "HardSigmoid":
        line = op.emit(R.add(op.emit(R.multiply(x, op.const(first))), op.const(second)))
        return R.clip(line, 0.0, 1.0)
    raise op.unsupported(f"activation {name}")


def _parameters(op: Op, prefix: str, name: str) -> tuple[float, float]:
    """Return an activation's two parameters, ONNX's defaults where they are not written."""
    defaults: dict[str, tuple[float, float]] = {"LeakyRelu": (0.01, 0.0), "HardSigmoid": (0.2, 0.5)}
    first, second = defaults.get(name, (0.0, 0.0))
    if prefix:
        return (
            float(op.attr(f"{prefix}alpha", first)),
            float(op.attr(f"{prefix}beta", second)),
        )
    given: list[Any] = list(op.attr("activation_params") or [])
    if name == "Clip" and len(given) != 2:
        raise InvalidModel("activation Clip needs two activation_params")
    values = [*map(float, given), first, second][: max(2, len(given))]
    return values[0], (values[1] if len(given) >= 2 else second)
