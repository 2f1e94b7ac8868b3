"""Permutations that move the innermost axis."""

from __future__ import annotations

import numpy as np
import pytest
from tvm.relax import op

from tests.tir_schedules.llvm.scheduled_kernel import assert_runs, legalized, machine
from tir_schedules.llvm.transpose import RULE
from tir_schedules.rule import Decline

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((64, 96), (1, 0)),
        ((37, 101), (1, 0)),
        ((1, 5), (1, 0)),
        ((2, 24, 7, 9), (0, 2, 3, 1)),
        ((2, 7, 9, 24), (0, 3, 1, 2)),
        ((3, 4, 5), (2, 1, 0)),
        ((0, 5), (1, 0)),
    ],
)
def test_permutation(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = RNG.standard_normal(shape).astype("float32")
    func = legalized(lambda v: op.permute_dims(v, list(axes)), shape)
    assert_runs(func, RULE, [x], [np.ascontiguousarray(x.transpose(axes))], 0.0)


def test_loops_are_tiled_on_both_sides() -> None:
    func = legalized(lambda v: op.permute_dims(v, [1, 0]), (64, 96))
    scheduled = RULE.apply(func, machine())
    (block,) = scheduled.get_child_blocks(scheduled.get_sblock("root"))
    sizes = [int(scheduled.get(loop).extent) for loop in scheduled.get_loops(block)]
    assert sizes[-2:] == [16, 16]


def test_declines_when_the_innermost_axis_stays() -> None:
    func = legalized(lambda v: op.permute_dims(v, [1, 0, 2]), (3, 4, 8))
    with pytest.raises(Decline, match="innermost axis"):
        RULE.apply(func, machine())
