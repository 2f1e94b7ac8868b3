"""A slice of whole heads is taken after the view of heads."""

from __future__ import annotations

import pytest
from tvm import relax, tirx

from relax_passes.simplify_views import simplify_views
from relax_passes.view_before_slice import view_before_slice
from tests.relax_passes.pass_checks import check, context, module, normal, operators

R = relax.op


def last(bb: relax.BlockBuilder, x: relax.Expr, begin: int, end: int, step: int = 1) -> relax.Expr:
    """Return x[..., begin:end:step]."""
    return bb.emit(R.strided_slice(x, [x.ty.ndim - 1], [begin], [end], [step]))


def test_slices_of_one_tensor_share_its_view() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        a, b = (bb.emit(R.reshape(last(bb, x, s, s + 8), (2, 3, 2, 4))) for s in (0, 8))
        return R.add(a, b)

    changed = check(view_before_slice, module((2, 3, 16), build), normal(2, 3, 16))
    assert operators(changed) == {"reshape": 1, "strided_slice": 2, "add": 1}


def test_parts_of_a_split_whose_rows_the_view_joins() -> None:
    rows = tirx.Var("n", "int64")

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        parts = bb.emit(R.split(x, [8, 12], axis=-1))
        shape = relax.ShapeExpr([2 * rows, 2, 4])
        a = bb.emit(R.reshape(bb.emit(relax.TupleGetItem(parts, 0)), shape))
        one = bb.emit(R.reshape(bb.emit(relax.TupleGetItem(parts, 1)), (2 * rows, 1, 4)))
        return R.add(a, one)

    changed = check(view_before_slice, module((2, rows, 16), build), normal(2, 3, 16))
    assert operators(simplify_views(changed, context())[0]) == {
        "reshape": 1,
        "strided_slice": 2,
        "add": 1,
    }


def test_parts_of_an_even_split() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        parts = bb.emit(R.split(x, 2, axis=2))
        return R.reshape(bb.emit(relax.TupleGetItem(parts, 1)), (2, 3, 2, 4))

    changed = check(view_before_slice, module((2, 3, 16), build), normal(2, 3, 16))
    assert operators(changed) == {"reshape": 1, "strided_slice": 1}


@pytest.mark.parametrize(
    ("begin", "end", "step", "shape"),
    [
        (2, 10, 1, (2, 3, 2, 4)),  # within a head
        (0, 16, 2, (2, 3, 2, 4)),  # every other element
        (0, 8, 1, (2, 3, 8)),  # no heads
        (0, 6, 1, (2, 3, 2, 3)),  # the whole is no multiple of a head
    ],
)
def test_other_slices_stay(begin: int, end: int, step: int, shape: tuple[int, ...]) -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return R.reshape(last(bb, x, begin, end, step), shape)

    check(view_before_slice, module((2, 3, 16), build), normal(2, 3, 16), fires=False)


def test_a_slice_of_another_axis_stays() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return R.reshape(bb.emit(R.strided_slice(x, [1], [0], [2], [1])), (2, 2, 4, 4))

    check(view_before_slice, module((2, 3, 16), build), normal(2, 3, 16), fires=False)
