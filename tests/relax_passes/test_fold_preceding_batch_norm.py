"""Scales and shifts fold into the linear operator after them, or stay for a reason."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tvm import relax

from relax_passes.fold_batch_norm import fold_batch_norm
from relax_passes.fold_preceding_batch_norm import fold_preceding_batch_norm
from tests.relax_passes.pass_checks import check, context, module, normal, operators, weights
from tests.relax_passes.test_fold_batch_norm import norm

R = relax.op

# The shape of the data, the operator without padding.
LINEAR = {
    "conv1d": ((2, 4, 9), lambda x: R.nn.conv1d(x, weights(8, 4, 3), strides=2)),
    "conv2d": ((1, 4, 6, 6), lambda x: R.nn.conv2d(x, weights(8, 4, 3, 3), strides=2)),
    "conv3d": ((1, 4, 5, 5, 5), lambda x: R.nn.conv3d(x, weights(6, 4, 2, 2, 2))),
    "grouped": ((1, 4, 6, 6), lambda x: R.nn.conv2d(x, weights(6, 2, 3, 3), groups=2)),
    "depthwise": ((1, 4, 6, 6), lambda x: R.nn.conv2d(x, weights(8, 1, 3, 3), groups=4)),
    "dilated": ((1, 4, 8, 8), lambda x: R.nn.conv2d(x, weights(8, 4, 3, 3), dilation=2)),
    "matmul": ((3, 4), lambda x: R.matmul(x, weights(4, 9))),
    "batch of rows": ((2, 3, 4), lambda x: R.matmul(x, weights(4, 9))),
}


def column(shape: tuple[int, ...], seed: int) -> relax.Expr:
    """Return one number per channel, in a shape that broadcasts to data of `shape`."""
    channels_last = len(shape) < 3 or shape[1] != 4
    return (
        weights(4, seed=seed) if channels_last else weights(4, *[1] * (len(shape) - 2), seed=seed)
    )


@pytest.mark.parametrize("kind", LINEAR)
def test_scale_and_shift_before(kind: str) -> None:
    shape, linear = LINEAR[kind]

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.subtract(x, column(shape, 1)))
        y = bb.emit(R.divide(y, relax.const(np.float32(3))))
        y = bb.emit(R.multiply(column(shape, 2), y))
        y = bb.emit(R.subtract(column(shape, 3), y))
        return R.exp(bb.emit(linear(y)))

    mod = module(shape, build)
    changed = check(fold_preceding_batch_norm, mod, normal(*shape) * np.float32(0.1))
    kept = set(operators(mod)) - {"subtract", "divide", "multiply"}
    assert operators(changed) == {**dict.fromkeys(kept, 1), "add": 1}


@pytest.mark.parametrize("kind", [k for k in LINEAR if k != "batch of rows"])
def test_batch_norm_before_and_after(kind: str) -> None:
    shape, linear = LINEAR[kind]

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(linear(norm(bb, x, 4)))
        return norm(bb, y, int(y.ty.shape.values[1]))

    mod = module(shape, build)
    once = check(fold_preceding_batch_norm, mod, normal(*shape))
    assert operators(once)["nn.batch_norm"] == 1
    both = check(fold_batch_norm, once, normal(*shape))
    assert operators(both) == {
        **dict.fromkeys(set(operators(mod)) - {"nn.batch_norm"}, 1),
        "add": 1,
    }


PADDED = {
    "padding": lambda x: R.nn.conv2d(x, weights(8, 4, 3, 3), padding=1),
    "transposed": lambda x: R.nn.conv2d_transpose(x, weights(4, 3, 2, 2), strides=2),
    "grouped transposed": lambda x: R.nn.conv2d_transpose(x, weights(4, 3, 2, 2), groups=2),
}


@pytest.mark.parametrize("kind", PADDED)
def test_a_scale_alone_folds_where_a_shift_would_not(kind: str) -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return PADDED[kind](bb.emit(R.multiply(x, weights(4, 1, 1, seed=1))))

    changed = check(fold_preceding_batch_norm, module((1, 4, 5, 5), build), normal(1, 4, 5, 5))
    assert "multiply" not in operators(changed) and "add" not in operators(changed)


def test_the_scale_after_a_shift_folds_alone() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.add(x, weights(4, 1, 1, seed=1)))
        return PADDED["padding"](bb.emit(R.multiply(y, weights(4, 1, 1, seed=2))))

    ctx = context()
    mod = module((1, 4, 5, 5), build)
    changed = check(fold_preceding_batch_norm, mod, normal(1, 4, 5, 5), ctx=ctx)
    assert operators(changed) == {"add": 1, "nn.conv2d": 1}
    assert "the convolution pads with zeros, which the shift would not reach" in reasons(ctx)


def reasons(ctx: object) -> list[str]:
    return [reason for _, _, reason in ctx.log.declined]


def declined(mod: object, **changes: object) -> set[str]:
    """Return the reasons for which the pass leaves `mod` alone."""
    ctx = dataclasses.replace(context(), **changes)
    check(fold_preceding_batch_norm, mod, fires=False, ctx=ctx)
    return set(reasons(ctx))


def test_padding_declines_a_norm() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return PADDED["padding"](norm(bb, x, 4))

    assert "the convolution pads with zeros, which the shift would not reach" in declined(
        module((1, 4, 5, 5), build)
    )


def test_a_transposed_convolution_declines_a_norm() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return PADDED["transposed"](norm(bb, x, 4))

    [reason] = declined(module((1, 4, 5, 5), build))
    assert reason.startswith("a shift before a transposed convolution")


def test_another_reader_declines() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.multiply(x, weights(4, 1, 1)))
        return R.add(bb.emit(R.nn.conv2d(y, weights(4, 4, 1, 1))), y)

    assert declined(module((1, 4, 5, 5), build)) == {"lv has another reader"}


def test_a_weight_that_is_not_constant_declines() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return R.matmul(bb.emit(R.multiply(x, weights(4))), x)

    assert "the weight of relax.matmul is not constant" in declined(module((4, 4), build))


def test_training_mode_and_run_time_parameters_decline() -> None:
    def training(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return R.nn.conv2d(norm(bb, x, 4, training=True), weights(8, 4, 1, 1))

    def computed(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        gamma, ones = bb.emit(R.mean(x, [0, 2, 3])), weights(4, positive=True)
        out = bb.emit(R.nn.batch_norm(x, gamma, ones, ones, ones, axis=1, training=False))
        return R.nn.conv2d(bb.emit(relax.TupleGetItem(out, 0)), weights(8, 4, 1, 1))

    assert declined(module((1, 4, 5, 5), training)) == {"the normalization is in training mode"}
    assert declined(module((1, 4, 5, 5), computed)) == {
        "the normalization's parameters are not constant"
    }


def test_a_norm_over_another_axis_declines() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return R.matmul(norm(bb, x, 3), weights(6, 9))

    assert declined(module((2, 3, 6), build)) == {"the normalization is over another axis"}


def test_strict_precision_declines() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return R.nn.conv2d(bb.emit(R.multiply(x, weights(4, 1, 1))), weights(4, 4, 1, 1))

    [reason] = declined(module((1, 4, 5, 5), build), precision="strict")
    assert "strict" in reason
