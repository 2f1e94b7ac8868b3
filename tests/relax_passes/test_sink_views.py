"""Operators of single elements are computed before a view."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from relax_passes.pipeline import default_pipeline
from relax_passes.simplify_views import simplify_views
from relax_passes.sink_views import sink_views
from tests.relax_passes.pass_checks import (
    Build,
    check,
    context,
    module,
    normal,
    operators,
    weights,
)

R = relax.op


def sequence(mod: tvm.IRModule) -> list[str]:
    """Return the operators of `main` in order."""
    values = (b.value for block in mod["main"].body.blocks for b in block.bindings)
    calls = (v for v in values if isinstance(v, tvm.ir.Call))
    return [str(call.op.name).removeprefix("relax.") for call in calls]


def reasons(build: Build, shape: tuple[object, ...], *inputs: np.ndarray) -> set[str]:
    """Return why the view of a module stays where it is."""
    ctx = context()
    check(sink_views, module(shape, build), *inputs, fires=False, ctx=ctx)
    return {reason for name, _, reason in ctx.log.declined if name == "sink_views"}


def test_a_chain_of_operators_and_their_operands() -> None:
    """Bias of the last axis, one number for all, a tensor of every element."""

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.matmul(x, weights(8, 4)))
        y = bb.emit(R.reshape(y, (2, 3, 4)))
        y = bb.emit(R.add(y, weights(4, seed=1)))
        y = bb.emit(R.nn.relu(y))
        y = bb.emit(R.multiply(y, relax.const(2.0, "float32")))
        return R.subtract(weights(2, 3, 4, seed=2), y)

    changed = check(sink_views, module((6, 8), build), normal(6, 8))
    assert sequence(changed) == ["matmul", "add", "nn.relu", "multiply", "subtract", "reshape"]


def test_fusion_then_makes_one_kernel() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        heads = bb.emit(R.reshape(bb.emit(R.matmul(x, weights(8, 4))), (2, 3, 4)))
        return R.nn.relu(heads)

    counts = []
    for off in ((), ("sink_views",)):
        ctx = context()
        default_pipeline().without(*off).until("fuse").run(module((6, 8), build), ctx)
        counts.append(ctx.log.metrics["kernel_count"])
    assert counts == [1, 2]


@pytest.mark.parametrize("rows", [6, tirx.Var("n", "int64")])
def test_a_reduction_beside_the_view_keeps_its_axes(rows: object) -> None:
    """log(sum(exp(x - m))) + m, as PyTorch writes it, where m loses its axis for the sum.

    Then one kernel makes it, though two operators read m.
    """

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        most = bb.emit(R.max(x, axis=1, keepdims=True))
        total = bb.emit(R.sum(bb.emit(R.exp(bb.emit(R.subtract(x, most)))), axis=1))
        without = bb.emit(R.reshape(most, relax.ShapeExpr([rows])))
        return R.add(bb.emit(R.log(total)), without)

    changed = check(sink_views, module((rows, 8), build), normal(6, 8))
    assert sequence(changed) == ["max", "subtract", "exp", "sum", "log", "add", "reshape"]
    ctx = context()
    default_pipeline().until("fuse").run(module((rows, 8), build), ctx)
    assert ctx.log.metrics["kernel_count"] == 1


def test_a_view_of_what_others_read_stays_where_no_reduction_is_turned() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        most = bb.emit(R.max(x, axis=1, keepdims=True))
        kept = bb.emit(R.subtract(x, most))
        return R.matmul(bb.emit(R.nn.relu(bb.emit(R.reshape(most, (6,))))), kept)

    assert reasons(build, (6, 8), normal(6, 8)) == set()


def test_views_of_two_operands_meet() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        gate, up = (bb.emit(R.matmul(x, weights(8, 4, seed=s))) for s in (0, 1))
        gate = bb.emit(R.nn.silu(bb.emit(R.reshape(gate, (2, 3, 4)))))
        return R.multiply(gate, bb.emit(R.reshape(up, (2, 3, 4))))

    changed = check(sink_views, module((6, 8), build), normal(6, 8))
    assert operators(changed)["reshape"] == 1
    assert sequence(changed)[-2:] == ["multiply", "reshape"]


def test_an_operand_is_viewed_before_what_makes_it() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        left = bb.emit(R.reshape(bb.emit(R.exp(x)), (2, 3, 4)))
        right = bb.emit(R.tanh(bb.emit(R.nn.relu(weights_of(bb, x)))))
        return R.add(left, right)

    def weights_of(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return bb.emit(R.reshape(x, (2, 3, 4)))

    changed = check(sink_views, module((6, 4), build), normal(6, 4))
    assert sequence(changed) == ["exp", "nn.relu", "tanh", "add", "reshape"]


def test_a_symbolic_size_that_the_view_keeps() -> None:
    rows = tirx.Var("n", "int64")

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.reshape(bb.emit(R.exp(x)), relax.ShapeExpr([rows, 2, 3, 1])))
        return R.add(y, weights(3, 1))

    ctx = context()
    changed = check(sink_views, module((rows, 6), build), normal(4, 6), fires=False, ctx=ctx)
    assert sequence(changed) == ["exp", "reshape", "add"]  # a part of the axis of 6

    def whole(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.reshape(bb.emit(R.exp(x)), relax.ShapeExpr([rows, 2, 3, 1])))
        return R.add(y, weights(2, 3, 1))

    changed = check(sink_views, module((rows, 6), whole), normal(4, 6))
    assert sequence(changed) == ["exp", "add", "reshape"]


def _part_of_an_axis(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return R.add(bb.emit(R.reshape(bb.emit(R.exp(x)), (4, 2, 3))), weights(3))


def _computed_operand(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """A second kernel of its own takes the sum in, in the shape after the view."""
    left = bb.emit(R.reshape(bb.emit(R.exp(x)), (4, 2, 3)))
    return R.add(left, bb.emit(R.matmul(weights(4, 2, 2), weights(4, 2, 3))))


@pytest.mark.parametrize("build", [_part_of_an_axis, _computed_operand])
def test_an_operand_that_cannot_be_viewed_is_a_reason(build: Build) -> None:
    expected = "an operand is computed, or broadcast, in the shape after the view"
    assert reasons(build, (4, 6), normal(4, 6)) == {expected}


def _view_of_an_input(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return R.exp(bb.emit(R.reshape(x, (4, 2, 3))))


def _source_with_other_readers(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    y = bb.emit(R.exp(x))
    return R.add(
        bb.emit(R.tanh(bb.emit(R.reshape(y, (1, 4, 6))))), bb.emit(R.sum(y, [0], keepdims=True))
    )


def _view_that_a_product_reads(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    y = bb.emit(R.reshape(bb.emit(R.exp(x)), (2, 2, 6)))
    return R.add(bb.emit(R.matmul(y, weights(6, 6))), bb.emit(R.tanh(y)))


def _broadcast_view(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """One number a row, of a view with an axis more."""
    y = bb.emit(R.reshape(bb.emit(R.sum(x, [1])), (4, 1)))
    return R.multiply(x, y)


@pytest.mark.parametrize(
    "build",
    [
        _view_of_an_input,
        _source_with_other_readers,
        _view_that_a_product_reads,
        _broadcast_view,
    ],
)
def test_views_that_keep_nothing_apart_stay(build: Build) -> None:
    assert reasons(build, (4, 6), normal(4, 6)) == set()


def test_a_sum_whose_axis_is_put_back_keeps_it() -> None:
    changed = check(simplify_views, module((4, 6), _broadcast_view), normal(4, 6))
    assert sequence(changed) == ["sum", "multiply"]
    assert changed["main"].body.blocks[0].bindings[0].value.attrs.keepdims

    def dropped(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return R.squeeze(bb.emit(R.mean(x, [0, 2], keepdims=True)), [0, 2])

    changed = check(simplify_views, module((4, 6, 2), dropped), normal(4, 6, 2))
    assert sequence(changed) == ["mean"]

    def joined(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return R.reshape(bb.emit(R.max(x, [1])), (2, 2))

    check(simplify_views, module((4, 6), joined), normal(4, 6), fires=False)
