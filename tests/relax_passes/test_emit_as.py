"""Passes that bind a new value in the place of an old one, in functions without dataflow blocks."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax

from relax_passes.apply_algebraic_rules import apply_algebraic_rules
from relax_passes.assign_layout import assign_layout
from relax_passes.fold_batch_norm import fold_batch_norm
from relax_passes.fold_constant import fold_constant
from relax_passes.lift_convolution_1d import lift_convolution_1d
from relax_passes.lower_operators import lower_operators
from relax_passes.merge_parallel_convolutions import merge_parallel_convolutions
from relax_passes.merge_parallel_products import merge_parallel_products
from relax_passes.pass_base import GraphPass
from tests.relax_passes.pass_checks import Build, check, normal, weights

R = relax.op


def _shifted_product(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return R.multiply(bb.emit(R.add(bb.emit(R.matmul(x, weights(4, 8))), weights(8))), weights(8))


def _two_convolutions(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    first = bb.emit(R.nn.conv2d(x, weights(16, 8, 3, 3), padding=1))
    return R.nn.relu(bb.emit(R.nn.conv2d(first, weights(16, 16, 1, 1))))


def _constant_sum(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return R.multiply(x, bb.emit(R.add(weights(4), weights(4, seed=1))))


def _shifted_twice(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return R.subtract(
        bb.emit(R.multiply(x, weights(4))), bb.emit(R.multiply(x, weights(4, seed=1)))
    )


def _one_axis(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return R.nn.relu(bb.emit(R.nn.conv1d(x, weights(8, 3, 3), padding=1)))


def _parallel_convolutions(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    branches = [bb.emit(R.nn.conv2d(x, weights(8, 8, 1, 1, seed=seed))) for seed in (0, 1)]
    return R.add(*branches)


def _parallel_products(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return R.subtract(*(bb.emit(R.matmul(x, weights(4, 4, seed=seed))) for seed in (0, 1)))


@pytest.mark.parametrize(
    ("graph_pass", "build", "shape"),
    [
        (fold_batch_norm, _shifted_product, (3, 4)),
        (assign_layout, _two_convolutions, (1, 8, 5, 5)),
        (fold_constant, _constant_sum, (3, 4)),
        (apply_algebraic_rules, _shifted_twice, (3, 4)),
        (lift_convolution_1d, _one_axis, (2, 3, 20)),
        (merge_parallel_convolutions, _parallel_convolutions, (1, 8, 5, 5)),
        (merge_parallel_products, _parallel_products, (3, 4)),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_function_without_dataflow_blocks(
    graph_pass: GraphPass, build: Build, shape: tuple[int, ...]
) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(build(builder, x)))
    mod: tvm.IRModule = builder.get()
    assert not any(isinstance(b, relax.DataflowBlock) for b in mod["main"].body.blocks)
    check(graph_pass, mod, normal(*shape), finish=lower_operators)
