"""A transpose around which the batch axes are joined and split becomes one of the whole tensor."""

from __future__ import annotations

import pytest
from tvm import relax, tirx

from relax_passes.simplify_views import simplify_views
from relax_passes.split_transposed_batch import split_transposed_batch
from tests.relax_passes.pass_checks import check, context, module, normal, operators

R = relax.op


def test_the_view_goes_away_with_the_joined_axes() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        flat = bb.emit(R.reshape(x, (6, 4, 5)))
        return R.reshape(bb.emit(R.permute_dims(flat, [0, 2, 1])), (2, 3, 5, 4))

    changed = check(split_transposed_batch, module((2, 3, 4, 5), build), normal(2, 3, 4, 5))
    assert operators(simplify_views(changed, context())[0]) == {"permute_dims": 1}


def test_symbolic_batch_and_three_axes() -> None:
    batch = tirx.Var("b", "int64")

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        flat = bb.emit(R.reshape(x, relax.ShapeExpr([batch * 3, 4, 5, 6])))
        turned = bb.emit(R.permute_dims(flat, [0, 3, 1, 2]))
        return R.reshape(turned, relax.ShapeExpr([batch, 3, 6, 4, 5]))

    mod = module((batch, 3, 4, 5, 6), build)
    changed = check(split_transposed_batch, mod, normal(2, 3, 4, 5, 6))
    assert operators(simplify_views(changed, context())[0]) == {"permute_dims": 1}


@pytest.mark.parametrize(
    ("order", "shape"),
    [
        ((1, 0, 2), (4, 2, 3, 5)),  # the joined axis moves
        ((0, 2, 1), (6, 5, 2, 2)),  # another axis is split
        ((0, 2, 1), (30, 4)),  # axes are joined
    ],
)
def test_other_views_stay(order: tuple[int, ...], shape: tuple[int, ...]) -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        flat = bb.emit(R.reshape(x, (6, 4, 5)))
        return R.reshape(bb.emit(R.permute_dims(flat, list(order))), shape)

    check(split_transposed_batch, module((2, 3, 4, 5), build), normal(2, 3, 4, 5), fires=False)
