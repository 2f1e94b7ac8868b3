"""What looks like attention and is none stays as it is, with a reason in the report."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from relax_passes.raise_attention import raise_attention
from tests.relax_passes.attention_graphs import (
    FLAT,
    B,
    D,
    Emit,
    R,
    S,
    T,
    attention_module,
    const,
    plain,
    scaled,
)
from tests.relax_passes.pass_checks import check, context, normal


def refused(mod: tvm.IRModule, *arrays: np.ndarray) -> str:
    """Check that nothing is raised, and return the reason."""
    ctx = context()
    check(raise_attention, mod, *arrays, fires=False, ctx=ctx)
    assert {name for name, _, _ in ctx.log.declined} == {"raise_attention"}
    return ctx.log.declined[0][2]


def test_weights_that_are_also_a_result() -> None:
    def build(emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
        scores = emit(R.matmul(q, emit(R.permute_dims(k, [0, 2, 1]))))
        weights = emit(R.nn.softmax(scores, -1))
        result = emit(R.matmul(weights, v))
        return R.add(result, emit(R.sum(weights, [-1], True)))

    assert "has another reader" in refused(attention_module(build, *FLAT))


def test_softmax_over_another_axis() -> None:
    def build(emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
        scores = emit(R.matmul(q, emit(R.permute_dims(k, [0, 2, 1]))))
        return R.matmul(emit(R.nn.softmax(scores, 1)), v)

    reason = refused(attention_module(build, *FLAT))
    assert reason == "its softmax is not over the last axis"


def test_scores_that_are_bent() -> None:
    def build(emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
        scores = emit(R.tanh(emit(R.matmul(q, emit(R.permute_dims(k, [0, 2, 1]))))))
        return R.matmul(emit(R.nn.softmax(scores, -1)), v)

    reason = refused(attention_module(build, *FLAT))
    assert reason == "its scores are no scaled and masked product"


def test_a_mask_larger_than_the_scores() -> None:
    def build(
        emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr, mask: relax.Expr
    ) -> relax.Expr:
        scores = emit(R.matmul(q, emit(R.permute_dims(k, [0, 2, 1]))))
        return R.matmul(emit(R.nn.softmax(emit(R.add(scores, mask)), -1)), v)

    shapes = ((1, S, D), (1, T, D), (1, T, D), (B, S, T))
    assert refused(attention_module(build, *shapes)) == "a mask is larger than its scores"


def test_a_mask_that_is_one_value_for_all_keys() -> None:
    def build(
        emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr, mask: relax.Expr
    ) -> relax.Expr:
        return plain(emit, q, k, v, score=lambda e, s: e(R.add(scaled(e, s), mask)))

    mod = attention_module(build, *FLAT, (B, 1, S, 1))
    assert refused(mod) == "its mask is one value for all keys"


def test_a_choice_of_a_number_that_scores_may_reach() -> None:
    def build(
        emit: Emit, mask: relax.Expr, q: relax.Expr, k: relax.Expr, v: relax.Expr
    ) -> relax.Expr:
        return plain(emit, q, k, v, score=lambda e, s: e(R.where(mask, const(-10), s)))

    mod = attention_module(build, (B, 1, S, T), *FLAT, dtypes=("bool",))
    assert refused(mod) == "its scores are no scaled and masked product"


def test_weights_cleared_by_something_else() -> None:
    def build(
        emit: Emit, keep: relax.Expr, q: relax.Expr, k: relax.Expr, v: relax.Expr
    ) -> relax.Expr:
        scores = emit(R.matmul(q, emit(R.permute_dims(k, [0, 2, 1]))))
        weights = emit(R.where(keep, const(0), emit(R.nn.softmax(scores, -1))))
        return R.matmul(weights, v)

    mod = attention_module(build, (B, S, T), *FLAT, dtypes=("bool",))
    assert refused(mod) == "what clears its weights is not its mask"


def test_operands_that_are_broadcast() -> None:
    def build(emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
        scores = emit(R.matmul(q, emit(R.permute_dims(k, [0, 2, 1]))))
        return R.matmul(emit(R.nn.softmax(scores, -1)), v)

    mod = attention_module(build, (1, S, D), (B, T, D), (B, T, D))
    assert refused(mod) == "its operands differ in batch, heads or length"


def test_a_batch_or_length_of_zero() -> None:
    def build(emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
        scores = emit(R.matmul(q, emit(R.permute_dims(k, [0, 2, 1]))))
        return R.matmul(emit(R.nn.softmax(scores, -1)), v)

    for batch, rows, keys in ((0, S, T), (B, 0, T), (B, 0, 0)):
        mod = attention_module(build, (batch, rows, D), (batch, keys, D), (batch, keys, D))
        assert refused(mod) == "it has no elements"


def test_double_precision() -> None:
    def build(emit: Emit, q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
        scores = emit(R.matmul(q, emit(R.permute_dims(k, [0, 2, 1]))))
        return R.matmul(emit(R.nn.softmax(scores, -1)), v)

    mod = attention_module(build, *FLAT, dtypes=("float64",) * 3)
    assert refused(mod) == "it is not computed in float32"


def test_a_softmax_that_is_no_attention_is_left_in_silence() -> None:
    ctx = context()
    mod = attention_module(lambda e, q: R.nn.softmax(q, -1), (B, S))
    check(raise_attention, mod, normal(B, S), fires=False, ctx=ctx)
    assert not ctx.log.declined
