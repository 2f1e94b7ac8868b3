"""Matrix products read transposed and sliced operands where they lie."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from relax_passes.eliminate_dead_code import eliminate_dead_code
from relax_passes.lower_operators import lower_operators
from tests.relax_passes.lowered_modules import structure
from tests.relax_passes.pass_checks import check, context, module, normal, weights

R = relax.op
Build = Callable[[relax.BlockBuilder, relax.Var], relax.Expr]


def kernels(shape: tuple[object, ...], build: Build, *arrays: np.ndarray) -> list[str]:
    """Return the kernels that `build` is lowered to, after a check of its numbers."""
    mod: tvm.IRModule = check(lower_operators, module(shape, build), *arrays)
    return structure(eliminate_dead_code(mod, context())[0])


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (0, 2, 1, 3)])
def test_heads_moved_before_the_rows(order: tuple[int, ...]) -> None:
    """As in attention that is not raised: (batch, length, heads, size) taken heads first."""

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        left = bb.emit(R.permute_dims(x, [0, 2, 1, 3]))
        right = bb.emit(R.permute_dims(x, list(order)))
        return R.matmul(left, right)

    assert kernels((2, 7, 7, 7), build, normal(2, 7, 7, 7)) == ["batch_matmul"]


def test_symbolic_rows() -> None:
    rows = tirx.Var("n", "int64")

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        left = bb.emit(R.permute_dims(x, [0, 2, 1, 3]))
        return R.matmul(left, bb.emit(R.permute_dims(x, [0, 2, 3, 1])))

    assert kernels((2, rows, 3, 9), build, normal(2, 20, 3, 9)) == ["batch_matmul"]


def test_a_slice_of_rows_before_a_constant_weight() -> None:
    """A classifier reads the first token."""

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        first = bb.emit(R.strided_slice(x, [1], [2], [4], [1]))
        return R.matmul(first, weights(8, 5))

    assert kernels((3, 6, 8), build, normal(3, 6, 8)) == ["matmul"]


def test_a_slice_of_a_transpose_before_a_constant_weight() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        turned = bb.emit(R.permute_dims(x, [1, 0, 2]))
        return R.matmul(bb.emit(R.strided_slice(turned, [2], [3], [11], [1])), weights(8, 5))

    assert kernels((3, 6, 16), build, normal(3, 6, 16)) == ["matmul"]


def test_a_slice_of_the_right_operand() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        left, right = (bb.emit(R.strided_slice(x, [1], [s], [s + 6], [1])) for s in (0, 6))
        return R.matmul(left, bb.emit(R.permute_dims(right, [0, 2, 1])))

    assert kernels((2, 12, 8), build, normal(2, 12, 8)) == ["batch_matmul"]


@pytest.mark.parametrize(
    "moved",
    [
        lambda x: R.permute_dims(x, [2, 0, 1]),  # the dense axis comes first
        lambda x: R.strided_slice(x, [1], [0], [8], [2]),  # every other row
    ],
)
def test_other_operands_are_copied(moved: Callable[[relax.Expr], relax.Expr]) -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return R.matmul(bb.emit(moved(x)), weights(8, 5))

    assert len(kernels((8, 8, 8), build, normal(8, 8, 8))) == 2
