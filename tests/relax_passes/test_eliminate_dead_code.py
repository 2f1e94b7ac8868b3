"""Bindings that nothing reads are removed."""

from __future__ import annotations

from tvm import relax

from relax_passes.eliminate_dead_code import eliminate_dead_code
from tests.relax_passes.pass_checks import check, module, normal, operators

R = relax.op


def test_a_dead_chain_is_removed() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        bb.emit(R.exp(bb.emit(R.negative(x))))
        return R.abs(x)

    changed = check(eliminate_dead_code, module((2, 3), build), normal(2, 3))
    assert operators(changed) == {"abs": 1}


def test_live_code_stays() -> None:
    mod = module((2, 3), lambda bb, x: R.exp(bb.emit(R.negative(x))))
    check(eliminate_dead_code, mod, normal(2, 3), fires=False)
