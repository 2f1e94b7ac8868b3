"""How a dimension follows from a size: chains of sums, divisions and products of it."""

from __future__ import annotations

import pytest
from tvm import tirx

from relax_passes.analysis.size_relation import SizeRelation, size_relation

W = tirx.Var("w", "int64")
H = tirx.Var("h", "int64")


@pytest.mark.parametrize(
    ("dim", "relation"),
    [
        (W, SizeRelation()),
        (W + 3, SizeRelation(offset=3)),
        (tirx.Mul(tirx.IntImm("int64", 2), W), SizeRelation(factor=2)),
        (tirx.Add(tirx.IntImm("int64", 2), W), SizeRelation(offset=2)),
        (tirx.floordiv(W - 1, 4) + 1, SizeRelation(-1, 4, 1, 1)),
        (tirx.floordiv(tirx.floordiv(W - 1, 2) + 5, 3), SizeRelation(9, 6)),
        (tirx.floordiv(W - 1, 32) * 8 + 8, SizeRelation(-1, 32, 8, 8)),
        ((tirx.floordiv(W, 2) + 1) * 6 - 2, SizeRelation(0, 2, 6, 4)),
    ],
)
def test_relation_gives_the_dimension_at_every_size(dim: tirx.Expr, relation: SizeRelation) -> None:
    assert size_relation(dim, W) == relation


@pytest.mark.parametrize(
    "dim",
    [
        H,
        tirx.IntImm("int64", 7),
        W + H,
        W * H,
        tirx.floordiv(7, W),
        tirx.floormod(W, 4),
        tirx.floordiv(W * 3, 4),
        tirx.max(W, 4),
    ],
)
def test_other_expressions_have_no_relation(dim: tirx.Expr) -> None:
    assert size_relation(dim, W) is None
