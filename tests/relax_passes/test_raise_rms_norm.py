"""Decomposed root-mean-square normalization becomes one operator."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax, tirx

from relax_passes.fuse_operators import fuse_operators
from relax_passes.lower_operators import lower_operators
from relax_passes.raise_rms_norm import raise_rms_norm
from tests.relax_passes.pass_checks import check, context, module, normal, operators, weights

R = relax.op


def number(value: float) -> relax.Expr:
    """Return a float32 scalar."""
    return relax.const(np.float32(value))


def inverse(bb: relax.BlockBuilder, v: relax.Expr, form: str) -> relax.Expr:
    """Return 1 / sqrt(v) as an exporter writes it."""
    if form == "rsqrt":
        return bb.emit(R.rsqrt(v))
    if form == "power":
        return bb.emit(R.power(v, number(-0.5)))
    return bb.emit(R.divide(number(1), bb.emit(R.sqrt(v))))


def rms_norm(
    bb: relax.BlockBuilder,
    x: relax.Expr,
    *,
    form: str = "reciprocal",
    square: str = "multiply",
    axis: int = -1,
    gamma: relax.Expr | None = None,
    of: relax.Expr | None = None,
) -> relax.Expr:
    """Write RMS normalization in single operators; `of` is what the mean is taken of."""
    e, y = bb.emit, x if of is None else of
    squares = {
        "multiply": lambda: R.multiply(y, y),
        "power": lambda: R.power(y, number(2)),
        "square": lambda: R.square(y),
    }
    mean = e(R.mean(e(squares[square]()), [axis], keepdims=True))
    variance = e(R.add(mean, number(1e-5)))
    if form == "divide":
        norm = e(R.divide(x, e(R.sqrt(variance))))
    else:
        norm = e(R.multiply(x, inverse(bb, variance, form)))
    return R.multiply(weights(8, seed=1) if gamma is None else gamma, norm)


@pytest.mark.parametrize("form", ["reciprocal", "rsqrt", "power", "divide"])
@pytest.mark.parametrize("square", ["multiply", "power", "square"])
def test_each_form_is_raised(form: str, square: str) -> None:
    mod = module((2, 5, 8), lambda bb, x: rms_norm(bb, x, form=form, square=square))
    changed = check(raise_rms_norm, mod, normal(2, 5, 8))
    assert operators(changed) == {"nn.rms_norm": 1}


def test_symbolic_rows() -> None:
    mod = module((tirx.Var("n", "int64"), 8), rms_norm)
    assert operators(check(raise_rms_norm, mod, normal(3, 8))) == {"nn.rms_norm": 1}


def test_it_saves_a_kernel() -> None:
    mod = module((2, 5, 8), rms_norm)
    counts = []
    for candidate in (mod, raise_rms_norm(mod, context())[0]):
        ctx = context()
        fuse_operators(lower_operators(candidate, ctx)[0], ctx)
        counts.append(ctx.log.metrics["kernel_count"])
    assert counts == [2, 1]


def test_a_scale_over_other_axes_declines() -> None:
    ctx = context()
    mod = module((2, 5, 8), lambda bb, x: rms_norm(bb, x, gamma=weights(5, 8)))
    check(raise_rms_norm, mod, fires=False, ctx=ctx)
    reason = "its scale is no constant over the normalized axes"
    assert ctx.log.declined[0] == ("raise_rms_norm", "RMS norm", reason)


def test_a_mean_over_a_leading_axis_stays() -> None:
    mod = module((2, 8, 8), lambda bb, x: rms_norm(bb, x, axis=1))
    check(raise_rms_norm, mod, fires=False)


def test_a_mean_of_something_else_stays() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return rms_norm(bb, x, of=bb.emit(R.exp(x)))

    check(raise_rms_norm, module((2, 8), build), fires=False)


def test_a_product_of_two_tensors_is_no_square() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        e = bb.emit
        mean = e(R.mean(e(R.multiply(x, e(R.exp(x)))), [-1], keepdims=True))
        root = e(R.sqrt(e(R.add(mean, number(1e-5)))))
        return R.multiply(e(R.divide(x, root)), weights(8))

    check(raise_rms_norm, module((2, 8), build), fires=False)
