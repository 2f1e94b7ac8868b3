"""Decomposed GELU and SiLU become one operator each, in whatever order they are written."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax

from relax_passes.raise_gelu import raise_gelu
from tests.relax_passes.pass_checks import check, module, normal, operators

R = relax.op
Emit = Callable[[relax.Expr], relax.Expr]


def c(value: float) -> relax.Expr:
    """Return a scalar constant."""
    return relax.const(np.float32(value))


def erf_divided(e: Emit, x: relax.Expr) -> relax.Expr:
    gate = e(R.add(e(R.erf(e(R.divide(x, c(math.sqrt(2)))))), c(1)))
    return R.multiply(e(R.multiply(x, gate)), c(0.5))


def erf_halved_first(e: Emit, x: relax.Expr) -> relax.Expr:
    gate = e(R.add(c(1), e(R.erf(e(R.multiply(x, c(math.sqrt(0.5))))))))
    return R.multiply(e(R.multiply(c(0.5), x)), gate)


def tanh_power(e: Emit, x: relax.Expr) -> relax.Expr:
    cubic = e(R.multiply(c(0.044715), e(R.power(x, c(3)))))
    inner = e(R.multiply(c(math.sqrt(2 / math.pi)), e(R.add(x, cubic))))
    return R.multiply(e(R.multiply(x, c(0.5))), e(R.add(e(R.tanh(inner)), c(1))))


def tanh_factored(e: Emit, x: relax.Expr) -> relax.Expr:
    square = e(R.multiply(e(R.multiply(x, x)), c(0.044715)))
    inner = e(R.multiply(e(R.multiply(x, c(math.sqrt(2 / math.pi)))), e(R.add(square, c(1)))))
    return R.multiply(c(0.5), e(R.multiply(x, e(R.add(c(1), e(R.tanh(inner)))))))


@pytest.mark.parametrize(
    ("form", "operator"),
    [
        (erf_divided, "nn.gelu"),
        (erf_halved_first, "nn.gelu"),
        (tanh_power, "nn.gelu_tanh"),
        (tanh_factored, "nn.gelu_tanh"),
        (lambda e, x: R.multiply(x, e(R.sigmoid(x))), "nn.silu"),
        (lambda e, x: R.multiply(e(R.sigmoid(x)), x), "nn.silu"),
    ],
)
def test_each_form_is_raised(form: Callable[[Emit, relax.Expr], relax.Expr], operator: str) -> None:
    mod = module((4, 9), lambda bb, x: form(bb.emit, x))
    changed = check(raise_gelu, mod, normal(4, 9))
    assert operators(changed) == {operator: 1}


def wrong_scale(e: Emit, x: relax.Expr) -> relax.Expr:
    return R.multiply(e(R.multiply(x, e(R.add(e(R.erf(x)), c(1))))), c(0.5))


def wrong_half(e: Emit, x: relax.Expr) -> relax.Expr:
    gate = e(R.add(e(R.erf(e(R.divide(x, c(math.sqrt(2)))))), c(1)))
    return R.multiply(e(R.multiply(x, gate)), c(0.6))


def other_operand(e: Emit, x: relax.Expr) -> relax.Expr:
    gate = e(R.add(e(R.erf(e(R.divide(x, c(math.sqrt(2)))))), c(1)))
    return R.multiply(e(R.multiply(e(R.exp(x)), gate)), c(0.5))


@pytest.mark.parametrize(
    "form",
    [wrong_scale, wrong_half, other_operand, lambda e, x: R.multiply(e(R.exp(x)), e(R.sigmoid(x)))],
)
def test_near_misses_stay(form: Callable[[Emit, relax.Expr], relax.Expr]) -> None:
    check(raise_gelu, module((4, 9), lambda bb, x: form(bb.emit, x)), fires=False)
