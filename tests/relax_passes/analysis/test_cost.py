"""Kernel costs against sizes known by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tvm import relax, tirx

from relax_passes.analysis.cost import kernel_cost
from tests.relax_passes.lowered_modules import lowered

op = relax.op


def cost(build: Callable[..., relax.Expr], *shapes: tuple[int | tirx.Var, ...]) -> tuple[int, int]:
    mod = lowered(lambda e, *xs: e(build(*xs)), *shapes)
    (func,) = (f for f in mod.functions.values() if isinstance(f, tirx.PrimFunc))
    return kernel_cost(func)


@pytest.mark.parametrize(
    ("build", "shapes", "flops", "values"),
    [
        (op.matmul, [(4, 8), (8, 5)], 2 * 4 * 8 * 5, 4 * 8 + 8 * 5 + 4 * 5),
        (op.add, [(4, 8), (4, 8)], 4 * 8, 3 * 4 * 8),
        (lambda x: op.sum(x, 1), [(4, 8)], 4 * 8, 4 * 8 + 4),
        (
            op.nn.conv2d,
            [(1, 3, 6, 6), (4, 3, 3, 3)],
            2 * 4 * 16 * 27,
            3 * 36 + 4 * 27 + 4 * 16,
        ),
    ],
)
def test_cost_is_exact(build: Callable, shapes: list, flops: int, values: int):
    assert cost(build, *shapes) == (flops, 4 * values)


def test_bytes_follow_the_dtype():
    assert cost(lambda x: op.astype(x, "int8"), (4, 8))[1] == 4 * 8 * (4 + 1)


def test_symbolic_size_counts_as_one():
    assert cost(op.add, (tirx.Var("n", "int64"), 8), (8,))[1] == 4 * 3 * 8
