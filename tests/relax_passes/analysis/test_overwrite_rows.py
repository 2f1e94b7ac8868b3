"""A row's operand may be overwritten by the kernel that reduces it, where all reads are its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tvm import te, topi

from relax_passes.analysis.overwrite import overwritable_operands, row_operands

SIZE = (6, 5, 8)
Build = Callable[[te.Tensor], te.Tensor]


def _flipped(x: te.Tensor) -> te.Tensor:
    total = topi.sum(x, axis=2, keepdims=True)
    return te.compute(SIZE, lambda i, j, k: x[i, j, 7 - k] + total[i, j, 0], name="out")


def _first_of_the_row(x: te.Tensor) -> te.Tensor:
    total = topi.sum(x, axis=2, keepdims=True)
    return te.compute(SIZE, lambda i, j, k: x[i, j, 0] + total[i, j, 0], name="out")


def _other_row(x: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, 8), "k")
    total = te.compute((6, 5), lambda i, j: te.sum(x[5 - i, j, k], k), name="total")
    return te.compute(SIZE, lambda i, j, k: x[i, j, k] + total[i, j], name="out")


def _columns(x: te.Tensor) -> te.Tensor:
    return topi.subtract(x, topi.sum(x, axis=0, keepdims=True))


ALLOWED: dict[str, Build] = {
    "softmax": topi.nn.softmax,
    "centred": lambda x: topi.subtract(x, topi.sum(x, axis=2, keepdims=True)),
    "of a map": lambda x: topi.nn.softmax(topi.exp(x)),
    "of two axes": lambda x: topi.subtract(x, topi.max(x, axis=(1, 2), keepdims=True)),
}
REFUSED: dict[str, Build] = {
    "flipped": _flipped,
    "first of the row": _first_of_the_row,
    "other row": _other_row,
    "columns": _columns,
}


@pytest.mark.parametrize("name", [*ALLOWED, *REFUSED])
def test_rows(name: str) -> None:
    x = te.placeholder(SIZE, name="x")
    func = te.create_prim_func([x, {**ALLOWED, **REFUSED}[name](x)])
    assert not overwritable_operands(func), "in any order of its tiles it may not"
    assert row_operands(func) == ([(0, 1)] if name in ALLOWED else [])


def test_a_sum_of_two_operands_may_overwrite_either() -> None:
    x, y = (te.placeholder(SIZE, name=name) for name in "xy")
    func = te.create_prim_func([x, y, topi.nn.softmax(topi.add(x, y))])
    assert row_operands(func) == [(0, 2), (1, 2)]
