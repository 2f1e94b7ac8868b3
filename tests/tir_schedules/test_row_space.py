"""Which leading axes a loop nest can run over, and what of its operands a row reads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tvm import relax
from tvm.relax import op

from tests.tir_schedules.llvm.scheduled_kernel import legalized
from tir_schedules.row_space import Operand, row_space

Case = tuple[Callable[..., relax.Expr], list[tuple[int, ...]], int, Operand]

CASES: dict[str, Case] = {
    "map": (op.exp, [(4, 6)], 2, Operand((0, 1), True)),
    "row sum": (lambda x: op.sum(x, [1]), [(4, 6)], 1, Operand((0,), True)),
    "kept axis": (lambda x: op.max(x, [1], keepdims=True), [(4, 6)], 2, Operand((0, -1), True)),
    "column sum": (lambda x: op.sum(x, [0]), [(4, 6)], 1, Operand((1,), True)),
    "whole sum": (op.sum, [(4, 6)], 0, Operand((), True)),
    "middle axis": (lambda x: op.sum(x, [1]), [(4, 6, 5)], 2, Operand((0, 2), True)),
    "softmax": (op.nn.softmax, [(4, 6)], 1, Operand((0,), True)),
    "transpose": (op.permute_dims, [(4, 6)], 2, Operand((1, 0), True)),
    "slice": (lambda x: op.strided_slice(x, [1], [2], [4]), [(4, 6)], 2, Operand((0,), False)),
    "repeated": (lambda x: op.broadcast_to(x, (3, 4, 6)), [(4, 6)], 3, Operand((), True)),
}


@pytest.mark.parametrize("name", CASES)
def test_row_space(name: str) -> None:
    emit, shapes, rows, operand = CASES[name]
    space = row_space(legalized(emit, *shapes))
    assert space is not None
    assert (space.rows, space.operands[0], space.results) == (rows, operand, (1,))
    assert space.strided == (name in {"column sum", "transpose", "middle axis"})


def test_a_block_with_two_stores_is_not_understood() -> None:
    assert row_space(legalized(lambda x: op.argmax(x, 1), (4, 6))) is None
