"""Products of tensors whose leading axes are joined to rows and split again lose those views."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tvm import relax, tirx

from relax_passes.drop_row_views import drop_row_views
from relax_passes.simplify_views import simplify_views
from tests.relax_passes.pass_checks import check, context, module, normal, operators, weights

R = relax.op
ROWS, WIDE = (10, 8), (2, 5, 6)


def linear(
    bb: relax.BlockBuilder,
    x: relax.Expr,
    *,
    after: Callable[[relax.Expr], relax.Expr] | None = None,
    shape: tuple[object, ...] = WIDE,
    rows: tuple[object, ...] = ROWS,
) -> relax.Expr:
    """Write a linear layer as Gemm takes it, with `after` on the rows."""
    value = bb.emit(R.reshape(x, relax.ShapeExpr(list(rows))))
    value = bb.emit(R.matmul(value, weights(8, 6)))
    if after is not None:
        value = bb.emit(after(value))
    return R.reshape(value, relax.ShapeExpr(list(shape)))


@pytest.mark.parametrize(
    ("after", "names"),
    [
        (None, {"matmul": 1}),
        (lambda x: R.add(weights(6), x), {"matmul": 1, "add": 1}),
        (lambda x: R.add(x, weights(1, 6)), {"matmul": 1, "add": 1}),
        (R.nn.gelu, {"matmul": 1, "nn.gelu": 1}),
        (lambda x: R.clip(x, -1, 1), {"matmul": 1, "clip": 1}),
        (R.nn.leakyrelu, {"matmul": 1, "nn.leakyrelu": 1}),
        (lambda x: R.power(weights(1, 6, positive=True), x), {"matmul": 1, "power": 1}),
    ],
)
def test_no_view_is_left(
    after: Callable[[relax.Expr], relax.Expr] | None, names: dict[str, int]
) -> None:
    mod = module((2, 5, 8), lambda bb, x: linear(bb, x, after=after))
    changed = check(drop_row_views, mod, normal(2, 5, 8))
    assert operators(simplify_views(changed, context())[0]) == names


def test_symbolic_rows() -> None:
    batch, length = tirx.Var("b", "int64"), tirx.Var("s", "int64")
    mod = module(
        (batch, length, 8),
        lambda bb, x: linear(bb, x, shape=(batch, length, 6), rows=(batch * length, 8)),
    )
    changed = check(drop_row_views, mod, normal(2, 5, 8))
    assert operators(simplify_views(changed, context())[0]) == {"matmul": 1}


def test_heads_keep_one_view() -> None:
    """The operand joins heads and rows: a view remains, the one after the product goes."""
    mod = module((2, 5, 2, 4), linear)
    changed = check(drop_row_views, mod, normal(2, 5, 2, 4))
    assert operators(simplify_views(changed, context())[0]) == {"reshape": 1, "matmul": 1}


def residual(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """Use the product twice before the view."""
    rows = bb.emit(R.reshape(x, ROWS))
    product = bb.emit(R.matmul(rows, weights(8, 6)))
    return R.reshape(bb.emit(R.add(product, bb.emit(R.nn.relu(product)))), WIDE)


@pytest.mark.parametrize(
    "build",
    [
        residual,
        lambda bb, x: linear(bb, x, shape=(2, 5, 2, 3)),  # the columns are split too
        lambda bb, x: linear(bb, x, after=lambda y: R.add(y, weights(10, 6))),  # varies by row
        lambda bb, x: linear(bb, x, after=lambda y: R.nn.softmax(y, 0)),  # not element by element
    ],
)
def test_other_products_stay(build: Callable[..., relax.Expr]) -> None:
    check(drop_row_views, module((2, 5, 8), build), normal(2, 5, 8), fires=False)
