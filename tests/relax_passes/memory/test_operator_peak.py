"""The peak estimated from operators: what needs bytes of its own, and for how long."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tvm import relax

from relax_passes.memory.operator_peak import operator_peak
from tests.relax_passes.pass_checks import module, weights

R = relax.op
ONE = 4 * 8 * 8 * 4  # bytes of a tensor of the shape below
SHAPE = (1, 4, 8, 8)


def mixed(bb: relax.BlockBuilder, x: relax.Expr, channels: int = 4) -> relax.Var:
    """Emit what is stored, whoever reads it."""
    return bb.emit(R.nn.conv2d(x, weights(channels, x.ty.shape[1].value, 1, 1)))


def chain_of_maps(bb: relax.BlockBuilder, x: relax.Var) -> relax.Var:
    return bb.emit(R.nn.softmax(bb.emit(R.nn.relu(mixed(bb, x)))))


def map_with_a_later_reader(bb: relax.BlockBuilder, x: relax.Var) -> relax.Var:
    kept = mixed(bb, x)
    return bb.emit(R.multiply(kept, bb.emit(R.nn.relu(kept))))


def view(bb: relax.BlockBuilder, x: relax.Var) -> relax.Var:
    return bb.emit(R.nn.relu(bb.emit(R.reshape(mixed(bb, x), SHAPE))))


def parts(bb: relax.BlockBuilder, x: relax.Var) -> relax.Var:
    joined = bb.emit(R.concat([mixed(bb, x), mixed(bb, x)], axis=1))
    return mixed(bb, joined)


def read_in_place(bb: relax.BlockBuilder, x: relax.Var) -> relax.Var:
    return mixed(bb, bb.emit(R.permute_dims(mixed(bb, x), (0, 1, 3, 2))))


def stored_transpose(bb: relax.BlockBuilder, x: relax.Var) -> relax.Var:
    return bb.emit(R.nn.relu(bb.emit(R.permute_dims(mixed(bb, x), (0, 1, 3, 2)))))


@pytest.mark.parametrize(
    ("build", "step", "tensors"),
    [
        (chain_of_maps, 0, 1),
        (map_with_a_later_reader, 1, 2),
        (view, 0, 1),
        (parts, 3, 3),
        (read_in_place, 2, 2),
        (stored_transpose, 1, 2),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_peak(build: Callable, step: int, tensors: int) -> None:
    def built(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return R.mean(build(bb, x))  # what is returned is not counted

    assert operator_peak(module(SHAPE, built)["main"]) == (step, tensors * ONE)
