"""Dead bindings go, checks at run time stay, and the time is linear."""

from __future__ import annotations

import time

import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from relax_passes.dead_bindings import remove_dead_bindings
from tests.relax_passes.pass_checks import module, operators

op = relax.op


@I.ir_module
class Several:
    """Two blocks: chains that nobody reads, a check, and a symbol that only a type needs."""

    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(ndim=1, dtype="float32")) -> R.Tensor(
        dtype="float32", ndim=1
    ):
        k = T.int64()
        m = T.int64()
        with R.dataflow():
            checked = R.match_cast(y, R.Tensor((m,), "float32"))  # noqa: F841
            sized = R.match_cast(y, R.Tensor((k,), "float32"))  # noqa: F841
            dead = R.exp(x)
            deader = R.exp(dead)
            z = R.zeros(R.shape([k]), "float32")
            R.output(z, deader)
        with R.dataflow():
            q = R.add(z, z)
            unread = R.exp(q)
            R.output(q, unread)
        return q

    @R.function(private=True)
    def uncalled(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        return x


def test_what_is_read_and_what_checks_stays() -> None:
    left = remove_dead_bindings(Several)
    assert operators(left) == {"zeros": 1, "add": 1}
    casts = [
        b
        for block in left["main"].body.blocks
        for b in block.bindings
        if isinstance(b, relax.MatchCast)
    ]
    assert len(casts) == 2 and len(left.functions) == 1
    relax.analysis.well_formed(left)
    tvm.ir.assert_structural_equal(left, relax.transform.DeadCodeElimination()(Several))
    tvm.ir.assert_structural_equal(remove_dead_bindings(left), left)


def half_dead(pairs: int) -> tvm.IRModule:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        for _ in range(pairs):
            bb.emit(op.exp(x))
            x = bb.emit(op.tanh(x))
        return op.exp(x)

    return module((4,), build)


def test_time_is_linear_in_dead_bindings() -> None:
    def seconds(mod: tvm.IRModule) -> float:
        taken = []
        for _ in range(3):
            start = time.process_time()
            assert operators(remove_dead_bindings(mod))["exp"] == 1
            taken.append(time.process_time() - start)
        return min(taken)

    small, large = seconds(half_dead(500)), seconds(half_dead(4000))
    if large < 0.05:
        pytest.skip("too fast to measure")
    assert large < 8 * 2.5 * small
