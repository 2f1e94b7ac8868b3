"""Decomposed layer normalization becomes one operator."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from relax_passes.raise_layer_norm import raise_layer_norm
from tests.relax_passes.pass_checks import check, context, module, normal, operators, weights

R = relax.op


def layer_norm(
    bb: relax.BlockBuilder,
    x: relax.Expr,
    *,
    axis: int = -1,
    reciprocal: bool = False,
    multiply: bool = False,
    gamma: relax.Expr | None = None,
) -> relax.Expr:
    """Write layer normalization in single operators, as exporters do."""
    e = bb.emit
    d = e(R.subtract(x, e(R.mean(x, [axis], keepdims=True))))
    square = e(R.multiply(d, d) if multiply else R.power(d, relax.const(np.float32(2))))
    var = e(R.add(e(R.mean(square, [axis], keepdims=True)), relax.const(np.float32(1e-5))))
    norm = e(R.multiply(d, e(R.rsqrt(var))) if reciprocal else R.divide(d, e(R.sqrt(var))))
    scaled = e(R.multiply(norm, weights(8, seed=1) if gamma is None else gamma))
    return R.add(scaled, weights(8, seed=2))


@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("multiply", [False, True])
def test_each_form_is_raised(reciprocal: bool, multiply: bool) -> None:
    mod = module(
        (2, 5, 8), lambda bb, x: layer_norm(bb, x, reciprocal=reciprocal, multiply=multiply)
    )
    changed = check(raise_layer_norm, mod, normal(2, 5, 8))
    assert operators(changed) == {"nn.layer_norm": 1}


def test_a_norm_over_a_leading_axis_stays() -> None:
    mod = module((2, 8, 8), lambda bb, x: layer_norm(bb, x, axis=1))
    check(raise_layer_norm, mod, fires=False)


def test_a_scale_over_other_axes_declines() -> None:
    ctx = context()
    mod = module((2, 5, 8), lambda bb, x: layer_norm(bb, x, gamma=weights(5, 8)))
    check(raise_layer_norm, mod, fires=False, ctx=ctx)
    reason = "its scale and shift are no constants over the normalized axes"
    assert [r for _, _, r in ctx.log.declined][:1] == [reason]


def test_a_variance_of_something_else_stays() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        e = bb.emit
        d = e(R.subtract(x, e(R.mean(x, [-1], keepdims=True))))
        square = e(R.multiply(x, x))  # of x, not of d
        var = e(R.add(e(R.mean(square, [-1], keepdims=True)), relax.const(np.float32(1e-5))))
        scaled = e(R.multiply(e(R.divide(d, e(R.sqrt(var)))), weights(8)))
        return R.add(scaled, weights(8))

    check(raise_layer_norm, module((2, 8), build), fires=False)
