"""Batch normalization and dropout in their inference forms."""

from __future__ import annotations

from tvm import relax

from relax_passes.decompose_inference import decompose_inference
from tests.relax_passes.pass_checks import check, module, normal, operators, weights

R = relax.op


def test_batch_norm_becomes_scale_and_shift() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        parameters = [weights(4, seed=s, positive=True) for s in range(4)]
        out = bb.emit(R.nn.batch_norm(x, *parameters, axis=1, training=False))
        return relax.TupleGetItem(out, 0)

    changed = check(decompose_inference, module((2, 4, 3, 3), build), normal(2, 4, 3, 3))
    assert operators(changed) == {"multiply": 1, "add": 1}


def test_parameters_at_run_time() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        var = bb.emit(R.mean(bb.emit(R.multiply(x, x)), [0, 2, 3]))
        gamma = weights(4)
        out = bb.emit(R.nn.batch_norm(x, gamma, gamma, gamma, var, axis=1, training=False))
        return relax.TupleGetItem(out, 0)

    changed = check(decompose_inference, module((2, 4, 3, 3), build), normal(2, 4, 3, 3))
    assert operators(changed)["nn.batch_norm"] == 0


def test_dropout_is_its_input() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        kept = bb.emit(relax.TupleGetItem(bb.emit(R.nn.dropout(x, 0.5)), 0))
        return R.add(kept, kept)

    mod = module((2, 3), build)
    changed = check(decompose_inference, mod)
    assert operators(changed)["nn.dropout"] == 0


def test_training_mode_stays() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        one = weights(4, positive=True)
        out = bb.emit(R.nn.batch_norm(x, one, one, one, one, axis=1, training=True))
        return relax.TupleGetItem(out, 0)

    check(decompose_inference, module((2, 4, 3, 3), build), fires=False)
