"""What `idle_kernels` finds, so that its empty answer for the zoo means something."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tvm import relax
from tvm.relax.transform import LegalizeOps

from tests.relax_passes.pass_checks import module
from tests.relaxc.idle_kernels import idle_kernels

op = relax.op


@pytest.mark.parametrize(
    ("emit", "idle"),
    [
        (lambda x: op.reshape(x, (6, 4)), True),
        (lambda x: op.expand_dims(x, 0), True),
        (lambda x: op.broadcast_to(x, (4, 6)), True),
        (lambda x: op.permute_dims(x), False),
        (lambda x: op.strided_slice(x, [1], [0], [3]), False),
        (lambda x: op.nn.relu(x), False),
        (lambda x: op.broadcast_to(x, (2, 4, 6)), False),
    ],
)
def test_copies_in_order_are_found(emit: Callable[[relax.Expr], relax.Expr], idle: bool) -> None:
    lowered = LegalizeOps()(module((4, 6), lambda bb, x: emit(x)))
    assert bool(idle_kernels(lowered)) == idle


def test_a_batch_norm_is_found() -> None:
    def build(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        row = relax.const([1.0, 2.0, 3.0], "float32")
        return bb.emit(op.nn.batch_norm(x, row, row, row, row, 1, training=False))[0]

    mod = module((4, 3), build)
    assert idle_kernels(mod) == ["relax.nn.batch_norm"]
    assert "batch_norm" in idle_kernels(LegalizeOps()(mod))
