"""Matrix products."""

from __future__ import annotations

from tvm import relax

from frontends.errors import InvalidModel
from frontends.torch.graph_builder import GraphBuilder, Value
from frontends.torch.registry import converter
from frontends.torch.source_line import source_line


@converter("aten.linear.default")
def linear(b: GraphBuilder, x: Value, weight: Value, bias: Value = None) -> relax.Expr:
    """X @ weight.T + bias; x is [..., K], weight [N, K] (or [K], which gives [...])."""
    matrix = b.tensor(weight)
    if matrix.ty.ndim == 2:
        matrix = b.emit(relax.op.permute_dims(matrix, [1, 0]))
    return _plus(b, _product(b, b.tensor(x), matrix), bias)


@converter("aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default")
def addmm(
    b: GraphBuilder, bias: Value, x: Value, y: Value, *, beta: float = 1, alpha: float = 1
) -> relax.Expr:
    """Beta * bias + alpha * x @ y."""
    product = b.emit(_product(b, b.tensor(x), b.tensor(y)))
    if alpha != 1:
        product = b.emit(relax.op.multiply(product, relax.const(alpha, b.dtype)))
    if beta == 0:  # by the specification, even where the bias is NaN
        return product
    addend = b.tensor(bias)
    if beta != 1:
        addend = b.emit(relax.op.multiply(addend, relax.const(beta, b.dtype)))
    return relax.op.add(product, addend)


@converter(
    "aten.mm.default",
    "aten.bmm.default",
    "aten.matmul.default",
    "aten.mv.default",
    "aten.dot.default",
)
def matmul(b: GraphBuilder, x: Value, y: Value) -> relax.Expr:
    """X @ y with NumPy's rules for leading and missing dimensions."""
    return _product(b, b.tensor(x), b.tensor(y))


def _product(b: GraphBuilder, x: relax.Expr, y: relax.Expr) -> relax.Expr:
    """Return x @ y; matrix products do not promote.

    Raises:
        InvalidModel: If the dtypes differ.
    """
    if x.ty.dtype != y.ty.dtype:
        raise InvalidModel(
            f"{b.node.target}: both matrices must have the same dtype, but got {x.ty.dtype} and "
            f"{y.ty.dtype}{source_line(b.node)}",
            node=b.node.name,
        )
    return relax.op.matmul(x, y)


def _plus(b: GraphBuilder, product: relax.Expr, bias: Value) -> relax.Expr:
    return product if bias is None else relax.op.add(b.emit(product), b.tensor(bias))
