"""What depends on constants only is computed at compile time."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from relax_passes.fold_constant import fold_constant
from tests.relax_passes.pass_checks import check, module, normal, operators, weights

R = relax.op


def test_a_chain_of_constants_becomes_one_constant() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        w = bb.emit(R.permute_dims(weights(5, 3), [1, 0]))
        w = bb.emit(R.multiply(w, relax.const(np.float32(2))))
        return R.matmul(x, bb.emit(R.concat([w, w], 1)))

    changed = check(fold_constant, module((2, 3), build), normal(2, 3))
    assert operators(changed) == {"matmul": 1}


def test_operators_numpy_does_not_cover_are_run() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        w = bb.emit(R.tanh(bb.emit(R.cumsum(weights(3, 4), 0))))
        return R.add(x, bb.emit(R.negative(w)))

    changed = check(fold_constant, module((3, 4), build), normal(3, 4))
    assert operators(changed) == {"add": 1}


def test_a_constant_result_folds() -> None:
    mod = module((2,), lambda bb, x: R.add(weights(2), weights(2, seed=1)))
    changed = check(fold_constant, mod, normal(2))
    assert not operators(changed)


def test_a_small_constant_is_not_blown_up() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return R.add(x, bb.emit(R.broadcast_to(relax.const(np.float32(1)), (1024, 1024))))

    check(fold_constant, module((1024, 1024), build), fires=False)


def test_a_name_of_a_constant_gives_way_to_it() -> None:
    mod = module((2, 3), lambda bb, x: R.add(x, bb.emit(weights(2, 3), "named")))
    changed = check(fold_constant, mod, normal(2, 3))
    (block,) = changed["main"].body.blocks
    assert [type(b.value) for b in block.bindings] == [tvm.ir.Call]
    assert isinstance(block.bindings[0].value.args[1], tvm.ir.GenericConst)


def test_what_depends_on_an_input_stays() -> None:
    check(fold_constant, module((2, 3), lambda bb, x: R.add(x, weights(2, 3))), fires=False)


def test_symbolic_results_stay() -> None:
    n = tvm.tirx.Var("n", "int64")
    # A symbolic result has no value to compute.
    mod = module((n,), lambda bb, x: R.broadcast_to(relax.const(np.float32(1)), (n,)))
    check(fold_constant, mod, fires=False)


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.0])
def test_special_values_survive(value: float) -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        constant = bb.emit(R.maximum(relax.const(np.float32(value)), relax.const(np.float32(-1))))
        return R.multiply(x, constant)

    mod = module((2,), build)
    wanted = np.ones(2, "float32") * np.float32(np.maximum(value, -1))
    check(fold_constant, mod, np.ones(2, "float32"), reference=wanted)
