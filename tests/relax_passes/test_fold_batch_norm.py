"""Scales and shifts fold into the linear operator before them, or stay for a reason."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from relax_passes.fold_batch_norm import fold_batch_norm
from tests.relax_passes.pass_checks import check, context, module, normal, operators, weights

R = relax.op


def norm(bb: relax.BlockBuilder, x: relax.Expr, channels: int, **attrs: object) -> relax.Expr:
    """Apply batch normalization with random constant parameters over axis 1."""
    gamma, beta, mean = (weights(channels, seed=s) for s in (1, 2, 3))
    var = weights(channels, seed=4, positive=True)
    options = {"axis": 1, "training": False, **attrs}
    return bb.emit(
        relax.TupleGetItem(bb.emit(R.nn.batch_norm(x, gamma, beta, mean, var, **options)), 0)
    )


LINEAR = {
    "conv2d": lambda x: R.nn.conv2d(x, weights(8, 4, 3, 3), padding=1, strides=2),
    "grouped": lambda x: R.nn.conv2d(x, weights(8, 2, 3, 3), groups=2),
    "depthwise": lambda x: R.nn.conv2d(x, weights(8, 1, 3, 3), groups=4),
    "transposed": lambda x: R.nn.conv2d_transpose(x, weights(4, 8, 2, 2), strides=2),
    "grouped transposed": lambda x: R.nn.conv2d_transpose(x, weights(4, 4, 2, 2), groups=2),
}


@pytest.mark.parametrize("kind", LINEAR)
def test_conv_and_norm_become_conv_and_bias(kind: str) -> None:
    mod = module((1, 4, 6, 6), lambda bb, x: norm(bb, bb.emit(LINEAR[kind](x)), 8))
    folded = check(fold_batch_norm, mod, normal(1, 4, 6, 6))
    assert set(operators(folded)) == set(operators(mod)) - {"nn.batch_norm"} | {"add"}


def test_bias_scale_shift_and_norm_all_fold() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.nn.conv2d(x, weights(8, 4, 1, 1)))
        y = bb.emit(R.add(y, weights(1, 8, 1, 1, seed=5)))
        y = norm(bb, y, 8)
        y = bb.emit(R.multiply(weights(8, 1, 1, seed=6), y))
        y = bb.emit(R.subtract(y, relax.const(np.float32(3))))
        return R.divide(y, relax.const(np.float32(2)))

    folded = check(fold_batch_norm, module((1, 4, 5, 5), build), normal(1, 4, 5, 5))
    assert operators(folded) == {"nn.conv2d": 1, "add": 1}


def test_a_scale_alone_leaves_no_second_name() -> None:
    """A name for a name would end the blocked layout of what follows."""

    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.multiply(bb.emit(R.nn.conv2d(x, weights(8, 4, 1, 1))), weights(8, 1, 1)))
        return R.nn.relu(y)

    folded = check(fold_batch_norm, module((1, 4, 5, 5), build), normal(1, 4, 5, 5))
    assert operators(folded) == {"nn.conv2d": 1, "nn.relu": 1}
    assert len(folded["main"].body.blocks[0].bindings) == 2


def test_matmul_and_norm_fold() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.add(bb.emit(R.matmul(x, weights(6, 9))), weights(9, seed=5)))
        return norm(bb, y, 9)

    folded = check(fold_batch_norm, module((3, 6), build), normal(3, 6))
    assert operators(folded) == {"matmul": 1, "add": 1}


def declined(mod: object) -> list[str]:
    """Return the reasons for which the pass leaves `mod` alone."""
    ctx = context()
    check(fold_batch_norm, mod, fires=False, ctx=ctx)
    return [reason for _, _, reason in ctx.log.declined]


def test_another_reader_of_the_conv_declines() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.nn.conv2d(x, weights(8, 4, 1, 1)))
        return R.add(norm(bb, y, 8), y)

    assert "it has another reader" in declined(module((1, 4, 5, 5), build))


def test_another_reader_of_the_conv_declines_a_scale() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.nn.conv2d(x, weights(8, 4, 1, 1)))
        return R.add(bb.emit(R.multiply(y, weights(8, 1, 1))), y)

    assert "it has another reader" in declined(module((1, 4, 5, 5), build))


def test_training_mode_declines() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return norm(bb, bb.emit(R.nn.conv2d(x, weights(8, 4, 1, 1))), 8, training=True)

    assert "the normalization is in training mode" in declined(module((1, 4, 5, 5), build))


def test_parameters_that_are_not_constant_decline() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(R.nn.conv2d(x, weights(4, 4, 1, 1)))
        gamma = bb.emit(R.mean(x, [0, 2, 3]))
        ones = weights(4, positive=True)
        out = bb.emit(R.nn.batch_norm(y, gamma, ones, ones, ones, axis=1, training=False))
        return relax.TupleGetItem(out, 0)

    reasons = declined(module((1, 4, 5, 5), build))
    assert "the normalization's parameters are not constant" in reasons


def test_a_norm_over_another_axis_declines() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return norm(bb, bb.emit(R.matmul(x, weights(6, 9))), 3)

    assert "the normalization is over another axis" in declined(module((2, 3, 6), build))


def test_a_weight_that_is_not_constant_declines() -> None:
    mod = module((1, 4, 4), lambda bb, x: R.matmul(x, x))
    assert "its weight is not constant" in declined(mod)


def test_a_factor_that_varies_over_pixels_stays() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return R.multiply(bb.emit(R.nn.conv2d(x, weights(8, 4, 1, 1))), weights(8, 5, 5))

    check(fold_batch_norm, module((1, 4, 5, 5), build), fires=False)
