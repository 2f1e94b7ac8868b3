"""A producer with let bindings that is read twice does not leave a kernel to the fallback."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax

import relaxc
from tests.relax_passes.pass_checks import module, normal

R = relax.op
Build = Callable[[relax.BlockBuilder, relax.Expr], relax.Expr]


def sum_of_squares(bb: relax.BlockBuilder, y: relax.Expr) -> relax.Expr:
    return R.sum(bb.emit(R.multiply(y, y)), [-1])


def chosen_by_itself(bb: relax.BlockBuilder, y: relax.Expr) -> relax.Expr:
    large = bb.emit(R.greater(y, relax.const(0.5, "float32")))
    return R.sum(bb.emit(R.where(large, y, relax.const(0.25, "float32"))), [-1])


def softmax_of_chosen(bb: relax.BlockBuilder, y: relax.Expr) -> relax.Expr:
    large = bb.emit(R.greater(y, relax.const(0.5, "float32")))
    return R.nn.softmax(bb.emit(R.where(large, y, relax.const(0.25, "float32"))), -1)


def _expected(build: Build, y: np.ndarray) -> np.ndarray:
    if build is sum_of_squares:
        return np.asarray((y * y).sum(-1))
    chosen = np.where(y > 0.5, y, 0.25)
    if build is chosen_by_itself:
        return np.asarray(chosen.sum(-1))
    powers = np.exp(chosen)
    return np.asarray(powers / powers.sum(-1, keepdims=True))


@pytest.mark.parametrize(
    ("build", "rule"),
    [
        (sum_of_squares, "reduction"),
        (chosen_by_itself, "reduction"),
        (softmax_of_chosen, "row_kernel"),
    ],
)
@pytest.mark.parametrize("columns", [40, 7])
def test_a_relu_that_is_read_twice(build: Build, rule: str, columns: int) -> None:
    def whole(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return build(bb, bb.emit(R.nn.relu(x)))  # a let: NaN must pass

    mod: tvm.IRModule = module((5, columns), whole)
    model = relaxc.compile(mod, threads=1)
    (kernel,) = model.report.kernels
    assert kernel["rule"] == rule
    x = normal(5, columns)
    np.testing.assert_allclose(model(x), _expected(build, np.maximum(x, 0)), rtol=1e-5)
